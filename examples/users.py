"""Audit the claim for a user who owns several records, with jax-privacy and with Opacus.

python examples/users.py

The user is added for real, with all records. jax-privacy selects users and clips the gradient of
all records of a user together: the claim is about users. With Opacus, a sampler of users fills the
batches, but every record is clipped by itself: four records contribute four times as much as the
accountant's claim allows.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax_privacy import batch_selection, clipped_grad, noise_addition
from opacus import GradSampleModule
from opacus.optimizers import DPOptimizer

import dpaudit
from dpaudit.pipelines import neighbours_of
from dpaudit.trainings import rows_model

USERS, RECORDS, PARAMETERS, NOISE, STEPS = 8, 4, 10, 2.0, 4
CLAIM = dpaudit.Claim.from_dpsgd(noise_multiplier=NOISE, steps=STEPS).per("user")


def neighbours():
    """Records and their owners, without and with the last user, whose gradients are all alike."""
    features = np.random.default_rng(0).normal(size=(USERS * RECORDS, PARAMETERS))
    features[-RECORDS:] = 10 * np.eye(PARAMETERS)[0]
    owners = np.repeat(np.arange(USERS), RECORDS)
    without = features[:-RECORDS], owners[:-RECORDS]
    return neighbours_of((without, (features, owners)), unit="user")


# --- jax-privacy: users are selected, and clipped as a whole. ------------------------------------

SELECTION = batch_selection.UserSelectionStrategy(
    batch_selection.CyclicPoissonSampling(sampling_prob=1.0, iterations=STEPS), RECORDS
)


def loss(theta, rows):
    """The gradient is the sum of the user's rows."""
    return (rows @ theta).sum()


GRADIENT = jax.jit(clipped_grad(loss, l2_clip_norm=1.0, keep_batch_dim=False))


def train_jax(data, seed):
    features, owners = data
    theta = jnp.zeros(PARAMETERS)
    noise = noise_addition.gaussian_privatizer(stddev=NOISE, prng_key=seed)
    state = noise.init(theta)
    for places in SELECTION.batch_iterator(owners, rng=seed):
        noisy, state = noise.update(GRADIENT(theta, jnp.asarray(features)[places]), state)
        theta = theta - noisy
    return theta


# --- Opacus: users are sampled, records are clipped. ---------------------------------------------


def train_opacus(data, seed):
    features, _ = data
    model = GradSampleModule(rows_model({"theta": (PARAMETERS,)}), loss_reduction="sum")
    optimizer = DPOptimizer(
        torch.optim.SGD(model.parameters(), lr=1.0),
        noise_multiplier=NOISE,
        max_grad_norm=1.0,
        expected_batch_size=1,
        loss_reduction="sum",
        generator=torch.Generator().manual_seed(seed),
    )
    for _ in range(STEPS):  # all users are in every batch, with all their records
        optimizer.zero_grad()
        model(torch.as_tensor(features, dtype=torch.float32)).sum().backward()
        optimizer.step()
    return model


# --- The audit. ----------------------------------------------------------------------------------


def score(words, returned):
    """How far the parameters moved against the user's gradient."""
    return -float(dpaudit.trainings.scoring.flat_parameters(returned)[0])


def audit(train, runs: int = 50) -> dpaudit.AuditResult:
    return dpaudit.audit(train, score, neighbours=neighbours(), claim=CLAIM, runs=runs)


def main(runs: int = 50) -> None:
    for train in (train_jax, train_opacus):
        print(f"{audit(train, runs).summary()}\n")


if __name__ == "__main__":
    main()
