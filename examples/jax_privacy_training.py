"""Audit trainings with jax-privacy 2: DP-SGD while it runs, and banded matrix factorisation.

python examples/jax_privacy_training.py

Check only the clipping and the noise of a configuration, in the folder of this file:
dpaudit check jax_privacy_training:BANDED --noise-multiplier 2
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax_privacy import noise_addition
from jax_privacy.experimental.execution_plan import BandMFExecutionPlanConfig
from jax_privacy.matrix_factorization import toeplitz

import dpaudit
from dpaudit.integrations.jax_privacy import canary_for, claim_of, insert_canary, select_batches
from dpaudit.live.jax import watched

EXAMPLES, FEATURES, CLIP, RATE = 16, 5000, 1.0, 0.1

_inputs, _labels, _weight = jax.random.split(jax.random.key(0), 3)
INPUTS = jax.random.normal(_inputs, (EXAMPLES, FEATURES))
LABELS = jax.random.bernoulli(_labels, shape=(EXAMPLES,)).astype(jnp.int32)
INITIAL = {"bias": jnp.zeros(2), "weight": 0.1 * jax.random.normal(_weight, (FEATURES, 2))}

DP_SGD = BandMFExecutionPlanConfig(
    strategy=np.array([1.0]),
    iterations=40,
    epsilon=None,
    delta=None,
    noise_multiplier=2.0,
    sampling_prob=0.5,
    l2_clip_norm=CLIP,
    rescale_to_unit_norm=False,
)
"""DP-SGD is a matrix factorisation with one band."""

BANDED = BandMFExecutionPlanConfig(
    strategy=np.array([1.0, 0.5]),
    iterations=12,
    epsilon=None,
    delta=None,
    noise_multiplier=2.0,
    l2_clip_norm=CLIP,
    rescale_to_unit_norm=False,
)
"""Two bands: every example is in each second step."""


# --- The user's own script: `clipped_grad` and the batches come from dpaudit in an audit. --------


def loss(parameters, features, label):
    logits = features @ parameters["weight"] + parameters["bias"]
    return optax.softmax_cross_entropy_with_integer_labels(logits, label).mean()


@functools.lru_cache(maxsize=8)
def gradient_of(canary, clipped_grad):
    clipped_grad = insert_canary(canary, clipped_grad=clipped_grad)
    return jax.jit(clipped_grad(loss, batch_argnums=(1, 2)))


def noise_of(config, seed, true_share=1.0):
    """The privatizer of the plan with another seed, and for a bug with less noise."""
    norm = float(np.linalg.norm(config.strategy))
    return noise_addition.matrix_factorization_privatizer(
        toeplitz.inverse_as_streaming_matrix(jnp.asarray(config.strategy)),
        stddev=true_share * config.noise_multiplier * config.l2_clip_norm * norm,
        prng_key=seed,
    )


def fit(gradient, private, batches):
    optimizer = optax.chain(private, optax.sgd(RATE))
    parameters, state = INITIAL, optimizer.init(INITIAL)
    for indices, options in batches:
        padded = np.full(EXAMPLES, -1)  # one shape, so that the step is compiled once
        padded[: len(indices)] = indices
        total = gradient(
            parameters,
            INPUTS[padded],
            LABELS[padded],
            is_padding_example=jnp.asarray(padded < 0),
            **options,
        )
        updates, state = optimizer.update(total, state)
        parameters = optax.apply_updates(parameters, updates)
    return parameters


# --- The audit of the training that is shipped. --------------------------------------------------


def live(*, true_share: float = 1.0, canaries: int = 1000, seed: int = 0) -> dpaudit.AuditResult:
    """One training by DP-SGD; with a share below 1, that much of the noise is added."""
    gradient = jax.jit(DP_SGD.plan.clipped_grad(loss, batch_argnums=(1, 2)))
    batches = DP_SGD.plan.batch_selection_strategy.batch_iterator(EXAMPLES, rng=seed)
    live = dpaudit.live_audit(
        INITIAL,
        clip_norm=CLIP,
        noise_multiplier=DP_SGD.noise_multiplier,
        sampling_rate=DP_SGD.sampling_prob,
        canaries=canaries,
        seed=seed,
    )
    with live:
        private = watched(live, noise_of(DP_SGD, seed, true_share))
        fit(gradient, private, ((indices, {}) for indices in batches))
    return live.result


# --- The audit of the final model, in many trainings. --------------------------------------------


def train(canary, inserted, seed, config=BANDED, true_share=1.0):
    gradient = gradient_of(canary, config.plan.clipped_grad)
    strategy = config.plan.batch_selection_strategy
    batches = select_batches(strategy, EXAMPLES, canary, inserted, rng=seed)
    private = noise_of(config, seed, true_share)
    return fit(gradient, private, ((indices, {"present": present}) for indices, present in batches))


def audit(config=BANDED, *, runs: int = 400, true_share: float = 1.0) -> dpaudit.AuditResult:
    return dpaudit.audit(
        functools.partial(train, config=config, true_share=true_share),
        canary=canary_for(INITIAL, clip_norm=CLIP),
        claim=claim_of(config),
        initial=INITIAL,
        runs=runs,
    )


def main(runs: int = 400) -> None:
    print(live(), live(true_share=0.6), audit(BANDED, runs=runs), sep="\n\n")


if __name__ == "__main__":
    main()
