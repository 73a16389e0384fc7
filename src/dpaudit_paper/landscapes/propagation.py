r"""Densities with and without the canary, propagated through drift and noise to rounding error.

One step of the process is

.. math:: p_{t+1}(y) = \int p_t(x)\, \varphi_s(y - x - d(x))\, dx .

The drift is applied under the integral sign, so that it creates neither folds nor atoms. On panels
whose edges include every jump of :math:`d` the integrand is smooth, so Gauss-Legendre converges
like a power series. All terms are positive: nothing cancels, and far tails keep the *relative*
accuracy that small delta needs.

The grid adapts: panels exist only where either density has mass, they are about as wide as the step
noise, and a panel's outgoing kernel is computed when mass first arrives in it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import bsr_matrix
from scipy.special import log_ndtr, ndtri

from dpaudit._arrays import Array, Integers
from dpaudit.errors import NumericalError
from dpaudit_paper.landscapes.pair import DensityPair
from dpaudit_paper.landscapes.panels import Panels
from dpaudit_paper.landscapes.process import Landscape, LandscapeProcess, accountant_mu

LONGEST_TAIL = 36.0  # the normal density is 1e-282 there
MOST_PANELS = 30_000  # about 2 GB while kernels are built: beyond this, raise an error
MOST_PIECES = 12  # a kernel with more of them is built anew, as one


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


@dataclass(eq=False)
class _Grid:
    """Every panel met so far, in order of discovery, on one lattice cut at the drift's edges."""

    landscape: Landscape
    reach: float
    order: int
    width: float
    left: Array = field(default_factory=lambda: np.empty(0))
    right: Array = field(default_factory=lambda: np.empty(0))
    # Lattice cells that have been cut already (sorted), with their first panel and panel count.
    cells: Integers = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    first: Integers = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    count: Integers = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    def panels(self, which: Integers | slice = slice(None)) -> Panels:
        return Panels(self.left[which], self.right[which], self.order)

    def discover(self, cells: Integers) -> None:
        """Cut lattice cells that are new into panels."""
        new = np.setdiff1d(cells, self.cells)
        if not new.size:
            return
        lefts, rights, owners = [], [], []
        for run in np.split(new, np.flatnonzero(np.diff(new) > 1) + 1):
            lattice = self.width * np.arange(run[0], run[-1] + 2)
            low, high = float(lattice[0]), float(lattice[-1])
            cuts = self.landscape.edges(low, high, self.reach)
            edges = np.union1d(lattice, cuts)
            # Slivers from rounding (a cut on a lattice point) would be panels of width 1e-16.
            edges = edges[np.append(True, np.diff(edges) > 1e-9 * self.width)]
            edges[-1] = high
            lefts.append(edges[:-1])
            rights.append(edges[1:])
            owners.append(np.searchsorted(lattice, (edges[:-1] + edges[1:]) / 2) - 1 + run[0])
        owner = np.concatenate(owners)
        unique, start, count = np.unique(owner, return_index=True, return_counts=True)
        first = start + self.left.size
        self.left = np.concatenate([self.left, *lefts])
        self.right = np.concatenate([self.right, *rights])
        order = np.argsort(np.concatenate([self.cells, unique]))
        self.cells = np.concatenate([self.cells, unique])[order]
        self.first = np.concatenate([self.first, first])[order]
        self.count = np.concatenate([self.count, count])[order]

    def only(self, active: NDArray[np.bool_]) -> tuple[_Grid, Integers]:
        """A grid without the cells that no active panel lies in, and which panels it keeps."""
        panel, owner = _ranges(self.first, self.count)[::-1]
        used = np.zeros(self.cells.size, dtype=bool)
        used[owner[active[panel]]] = True
        panels = panel[used[owner]]
        count = self.count[used]
        smaller = _Grid(
            self.landscape,
            self.reach,
            self.order,
            self.width,
            left=self.left[panels],
            right=self.right[panels],
            cells=self.cells[used],
            first=np.cumsum(count) - count,
            count=count,
        )
        return smaller, panels

    def cover(self, low: Array, high: Array) -> tuple[Integers, Integers]:
        """All pairs (interval, panel) where the panel's lattice cell meets [low, high]."""
        start = np.floor(low / self.width).astype(np.int64)
        stop = np.floor(high / self.width).astype(np.int64) + 1
        if self.left.size + (stop - start).max() > MOST_PANELS:
            raise NumericalError(
                f"the exact densities need more than {MOST_PANELS:,} panels of {self.width:.2g} C; "
                "use fewer steps or a smaller batch size, or simulate"
            )
        interval, cell = _ranges(start, stop - start)
        self.discover(np.unique(cell))
        place = np.searchsorted(self.cells, cell)
        pair, panel = _ranges(self.first[place], self.count[place])
        return interval[pair], panel


