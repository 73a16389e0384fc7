"""Audit a training written in JAX: per-example gradients by vmap, DP by optax.

python examples/jax_training.py
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import optax

import dpaudit
from dpaudit.integrations.jax import append_rows, canary_for, claim_of

STEPS, BATCH, CLIP, NOISE, RATE = 20, 64, 1.0, 4.0, 0.1

Parameters = dict[str, jax.Array]

_inputs, _labels, _weight = jax.random.split(jax.random.key(0), 3)
INPUTS = jax.random.normal(_inputs, (STEPS, BATCH, 8))
LABELS = jax.random.bernoulli(_labels, shape=(STEPS, BATCH)).astype(jnp.int32)
INITIAL: Parameters = {"bias": jnp.zeros(2), "weight": 0.1 * jax.random.normal(_weight, (8, 2))}


def loss(parameters: Parameters, features: jax.Array, label: jax.Array) -> jax.Array:
    logits = features @ parameters["weight"] + parameters["bias"]
    return optax.softmax_cross_entropy_with_integer_labels(logits, label)


def private_optimizer(key: jax.Array, noise_multiplier: float = NOISE):
    private = optax.contrib.differentially_private_aggregate(
        l2_norm_clip=CLIP, noise_multiplier=noise_multiplier, key=key
    )
    return optax.chain(private, optax.sgd(RATE))


@functools.partial(jax.jit, static_argnames="canary")
def fit(canary, inserted, noise_multiplier: float, key: jax.Array) -> Parameters:
    """DP-SGD as usual, except for one more row of per-example gradients.

    The row is there in every run, and zero without the canary: optax divides by the number of rows.
    """
    optimizer = private_optimizer(key, noise_multiplier)

    def step(state, batch):
        parameters, optimizer_state = state
        rows = jax.vmap(jax.grad(loss), in_axes=(None, 0, 0))(parameters, *batch)
        rows = append_rows(rows, canary, inserted)  # the only line for the audit
        updates, optimizer_state = optimizer.update(rows, optimizer_state)
        return (optax.apply_updates(parameters, updates), optimizer_state), None

    start = (INITIAL, optimizer.init(INITIAL))
    (parameters, _), _ = jax.lax.scan(step, start, (INPUTS, LABELS))
    return parameters


def train(
    canary: dpaudit.GradientCanary, inserted: bool, seed: int, noise_multiplier: float = NOISE
) -> Parameters:
    return fit(canary, inserted, noise_multiplier, jax.random.key(seed))


def main(runs: int = 400) -> None:
    result = dpaudit.audit(
        train,
        canary=canary_for(INITIAL, clip_norm=CLIP),
        claim=claim_of(private_optimizer(jax.random.key(0)), steps=STEPS),
        initial=INITIAL,
        runs=runs,
    )
    print(result.summary())


if __name__ == "__main__":
    main()
