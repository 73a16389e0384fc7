"""optax's private aggregation: right for batches of a fixed size and finite gradients."""

import numpy as np
import pytest

from dpaudit.checks import check_step

jax = pytest.importorskip("jax")
contrib = pytest.importorskip("optax.contrib")

SHAPES = ((10, 12), (10,), (3, 10))
SIZES = [int(np.prod(shape)) for shape in SHAPES]


def private_step(gradients, seed):
    parts = np.split(gradients, np.cumsum(SIZES)[:-1], axis=1)
    with np.errstate(over="ignore"):
        tree = [
            jax.numpy.asarray(part.astype(np.float32)).reshape(len(part), *shape)
            for part, shape in zip(parts, SHAPES, strict=True)
        ]
    aggregate = contrib.differentially_private_aggregate(
        l2_norm_clip=0.7, noise_multiplier=1.1, key=jax.random.key(seed)
    )
    parameters = [jax.numpy.zeros(shape) for shape in SHAPES]
    private, _ = aggregate.update(tree, aggregate.init(parameters), parameters)
    return private


def test_optax_satisfies_all_rules_but_two_that_users_can_declare():
    claim = {"clip_norm": 0.7, "noise_multiplier": 1.1, "parameters": sum(SIZES), "runs": 8}
    strict = check_step(private_step, **claim)
    assert [finding.rule.name for finding in strict.broken] == ["noise independent of the data"]
    assert [finding.rule.name for finding in strict.warnings] == ["infinite and NaN gradients"]
    assert strict["noise size"].verdict == "passed"
