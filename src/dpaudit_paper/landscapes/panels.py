r"""Gauss-Legendre quadrature on panels, and interpolation between their nodes.

A density is kept by its values at ``n`` Gauss nodes of each panel. On a panel it is analytic (it
has just been convolved with a Gaussian), so the interpolant of degree ``n - 1`` through those
values is accurate to rounding once a panel is not much wider than the noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.polynomial import legendre

from dpaudit._arrays import Array


@dataclass(frozen=True, eq=False)
class Rule:
    """The Gauss-Legendre rule with ``n`` nodes on [-1, 1]."""

    order: int

    @cached_property
    def _gauss(self) -> tuple[Array, Array]:
        nodes, weights = legendre.leggauss(self.order)
        return np.asarray(nodes), np.asarray(weights)

    @property
    def nodes(self) -> Array:
        return self._gauss[0]

    @property
    def weights(self) -> Array:
        return self._gauss[1]

    @cached_property
    def to_coefficients(self) -> Array:
        """Matrix from values at the nodes to Legendre coefficients of the interpolant."""
        degrees = np.arange(self.order)
        basis = legendre.legvander(self.nodes, self.order - 1)
        return np.asarray((degrees + 0.5)[:, None] * basis.T * self.weights)

    def at(self, points: Array) -> Array:
        """Matrix from values at the nodes to values of the interpolant at ``points``."""
        return np.asarray(legendre.legvander(points, self.order - 1) @ self.to_coefficients)


@lru_cache(maxsize=32)
def rule(order: int) -> Rule:
    """The rule with ``order`` nodes; built once."""
    return Rule(order)


@dataclass(frozen=True, eq=False)
class Panels:
    """Disjoint intervals in ascending order, each with the nodes of one rule."""

    left: Array
    right: Array
    rule: Rule

    def __len__(self) -> int:
        return int(self.left.size)

    @cached_property
    def nodes(self) -> Array:
        """Shape (panels, order)."""
        half = (self.right - self.left) / 2
        return ((self.left + self.right) / 2)[:, None] + half[:, None] * self.rule.nodes

    @cached_property
    def weights(self) -> Array:
        """Shape (panels, order)."""
        return ((self.right - self.left) / 2)[:, None] * self.rule.weights

    def masses(self, density: Array) -> Array:
        """Integral over each panel."""
        return np.asarray((density * self.weights).sum(axis=-1))
