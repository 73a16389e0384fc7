r"""Landscapes that are the same at every step.

Each gives its push at every position and the positions where the push is not smooth. Lengths are in
units of the clipping norm. Most of them *send* positions to a target as fast as the reach allows,

.. math:: d(\theta) = \mathrm{clip}(\text{target}(\theta) - \theta, -\beta, \beta),

so a step that can reach its target erases the noise of the step before.
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np
from numpy.typing import ArrayLike

from dpaudit import _validate
from dpaudit._arrays import Array
from dpaudit.errors import InvalidInput
from dpaudit_paper.landscapes.process import Landscape, LandscapeProcess, decision_point

NO_EDGES: Array = np.empty(0)


@final
@dataclass(frozen=True, kw_only=True)
class Constant(Landscape):
    r"""The same push everywhere, so that noise accumulates (the paper's Example 1).

    Arguments:
        push: The drift as a fraction of the reach, in [-1, 1]; privacy does not depend on it.

    Example:
        >>> Constant().drift(np.array([-3.0, 2.0]), reach=4.0)
        array([0., 0.])
    """

    push: float = 0.0

    def __post_init__(self) -> None:
        _validate.between("push", self.push, -1, 1, closed_low=True, closed_high=True)

    def drift(self, position: Array, reach: float) -> Array:
        return np.full(np.shape(position), self.push * reach)

    def edges(self, low: float, high: float, reach: float) -> Array:
        return NO_EDGES


@final
@dataclass(frozen=True, kw_only=True)
class Threshold(Landscape):
    r"""Away from ``at`` at full speed: the paper's adversary with its sign corrected.

    See also:
        `Literal`, the sign as printed; `dpaudit_paper.landscapes.threshold_search`.

    Arguments:
        at: The threshold h. The default is the paper's C/2, where the sum of the two error rates
            of the first step is smallest.

    Example:
        >>> Threshold().drift(np.array([0.4, 0.6]), reach=1.0)
        array([-1.,  1.])
    """

    at: float = 0.5

    def __post_init__(self) -> None:
        _validate.real("at", self.at)

    def drift(self, position: Array, reach: float) -> Array:
        return np.where(np.asarray(position) > self.at, reach, -reach)

    def edges(self, low: float, high: float, reach: float) -> Array:
        return inside(np.array([self.at]), low, high)


@final
@dataclass(frozen=True, kw_only=True)
class Literal(Landscape):
    r"""Towards ``at``: the sign as printed in section 6 of the paper.

    With :math:`g = +BC` above h and :math:`\theta' = \theta - (g + Z)/B` the process descends the
    *convex* loss :math:`BC|\theta - h|` and forgets its start. It is kept for comparison.

    Example:
        >>> Literal().drift(np.array([0.4, 0.6]), reach=1.0)
        array([ 1., -1.])
    """

    at: float = 0.5

    def __post_init__(self) -> None:
        _validate.real("at", self.at)

    def drift(self, position: Array, reach: float) -> Array:
        return np.where(np.asarray(position) > self.at, -reach, reach)

    def edges(self, low: float, high: float, reach: float) -> Array:
        return inside(np.array([self.at]), low, high)


@final
@dataclass(frozen=True, kw_only=True)
class Wells(Landscape):
    r"""Cells of one width, each pulled to its centre: the first step is rounded and then kept.

    The position after the first step is rounded to a cell; later noise is erased at every step
    unless it crosses the edge of the cell, half a ``width`` away.

    Arguments:
        width: Width of a cell.
        edge: One of the edges; the others lie at multiples of ``width`` from it.

    Example:
        >>> Wells(width=4.0).drift(np.array([0.6, 2.5, 4.0]), reach=1.0)
        array([ 1.,  0., -1.])
    """

    width: float
    edge: float = 0.5

    def __post_init__(self) -> None:
        _validate.positive("width", self.width)
        _validate.real("edge", self.edge)

    def drift(self, position: Array, reach: float) -> Array:
        position = np.asarray(position, dtype=float)
        cell = np.floor((position - self.edge) / self.width)
        centre = self.edge + (cell + 0.5) * self.width
        return np.clip(centre - position, -reach, reach)

    def edges(self, low: float, high: float, reach: float) -> Array:
        first = math.floor((low - self.edge) / self.width)
        last = math.ceil((high - self.edge) / self.width)
        walls = self.edge + self.width * np.arange(first, last + 1)
        kinks = [walls]
        if reach < self.width / 2:  # the centre is out of reach in one step: the pull saturates
            centres = walls + self.width / 2
            kinks += [centres - reach, centres + reach]
        return inside(np.concatenate(kinks), low, high)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Table(Landscape):
    r"""Any landscape, on a grid: linear between grid points, constant beyond the ends.

    A position may be repeated in the grid; the push jumps there.

    Arguments:
        positions: Grid points, in ascending order, in units of the clipping norm.
        push: The drift at each of them as a fraction of the reach, in [-1, 1]. In terms of the
            gradient sum of the paper it is :math:`-g / (BC)`.

    Example:
        >>> ramp = Table(positions=[0.0, 1.0], push=[0.0, 1.0])
        >>> ramp.drift(np.array([-1.0, 0.25, 7.0]), reach=4.0)
        array([0., 1., 4.])
    """

    positions: ArrayLike
    push: ArrayLike

    def __post_init__(self) -> None:
        positions = np.array(self.positions, dtype=float).ravel()
        push = np.array(self.push, dtype=float).ravel()
        if positions.size < 2 or positions.size != push.size:
            raise InvalidInput(
                "positions and push must have the same length of at least 2, "
                f"got {positions.size} and {push.size}"
            )
        if not (np.isfinite(positions).all() and np.isfinite(push).all()):
            raise InvalidInput("positions and push must be finite; remove NaN and infinity")
        if (np.diff(positions) < 0).any():
            where = int(np.argmax(np.diff(positions) < 0))
            raise InvalidInput(
                f"positions must be in ascending order, got {positions[where]:g} before "
                f"{positions[where + 1]:g}; sort the rows"
            )
        if np.abs(push).max() > 1 + 1e-12:
            worst = int(np.argmax(np.abs(push)))
            raise InvalidInput(
                f"push must be in [-1, 1], got {push[worst]:g} at position {positions[worst]:g}; "
                "a landscape is a sum of B gradients clipped to norm C, so it stays in [-BC, BC]"
            )
        for array in (positions, push):
            array.setflags(write=False)
        object.__setattr__(self, "positions", positions)
        object.__setattr__(self, "push", push)

    @classmethod
    def from_gradients(
        cls, positions: ArrayLike, gradients: ArrayLike, *, batch_size: int
    ) -> Table:
        r"""From the paper's :math:`g`: gradient sums in units of C, checked to lie in [-B, B].

        The drift is :math:`-g`, as in gradient descent.
        """
        _validate.integer("batch_size", batch_size, at_least=1)
        gradients = np.asarray(gradients, dtype=float)
        outside = np.abs(gradients) > batch_size * (1 + 1e-12)
        if outside.any():
            worst = int(np.argmax(np.abs(gradients)))
            raise InvalidInput(
                f"gradients must be in [-{batch_size}, {batch_size}] (that is [-BC, BC]), got "
                f"{gradients.ravel()[worst]:g}; raise the batch size or clip the table"
            )
        return cls(positions=positions, push=-gradients / batch_size)

    @classmethod
    def from_file(cls, path: str | Path, *, batch_size: int) -> Table:
        """Read a CSV file of two columns, ``position,gradient``, with or without a header."""
        path = Path(path)
        try:
            with path.open(newline="", encoding="utf-8") as stream:
                rows = [row for row in csv.reader(stream) if row and not row[0].startswith("#")]
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise InvalidInput(
                f"landscape file {str(path)!r} cannot be read ({error}); give a CSV file with "
                "columns position,gradient or one of the named shapes"
            ) from None
        if rows and not _is_number(rows[0][0]):
            rows = rows[1:]
        for number, row in enumerate(rows, start=1):
            if len(row) != 2 or not all(_is_number(cell) for cell in row):
                raise InvalidInput(
                    f"row {number} of {str(path)!r} must be two numbers, position,gradient, "
                    f"got {','.join(row)[:80]!r}"
                )
        if len(rows) < 2:
            raise InvalidInput(f"{str(path)!r} must hold at least 2 rows, got {len(rows)}")
        table = np.array(rows, dtype=float)
        return cls.from_gradients(table[:, 0], table[:, 1], batch_size=batch_size)

    @property
    def _grid(self) -> Array:
        return np.asarray(self.positions, dtype=float)

    def drift(self, position: Array, reach: float) -> Array:
        grid, push = self._grid, np.asarray(self.push, dtype=float)
        position = np.asarray(position, dtype=float)
        # Not np.interp: at a repeated position the interval to the right is used.
        right = np.clip(np.searchsorted(grid, position, side="right"), 1, grid.size - 1)
        width = grid[right] - grid[right - 1]
        share = np.clip((position - grid[right - 1]) / np.where(width > 0, width, 1.0), 0.0, 1.0)
        share = np.where(position >= grid[-1], 1.0, share)
        return np.asarray(reach * (push[right - 1] + share * (push[right] - push[right - 1])))

    def edges(self, low: float, high: float, reach: float) -> Array:
        return inside(self._grid, low, high)


def inside(edges: Array, low: float, high: float) -> Array:
    """The edges strictly between low and high, ascending, each once."""
    return np.unique(edges[(edges > low) & (edges < high)])


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


WELL_WIDTH = 12.0  # in step-noise deviations: half of it is overstepped once in 10^9 steps


def fitted_wells(process: LandscapeProcess, *, delta: float = 1e-5) -> Wells:
    """Wells as narrow as the later noise allows, with an edge at the decision point."""
    span = max(decision_point(process, delta=delta) - 0.5, 1e-3 * process.step_noise)
    return Wells(width=span / max(1, math.floor(span / (WELL_WIDTH * process.step_noise))))
