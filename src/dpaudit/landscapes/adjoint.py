r"""Epsilon after T steps as a function of the drift on a grid of cells, with its gradient.

Forward steps carry both densities; one backward sweep gives the derivative with respect to every
cell at once. With :math:`A = \{p_1 > e^\epsilon p_0\}` at step T, :math:`v_T = 1_A`,
:math:`m_t = p_{1,t} - e^\epsilon p_{0,t}` and :math:`v_t(x) = E[v_{t+1}(x + d(x) + sZ)]`,

.. math::
    \frac{\partial \delta}{\partial d(x)} = \sum_t m_t(x)\, \partial_d E[v_{t+1}(x + d + sZ)],
    \qquad \frac{\partial \epsilon}{\partial d} =
    \frac{\partial \delta / \partial d}{e^\epsilon P_0(A)} .

The same sums give the best drift at x if only that cell changed: `DriftGrid.best_replies`, which is
not caught by the local maxima of the gradient.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import ndtr

from dpaudit._arrays import Array
from dpaudit.landscapes.pair import DiscretePair
from dpaudit.landscapes.panels import Panels, rule
from dpaudit.landscapes.table import Table
from dpaudit.mechanisms.landscape import Landscape, LandscapeProcess

CELL = 0.5  # width of a cell in units of the step noise
NODES = 3  # Gauss nodes in a cell
CANDIDATES = 33  # drifts tried by `best_replies`


@dataclass(frozen=True, eq=False)
class DriftGrid:
    """Forward and backward propagation on a fixed window; mass that leaves it is not followed.

    Arguments:
        process: Noise, reach and steps; its landscape is not used.
        delta: Delta at which epsilon is computed.
        edge: A position that must be an edge between two cells.
    """

    process: LandscapeProcess
    delta: float
    edge: float = 0.5

    @cached_property
    def cells(self) -> Panels:
        """Cells of equal width, each with its own drift."""
        process, width = self.process, CELL * self.process.step_noise
        spread = math.hypot(
            process.noise_multiplier, process.step_noise * math.sqrt(process.steps - 1)
        )
        half = 7.5 * spread + min(4 * process.reach, 12 * process.step_noise)
        first = math.floor((0.5 - half - self.edge) / width)
        last = math.ceil((0.5 + half - self.edge) / width)
        edges = np.asarray(self.edge + width * np.arange(first, last + 1), dtype=np.float64)
        return Panels(edges[:-1], edges[1:], rule(NODES))

    @cached_property
    def _start(self) -> Array:
        """Masses at the nodes and outside after the first step, shape (nodes + 2, 2)."""
        x, w = self.cells.nodes.ravel(), self.cells.weights.ravel()
        low, high, sigma = self.cells.left[0], self.cells.right[-1], self.process.noise_multiplier
        pair = [
            np.concatenate(
                [w * _bell(x - mean, sigma), ndtr([(low - mean) / sigma, (mean - high) / sigma])]
            )
            for mean in (0.0, 1.0)
        ]
        return np.stack(pair, axis=-1)

    def _kernel(self, drift: Array) -> tuple[Array, Array]:
        """Transition probabilities (to, from), and the scaled displacements between nodes."""
        noise = self.process.step_noise
        x, w = self.cells.nodes.ravel(), self.cells.weights.ravel()
        mean = x + np.repeat(drift, NODES)
        z = (x[:, None] - mean) / noise
        matrix = np.zeros((x.size + 2, x.size + 2))
        inner = matrix[: x.size, : x.size]
        np.exp(-0.5 * z * z, out=inner)
        inner *= (w / (noise * math.sqrt(2 * math.pi)))[:, None]
        matrix[-2, :-2] = ndtr((self.cells.left[0] - mean) / noise)
        matrix[-1, :-2] = ndtr((mean - self.cells.right[-1]) / noise)
        matrix[-2, -2] = matrix[-1, -1] = 1.0
        return matrix, z

    def _slope(self, drift: Array, matrix: Array, z: Array) -> Array:
        """Derivative of the transition probabilities with respect to the drift they start with."""
        noise = self.process.step_noise
        mean = self.cells.nodes.ravel() + np.repeat(drift, NODES)
        slope = np.zeros_like(matrix)
        np.multiply(matrix[:-2, :-2], z / noise, out=slope[:-2, :-2])
        slope[-2, :-2] = -_bell(self.cells.left[0] - mean, noise)
        slope[-1, :-2] = _bell(mean - self.cells.right[-1], noise)
        return slope

    def _forward(self, matrix: Array) -> list[Array]:
        states = [self._start]
        for _ in range(self.process.steps - 1):
            states.append(matrix @ states[-1])
        return states

    def _backward(self, matrix: Array, states: list[Array]) -> tuple[float, Array, Array, float]:
        """Epsilon; m_t and v_{t+1} for t = 1, …, T-1 as columns; and e^epsilon P_0(A)."""
        last = states[-1]
        epsilon = self._epsilon(last)
        weight = math.exp(epsilon)
        values = [(last[:, 1] > weight * last[:, 0]).astype(float)]
        scale = weight * float(values[0] @ last[:, 0])
        for _ in range(self.process.steps - 2):
            values.append(values[-1] @ matrix)
        signed = np.stack([s[:, 1] - weight * s[:, 0] for s in states[:-1]], axis=-1)
        return epsilon, signed, np.stack(values[::-1], axis=-1), scale

    def _epsilon(self, state: Array) -> float:
        return DiscretePair(state[:, 0], state[:, 1]).one_sided_epsilon(self.delta)

    def epsilon(self, drift: Array) -> float:
        """Epsilon after step T in the direction "with the canary over without"."""
        return self._epsilon(self._forward(self._kernel(drift)[0])[-1])

    def value_and_gradient(self, drift: Array) -> tuple[float, Array]:
        """Epsilon, and its derivative with respect to each cell's drift."""
        matrix, z = self._kernel(drift)
        epsilon, signed, values, scale = self._backward(matrix, self._forward(matrix))
        if scale <= 0:
            return epsilon, np.zeros_like(drift)
        pull = self._slope(drift, matrix, z).T @ values
        return epsilon, _by_cell((signed * pull).sum(axis=-1)[:-2]) / scale

    def best_replies(self, drift: Array) -> tuple[Array, Array]:
        """For each cell the drift that would help most if only it changed, and by how much."""
        matrix, _ = self._kernel(drift)
        _, signed, values, _ = self._backward(matrix, self._forward(matrix))
        return self._replies(drift, signed, values)

    def batch_epsilon(self, drifts: Array) -> float:
        """`epsilon` for a drift of every step, shape (T - 1, cells)."""
        return self._epsilon(self._batch_states(drifts)[-1])

    def batch_replies(self, drifts: Array) -> Array:
        """From the last step to the first, the best drift of every cell, all others fixed."""
        *states, last = self._batch_states(drifts)
        weight = math.exp(self._epsilon(last))
        values = (last[:, 1] > weight * last[:, 0]).astype(float)
        found = np.empty_like(drifts)
        for step in range(len(drifts) - 1, -1, -1):
            signed = states[step][:, 1] - weight * states[step][:, 0]
            reply, gain = self._replies(drifts[step], signed[:, None], values[:, None])
            found[step] = np.where(gain > 0, reply, drifts[step])
            values = values @ self._kernel(found[step])[0]
        return found

    def _batch_states(self, drifts: Array) -> list[Array]:
        states = [self._start]
        for drift in drifts:
            states.append(self._kernel(drift)[0] @ states[-1])
        return states

    @cached_property
    def _noise(self) -> Array:
        """One step of noise without drift."""
        return self._kernel(np.zeros(len(self.cells)))[0]

    def _replies(self, drift: Array, signed: Array, values: Array) -> tuple[Array, Array]:
        """The best drift of every cell for columns of m_t and v_{t+1}, and its gain in delta."""
        # One step of pure noise smooths every v; a candidate drift then reads it elsewhere.
        smooth = values.T @ self._noise
        x, reach = self.cells.nodes.ravel(), self.process.reach

        def worth(where: Array) -> Array:
            total = np.zeros_like(where)
            for v, m in zip(smooth, signed.T, strict=True):
                total += m[:-2] * np.interp(where, x, v[:-2], left=v[-2], right=v[-1])
            return _by_cell(total)

        candidates = np.linspace(-reach, reach, CANDIDATES)
        gains = np.stack([worth(x + move) for move in candidates])
        choice = gains.argmax(axis=0)
        gain = gains.max(axis=0) - worth(x + np.repeat(drift, NODES))
        return candidates[choice], np.maximum(gain, 0.0)

    def sample(self, landscape: Landscape) -> Array:
        """A landscape's drift in the middle of each cell."""
        middle = (self.cells.left + self.cells.right) / 2
        return landscape.drift(middle, self.process.reach)

    def table(self, drift: Array) -> Table:
        """The cells as a landscape; neighbours of equal drift are merged."""
        push = np.round(drift / self.process.reach, 12)
        begins = np.append(True, np.diff(push) != 0)
        left, push = self.cells.left[begins], push[begins]
        right = np.append(left[1:], self.cells.right[-1])
        return Table(positions=np.stack([left, right], axis=-1).ravel(), push=np.repeat(push, 2))


def _bell(distance: Array, deviation: float) -> Array:
    z = np.asarray(distance) / deviation
    return np.asarray(np.exp(-0.5 * z * z) / (deviation * math.sqrt(2 * math.pi)))


def _by_cell(at_nodes: Array) -> Array:
    return np.asarray(at_nodes.reshape(-1, NODES).sum(axis=1))
