"""jax-privacy: clipped gradients and privatizers, by hand and by an execution plan."""

import jax
import jax.numpy as jnp
import jax_privacy_training  # examples/
from field.kit import case
from field.parts import BATCH, CLIP, PARAMETERS, SIGMA, check_step, flat
from jax_privacy import clipping, noise_addition

from dpaudit.integrations.jax_privacy import check


def inner_product(theta, row):
    """The gradient of an example is the example."""
    return jnp.vdot(theta, row)


CLIPPED = jax.jit(
    clipping.clipped_grad(inner_product, l2_clip_norm=CLIP, batch_argnums=1, keep_batch_dim=False)
)


def step(gradients, seed):
    total = CLIPPED(jnp.zeros(PARAMETERS), jnp.asarray(gradients, dtype=jnp.float32))
    privatizer = noise_addition.gaussian_privatizer(stddev=SIGMA * CLIP, prng_key=seed)
    noisy, _ = privatizer.update(total, privatizer.init(total))
    return flat([noisy / BATCH])


@case("clipped_grad and gaussian_privatizer", claims="noise multiplier 1, clip norm 1")
def clipped_sum_and_noise():
    return check_step(step)


@case("DP-SGD by an execution plan", claims="noise multiplier 2, clip norm 1")
def plan():
    return check(jax_privacy_training.DP_SGD)


@case("banded matrix factorisation by an execution plan", claims="noise multiplier 2, clip norm 1")
def banded():
    return check(jax_privacy_training.BANDED)
