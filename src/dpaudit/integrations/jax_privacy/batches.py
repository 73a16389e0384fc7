"""The steps of the canaries, chosen by a batch selection strategy of jax-privacy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpaudit import _validate
from dpaudit.errors import InvalidInput
from dpaudit.trainings.coins import coins_of


def select_batches(
    strategy: Any,
    examples: int,
    canary: Any,
    inserted: ArrayLike,
    *,
    rng: np.random.Generator | int,
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.bool_]]]:
    """The examples of each batch, and which canaries are in it.

    The strategy selects from the examples and the canaries together, so that a canary takes part
    exactly as an example would, with any strategy: Poisson, cyclic Poisson, balls in bins, fixed
    batch sizes, with and without truncation. A canary that is not inserted is removed from its
    batches, which is what add/remove adjacency means.

    Arguments:
        strategy: A ``BatchSelectionStrategy``.
        examples: Number of genuine examples.
        canary: The crafted gradients.
        inserted: One boolean for each canary: whether this training contains it.
        rng: Random generator of the batches, or its seed.

    Example:
        >>> from jax_privacy.batch_selection import CyclicPoissonSampling
        >>> from dpaudit.integrations.jax_privacy import canary_for
        >>> everything = CyclicPoissonSampling(sampling_prob=1.0, iterations=2)
        >>> for indices, present in select_batches(
        ...     everything, 3, canary_for(5, clip_norm=1.0), True, rng=0
        ... ):
        ...     print(sorted(indices.tolist()), present)
        [0, 1, 2] [ True]
        [0, 1, 2] [ True]
    """
    if not hasattr(strategy, "batch_iterator"):
        raise InvalidInput(
            "strategy must be a BatchSelectionStrategy of jax-privacy, got "
            f"{type(strategy).__name__}"
        )
    examples = _validate.integer("examples", examples, at_least=1)
    coins = coins_of(inserted, canary.count)
    generator = np.random.default_rng(rng)
    for batch in strategy.batch_iterator(examples + canary.count, rng=generator):
        indices = np.asarray(batch, dtype=np.int64)
        genuine = (indices >= 0) & (indices < examples)
        present = np.zeros(canary.count, dtype=bool)
        present[indices[indices >= examples] - examples] = True
        yield indices[genuine], present & coins
