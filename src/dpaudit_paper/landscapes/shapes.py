r"""Landscapes that are the same at every step.

Each gives its move at every position, and the positions where the move is not smooth. Lengths are
in units of the clipping norm. Most of them *send* positions to a target as fast as the reach
allows,

.. math:: d(\theta) = \mathrm{clip}(\text{target}(\theta) - \theta, -\beta, \beta),

so a step that can reach its target erases the noise of the step before.
"""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np

from dpaudit import _validate
from dpaudit._arrays import Array
from dpaudit._inputs import read_text
from dpaudit.errors import InvalidInput
from dpaudit_paper.landscapes.process import Landscape, LandscapeProcess, decision_point


@final
@dataclass(frozen=True, kw_only=True)
class Constant(Landscape):
    """No move, so that noise accumulates (the paper's Example 1)."""

    def drift(self, position: Array, reach: float) -> Array:
        return np.zeros(np.shape(position))

    def edges(self, low: float, high: float, reach: float) -> Array:
        return np.empty(0)


@final
@dataclass(frozen=True, kw_only=True)
class Threshold(Landscape):
    r"""Away from ``at`` at full speed: the paper's adversary with its sign corrected.

    Arguments:
        at: The threshold h. The default is the paper's C/2, where the sum of the two error rates
            of the first step is smallest.
        away: Whether positions are pushed away from h. The sign as printed in section 6 of the
            paper is the other one: it descends the *convex* loss :math:`BC|\theta - h|` and forgets
            the start.

    Example:
        >>> Threshold().drift(np.array([0.4, 0.6]), reach=1.0)
        array([-1.,  1.])
    """

    at: float = 0.5
    away: bool = True

    def __post_init__(self) -> None:
        _validate.real("at", self.at)

    def drift(self, position: Array, reach: float) -> Array:
        push = reach if self.away else -reach
        return np.where(np.asarray(position) > self.at, push, -push)

    def edges(self, low: float, high: float, reach: float) -> Array:
        return inside(np.array([self.at]), low, high)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class PiecewiseLinear(Landscape):
    """A move that is linear between knots; a move longer than the reach is cut.

    Arguments:
        knots: Positions in ascending order. The move jumps at a knot that is repeated.
        moves: The move at each knot.
        repeats: Whether the first and the last knot are the ends of a cell that repeats. Otherwise
            the move is constant beyond the ends.

    Example:
        >>> ramp = PiecewiseLinear(knots=np.array([0.0, 1.0]), moves=np.array([0.0, 4.0]))
        >>> ramp.drift(np.array([-1.0, 0.25, 7.0]), reach=2.0)
        array([0., 1., 2.])
    """

    knots: Array
    moves: Array
    repeats: bool = False

    def drift(self, position: Array, reach: float) -> Array:
        knots, moves = self.knots, self.moves
        position = np.asarray(position, dtype=float)
        if self.repeats:
            width = knots[-1] - knots[0]
            position = position - width * np.floor((position - knots[0]) / width)
        # Not np.interp: at a repeated knot the interval to the right is used.
        right = np.clip(np.searchsorted(knots, position, side="right"), 1, knots.size - 1)
        length = knots[right] - knots[right - 1]
        share = np.clip((position - knots[right - 1]) / np.where(length > 0, length, 1.0), 0, 1)
        share = np.where(position >= knots[-1], 1.0, share)
        wanted = moves[right - 1] + share * (moves[right] - moves[right - 1])
        return np.asarray(np.clip(wanted, -reach, reach))

    def edges(self, low: float, high: float, reach: float) -> Array:
        knots, moves = self.knots, self.moves
        # Where the move exceeds the reach, inside a piece.
        rise = np.where(np.diff(moves) == 0, np.inf, np.diff(moves))
        shares = (np.array([[-reach], [reach]]) - moves[:-1]) / rise
        cuts = knots[:-1] + shares * np.diff(knots)
        every = np.append(cuts[(shares > 0) & (shares < 1)], knots)
        if self.repeats:
            every = every[:-1]  # the last knot is the first of the next cell
            width = knots[-1] - knots[0]
            first, last = math.floor((low - knots[0]) / width), math.ceil((high - knots[0]) / width)
            every = np.add.outer(width * np.arange(first, last + 1), every).ravel()
        return inside(every, low, high)


def wells(width: float, edge: float = 0.5) -> PiecewiseLinear:
    """Cells of one width, each pulled to its centre: the first step is rounded and then kept.

    Later noise is erased at every step unless it crosses the edge of the cell.

    Arguments:
        width: Width of a cell.
        edge: One of the edges; the others lie at multiples of ``width`` from it.

    Example:
        >>> wells(4.0).drift(np.array([0.6, 2.5, 4.0]), reach=1.0)
        array([ 1.,  0., -1.])
    """
    half = _validate.positive("width", width) / 2
    ends = np.array([edge, edge + width])
    return PiecewiseLinear(knots=ends, moves=np.array([half, -half]), repeats=True)


WELL_WIDTH = 12.0  # in step-noise deviations: half of it is overstepped once in 10^9 steps


def fitted_wells(process: LandscapeProcess, *, delta: float = 1e-5) -> PiecewiseLinear:
    """Wells as narrow as the later noise allows, with an edge at the decision point."""
    span = max(decision_point(process, delta=delta) - 0.5, 1e-3 * process.step_noise)
    return wells(span / max(1, math.floor(span / (WELL_WIDTH * process.step_noise))))


def from_file(path: str | Path, process: LandscapeProcess) -> PiecewiseLinear:
    """A landscape from a CSV file of two columns, ``position,gradient``, in units of C.

    Arguments:
        path: The file, with or without a header. A position may be repeated: a jump.
        process: Its batch size B bounds the gradients, which are sums of B clipped ones.
    """
    try:
        lines = csv.reader(io.StringIO(read_text(Path(path)), newline=""))
        rows = [row for row in lines if row and not row[0].startswith("#")]
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
    positions, gradients = np.array(rows, dtype=float).T
    if (np.diff(positions) < 0).any():
        where = int(np.argmax(np.diff(positions) < 0))
        raise InvalidInput(
            f"positions must be in ascending order, got {positions[where]:g} before "
            f"{positions[where + 1]:g}; sort the rows"
        )
    most = process.batch_size
    if (np.abs(gradients) > most * (1 + 1e-12)).any():
        raise InvalidInput(
            f"gradients must be in [-{most}, {most}] (that is [-BC, BC]), got "
            f"{gradients[np.argmax(np.abs(gradients))]:g}; raise the batch size or clip the table"
        )
    return PiecewiseLinear(knots=positions, moves=-gradients * (process.reach / most))


def inside(edges: Array, low: float, high: float) -> Array:
    """The edges strictly between low and high, ascending, each once."""
    return np.unique(edges[(edges > low) & (edges < high)])


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
