"""optax: its transformation for private aggregation."""

import jax
import jax.numpy as jnp
import optax.contrib
from field.kit import case
from field.parts import CLIP, SHAPES, SIGMA, check_step, flat, split


def step(gradients, seed):
    aggregation = optax.contrib.differentially_private_aggregate(CLIP, SIGMA, seed)
    rows = [split(row) for row in gradients]
    tree = {name: jnp.stack([row[place] for row in rows]) for place, name in enumerate(SHAPES)}
    state = aggregation.init({name: jnp.zeros(shape) for name, shape in SHAPES.items()})
    updates, _ = aggregation.update(tree, state)
    return flat(jax.device_get(updates[name]) for name in SHAPES)


@case(
    "differentially_private_aggregate, batches of one size",
    claims="noise multiplier 1, clip norm 1",
)
def batches_of_one_size():
    return check_step(step, fixed_batch_size=True)


@case(
    "differentially_private_aggregate, Poisson batches",
    claims="noise multiplier 1, clip norm 1, for adding a record to a Poisson batch",
    expected="broken",
    cause="optax/contrib/_privacy.py: the noisy sum is divided by the number of rows, so "
    "that one more record changes the scale of all others and of the noise. optax has no "
    "accountant; those for Poisson sampling assume a divisor that does not depend on the data.",
    class_of_bug="an optimizer library: the divisor is the size of the batch that was drawn",
)
def poisson_batches():
    return check_step(step)
