r"""A landscape with a clock: it keeps a running sum through many steps without the canary.

On a flat landscape every step without the canary adds noise. Here the position encodes how long ago
the last insertion was and the sum of (canary + noise) over all insertions. Node :math:`(n, j)`
stands at :math:`(nk + j)W`; j is the phase and n the sum in units of q. In phases without insertion
the drift returns to the node's centre and moves on by W, which erases the step's noise. After an
insertion it reads the residual, rounds it to m units and jumps to node :math:`(n + m, 1)`: a jump
of :math:`mkW`, hence the large batch.

Every step starts at a node's centre exactly, so the nodes form a Markov chain whose transition
probabilities are normal probabilities of intervals. The chain *is* the process, coarse-grained, and
what it reveals is a true lower bound on what the position reveals.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import numpy as np
from scipy.special import ndtri

from dpaudit import _validate
from dpaudit._arrays import Array
from dpaudit.errors import InvalidInput
from dpaudit.landscapes.landscapes import inside
from dpaudit.landscapes.pair import DiscretePair, normal_mass
from dpaudit.mechanisms.landscape import Landscape, LandscapeProcess

_CLOSEST = 7.4  # noise deviations between two nodes of a fitted clock


class ChainLandscape(Landscape):
    """A landscape that sends every position to the centre of some node, wherever it is.

    See also:
        `Clock` and `dpaudit.landscapes.Escalator`.
    """

    phases: int

    @property
    @abstractmethod
    def least_reach(self) -> float:
        """The longest jump; with a smaller reach the chain does not describe the process."""

    @abstractmethod
    def chain(self, process: LandscapeProcess) -> Iterator[DiscretePair]:
        """Node distributions without and with the canary after steps 1, 2, …, T."""

    def pairs(self, process: LandscapeProcess) -> Iterator[DiscretePair]:
        """`chain`, after checking that the process can carry it out."""
        check_chain(process, type(self).__name__, period=self.phases, reach=self.least_reach)
        return self.chain(process)


def check_chain(process: LandscapeProcess, name: str, *, period: int, reach: float) -> None:
    """Raise `InvalidInput` unless the process can carry out a chain.

    Arguments:
        process: The process.
        name: Name of the landscape, for messages.
        period: The insertion period of the landscape.
        reach: Its longest jump.
    """
    if process.scaling != "dpsgd":
        raise InvalidInput(
            f"scaling must be 'dpsgd' for {name}, got {process.scaling!r}; in the paper's scaling "
            "a step is too short to reach another node"
        )
    if process.reach < reach:
        raise InvalidInput(
            f"batch_size must be at least {math.ceil(reach)} for this {name}, got "
            f"{process.batch_size}; its longest jump is {reach:.1f} C"
        )
    if process.period != period:
        raise InvalidInput(f"period must be {period}, that of this {name}, got {process.period!r}")


@final
@dataclass(frozen=True, kw_only=True)
class Clock(ChainLandscape):
    r"""Nodes :math:`(n, j)` at :math:`(nk + j)W`; see the module's first paragraph.

    See also:
        `dpaudit.landscapes.Escalator`, whose reach does not grow with the period.

    Arguments:
        phases: The insertion period k.
        node: Distance W between nodes; about 12 noise deviations.
        unit: The rounding unit q of the running sum.
        most: Largest number of units m that one insertion can add or remove.

    Example:
        >>> clock = Clock(phases=5, node=48.0, unit=1.0, most=16)
        >>> position = np.array([3.3, 48.0 - 2.0, 4 * 48.0 + 5.0])
        >>> (position + clock.drift(position, reach=4000.0)) / 48.0
        array([16.,  2.,  0.])
        >>> math.ceil(clock.least_reach)
        3872
    """

    phases: int
    node: float
    unit: float
    most: int

    def __post_init__(self) -> None:
        _validate.integer("phases", self.phases, at_least=1)
        _validate.positive("node", self.node)
        _validate.positive("unit", self.unit)
        _validate.integer("most", self.most, at_least=1)

    @property
    def least_reach(self) -> float:
        upwards = (self.most * self.phases + 1) * self.node - (self.most - 0.5) * self.unit - 0.5
        return max(upwards, (self.phases - 0.5) * self.node, 1.5 * self.node)

    def drift(self, position: Array, reach: float) -> Array:
        position = np.asarray(position, dtype=float)
        cell = np.floor(position / self.node + 0.5)
        phase = np.mod(cell, self.phases)
        # Residuals are 0 or 1 on average, so they are rounded about 1/2, which treats both alike.
        units = np.floor((position - cell * self.node - 0.5) / self.unit + 0.5)
        units = np.clip(units, -self.most, self.most)
        jump = np.where(phase == self.phases - 1, 1.0 - self.phases, 1.0)
        jump = np.where(phase == 0, units * self.phases + 1 % self.phases, jump)
        return np.clip((cell + jump) * self.node - position, -reach, reach)

    def edges(self, low: float, high: float, reach: float) -> Array:
        cells = np.arange(math.floor(low / self.node) - 1, math.ceil(high / self.node) + 2)
        centres = cells[np.mod(cells, self.phases) == 0] * self.node
        rounding = 0.5 + self.unit * (np.arange(-self.most, self.most) + 0.5)
        rounding = rounding[np.abs(rounding) < self.node / 2]
        return inside(
            np.concatenate([(cells + 0.5) * self.node, np.add.outer(centres, rounding).ravel()]),
            low,
            high,
        )

    def chain(self, process: LandscapeProcess) -> Iterator[DiscretePair]:
        sigma, k = process.noise_multiplier, self.phases
        insertions = process.insertions(process.steps)
        # The range of the sum: 12 deviations beyond the distance between the two means.
        range_ = insertions / 2 + 12 * math.hypot(sigma, self.unit) * math.sqrt(insertions)
        span = math.ceil(range_ / self.unit) + self.most + 2
        states = [np.zeros((2 * span + 1, k)) for _ in range(2)]
        for state in states:
            state[span, 0] = 1.0
        odds = {shift: self._odds(sigma, shift) for shift in (0.0, 1.0)}
        stray = [0.0, 0.0]
        for step in range(1, process.steps + 1):
            shift = 1.0 if process.inserts(step) else 0.0
            seen = []
            for canary in range(2):
                decoded, states[canary], lost = self._step(states[canary], *odds[shift * canary])
                stray[canary] += lost
                seen.append(decoded.sum(axis=1))
            yield DiscretePair(seen[0], seen[1], (stray[0], stray[1]))

    def _odds(self, sigma: float, shift: float) -> tuple[Array, Array]:
        """From a centre: odds of the cells -1, 0, +1, and of each rounding inside them.

        The two neighbours stand for everything beyond them: a node is never skipped, because 1.5
        nodes is 18 deviations at the recommended spacing; what is skipped is merged, not lost.
        """
        walls = np.array([-np.inf, -0.5, 0.5, np.inf]) * self.node
        cells = normal_mass((walls[:-1] - shift) / sigma, (walls[1:] - shift) / sigma)
        units = np.arange(-self.most, self.most + 1)
        rounding = np.concatenate([[-np.inf], 0.5 + self.unit * (units[1:] - 0.5), [np.inf]])
        parts = []
        for offset in (-1, 0, 1):
            cuts = np.clip(rounding + offset * self.node, walls[offset + 1], walls[offset + 2])
            parts.append(normal_mass((cuts[:-1] - shift) / sigma, (cuts[1:] - shift) / sigma))
        return cells, np.stack(parts)

    def _step(self, state: Array, cells: Array, parts: Array) -> tuple[Array, Array, float]:
        """One step of noise, the decoding that the next drift carries out, and what left."""
        n, k = state.shape
        padded = np.concatenate([[0.0], state.ravel(), [0.0]])
        # Arrivals from the node above (offset -1), the node itself, the node below (offset +1).
        arrivals = [padded[2:], padded[1:-1], padded[:-2]]
        decoded = sum(odds * mass for odds, mass in zip(cells, arrivals, strict=True))
        decoded = np.asarray(decoded).reshape(n, k)
        lost = float(cells[0] * state[0, 0] + cells[2] * state[-1, -1])
        following = np.zeros_like(state)
        if k > 1:
            following[:, 2:] = decoded[:, 1:-1]
            following[:, 0] = decoded[:, -1]
        reading = np.stack([mass.reshape(n, k)[:, 0] for mass in arrivals])
        read = parts.T @ reading  # (units, n)
        for row, units in zip(read, range(-self.most, self.most + 1), strict=True):
            if units >= 0:
                following[units:, 1 % k] += row[: n - units]
                lost += float(row[n - units :].sum())
            else:
                following[:units, 1 % k] += row[-units:]
                lost += float(row[:-units].sum())
        return decoded, following, lost


def rounding_unit(levels: int) -> float:
    """The best unit for rounding a standard normal to so many levels, to a percent.

    A fit to the table of uniform quantizers of least distortion in Max (1960): 1.224 for 3 levels,
    0.651 for 7, 0.335 for 16.
    """
    return (3.67 + math.log(levels / 3)) / levels


def fitted_clock(process: LandscapeProcess) -> Clock:
    """The finest clock whose jumps fit the batch size, with one slip in twenty runs.

    A slip (a step that ends in a neighbouring node) loses the time of a run, not its sum: it can
    hide an insertion but cannot add one. So some slips are acceptable, and nodes can be close: if
    three levels fit only then, down to 7.4 noise deviations.

    Raises:
        InvalidInput: when not even three levels fit.
    """
    if process.period is None:
        raise InvalidInput("period must be given for a clock, got None; pass --period k")
    sigma, k = process.noise_multiplier, process.period
    usual = -2 * sigma * float(ndtri(0.025 / process.steps))

    def clock(most: int, node: float) -> Clock:
        unit = sigma * rounding_unit(2 * most + 1)
        return Clock(phases=k, node=node, unit=unit, most=most)

    for node in (usual, *(sigma * np.arange(9.0, _CLOSEST - 0.01, -0.1))):
        fitting = [most for most in range(1, 65) if clock(most, node).least_reach <= process.reach]
        if fitting and node <= usual:
            return clock(max(fitting), float(node))
    raise InvalidInput(
        f"batch_size must be at least {math.ceil(clock(1, _CLOSEST * sigma).least_reach)} for a "
        f"clock of period {k} at noise multiplier {sigma:g}, got {process.batch_size}; "
        "at long periods an escalator needs less"
    )
