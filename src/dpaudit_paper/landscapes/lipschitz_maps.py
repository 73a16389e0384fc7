r"""Landscapes whose maps are c-Lipschitz, for a canary in every k-th step.

*Linear maps* expand distances after an insertion, so that the noise of the steps without the canary
counts less, and contract them before the next. With gains :math:`g_j` in a period of k steps and
moves of any length they give :math:`\mu^2 = \text{insertions} / (\sigma^2 \sum_{j<k} g_j^{-2})`;
for :math:`g_j = c^j` this is the upper bound for c-Lipschitz steps. A move is at most B C, so
distances are scaled up to a radius only. The centre of the scaling therefore moves where epsilon is
decided: of n insertions, runs that end where :math:`p_1 = e^\epsilon p_0` have moved by
:math:`n (1/2 + \epsilon/\mu^2)` on a straight line, give or take half the deviation of the sum.

*Reading wells* are for large c. The jumps of `ReadingWells` become ramps of slope c. A well of
width W is flat around its centre and rises to the next centre within W/c. A reading rises by W
within W/c around each rounding threshold, and returns with slope -c before the border of the cell.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar, final

import numpy as np

from dpaudit._arrays import Array
from dpaudit.curves import gaussian_epsilon
from dpaudit_paper.landscapes.process import BatchLandscapes, Landscape, LandscapeProcess
from dpaudit_paper.landscapes.propagation import Resolution, densities
from dpaudit_paper.landscapes.shapes import Constant, PiecewiseLinear
from dpaudit_paper.landscapes.simulation import simulate

SEARCH = Resolution(order=5, width=3.0, negligible=1e-8, mass_tolerance=1e-2)
FINAL = Resolution(order=6, width=1.5, negligible=1e-9, mass_tolerance=1e-4)

Maps = TypeVar("Maps", bound=BatchLandscapes)

DEVIATIONS = (2.5, 2.75, 3.0, 3.25)
"""Radii that are tried where the reach limits the gains, in deviations half way to the end."""


def final_epsilon(process: LandscapeProcess, *, delta: float, resolution: Resolution) -> float:
    """The exact epsilon after the last step, from densities."""
    (last,) = deque(densities(process, delta=delta, resolution=resolution), maxlen=1)
    return last.epsilon(delta)


@final
@dataclass(frozen=True, kw_only=True)
class LinearMaps(BatchLandscapes):
    """Expansion after every insertion, and contraction before the next.

    Arguments:
        gains: The scale of distances at each step of a period, relative to the insertion step.
        radius: Distance from the centre, at gain 1, up to which distances are scaled.
        speed: How far the centre moves in a period; the first step after an insertion takes it
            back to 0.
    """

    gains: tuple[float, ...]
    radius: float
    speed: float

    @classmethod
    def fitted(
        cls, process: LandscapeProcess, *, lipschitz: float, delta: float, deviations: float
    ) -> LinearMaps:
        """The largest gains whose maps are c-Lipschitz and move no further than the reach.

        Arguments:
            process: Noise, batch size, steps and period; its landscape is not used.
            lipschitz: The Lipschitz constant c of every map.
            delta: Delta at which epsilon should be large.
            deviations: The least radius, in deviations of the position half way through the
                training, given where it ends.
        """
        period, insertions = process.period or 2, process.insertions(process.steps)
        free = np.exp(np.minimum(np.arange(period) * math.log(lipschitz), 700.0))
        longest = float(np.abs(np.diff(np.append(free, 1.0))).max())
        speed, radius, gains = 1.0, 1.0, free
        for _ in range(100):  # the fixed point of gains, radius and speed
            room = process.reach - speed
            noise = process.noise_multiplier * math.sqrt(insertions * float((gains**-2.0).sum()))
            mu = insertions / noise
            needed = deviations * noise / 2
            wanted = max(min(room / max(longest, 1e-9), 3 * needed), needed)
            radius += (wanted - radius) / 2
            gains = _grown(period, lipschitz, room / radius)
            speed = 0.5 + gaussian_epsilon(delta, mu) / mu**2
        return cls(gains=tuple(gains.tolist()), radius=radius, speed=speed)

    @cached_property
    def _maps(self) -> tuple[PiecewiseLinear, ...]:
        maps = []
        for phase, after in enumerate(self.gains):
            before = self.gains[phase - 1]
            centre = self.speed if phase == 1 else 0.0
            edge, move = before * self.radius, (after - before) * self.radius
            knots, moves = np.array([centre - edge, centre + edge]), np.array([-move, move])
            maps.append(PiecewiseLinear(knots=knots, moves=moves - centre))
        return tuple(maps)

    def at(self, step: int) -> Landscape:
        return self._maps[(step - 1) % len(self.gains)]

    def mu(self, insertions: int, noise_multiplier: float) -> float:
        """Mu if no position leaves the radius."""
        noise = (np.array(self.gains) ** -2.0).sum()
        return math.sqrt(insertions / noise) / noise_multiplier


def _grown(period: int, lipschitz: float, slope: float) -> Array:
    """Gains that grow by the factor c and at most ``slope`` per step, and return to 1 in time."""
    gains = np.ones(period)
    for step in range(1, period):
        most = min(lipschitz * gains[step - 1], gains[step - 1] + slope)
        gains[step] = min(most, 1 + slope * (period - step))
    return gains


@final
@dataclass(frozen=True, kw_only=True)
class SmoothReadingWells(BatchLandscapes):
    """Reading wells with ramps of slope c; distances are rounded around 1/2, as without ramps.

    Arguments:
        period: The insertion period k.
        width: Width W of a cell.
        unit: Rounding unit q, at least W/c.
        most: Largest number of cells M of a jump.
        lipschitz: The Lipschitz constant c of every map.
    """

    period: int
    width: float
    unit: float
    most: int
    lipschitz: float

    @property
    def feasible(self) -> bool:
        """Whether the ramps fit into a cell."""
        ramp = self.width / self.lipschitz
        last = (self.most - 0.5) * self.unit + ramp / 2
        back = (self.most - 0.5) * ramp
        return self.unit >= ramp and last + back <= self.width / 2 * (1 + 1e-6)

    @property
    def reach(self) -> float:
        """The longest move."""
        return self.most * self.width - (self.most - 0.5) * self.unit + 0.5

    @cached_property
    def _wells(self) -> PiecewiseLinear:
        half, ramp = self.width / 2, self.width / 2 / self.lipschitz
        knots = np.array([-half, ramp - half, half - ramp, half])
        moves = np.array([-half, 0, 0, half]) - knots
        return PiecewiseLinear(knots=knots, moves=moves, repeats=True)

    @cached_property
    def _reading(self) -> PiecewiseLinear:
        half, ramp = self.width / 2, self.width / self.lipschitz
        knots, values = [0.0], [0.0]
        for units in range(1, self.most + 1):
            middle = (units - 0.5) * self.unit
            knots += [middle - ramp / 2, middle + ramp / 2]
            values += [(units - 1) * self.width, units * self.width]
        knots += [half - (self.most - 0.5) * ramp, half]
        values += [self.most * self.width, half]
        right, up = np.array(knots), np.array(values)
        distances = np.concatenate([-right[:0:-1], right])
        moves = np.concatenate([-up[:0:-1], up]) - distances
        return PiecewiseLinear(knots=0.5 + distances, moves=moves, repeats=True)

    def at(self, step: int) -> Landscape:
        return self._reading if (step - 2) % self.period == 0 else self._wells


def best_linear_maps(process: LandscapeProcess, *, lipschitz: float, delta: float) -> LinearMaps:
    """The linear maps with the largest exact epsilon, of several radii.

    Arguments:
        process: Noise, batch size, steps and period; its landscape is not used.
        lipschitz: The Lipschitz constant c of every map.
        delta: Delta at which epsilon is computed.
    """
    fitted = [
        LinearMaps.fitted(process, lipschitz=lipschitz, delta=delta, deviations=deviations)
        for deviations in DEVIATIONS
    ]
    different = {tuple(np.round(maps.gains, 6)): maps for maps in fitted}.values()
    return _best(process, list(different), delta)


def best_reading_wells(
    process: LandscapeProcess, *, lipschitz: float, delta: float, seed: int = 0, tried: int = 2
) -> SmoothReadingWells | None:
    """The reading wells with the largest exact epsilon, of many shapes; None if none fit.

    Short simulations rank the candidates; densities are computed for the first ``tried``.

    Arguments:
        process: Noise, batch size, steps and period; its landscape is not used.
        lipschitz: The Lipschitz constant c of every map.
        delta: Delta at which epsilon is computed.
        seed: Random seed of the simulations.
        tried: Number of candidates whose exact epsilon is computed.
    """
    sigma = process.noise_multiplier
    candidates = [
        SmoothReadingWells(
            period=process.period or 2,
            width=width * sigma,
            # The smallest unit for these ramps, or a fixed one.
            unit=(width / lipschitz * (1 + 1e-9) if unit is None else unit) * sigma,
            most=most,
            lipschitz=lipschitz,
        )
        for width, unit, most in itertools.product(
            (4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 11.0),
            (None, 0.55, 0.65, 0.9, 1.2, 1.4, 1.8, 2.4, 3.2, 4.0),
            (1, 2, 3, 4),
        )
    ]
    fitting = [wells for wells in candidates if wells.feasible and wells.reach <= process.reach]
    if not fitting:
        return None
    short = replace(process, steps=20 * (process.period or 2), landscape=Constant())
    fitting.sort(key=lambda wells: -_moments(short.with_landscape(wells), seed))
    return _best(process, fitting[:tried], delta)


def _moments(process: LandscapeProcess, seed: int) -> float:
    """The difference of the mean positions over their deviation: ranks, and bounds nothing."""
    scores = simulate(process, runs=4000, seed=seed)
    inserted, others = scores.inserted_scores, scores.other_scores
    return float((inserted.mean() - others.mean()) / math.sqrt(inserted.var() + others.var()))


def _best(process: LandscapeProcess, landscapes: Sequence[Maps], delta: float) -> Maps:
    if len(landscapes) == 1:
        return landscapes[0]

    def epsilon(landscape: Maps) -> float:
        chosen = process.with_landscape(landscape)
        return final_epsilon(chosen, delta=delta, resolution=SEARCH)

    return max(landscapes, key=epsilon)
