r"""The named landscapes. `dpaudit.landscapes.Table` describes any other.

Each gives its push at every position and the positions where the push is not smooth. Lengths are in
units of the clipping norm. Most of them *send* positions to a target as fast as the reach allows,

.. math:: d(\theta) = \mathrm{clip}(\text{target}(\theta) - \theta, -\beta, \beta),

so a step that can reach its target erases the noise of the step before.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np

from dpaudit import _validate
from dpaudit._arrays import Array
from dpaudit.errors import InvalidInput
from dpaudit.mechanisms.landscape import Landscape

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
        `Literal`, the sign as printed; `dpaudit.landscapes.threshold_search` for the best place.

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
@dataclass(frozen=True, kw_only=True)
class Staircase(Landscape):
    r"""Narrow cells around ``at``, each sent to its own well far away.

    In DP-SGD's scaling the noise never shrinks, so wells must stand many noise deviations apart,
    while the first step should be read more finely. One long jump does both: cell i
    (of width ``cell``) goes to well i (of width ``spacing``); above ``at`` upwards, below it
    downwards. The last cell extends to where the wells begin.

    Arguments:
        cell: Width of a cell.
        cells: How many cells on each side of ``at``.
        spacing: Distance between wells.
        landing: Distance from ``at`` at which the wells begin, at least ``cell * cells``.
        at: The middle of the staircase.

    Example:
        >>> stairs = Staircase(cell=0.5, cells=2, spacing=10.0, landing=7.0, at=0.0)
        >>> position = np.array([0.1, 0.6, 6.9, 12.5, 30.0, -0.1])
        >>> position + stairs.drift(position, reach=100.0)
        array([ 12.,  22.,  22.,  12.,  22., -12.])
    """

    cell: float
    cells: int
    spacing: float
    landing: float
    at: float = 0.5

    def __post_init__(self) -> None:
        _validate.positive("cell", self.cell)
        _validate.integer("cells", self.cells, at_least=1)
        _validate.positive("spacing", self.spacing)
        _validate.real("at", self.at)
        if not self.landing >= self.cell * self.cells:
            raise InvalidInput(
                f"landing must be at least cell * cells = {self.cell * self.cells:g}, "
                f"got {self.landing!r}; the wells stand beyond the cells"
            )

    def drift(self, position: Array, reach: float) -> Array:
        position = np.asarray(position, dtype=float)
        away = np.abs(position - self.at)
        side = np.where(position > self.at, 1.0, -1.0)
        stair = np.floor(away / self.cell)
        well = np.floor((away - self.landing) / self.spacing)
        index = np.clip(np.where(away < self.landing, stair, well), 0, self.cells - 1)
        target = self.at + side * (self.landing + (index + 0.5) * self.spacing)
        return np.clip(target - position, -reach, reach)

    def edges(self, low: float, high: float, reach: float) -> Array:
        stairs = self.cell * np.arange(self.cells)
        wells = self.landing + self.spacing * np.arange(self.cells)
        centres = wells + self.spacing / 2
        # A jump longer than the reach saturates: the drift then has a kink where the distance to
        # some centre is exactly the reach. Kinks of other cells' centres are harmless extra cuts.
        away = np.concatenate([stairs, wells, centres - reach, centres + reach])
        away = away[away >= 0]
        return inside(np.concatenate([self.at - away, self.at + away]), low, high)


def inside(edges: Array, low: float, high: float) -> Array:
    """The edges strictly between low and high, ascending, each once."""
    return np.unique(edges[(edges > low) & (edges < high)])
