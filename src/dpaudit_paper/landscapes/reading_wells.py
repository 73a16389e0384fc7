r"""Wells, and a batch after each insertion that reads it: little is lost at any insertion period.

All batches but one of a period are wells of width W: they return the position to the centre of its
cell, which erases the noise of the step. The batch after an insertion reads the residual, rounds it
to m units q (at most M in absolute value) and jumps m cells. The position needs no clock, because
the batches are known. Every drift ends at the centre of a cell, so the cells form a
Markov chain whose steps are independent: both distributions are convolutions.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import final

import numpy as np

from dpaudit import _validate
from dpaudit._arrays import Array
from dpaudit.errors import InvalidInput
from dpaudit_paper.landscapes.pair import DiscretePair, normal_mass
from dpaudit_paper.landscapes.process import BatchLandscapes, Landscape, LandscapeProcess
from dpaudit_paper.landscapes.shapes import PiecewiseLinear, wells

_NEIGHBOURS = 3  # cells on each side that one step's noise can reach


@final
@dataclass(frozen=True, kw_only=True)
class ReadingWells(BatchLandscapes):
    r"""Wells of width W; after each insertion the distance to the centre is read instead.

    It is rounded around one half, which lies between the two means of the residual.

    Arguments:
        period: The insertion period k, at least 2.
        width: Width W of a cell.
        unit: Rounding unit q of the residual.
        most: Largest number of cells M of a jump.

    Example:
        >>> wells = ReadingWells(period=5, width=32.0, unit=2.0, most=4)
        >>> wells.least_reach
        121.5
        >>> pair = wells.after(250, noise_multiplier=4.0)
        >>> round(pair.epsilon(1e-5), 2)
        23.4
    """

    period: int
    width: float
    unit: float
    most: int

    def __post_init__(self) -> None:
        _validate.integer("period", self.period, at_least=2, remedy="use wells for one insertion")
        _validate.positive("width", self.width)
        _validate.positive("unit", self.unit)
        _validate.integer("most", self.most, at_least=1)
        if (self.most - 0.5) * self.unit + 0.5 >= self.width / 2:
            raise InvalidInput(
                f"width must be above {(2 * self.most - 1) * self.unit + 1:g} for {self.most} "
                f"units of {self.unit:g}, got {self.width:g}"
            )

    @cached_property
    def _wells(self) -> PiecewiseLinear:
        return wells(self.width, edge=-self.width / 2)

    @cached_property
    def _reading(self) -> PiecewiseLinear:
        cells = np.arange(-self.most, self.most + 1)
        cuts = 0.5 + self.unit * (cells[1:] - 0.5)
        knots = np.concatenate([[-self.width / 2], np.repeat(cuts, 2), [self.width / 2]])
        moves = self.width * np.repeat(cells, 2) - knots
        return PiecewiseLinear(knots=knots, moves=moves, repeats=True)

    def at(self, step: int) -> Landscape:
        return self._reading if (step - 2) % self.period == 0 else self._wells

    @property
    def least_reach(self) -> float:
        """The longest jump; with a smaller reach the chain does not describe the process."""
        longest = self.most * self.width - (self.most - 0.5) * self.unit + 0.5
        return max(longest, self.width / 2)

    def pairs(self, process: LandscapeProcess) -> Iterator[DiscretePair]:
        """The distributions of the cell after steps 1, 2, …, T, without and with the canary."""
        self._check(process)
        kernels = _kernels(self, process.noise_multiplier)
        states = [np.ones(1), np.ones(1)]
        for step in range(1, process.steps + 1):
            inserted = process.inserts(step)
            convolved = [
                np.convolve(states[b], kernels.kept[b if inserted else 0]) for b in range(2)
            ]
            without, canary = _trimmed(*convolved)
            yield DiscretePair(without, canary)
            moved = [np.convolve(states[b], kernels.read[b]) for b in range(2)]
            states = _trimmed(*(moved if inserted else convolved))

    def _check(self, process: LandscapeProcess) -> None:
        """Raise `InvalidInput` unless the process can carry out the chain."""
        if process.scaling != "dpsgd":
            raise InvalidInput(
                f"scaling must be 'dpsgd' for reading wells, got {process.scaling!r}; in the "
                "paper's scaling a step is too short to reach another cell"
            )
        if process.reach < self.least_reach:
            raise InvalidInput(
                f"batch_size must be at least {math.ceil(self.least_reach)} for these reading "
                f"wells, got {process.batch_size}; the longest jump is {self.least_reach:.1f} C"
            )
        if process.period != self.period:
            raise InvalidInput(
                f"period must be {self.period}, that of these reading wells, got {process.period!r}"
            )

    def after(self, insertions: int, *, noise_multiplier: float) -> DiscretePair:
        """The distributions at the end of the last insertion's period, by repeated squaring."""
        kernels = _kernels(self, noise_multiplier)
        idle = _power(kernels.kept[0], self.period - 1)
        ends = [_power(np.convolve(read, idle), insertions) for read in kernels.read]
        middle = max(len(end) for end in ends) // 2
        without, canary = (np.pad(end, middle - len(end) // 2) for end in ends)
        return DiscretePair(without, canary)


@dataclass(frozen=True, kw_only=True)
class _Kernels:
    """Probabilities of moving by cells: without a read, and with one; index 1 is with a canary."""

    kept: tuple[Array, Array]
    read: tuple[Array, Array]


@lru_cache(maxsize=512)
def _kernels(wells: ReadingWells, sigma: float) -> _Kernels:
    kept, read = [], []
    cells = np.arange(-_NEIGHBOURS, _NEIGHBOURS + 1)
    walls = (np.append(cells, _NEIGHBOURS + 1) - 0.5) * wells.width
    walls[[0, -1]] = -np.inf, np.inf
    units = np.arange(-wells.most, wells.most + 1)
    rounding = np.concatenate([[-np.inf], 0.5 + wells.unit * (units[1:] - 0.5), [np.inf]])
    for shift in (0.0, 1.0):
        masses = normal_mass((walls[:-1] - shift) / sigma, (walls[1:] - shift) / sigma)
        kept.append(np.pad(masses, wells.most))
        jumps = np.zeros(len(cells) + 2 * wells.most)
        for place, cell in enumerate(cells):
            cuts = np.clip(cell * wells.width + rounding, walls[place], walls[place + 1])
            parts = normal_mass((cuts[:-1] - shift) / sigma, (cuts[1:] - shift) / sigma)
            jumps[place : place + len(units)] += parts
        read.append(jumps)
    return _Kernels(kept=(kept[0], kept[1]), read=(read[0], read[1]))


_NEGLIGIBLE = 1e-60  # no event that matters for delta is so rare without or with the canary


def _trimmed(*arrays: Array) -> list[Array]:
    """The arrays without ends in which none has any mass; the middle stays the middle."""
    size = len(arrays[0])
    used = np.flatnonzero(np.maximum.reduce(arrays) > _NEGLIGIBLE)
    margin = min(int(used[0]), size - 1 - int(used[-1]))
    return [array[margin : size - margin] for array in arrays]


def _power(kernel: Array, times: int) -> Array:
    """The kernel convolved with itself; direct sums of positive terms keep far tails accurate."""
    result = np.ones(1)
    while times:
        if times % 2:
            (result,) = _trimmed(np.convolve(result, kernel))
        times //= 2
        if times:
            (kernel,) = _trimmed(np.convolve(kernel, kernel))
    return result


def fitted_reading_wells(process: LandscapeProcess, *, delta: float = 1e-5) -> ReadingWells:
    """The reading wells with the largest epsilon that fit the batch size.

    Arguments:
        process: Noise, batch size, period and steps; its landscape is not used.
        delta: Delta at which epsilon is computed.

    Raises:
        InvalidInput: when the batch size is too small for any.
    """
    if process.period is None or process.period < 2:
        raise InvalidInput(
            f"period must be at least 2 for reading wells, got {process.period!r}; pass --period k"
        )
    return _fit(
        process.noise_multiplier,
        process.reach,
        process.period,
        process.insertions(process.steps),
        delta,
    )


@lru_cache(maxsize=256)
def _fit(sigma: float, reach: float, period: int, insertions: int, delta: float) -> ReadingWells:
    units = sigma * np.array([0.35, 0.45, 0.5, 0.55, 0.65, 0.75, 0.9, 1.1, 1.4])
    widths = sigma * np.array([4.5, 5.0, 5.5, 6.0, 6.5, 7.0, 7.5, 8.0, 8.5, 9.0])
    best, largest = None, -1.0
    for most, unit in itertools.product(range(1, 7), units.tolist()):
        # The widest cells within reach, and narrower ones.
        widest = (reach + (most - 0.5) * unit - 0.5) / most
        tried = [*widths[widths < widest].tolist(), min(widest, 9 * sigma)]
        for width in tried[-3:]:
            if (most - 0.5) * unit + 0.5 >= width / 2 or width < 4 * sigma:
                continue
            wells = ReadingWells(period=period, width=width, unit=unit, most=most)
            pair = wells.after(insertions, noise_multiplier=sigma)
            if (epsilon := pair.one_sided_epsilon(delta)) > largest:
                best, largest = wells, epsilon
    if best is None:
        raise InvalidInput(
            f"batch_size must be larger for reading wells at noise multiplier {sigma:g}, "
            f"got {reach:g}"
        )
    return best
