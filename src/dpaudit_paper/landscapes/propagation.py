r"""Densities with and without the canary, propagated through drift and noise to rounding error.

One step of the process is

.. math:: p_{t+1}(y) = \int p_t(x)\, \varphi_s(y - x - d(x))\, dx .

The drift is applied under the integral sign, so that it creates neither folds nor atoms. On panels
whose edges include every jump of :math:`d` the integrand is smooth, so Gauss-Legendre converges
like a power series. All terms are positive: nothing cancels, and far tails keep the *relative*
accuracy that small delta needs.

The grid adapts: panels exist only where either density has mass and a little beyond, and they are
about as wide as the step noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import numpy as np
from scipy.sparse import bsr_matrix
from scipy.special import log_ndtr, ndtri

from dpaudit._arrays import Array, Integers
from dpaudit.errors import NumericalError
from dpaudit_paper.landscapes.pair import DensityPair
from dpaudit_paper.landscapes.panels import Panels
from dpaudit_paper.landscapes.process import Landscape, LandscapeProcess, accountant_mu

LONGEST_TAIL = 36.0  # the normal density is 1e-282 there
MOST_PANELS = 30_000  # about 2 GB while kernels are built: beyond this, raise an error
_MARGIN = 8  # cells of a new grid beyond those that mass reaches


@dataclass(frozen=True, kw_only=True)
class Resolution:
    """The resolution of the computation; results are checked by comparing two resolutions.

    Arguments:
        order: Gauss nodes on a panel.
        width: Width of a panel in units of the step noise.
        negligible: Probability, as a share of delta, that no event of interest falls below.
        mass_tolerance: Largest deviation of a density's total mass from 1 over the whole run.
    """

    order: int = 10
    width: float = 1.25
    negligible: float = 1e-12
    mass_tolerance: float = 1e-12


@dataclass(frozen=True, eq=False)
class _Grid:
    """Cells of a lattice, cut into panels at the edges of the drift of a landscape.

    Arguments:
        cells: The numbers of the cells, in ascending order.
        first: The first panel of each cell; last the number of all panels.
        panels: The panels, from left to right.
        landed: Where the drift sends the nodes of the panels.
    """

    cells: Integers
    first: Integers
    panels: Panels
    landed: Array

    @classmethod
    def over(
        cls, cells: Integers, landscape: Landscape, *, reach: float, width: float, order: int
    ) -> _Grid:
        """A grid over some cells."""
        if cells.size > MOST_PANELS:
            raise NumericalError(
                f"the exact densities need more than {MOST_PANELS:,} panels of {width:.2g} C; "
                "use fewer steps or a smaller batch size, or simulate"
            )
        lefts, rights = [], []
        for run in np.split(cells, np.flatnonzero(np.diff(cells) > 1) + 1):
            lattice = width * np.arange(run[0], run[-1] + 2)
            cuts = landscape.edges(float(lattice[0]), float(lattice[-1]), reach)
            edges = np.union1d(lattice, cuts)
            # Slivers from rounding (a cut on a lattice point) would be panels of width 1e-16.
            edges = edges[np.append(True, np.diff(edges) > 1e-9 * width)]
            edges[-1] = lattice[-1]
            lefts.append(edges[:-1])
            rights.append(edges[1:])
        panels = Panels(np.concatenate(lefts), np.concatenate(rights), order)
        owner = np.floor((panels.left + panels.right) / 2 / width)
        first = np.append(np.searchsorted(owner, cells), owner.size)
        return cls(cells, first, panels, panels.nodes + landscape.drift(panels.nodes, reach))

    def holds(self, low: Integers, high: Integers) -> bool:
        """Whether it has all cells from each ``low`` to its ``high``."""
        last = np.searchsorted(self.cells, low) + high - low
        return bool((last < self.cells.size).all() and (self.cells[last] == high).all())


def densities(
    process: LandscapeProcess, *, delta: float = 1e-5, resolution: Resolution | None = None
) -> Iterator[DensityPair]:
    r"""The densities without and with the canary after steps 1, 2, …, T.

    Tails are cut where they cannot change delta: an event that matters for delta has probability
    above :math:`\nu\delta` with or without the canary (``resolution.negligible``), hence, by the
    accountant's trade-off curve, at least :math:`\Phi(\Phi^{-1}(\nu\delta) - \mu)` in the other.

    Arguments:
        process: The process to propagate.
        delta: The smallest delta at which the result will be read.
        resolution: Grid and tails.

    Raises:
        NumericalError: when a total mass deviates from 1 by more than the tolerance.

    Example:
        >>> from dpaudit_paper.landscapes import Threshold
        >>> process = LandscapeProcess(
        ...     noise_multiplier=1, batch_size=16, steps=25, landscape=Threshold()
        ... )
        >>> *_, last = densities(process)
        >>> round(last.epsilon(1e-5), 4)
        4.1562
    """
    resolution = Resolution() if resolution is None else resolution
    propagation = _Propagation(process, resolution, _longest_tail(process, delta, resolution))
    for step in range(1, process.steps + 1):
        if step > 1:
            propagation.move(step)
        propagation.cut(step)
        yield propagation.pair()


def _longest_tail(process: LandscapeProcess, delta: float, resolution: Resolution) -> float:
    """Number of standard deviations beyond which nothing can change delta."""
    mu = accountant_mu(process, process.steps)
    tail = -float(ndtri(max(min(delta, 1e-5) * resolution.negligible, 1e-300))) + mu
    if tail > LONGEST_TAIL:
        raise NumericalError(
            f"the accountant's mu of {mu:.3g} and delta={delta:g} need tails of {tail:.1f} "
            f"deviations, more than the {LONGEST_TAIL:g} that floating-point numbers hold; raise "
            "the noise multiplier or delta"
        )
    return tail


@final
class _Propagation:
    """Both densities after a step, on the grid of the next step's landscape.

    There is one grid for each landscape and one kernel for each pair of grids, so a landscape that
    does not change has one of each. A grid that mass leaves is made anew, with its kernels.
    """

    def __init__(self, process: LandscapeProcess, resolution: Resolution, tail: float) -> None:
        self._process, self._resolution, self._tail = process, resolution, tail
        self._least = math.exp(float(log_ndtr(-tail)))
        self._width = resolution.width * process.step_noise
        self._grids: dict[Landscape, _Grid] = {}
        self._kernels: dict[tuple[_Grid, _Grid, float], bsr_matrix] = {}
        sigma = process.noise_multiplier
        ends = np.array([-tail * sigma]), np.array([1 + tail * sigma])
        self._grid = self._grid_after(1, *(np.floor(end / self._width) for end in ends))
        nodes = self._grid.panels.nodes
        densities = _normal(nodes / sigma), _normal((nodes - 1) / sigma)
        self._both = np.stack(densities, axis=-1) / sigma
        self._active = np.ones(len(nodes), dtype=bool)

    def move(self, step: int) -> None:
        """One step of the process."""
        source, spread = self._grid, self._tail * self._process.step_noise
        shift = self._process.step_ratio if self._process.inserts(step) else 0.0
        low = np.floor((source.landed.min(axis=1) - spread) / self._width)
        high = np.floor((source.landed.max(axis=1) + shift + spread) / self._width)
        self._grid = self._grid_after(step, low[self._active], high[self._active])
        flat = self._both.reshape(-1, 2)
        moved = self._kernel(source, low, high, 0.0) @ flat
        if shift:
            moved[:, 1] = self._kernel(source, low, high, shift) @ flat[:, 1]
        self._both = moved.reshape(-1, *self._both.shape[1:])

    def cut(self, step: int) -> None:
        """Cut the tails that cannot change delta, and check that no mass is lost."""
        mass = np.einsum("pnw,pn->pw", self._both, self._grid.panels.weights)
        active = mass.max(axis=1) > self._least
        lost, allowed = np.abs(mass[active].sum(axis=0) - 1).max(), self._resolution.mass_tolerance
        if lost > allowed:
            raise NumericalError(
                f"probability mass drifted by {lost:.1e} at step {step}, more than "
                f"{allowed:g}; the landscape varies too fast for the panels"
            )
        self._both[~active] = 0.0
        self._active = active

    def pair(self) -> DensityPair:
        """Both densities, from left to right."""
        panels, active = self._grid.panels, self._active
        left, right = panels.left[active], panels.right[active]
        without, canary = np.ascontiguousarray(self._both[active].transpose(2, 0, 1))
        return DensityPair(Panels(left, right, panels.order), without, canary)

    def _grid_after(self, step: int, low: Array, high: Array) -> _Grid:
        """The grid of the landscape that follows a step; it has the cells from low to high."""
        process, first, last = self._process, low.astype(np.int64), high.astype(np.int64)
        landscape = process.landscape_at(min(step + 1, process.steps))
        grid = self._grids.get(landscape)
        if grid is None or not grid.holds(first, last):
            self._kernels = {key: value for key, value in self._kernels.items() if grid not in key}
            cells = _ranges(first - _MARGIN, last - first + 1 + 2 * _MARGIN)[1]
            self._grids[landscape] = grid = _Grid.over(
                np.unique(cells),
                landscape,
                reach=process.reach,
                width=self._width,
                order=self._resolution.order,
            )
        return grid

    def _kernel(self, source: _Grid, low: Array, high: Array, shift: float) -> bsr_matrix:
        """The transition x -> x + drift + shift + noise: blocks of (target node, source node)."""
        target, noise = self._grid, self._process.step_noise
        key = source, target, shift
        if key not in self._kernels:
            column, cell = _ranges(low.astype(np.int64), (high - low).astype(np.int64) + 1)
            place = np.minimum(np.searchsorted(target.cells, cell), target.cells.size - 1)
            there = target.cells[place] == cell  # inactive panels may reach others
            column, place = column[there], place[there]
            pair, row = _ranges(target.first[place], np.diff(target.first)[place])
            by_row = np.argsort(row, kind="stable")
            column, row = column[pair][by_row], row[by_row]
            z = target.panels.nodes[row][:, :, None] - source.landed[column][:, None, :]
            z = (z - shift) / noise
            z *= z
            z *= -0.5
            np.exp(z, out=z)
            # The source's quadrature weights are folded in.
            weights = source.panels.weights / (noise * math.sqrt(2 * math.pi))
            z *= weights[column][:, None, :]
            start = np.searchsorted(row, np.arange(len(target.panels) + 1))
            shape = target.panels.nodes.size, source.panels.nodes.size
            order = self._resolution.order
            self._kernels[key] = bsr_matrix((z, column, start), shape, blocksize=(order, order))
        return self._kernels[key]


def _normal(z: Array) -> Array:
    return np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)


def _ranges(start: Integers, length: Integers) -> tuple[Integers, Integers]:
    """Concatenate range(start, start + length) of all entries, with the index of the entry."""
    owner = np.repeat(np.arange(start.size), length)
    offset = np.arange(owner.size) - np.repeat(np.cumsum(length) - length, length)
    return owner, start[owner] + offset
