"""Audit a training written in JAX: per-example gradients by vmap, DP by optax.

python examples/jax_training.py
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

import dpaudit

STEPS, BATCH, CLIP, NOISE, RATE = 20, 64, 1.0, 4.0, 0.1

Parameters = dict[str, jax.Array]

_inputs, _labels, _weight = jax.random.split(jax.random.key(0), 3)
INPUTS = jax.random.normal(_inputs, (STEPS, BATCH, 8))
LABELS = jax.random.bernoulli(_labels, shape=(STEPS, BATCH)).astype(jnp.int32)
INITIAL: Parameters = {"bias": jnp.zeros(2), "weight": 0.1 * jax.random.normal(_weight, (8, 2))}


def loss(parameters: Parameters, features: jax.Array, label: jax.Array) -> jax.Array:
    logits = features @ parameters["weight"] + parameters["bias"]
    return optax.softmax_cross_entropy_with_integer_labels(logits, label)


@jax.jit
def fit(crafted: Parameters, noise_multiplier: float, key: jax.Array) -> Parameters:
    """DP-SGD as one would write it, except for one more row of per-example gradients.

    The row is there in both worlds, and zero in one of them: optax divides by the number of rows,
    which must not tell the worlds apart, and shapes stay the same.
    """
    private = optax.contrib.differentially_private_aggregate(
        l2_norm_clip=CLIP, noise_multiplier=noise_multiplier, key=key
    )
    optimizer = optax.chain(private, optax.sgd(RATE))

    def step(state, batch):
        parameters, optimizer_state = state
        rows = jax.vmap(jax.grad(loss), in_axes=(None, 0, 0))(parameters, *batch)
        rows = jax.tree.map(lambda some, one: jnp.concatenate([some, one[None]]), rows, crafted)
        updates, optimizer_state = optimizer.update(rows, optimizer_state)
        return (optax.apply_updates(parameters, updates), optimizer_state), None

    start = (INITIAL, optimizer.init(INITIAL))
    (parameters, _), _ = jax.lax.scan(step, start, (INPUTS, LABELS))
    return parameters


def train(
    canary: dpaudit.GradientCanary, inserted: bool, seed: int, noise_multiplier: float = NOISE
) -> Parameters:
    _, unravel = ravel_pytree(INITIAL)
    crafted = unravel(jnp.asarray(inserted * canary.gradient, dtype=jnp.float32))
    return fit(crafted, noise_multiplier, jax.random.key(seed))


def main(runs: int = 400) -> None:
    parameters = sum(leaf.size for leaf in jax.tree.leaves(INITIAL))
    result = dpaudit.audit_training(
        train,
        canary=dpaudit.GradientCanary.draw(parameters, clip_norm=CLIP),
        claim=dpaudit.Claim.from_dpsgd(noise_multiplier=NOISE, steps=STEPS),
        initial=INITIAL,
        runs=runs,
    )
    print(result.summary())


if __name__ == "__main__":
    main()
