"""Audit the claim for a user who owns several records, with jax-privacy and with Opacus.

python examples/users.py

Fifty users are canaries of one training. A coin decides for each whether it is in the data set,
with all of its four records; their gradients are alike, which is the worst case.

jax-privacy selects users and clips the gradient of all records of a user together: the claim is
about users. With Opacus, a sampler draws users for the batches, too, but every record is clipped by
itself: four records contribute four times as much as the accountant's claim allows. With a quarter
of the clip norm, and the same noise, they contribute as much as is claimed.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax_privacy import batch_selection, clipped_grad, noise_addition
from opacus import GradSampleModule
from opacus.optimizers import DPOptimizer

import dpaudit
from dpaudit.trainings import rows_model

USERS, RECORDS, PARAMETERS, CLIP, NOISE, STEPS, RATE = 10, 4, 200, 1.0, 2.0, 8, 0.5
CANARIES = dpaudit.GradientCanary.draw(
    PARAMETERS, clip_norm=CLIP, count=50, records=RECORDS, unit="user"
)
CLAIM = dpaudit.Claim.from_dpsgd(noise_multiplier=NOISE, steps=STEPS, sampling_rate=RATE).per(
    "user", records=RECORDS
)


def data_set(canaries, inserted):
    """The records, whose gradients are the records themselves, and the owner of each."""
    others = np.random.default_rng(0).normal(size=(USERS * RECORDS, PARAMETERS))
    features = np.vstack([others, canaries.rows(inserted)]).astype(np.float32)
    return features, np.arange(len(features)) // RECORDS


# --- jax-privacy: users are selected, and clipped as a whole. ------------------------------------

SELECTION = batch_selection.UserSelectionStrategy(
    batch_selection.CyclicPoissonSampling(sampling_prob=RATE, iterations=STEPS), RECORDS
)


def loss(theta, records):
    """The gradient is the sum of the user's records."""
    return (records @ theta).sum()


GRADIENT = jax.jit(clipped_grad(loss, l2_clip_norm=CLIP, keep_batch_dim=False))


def train_jax(canaries, inserted, seed, by_record=False):
    features, owners = data_set(canaries, inserted)
    theta = jnp.zeros(PARAMETERS)
    noise = noise_addition.gaussian_privatizer(stddev=NOISE * CLIP, prng_key=seed)
    state = noise.init(theta)
    for places in SELECTION.batch_iterator(owners, rng=seed):
        padded = np.full((USERS + canaries.count, RECORDS), -1)  # one shape, compiled once
        padded[: len(places)] = places
        if by_record:  # the mistake: batches of users, clipped as if they were records
            padded = padded.reshape(-1, 1)
        total = GRADIENT(theta, features[padded], is_padding_example=padded[:, 0] < 0)
        noisy, state = noise.update(total, state)
        theta = theta - noisy
    return theta


train_jax_by_record = functools.partial(train_jax, by_record=True)


# --- Opacus: users are sampled, records are clipped. ---------------------------------------------


class UserSampler(torch.utils.data.Sampler):
    """Poisson sampling of users: a batch has all records of every user that is drawn."""

    def __init__(self, owners, *, rate, steps, generator):
        self.owners, self.rate, self.steps, self.generator = owners, rate, steps, generator

    def __len__(self):
        return self.steps

    def __iter__(self):
        for _ in range(self.steps):
            drawn = torch.rand(self.owners.max() + 1, generator=self.generator) < self.rate
            yield np.flatnonzero(drawn[self.owners])


def train_opacus(canaries, inserted, seed, clip_norm=CLIP):
    features, owners = data_set(canaries, inserted)
    generator = torch.Generator().manual_seed(seed)
    loader = torch.utils.data.DataLoader(
        range(len(features)),
        batch_sampler=UserSampler(owners, rate=RATE, steps=STEPS, generator=generator),
        collate_fn=torch.as_tensor(features).__getitem__,
    )
    model = GradSampleModule(rows_model({"theta": (PARAMETERS,)}), loss_reduction="sum")
    optimizer = DPOptimizer(
        torch.optim.SGD(model.parameters(), lr=1.0),
        noise_multiplier=NOISE * CLIP / clip_norm,
        max_grad_norm=clip_norm,
        expected_batch_size=1,
        loss_reduction="sum",
        generator=generator,
    )
    for rows in loader:
        optimizer.zero_grad()
        model(rows).sum().backward()
        optimizer.step()
    return model


train_opacus_by_user = functools.partial(train_opacus, clip_norm=CLIP / RECORDS)


# --- The audit. ----------------------------------------------------------------------------------


def audit(train, runs: int = 8, seed: int = 0) -> dpaudit.AuditResult:
    return dpaudit.audit(train, canary=CANARIES, claim=CLAIM, runs=runs, seed=seed)


def main(runs: int = 8) -> None:
    for train in (train_jax, train_opacus, train_opacus_by_user):
        print(f"{audit(train, runs).summary()}\n")


if __name__ == "__main__":
    main()
