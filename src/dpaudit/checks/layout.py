"""The names and places of parameter tensors in the flat vector that a training returns."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from dpaudit.trainings.parameters import flat_parameters


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
    for name, leaf in _named(returned):
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


def _named(returned: Any) -> Iterator[tuple[str, Any]]:
    if callable(getattr(returned, "named_parameters", None)):
        yield from ((name, one) for name, one in returned.named_parameters() if one.requires_grad)
    elif hasattr(returned, "trainable_variables"):
        variables = enumerate(returned.trainable_variables)
        yield from ((getattr(one, "name", f"variable {place}"), one) for place, one in variables)
    else:
        leaves = list(_nested("", returned))
        jax = sys.modules.get("jax")
        if jax is not None and any(isinstance(leaf, jax.Array) for _, leaf in leaves):
            paths = jax.tree_util.tree_leaves_with_path(returned)
            leaves = [(jax.tree_util.keystr(path), leaf) for path, leaf in paths]
        yield from leaves


def _nested(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        inner: Iterator[tuple[Any, Any]] = iter(value.items())
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray):
        inner = enumerate(value)
    else:
        yield prefix or "parameters", value
        return
    for key, one in inner:
        yield from _nested(f"{prefix}.{key}" if prefix else str(key), one)
