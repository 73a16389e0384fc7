r"""The strongest landscape a bounded adversary can draw, by gradient through the propagation.

The exact epsilon after T steps is a function of the drift on a grid of cells. Forward steps carry
both densities; one backward sweep gives the derivative with respect to every cell at once. With
:math:`A = \{p_1 > e^\epsilon p_0\}` at step T, :math:`v_T = 1_A`, :math:`m_t = p_{1,t} - e^\epsilon
p_{0,t}` and :math:`v_t(x) = E[v_{t+1}(x + d(x) + sZ)]`,

.. math::
    \frac{\partial \delta}{\partial d(x)} = \sum_t m_t(x)\, \partial_d E[v_{t+1}(x + d + sZ)],
    \qquad \frac{\partial \epsilon}{\partial d} =
    \frac{\partial \delta / \partial d}{e^\epsilon P_0(A)} .

The same sums say which drift would be best at x if only that cell changed and all else stayed,
which is how the search leaves the local maxima that a gradient alone gets caught in.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import ndtr

from dpaudit import _validate
from dpaudit.exact.table import Table
from dpaudit.exact.pair import DiscretePair
from dpaudit.exact.panels import Panels, rule
from dpaudit.mechanisms.landscape import Landscape, LandscapeProcess

Array = NDArray[np.float64]

CELL = 0.5  # width of a cell in units of the step noise
NODES = 3  # Gauss nodes in a cell
CANDIDATES = 33  # drifts tried in a sweep


@dataclass(frozen=True, eq=False)
class _Engine:
    """Forward and backward propagation on a fixed window; what leaves it never returns."""

    process: LandscapeProcess
    delta: float

    @cached_property
    def cells(self) -> Panels:
        process, noise = self.process, self.process.step_noise
        spread = math.hypot(process.noise_multiplier, noise * math.sqrt(process.steps - 1))
        half = 7.5 * spread + min(4 * process.reach, 12 * noise)
        count = 2 * math.ceil(half / (CELL * noise))
        edges = 0.5 + CELL * noise * (np.arange(count + 1) - count / 2)
        return Panels(edges[:-1], edges[1:], rule(NODES))

    @cached_property
    def start(self) -> Array:
        """Densities times weights after the first step, and the mass outside: (nodes + 2, 2)."""
        x, sigma = self.cells.nodes.ravel(), self.process.noise_multiplier
        low, high = self.cells.left[0], self.cells.right[-1]
        worlds = []
        for mean in (0.0, 1.0):
            z = (x - mean) / sigma
            inside = np.exp(-z * z / 2) / (sigma * math.sqrt(2 * math.pi)) * self.cells.weights.ravel()
            outside = ndtr([(low - mean) / sigma, (mean - high) / sigma])
            worlds.append(np.concatenate([inside, outside]))
        return np.stack(worlds, axis=-1)

    def kernel(self, drift: Array) -> tuple[Array, Array]:
        """Transition probabilities (to, from) between nodes, and their derivative in the drift."""
        noise = self.process.step_noise
        x, w = self.cells.nodes.ravel(), self.cells.weights.ravel()
        mean = x + np.repeat(drift, NODES)
        z = (x[:, None] - mean) / noise
        density = np.exp(-0.5 * z * z) / (noise * math.sqrt(2 * math.pi))
        low, high = self.cells.left[0], self.cells.right[-1]
        down, up = (low - mean) / noise, (mean - high) / noise
        bell = [np.exp(-0.5 * t * t) / (noise * math.sqrt(2 * math.pi)) for t in (down, up)]
        size = x.size
        matrix, slope = np.zeros((size + 2, size + 2)), np.zeros((size + 2, size + 2))
        matrix[:size, :size] = density * w[:, None]
        slope[:size, :size] = matrix[:size, :size] * (z / noise)
        matrix[size, :size], matrix[size + 1, :size] = ndtr(down), ndtr(up)
        slope[size, :size], slope[size + 1, :size] = -bell[0], bell[1]
        matrix[size, size] = matrix[size + 1, size + 1] = 1.0
        return matrix, slope

    def forward(self, matrix: Array) -> list[Array]:
        states = [self.start]
        for _ in range(self.process.steps - 1):
            states.append(matrix @ states[-1])
        return states

    def epsilon(self, drift: Array) -> float:
        return self._epsilon(self.forward(self.kernel(drift)[0])[-1])

    def _epsilon(self, state: Array) -> float:
        return DiscretePair(state[:, 0], state[:, 1]).one_sided_epsilon(self.delta)

    def backward(self, matrix: Array, states: list[Array]) -> tuple[float, Array, list[Array], float]:
        """Epsilon, the signed masses m_t and the values v_{t+1} stacked over t, and e^eps P_0(A)."""
        last = states[-1]
        epsilon = self._epsilon(last)
        weight = math.exp(epsilon)
        value = (last[:, 1] > weight * last[:, 0]).astype(float)
        scale = weight * float(value @ last[:, 0])
        values = [value]
        for _ in range(self.process.steps - 2):
            values.append(values[-1] @ matrix)
        signed = np.stack([s[:, 1] - weight * s[:, 0] for s in states[:-1]], axis=-1)
        return epsilon, signed, values[::-1], scale

    def value_and_gradient(self, drift: Array) -> tuple[float, Array]:
        matrix, slope = self.kernel(drift)
        epsilon, signed, values, scale = self.backward(matrix, self.forward(matrix))
        if scale <= 0:
            return epsilon, np.zeros_like(drift)
        pull = slope.T @ np.stack(values, axis=-1)
        at_nodes = (signed * pull).sum(axis=-1)[:-2]
        return epsilon, at_nodes.reshape(-1, NODES).sum(axis=1) / scale

    def best_replies(self, drift: Array) -> tuple[float, Array, Array]:
        """For each cell the drift that would help most if only it changed, and by how much."""
        matrix, _ = self.kernel(drift)
        epsilon, signed, values, _ = self.backward(matrix, self.forward(matrix))
        # Smooth each v once by a step of pure noise; a candidate drift then reads it elsewhere.
        still, _ = self.kernel(np.zeros_like(drift))
        smooth = np.stack(values, axis=-1).T @ still
        x = self.cells.nodes.ravel()
        reach = self.process.reach
        candidates = np.linspace(-reach, reach, CANDIDATES)
        gains = np.empty((CANDIDATES, drift.size))
        for i, d in enumerate(candidates):
            reply = self._value_of(x + d, x, smooth, signed)
            gains[i] = reply.reshape(-1, NODES).sum(axis=1)
        now = self._value_of(x + np.repeat(drift, NODES), x, smooth, signed)
        choice = gains.argmax(axis=0)
        gain = gains[choice, np.arange(drift.size)] - now.reshape(-1, NODES).sum(axis=1)
        return epsilon, candidates[choice], np.maximum(gain, 0.0)

    @staticmethod
    def _value_of(where: Array, x: Array, smooth: Array, signed: Array) -> Array:
        total = np.zeros_like(where)
        for t in range(smooth.shape[0]):
            read = np.interp(where, x, smooth[t, :-2], left=smooth[t, -2], right=smooth[t, -1])
            total += signed[:-2, t] * read
        return total

    def sample(self, landscape: Landscape) -> Array:
        """A landscape on the cells."""
        middle = (self.cells.left + self.cells.right) / 2
        return landscape.drift(middle, self.process.reach)

    def table(self, drift: Array) -> Table:
        """Cells as a landscape: constant on each, so every edge stands twice."""
        positions = np.stack([self.cells.left, self.cells.right], axis=-1).ravel()
        return Table(positions=positions, push=np.repeat(drift, 2) / self.process.reach)