@dataclass(eq=False)
class _Kernel:
    """The transition x -> x + drift + shift + noise, for the panels that needed it so far.

    Panels of ``source`` are cut at the edges of this step's drift, those of ``target`` at the edges
    of the next step's.
    """

    source: _Grid
    target: _Grid
    shift: float
    noise: float
    tail: float
    known: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, dtype=bool))
    pieces: list[tuple[Integers, bsr_matrix]] = field(default_factory=list)

    def apply(self, densities: Array, active: NDArray[np.bool_]) -> Array:
        """One step for a stack of densities (panels, order, both)."""
        self.known = np.concatenate([self.known, np.zeros(active.size - self.known.size, bool)])
        new = np.flatnonzero(active & ~self.known)
        if new.size:
            self.known[new] = True
            # Few large pieces: mass arrives in a few new panels at almost every step.
            if len(self.pieces) >= MOST_PIECES:
                self.pieces, new = [], np.flatnonzero(self.known)
            self.pieces.append((new, self._piece(new)))
        order, both = densities.shape[1:]
        out = np.zeros((self.target.left.size * order, both))
        for columns, matrix in self.pieces:
            if active[columns].any():
                out[: matrix.shape[0]] += matrix @ densities[columns].reshape(-1, both)
        return out.reshape(-1, order, both)

    def _piece(self, columns: Integers) -> bsr_matrix:
        source = self.source.panels(columns)
        drift = self.source.landscape.drift(source.nodes, self.source.reach)
        mean = source.nodes + drift + self.shift
        spread = self.tail * self.noise
        column, row = self.target.cover(mean.min(axis=1) - spread, mean.max(axis=1) + spread)
        by_row = np.argsort(row, kind="stable")
        column, row = column[by_row], row[by_row]
        nodes = self.target.panels(row).nodes
        # Blocks of (target node, source node); the source's quadrature weight is folded in.
        z = (nodes[:, :, None] - mean[column][:, None, :]) / self.noise
        z *= z
        z *= -0.5
        np.exp(z, out=z)
        z *= (source.weights / (self.noise * math.sqrt(2 * math.pi)))[column][:, None, :]
        order, panels = self.source.order, self.target.left.size
        start = np.searchsorted(row, np.arange(panels + 1))
        return bsr_matrix(
            (z, column, start), shape=(panels * order, columns.size * order), blocksize=(order,) * 2
        )


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
    does not change has one of each.
    """

    def __init__(self, process: LandscapeProcess, resolution: Resolution, tail: float) -> None:
        self._process, self._resolution, self._tail = process, resolution, tail
        self._least = math.exp(float(log_ndtr(-tail)))
        self._grids: dict[Landscape, _Grid] = {}
        self._kernels: dict[tuple[int, int, float], _Kernel] = {}
        sigma = process.noise_multiplier
        self._grid = self._grid_after(1)
        self._grid.cover(np.array([-tail * sigma]), np.array([1 + tail * sigma]))
        nodes = self._grid.panels().nodes
        densities = _normal(nodes / sigma), _normal((nodes - 1) / sigma)
        self._both = np.stack(densities, axis=-1) / sigma
        self._active = np.ones(len(nodes), dtype=bool)

    def move(self, step: int) -> None:
        """One step of the process."""
        source, self._grid = self._grid, self._grid_after(step)
        if self._process.inserts(step):
            out = self._moved(source, 0.0, self._both[..., :1])
            with_canary = self._moved(source, self._process.step_ratio, self._both[..., 1:])
            self._both = np.concatenate([_grown(out, with_canary.shape[0]), with_canary], axis=-1)
        else:
            self._both = self._moved(source, 0.0, self._both)

    def cut(self, step: int) -> None:
        """Cut the tails that cannot change delta, and check that no mass is lost."""
        mass = np.einsum("pnw,pn->pw", self._both, self._grid.panels().weights)
        active = mass.max(axis=1) > self._least
        lost, allowed = np.abs(mass[active].sum(axis=0) - 1).max(), self._resolution.mass_tolerance
        if lost > allowed:
            raise NumericalError(
                f"probability mass drifted by {lost:.1e} at step {step}, more than "
                f"{allowed:g}; the landscape varies too fast for the panels"
            )
        self._both[~active] = 0.0
        self._active = active
        if active.size > 2000 + 6 * active.sum():
            # Panels that the process has left are dropped, and the kernels with them.
            self._grid, indices = self._grid.only(active)
            self._grids[self._grid.landscape] = self._grid
            self._both, self._active = self._both[indices], active[indices]
            self._kernels.clear()

    def pair(self) -> DensityPair:
        """Both densities, from left to right."""
        ascending = np.flatnonzero(self._active)
        ascending = ascending[np.argsort(self._grid.left[ascending])]
        return DensityPair(
            self._grid.panels(ascending),
            np.ascontiguousarray(self._both[ascending, :, 0]),
            np.ascontiguousarray(self._both[ascending, :, 1]),
        )

    def _grid_after(self, step: int) -> _Grid:
        process, resolution = self._process, self._resolution
        landscape = process.landscape_at(min(step + 1, process.steps))
        if landscape not in self._grids:
            width = resolution.width * process.step_noise
            self._grids[landscape] = _Grid(landscape, process.reach, resolution.order, width)
        return self._grids[landscape]

    def _moved(self, source: _Grid, shift: float, densities: Array) -> Array:
        key = (id(source), id(self._grid), shift)
        if key not in self._kernels:
            noise = self._process.step_noise
            self._kernels[key] = _Kernel(source, self._grid, shift, noise, self._tail)
        return self._kernels[key].apply(densities, self._active)


def _normal(z: Array) -> Array:
    return np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)


def _grown(array: Array, panels: int) -> Array:
    missing = panels - array.shape[0]
    return np.concatenate([array, np.zeros((missing, *array.shape[1:]))]) if missing else array


def _ranges(start: Integers, length: Integers) -> tuple[Integers, Integers]:
    """Concatenate range(start, start + length) of all entries, with the index of the entry."""
    owner = np.repeat(np.arange(start.size), length)
    offset = np.arange(owner.size) - np.repeat(np.cumsum(length) - length, length)
    return owner, start[owner] + offset
