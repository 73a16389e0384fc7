r"""What two known densities reveal: privacy profile, epsilon, trade-off curve, and the GDP rule.

The pair :math:`(p_0, p_1)` of distributions without and with the canary determines the privacy.
With :math:`L = \log(p_1 / p_0)`,

.. math::
    \delta(\epsilon) = \int (p_1 - e^\epsilon p_0)_+
    = P_1(L > \epsilon) - e^\epsilon P_0(L > \epsilon)

and the same with :math:`p_0` and :math:`p_1` exchanged; differential privacy uses the larger one.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import final

import numpy as np
from numpy.polynomial import legendre
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from dpaudit import _validate
from dpaudit._arrays import Array, Integers
from dpaudit_paper.landscapes.panels import Panels, gauss, interpolation, to_coefficients

SMALLEST_RATE = 1e-12  # beyond it a sum misses part of the tails that densities prune
LARGEST_RATE = 1 - 1e-9  # beyond it a sum is rounded, and its normal quantile is noise
_MESH = np.linspace(-1.0, 1.0, 17)  # subdivides panels in which the ratio crosses e^epsilon
_NODES, _WEIGHTS = gauss(4)


class Pair(ABC):
    """Two known distributions of the released number, with (1) and without (0) the canary."""

    @abstractmethod
    def tails(self, epsilon: float, *, swapped: bool) -> tuple[float, float]:
        r"""Both masses where :math:`p_1 > e^\epsilon p_0` (or with both exchanged).

        The first number belongs to the distribution in the role of :math:`p_1`.
        """

    @abstractmethod
    def error_rates(self) -> tuple[Array, Array]:
        """False-positive and false-negative rate of "inserted if theta > h", for many h."""

    @abstractmethod
    def atoms(self) -> tuple[Array, Array]:
        """Both masses on a fine partition of the line."""

    def delta(self, epsilon: float) -> float:
        r"""The smallest delta for which the pair is (epsilon, delta)-indistinguishable."""
        epsilon = _validate.real("epsilon", epsilon)
        return max(self._delta(epsilon, swapped=False), self._delta(epsilon, swapped=True))

    def epsilon(self, delta: float) -> float:
        r"""The smallest epsilon for which the pair is (epsilon, delta)-indistinguishable."""
        delta = _validate.between("delta", delta, 0, 1)
        epsilon = self.one_sided_epsilon(delta)
        if self._delta(epsilon, swapped=True) <= delta:  # the other direction asks for less
            return epsilon
        return max(epsilon, self.one_sided_epsilon(delta, swapped=True))

    def gdp_rule_mu(self) -> float:
        r"""What the paper's rule reports with infinitely many runs: the largest
        :math:`\Phi^{-1}(1-\alpha) - \Phi^{-1}(\beta)` over thresholds on the released number.

        Turning it into an epsilon assumes that the trade-off curve is a Gaussian's.
        """
        alpha, beta = self.error_rates()
        usable = (np.minimum(alpha, beta) > 0) & (np.maximum(alpha, beta) < LARGEST_RATE)
        if not usable.any():
            return 0.0
        mu = -ndtri(alpha[usable]) - ndtri(beta[usable])
        return max(0.0, float(mu.max()))

    def tradeoff(self) -> tuple[Array, Array]:
        r"""The exact trade-off curve: smallest false-negative rate at each false-positive rate.

        By Neyman and Pearson: reject in the order of the likelihood ratio.
        """
        p0, p1 = self.atoms()
        with np.errstate(divide="ignore"):
            ratio = np.log(p1) - np.log(p0)
        order = np.argsort(-ratio, kind="stable")
        alpha = np.concatenate([[0.0], np.cumsum(p0[order])])
        # Summed from the far end, so that small false-negative rates keep their digits.
        beta = np.concatenate([np.cumsum(p1[order][::-1])[::-1], [0.0]])
        return np.minimum(alpha, 1.0), np.minimum(beta, 1.0)

    def _delta(self, epsilon: float, *, swapped: bool) -> float:
        mine, other = self.tails(epsilon, swapped=swapped)
        if other <= 0:  # also keeps infinity times zero away
            return mine
        return min(1.0, max(0.0, mine - math.exp(min(epsilon, 700.0)) * other))

    def one_sided_epsilon(self, delta: float, *, swapped: bool = False) -> float:
        r"""Epsilon of one direction: with the canary over without, unless ``swapped``.

        Newton's method in :math:`u = e^\epsilon`, in which delta is convex and decreasing.

        The slope is minus the other mass, so a step is exact for the current region, and from the
        left of the root Newton does not overshoot.
        """
        epsilon = 0.0
        for _ in range(100):
            mine, other = self.tails(epsilon, swapped=swapped)
            if mine <= delta:  # only at 0, or at the root but for rounding
                return epsilon
            if other <= 0:  # more than delta has probability 0 in the other
                return math.inf
            following = max(0.0, math.log((mine - delta) / other))
            if abs(following - epsilon) <= 1e-11 * max(1.0, epsilon):
                return following
            epsilon = following
        return epsilon


@final
@dataclass(frozen=True, eq=False)
class DensityPair(Pair):
    r"""A pair of smooth densities, by their values at the Gauss nodes of common panels.

    Arguments:
        panels: The panels, in ascending order.
        without: :math:`p_0` at the nodes, shape (panels, order).
        canary: :math:`p_1` at the nodes.
    """

    panels: Panels
    without: Array
    canary: Array

    @cached_property
    def _logs(self) -> tuple[Array, Array]:
        # The floor stands for panels that were pruned, which happens far above it.
        return np.log(np.maximum(self.without, 1e-300)), np.log(np.maximum(self.canary, 1e-300))

    def log_ratio(self) -> Array:
        """The log-likelihood ratio of the canary at the nodes."""
        return self._logs[1] - self._logs[0]

    @cached_property
    def _masses(self) -> tuple[Array, Array]:
        return self.panels.masses(self.without), self.panels.masses(self.canary)

    @cached_property
    def _ratio_range(self) -> tuple[Array, Array]:
        """Smallest and largest log-likelihood ratio on each panel, ends included."""
        ratio = self.log_ratio()
        ends = ratio @ _mesh_matrix(self.panels.order)[[0, -1]].T
        low = np.minimum(ratio.min(axis=1), ends.min(axis=1))
        high = np.maximum(ratio.max(axis=1), ends.max(axis=1))
        return low, high

    def tails(self, epsilon: float, *, swapped: bool) -> tuple[float, float]:
        low, high = self._ratio_range
        if swapped:
            low, high = -high, -low
        without, canary = self._masses
        whole = low > epsilon
        in_0, in_1 = float(without[whole].sum()), float(canary[whole].sum())
        mixed = np.flatnonzero(~whole & (high > epsilon))
        if mixed.size:
            part_0, part_1 = self._where_above(mixed, epsilon, -1.0 if swapped else 1.0)
            in_0, in_1 = in_0 + part_0, in_1 + part_1
        return (in_0, in_1) if swapped else (in_1, in_0)

    def _where_above(self, mixed: Integers, epsilon: float, sign: float) -> tuple[float, float]:
        """Both masses inside panels where the log ratio crosses epsilon, on its upper side.

        Roots are found on a fine mesh by linear interpolation. A root that is off by r changes
        delta by r squared only, because the integrand of delta vanishes there.
        """
        order = self.panels.order
        log_0, log_1 = self._logs[0][mixed], self._logs[1][mixed]
        on_mesh = (sign * (log_1 - log_0)) @ _mesh_matrix(order).T - epsilon
        left, right = on_mesh[:, :-1], on_mesh[:, 1:]
        panel, cell = np.nonzero((left > 0) | (right > 0))
        left, right = left[panel, cell], right[panel, cell]
        begin, end = _MESH[cell], _MESH[cell + 1]
        crosses = (left > 0) != (right > 0)
        root = begin + (end - begin) * left / np.where(crosses, left - right, 1.0)
        begin = np.where(crosses & (left <= 0), root, begin)
        end = np.where(crosses & (left > 0), root, end)
        points = ((begin + end) / 2)[:, None] + ((end - begin) / 2)[:, None] * _NODES
        half = ((self.panels.right - self.panels.left) / 2)[mixed][panel]
        weights = (half * (end - begin) / 2)[:, None] * _WEIGHTS
        # Logarithms are interpolated, not densities: over one panel a tail falls by orders of
        # magnitude, which a polynomial follows badly, while its logarithm is nearly a parabola.
        basis = legendre.legvander(points, order - 1)
        coefficients = np.stack([log_0, log_1]) @ to_coefficients(order).T
        logs = basis @ coefficients[:, panel].transpose(1, 2, 0)  # (piece, point, without or with)
        in_0, in_1 = np.einsum("ijw,ij->w", np.exp(logs), weights)
        return float(in_0), float(in_1)

    def error_rates(self) -> tuple[Array, Array]:
        without, canary = self._masses
        # alpha: mass without the canary above; beta: mass with it below; summed from the far end,
        # so that small rates keep their digits. Thresholds at the left edges of the panels.
        alpha = np.cumsum(without[::-1])[::-1]
        beta = np.cumsum(canary) - canary
        with np.errstate(invalid="ignore"):
            mu = -ndtri(np.minimum(alpha, 1.0)) - ndtri(np.minimum(beta, 1.0))
        usable = np.minimum(alpha, beta) > SMALLEST_RATE
        if not usable.any():
            return alpha[usable], beta[usable]
        # Between two edges the rates are known from the interpolated logarithms: refine
        # around the best edge only, which is enough for the GDP rule.
        best = int(np.argmax(np.where(usable, mu, -np.inf)))
        near = np.arange(max(0, best - 2), min(len(self.panels), best + 2))
        in_0, in_1 = self._cell_masses(near)
        above = np.append(alpha, 0.0)[near + 1]
        alpha_near = above[:, None] + np.cumsum(in_0[:, ::-1], axis=1)[:, ::-1]
        beta_near = beta[near, None] + np.cumsum(in_1, axis=1) - in_1
        alpha = np.append(alpha[usable], alpha_near.ravel())
        return alpha, np.append(beta[usable], beta_near.ravel())

    def atoms(self) -> tuple[Array, Array]:
        without, canary = self._cell_masses(np.arange(len(self.panels)))
        return without.ravel(), canary.ravel()

    def _cell_masses(self, panels: Integers) -> tuple[Array, Array]:
        """Both masses in every cell of the mesh of these panels, from the interpolated logs."""
        half = ((self.panels.right - self.panels.left) / 2)[panels, None, None]
        cell = (_MESH[1] - _MESH[0]) / 2
        matrix = _cell_matrix(self.panels.order)
        logs = np.einsum("wpn,cqn->wpcq", np.stack(self._logs)[:, panels], matrix)
        without, canary = (np.exp(logs) * (half * cell * _WEIGHTS)).sum(axis=-1)
        return without, canary


@final
@dataclass(frozen=True, eq=False)
class DiscretePair(Pair):
    """A pair of distributions on the same ordered points.

    Arguments:
        without: Masses without the canary.
        canary: Masses with the canary.
    """

    without: Array
    canary: Array

    @cached_property
    def _log_ratio(self) -> Array:
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.log(self.canary) - np.log(self.without)
        return np.where(np.isnan(ratio), 0.0, ratio)

    def tails(self, epsilon: float, *, swapped: bool) -> tuple[float, float]:
        chosen = (-self._log_ratio if swapped else self._log_ratio) > epsilon
        in_0, in_1 = float(self.without[chosen].sum()), float(self.canary[chosen].sum())
        return (in_0, in_1) if swapped else (in_1, in_0)

    def error_rates(self) -> tuple[Array, Array]:
        alpha = np.cumsum(self.without[::-1])[::-1]
        beta = np.cumsum(self.canary) - self.canary
        return alpha, beta

    def atoms(self) -> tuple[Array, Array]:
        return self.without, self.canary


def normal_mass(low: ArrayLike, high: ArrayLike) -> Array:
    """P(low < Z < high), with full relative accuracy in both tails."""
    low, high = np.broadcast_arrays(np.asarray(low, dtype=float), np.asarray(high, dtype=float))
    # In the upper tail both values of ndtr are nearly 1: mirror the interval to the lower one.
    mirrored = low > 0
    upper = ndtr(np.where(mirrored, -low, high))
    return np.asarray(np.maximum(upper - ndtr(np.where(mirrored, -high, low)), 0.0))


@lru_cache(maxsize=32)
def _mesh_matrix(order: int) -> Array:
    """Interpolation from a panel's nodes to its mesh."""
    return interpolation(order, _MESH)


@lru_cache(maxsize=32)
def _cell_matrix(order: int) -> Array:
    """Interpolation from a panel's nodes to the fine nodes of each cell of its mesh."""
    half = (_MESH[1] - _MESH[0]) / 2
    return interpolation(order, (_MESH[:-1, None] + half) + half * _NODES)
