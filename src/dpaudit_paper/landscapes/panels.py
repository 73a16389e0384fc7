r"""Gauss-Legendre quadrature on panels, and interpolation between their nodes.

A density is kept by its values at ``order`` Gauss nodes of each panel. On a panel it is analytic
(it has just been convolved with a Gaussian), so the interpolant through those values is accurate to
rounding once a panel is not much wider than the noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.polynomial import legendre

from dpaudit._arrays import Array


@dataclass(frozen=True, eq=False)
class Panels:
    """Disjoint intervals in ascending order, each with ``order`` Gauss nodes."""

    left: Array
    right: Array
    order: int

    def __len__(self) -> int:
        return int(self.left.size)

    @cached_property
    def nodes(self) -> Array:
        """Shape (panels, order)."""
        half = (self.right - self.left) / 2
        return ((self.left + self.right) / 2)[:, None] + half[:, None] * gauss(self.order)[0]

    @cached_property
    def weights(self) -> Array:
        """Shape (panels, order)."""
        return ((self.right - self.left) / 2)[:, None] * gauss(self.order)[1]

    def masses(self, density: Array) -> Array:
        """Integral over each panel."""
        return np.asarray((density * self.weights).sum(axis=-1))


@lru_cache(maxsize=32)
def gauss(order: int) -> tuple[Array, Array]:
    """Nodes and weights of the Gauss-Legendre rule on [-1, 1]."""
    nodes, weights = legendre.leggauss(order)
    return np.asarray(nodes), np.asarray(weights)


@lru_cache(maxsize=32)
def to_coefficients(order: int) -> Array:
    """Matrix from values at the nodes to Legendre coefficients of the interpolant."""
    nodes, weights = gauss(order)
    basis = legendre.legvander(nodes, order - 1)
    return np.asarray((np.arange(order) + 0.5)[:, None] * basis.T * weights)


def interpolation(order: int, points: Array) -> Array:
    """Matrix from values at the nodes to values of the interpolant at ``points``."""
    return np.asarray(legendre.legvander(points, order - 1) @ to_coefficients(order))
