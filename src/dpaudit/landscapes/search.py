r"""A search for the strongest landscape of a bounded adversary, from many starts.

The drift is free in every cell of a grid, half a noise deviation wide, and bounded by the reach.
Each start is improved in two ways in turn: sweeps of best replies, which change many cells at once
and are kept only if the exact epsilon grows, then a bounded quasi-Newton method on the gradient of
`dpaudit.landscapes.adjoint`. The best is computed again on the fine grid of
`exact_privacy` and compared with every named landscape, so the result is at least as good as those.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize

from dpaudit import _validate
from dpaudit._arrays import Array
from dpaudit.curves import gaussian_epsilon
from dpaudit.errors import InvalidInput
from dpaudit.landscapes.adjoint import DriftGrid
from dpaudit.landscapes.clock import ChainLandscape
from dpaudit.landscapes.composition import accountant_mu, decision_point
from dpaudit.landscapes.landscapes import Constant, Threshold, Wells
from dpaudit.landscapes.named import fitted_staircase, fitted_wells
from dpaudit.landscapes.privacy import ExactPrivacy, exact_privacy
from dpaudit.landscapes.table import Table
from dpaudit.landscapes.thresholds import best_threshold, final_epsilon
from dpaudit.mechanisms.landscape import Landscape, LandscapeProcess

SWEEPS = 25
DESCENTS = 40  # iterations of the quasi-Newton method
WELL_WIDTHS = (1.0, 0.5, 1.5)  # relative to the decision point's distance from C/2


@dataclass(frozen=True, kw_only=True)
class Start:
    """The start and the result of one search, on the grid of the search."""

    name: str
    before: float
    after: float


@dataclass(frozen=True, kw_only=True)
class Named:
    """A named landscape and its exact epsilon at step T."""

    name: str
    landscape: Landscape
    epsilon: float


@dataclass(frozen=True, kw_only=True, eq=False)
class LandscapeSearch:
    """The best landscape found for one process, and the others it was compared with.

    Arguments:
        name: The best landscape: ``"searched"`` for a table, ``"moved threshold"``, or a name.
        privacy: The exact privacy of the best landscape.
        named: The named landscapes, each at its best width.
        moved_threshold: The threshold landscape at its best position.
        starts: One entry per start; empty when the moved threshold already reaches the accountant.
    """

    name: str
    privacy: ExactPrivacy
    named: tuple[Named, ...]
    moved_threshold: Named
    starts: tuple[Start, ...]

    @property
    def landscape(self) -> Landscape:
        """The best landscape."""
        return self.privacy.process.landscape_at(2)

    @property
    def epsilon(self) -> float:
        """The exact epsilon of the best landscape at step T."""
        return float(self.privacy.epsilon[-1])


def search_landscape(
    process: LandscapeProcess, *, delta: float = 1e-5, random_starts: int = 2, seed: int = 0
) -> LandscapeSearch:
    """Maximise the exact epsilon at step T over all landscapes within reach.

    See also:
        `dpaudit.landscapes.best_threshold`, which is usually where every start ends.

    Arguments:
        process: Noise, batch size, steps, scaling; its landscape joins the starts. One insertion
            only: later ones need a landscape that keeps time, see `dpaudit.landscapes.Clock`.
        delta: Delta at which epsilon is computed.
        random_starts: Number of random starts besides the named landscapes.
        seed: Random seed of the random starts.

    Example:
        >>> process = LandscapeProcess(
        ...     noise_multiplier=2, batch_size=1, steps=4, landscape=Threshold()
        ... )
        >>> found = search_landscape(process, random_starts=0)
        >>> [round(named.epsilon, 2) for named in found.named], round(found.epsilon, 2)
        ([0.93, 0.94, 0.92, 1.16], 1.28)
    """
    delta = _validate.between("delta", delta, 0, 1)
    if process.insertions(process.steps) > 1 or isinstance(process.landscape, ChainLandscape):
        raise InvalidInput(
            f"period must be left out for a search, got {process.period!r}; "
            "for periodic insertion use the clock or the escalator"
        )
    if process.steps < 2:
        raise InvalidInput("steps must be at least 2 for a search, got 1; one step has no drift")
    moved = best_threshold(process, delta=delta)
    named = _named(process, delta)
    grid = DriftGrid(process, delta, edge=moved.at)
    starts: list[Start] = []
    found: list[tuple[float, Table]] = []
    ceiling = gaussian_epsilon(delta, accountant_mu(process, process.steps))
    if final_epsilon(process, moved, delta=delta) < ceiling * (1 - 1e-6):
        for name, drift in _starts(grid, process, named, moved, random_starts, seed):
            before = grid.epsilon(drift)
            drift, after = _improve(grid, drift, before)
            starts.append(Start(name=name, before=before, after=after))
            found.append((after, grid.table(drift)))
    candidates = [*named, Named(name="moved threshold", landscape=moved, epsilon=0.0)]
    if found:
        table = max(found, key=lambda item: item[0])[1]
        candidates.append(Named(name="searched", landscape=table, epsilon=0.0))
    judged = [exact_privacy(process.with_landscape(c.landscape), delta=delta) for c in candidates]
    best = max(range(len(judged)), key=lambda index: judged[index].epsilon[-1])
    results = [
        replace(c, epsilon=float(j.epsilon[-1])) for c, j in zip(candidates, judged, strict=True)
    ]
    return LandscapeSearch(
        name=candidates[best].name,
        privacy=judged[best],
        named=tuple(results[: len(named)]),
        moved_threshold=results[len(named)],
        starts=tuple(starts),
    )


def _named(process: LandscapeProcess, delta: float) -> list[Named]:
    """The named landscapes; wells at the best of several widths."""
    span = decision_point(process, delta=delta) - 0.5
    wells = [fitted_wells(process, delta=delta), *(Wells(width=w * span) for w in WELL_WIDTHS)]
    best_wells = max(wells, key=lambda shape: final_epsilon(process, shape, delta=delta))
    shapes: list[tuple[str, Landscape]] = [
        ("constant", Constant()),
        ("threshold", Threshold()),
        ("wells", best_wells),
        ("staircase", fitted_staircase(process, delta=delta)),
    ]
    return [Named(name=name, landscape=shape, epsilon=0.0) for name, shape in shapes]


def _starts(
    grid: DriftGrid,
    process: LandscapeProcess,
    named: list[Named],
    moved: Threshold,
    random_starts: int,
    seed: int,
) -> list[tuple[str, Array]]:
    span = moved.at - 0.5
    shapes = [(shape.name, shape.landscape) for shape in named]
    shapes += [("moved threshold", moved), ("given", process.landscape_at(2))]
    shapes += [
        (f"wells {w:g}", Wells(width=max(w * span, grid.process.step_noise))) for w in (0.5, 2)
    ]
    starts = [(name, grid.sample(shape)) for name, shape in shapes]
    generator = np.random.default_rng(seed)
    for index in range(random_starts):
        rough = generator.uniform(-1, 1, size=len(grid.cells))
        # Smoothed over two noise deviations: white noise would average out in one step.
        smooth = np.convolve(rough, np.ones(5) / 5, mode="same")
        starts.append((f"random {index + 1}", process.reach * smooth / np.abs(smooth).max()))
    return starts


def _improve(grid: DriftGrid, drift: Array, reached: float) -> tuple[Array, float]:
    """Best replies while they help, then the gradient."""
    share = 1.0
    for _ in range(SWEEPS):
        reply, gain = grid.best_replies(drift)
        improved = False
        while share > 0.02 and gain.max() > 0:
            # Change only the cells that gain most: replies are best against the *old* landscape.
            needed = np.quantile(gain[gain > 0], 1 - share)
            trial = np.where((gain > 0) & (gain >= needed), reply, drift)
            now = grid.epsilon(trial)
            if now > reached + 1e-9:
                drift, reached, improved = trial, now, True
                share = min(1.0, 1.5 * share)
                break
            share /= 2
        if not improved:
            break
    reach = grid.process.reach

    def loss(push: Array) -> tuple[float, Array]:
        value, gradient = grid.value_and_gradient(push * reach)
        return -value, -gradient * reach

    found = minimize(
        loss,
        drift / reach,
        jac=True,
        method="L-BFGS-B",
        bounds=[(-1.0, 1.0)] * drift.size,
        options={"maxiter": DESCENTS, "maxcor": 20},
    )
    if -found.fun > reached:
        return np.asarray(found.x) * reach, float(-found.fun)
    return drift, reached
