"""The names and places of parameter tensors in the flat vector that a training returns."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from dpaudit.trainings.parameters import flat_parameters, named_leaves


@final
@dataclass(frozen=True, kw_only=True)
class Tensor:
    """One parameter tensor in a flat vector.

    Arguments:
        name: Its name in the user's code, or its range of indices.
        start: Index of its first entry.
        stop: Index after its last entry.
    """

    name: str
    start: int
    stop: int

    @property
    def size(self) -> int:
        """Number of entries."""
        return self.stop - self.start


def tensors_of(returned: Any, blocks: int = 8) -> tuple[Tensor, ...]:
    """The tensors of what a training returned, in the order of `flat_parameters`.

    A single flat array has no names: it is divided into ``blocks`` equal ranges.

    Example:
        >>> [tensor.name for tensor in tensors_of({"weight": np.eye(3), "bias": np.zeros(3)})]
        ['weight', 'bias']
        >>> tensors_of(np.zeros(6), blocks=2)[1]
        Tensor(name='parameters 3 to 5', start=3, stop=6)
    """
    found, start = [], 0
    for name, leaf in named_leaves(returned):
        size = len(flat_parameters(leaf))
        found.append(Tensor(name=name, start=start, stop=start + size))
        start += size
    if len(found) > 1:
        return tuple(found)
    edges = np.unique(np.linspace(0, start, min(blocks, start) + 1).astype(int))
    return tuple(
        Tensor(name=f"parameters {low:,} to {high - 1:,}", start=int(low), stop=int(high))
        for low, high in itertools.pairwise(edges)
    )
