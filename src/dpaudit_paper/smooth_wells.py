r"""Landscapes whose maps are c-Lipschitz: the strongest ones found at a given smoothness.

*Linear maps* expand distances after an insertion, so that the noise of the steps without the canary
counts less, and contract them before the next. With gains :math:`g_j` in a period of k steps,
:math:`\mu^2 = \text{insertions} / (\sigma^2 \sum_{j<k} g_j^{-2})`. For :math:`g_j = c^j` this is
the upper bound: it is attained for every c, if the reach allows such moves.

*Reading wells* are for large c. The jumps of `ReadingWells` become ramps of slope c. A well of
width W is flat around its centre and rises to the next centre within W/c. A reading rises by W
within W/c around each rounding threshold, and returns with slope -c before the border of the cell.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

import numpy as np

from dpaudit._arrays import Array
from dpaudit_paper.landscapes import (
    BatchLandscapes,
    Constant,
    Landscape,
    LandscapeProcess,
    simulate,
)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class PeriodicMap(Landscape):
    """A map x -> x + drift that is piecewise linear in a cell and repeats from cell to cell.

    Arguments:
        width: Width of a cell.
        knots: Distances from the centre, from -width/2 to width/2.
        values: Where the map sends them, relative to the centre.
        centre: Shift of all centres.
    """

    width: float
    knots: Array
    values: Array
    centre: float = 0.0

    def drift(self, position: Array, reach: float) -> Array:
        position = np.asarray(position, dtype=float)
        cell = np.floor((position - self.centre) / self.width + 0.5)
        distance = position - self.centre - cell * self.width
        wanted = np.interp(distance, self.knots, self.values) - distance
        return np.asarray(np.clip(wanted, -reach, reach))

    def edges(self, low: float, high: float, reach: float) -> Array:
        cells = np.arange(math.floor(low / self.width) - 1, math.ceil(high / self.width) + 2)
        found = np.add.outer(cells * self.width + self.centre, self.knots).ravel()
        return np.unique(found[(found > low) & (found < high)])


@final
@dataclass(frozen=True, kw_only=True)
class SmoothReadingWells(BatchLandscapes):
    """Reading wells with ramps of slope c.

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
    def wells(self) -> PeriodicMap:
        half, ramp = self.width / 2, self.width / 2 / self.lipschitz
        knots = np.array([-half, ramp - half, half - ramp, half])
        return PeriodicMap(width=self.width, knots=knots, values=np.array([-half, 0, 0, half]))

    @cached_property
    def reading(self) -> PeriodicMap:
        half, ramp = self.width / 2, self.width / self.lipschitz
        knots, values = [0.0], [0.0]
        for units in range(1, self.most + 1):
            middle = (units - 0.5) * self.unit
            knots += [middle - ramp / 2, middle + ramp / 2]
            values += [(units - 1) * self.width, units * self.width]
        knots += [half - (self.most - 0.5) * ramp, half]
        values += [self.most * self.width, half]
        right, up = np.array(knots), np.array(values)
        return PeriodicMap(
            width=self.width,
            knots=np.concatenate([-right[:0:-1], right]),
            values=np.concatenate([-up[:0:-1], up]),
            centre=0.5,
        )

    def at(self, step: int) -> Landscape:
        return self.reading if (step - 2) % self.period == 0 else self.wells


@final
@dataclass(frozen=True, kw_only=True)
class Rescaling(Landscape):
    """A change of the gain within a radius; beyond it, distances keep their differences.

    Arguments:
        before: The gain before the step.
        after: The gain after the step.
        radius: The radius, at a gain of 1.
        centre: The position that stays.
    """

    before: float
    after: float
    radius: float
    centre: float

    def drift(self, position: Array, reach: float) -> Array:
        away = np.asarray(position, dtype=float) - self.centre
        inside = np.clip(away / self.before, -self.radius, self.radius)
        return np.asarray(np.clip((self.after - self.before) * inside, -reach, reach))

    def edges(self, low: float, high: float, reach: float) -> Array:
        found = self.centre + self.before * self.radius * np.array([-1.0, 1.0])
        return found[(found > low) & (found < high)]


@final
@dataclass(frozen=True, kw_only=True)
class LinearMaps(BatchLandscapes):
    """Expansion after every insertion, and contraction before the next.

    Arguments:
        gains: The scale of distances at each step of a period, relative to the insertion step.
        radius: Distance from the centre up to which positions are scaled.
    """

    gains: tuple[float, ...]
    radius: float

    @classmethod
    def fitted(cls, *, period: int, lipschitz: float, reach: float, radius: float) -> LinearMaps:
        """The largest gains whose maps are c-Lipschitz and move no further than the reach.

        Arguments:
            period: The insertion period k.
            lipschitz: The Lipschitz constant c of every map.
            reach: The longest move.
            radius: Distance from the centre that the reach must suffice for.
        """
        step, slope = np.arange(period), reach / radius
        gains = np.minimum(1 + slope * step, 1 + slope * (period - step))
        gains = np.minimum(gains, np.exp(np.minimum(step * math.log(lipschitz), 700.0)))
        longest = np.abs(np.diff(np.append(gains, 1.0))).max()
        return cls(gains=tuple(gains.tolist()), radius=reach / max(float(longest), 1e-9))

    def at(self, step: int) -> Landscape:
        insertions, phase = divmod(step - 1, len(self.gains))
        # Half way between the means with and without the canary.
        centre = (insertions + (phase > 0)) / 2
        return Rescaling(
            before=self.gains[phase - 1],
            after=self.gains[phase],
            radius=self.radius,
            centre=centre,
        )

    def mu(self, insertions: int, noise_multiplier: float) -> float:
        """Mu if no position leaves the radius."""
        noise = (np.array(self.gains) ** -2.0).sum()
        return math.sqrt(insertions / noise) / noise_multiplier


def best_linear(
    process: LandscapeProcess, lipschitz: float, *, runs: int, seed: int
) -> tuple[LinearMaps, float]:
    """The best linear maps at this smoothness, and their mu in simulated runs.

    Arguments:
        process: Noise, batch size, steps and period; its landscape is not used.
        lipschitz: The Lipschitz constant c.
        runs: Number of simulated runs.
        seed: Random seed of the simulations.
    """
    insertions, sigma = process.insertions(process.steps), process.noise_multiplier
    found = []
    # Distances from the centre: half the distance of the means, and a few deviations.
    for deviations in (3.0, 4.0, 6.0):
        radius = insertions / 2 + deviations * sigma * math.sqrt(insertions)
        maps = LinearMaps.fitted(
            period=process.period or 2, lipschitz=lipschitz, reach=process.reach, radius=radius
        )
        simulated = simulated_mu(process.with_landscape(maps), runs=runs, seed=seed)
        # Chance can make the simulated value larger than the exact one without a radius.
        found.append((maps, min(simulated, maps.mu(insertions, sigma))))
    return max(found, key=lambda pair: pair[1])


def best_found(
    process: LandscapeProcess, lipschitz: float, *, seed: int
) -> SmoothReadingWells | None:
    """The best of several reading wells at this smoothness, by short simulations; or none.

    Arguments:
        process: Noise, batch size and period; its landscape is not used.
        lipschitz: The Lipschitz constant c.
        seed: Random seed of the simulations.
    """
    sigma = process.noise_multiplier
    tried = [
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
    fitting = [wells for wells in tried if wells.feasible and wells.reach <= process.reach]
    if not fitting:
        return None
    short = replace(process, steps=20 * (process.period or 2), landscape=Constant())
    return max(
        fitting, key=lambda wells: simulated_mu(short.with_landscape(wells), runs=4000, seed=seed)
    )


def simulated_mu(process: LandscapeProcess, *, runs: int, seed: int) -> float:
    """The difference of the mean positions over their standard deviation, from simulated runs."""
    scores = simulate(process, runs=runs, seed=seed)
    variance = (scores.inserted.var() + scores.not_inserted.var()) / 2
    return float((scores.inserted.mean() - scores.not_inserted.mean()) / math.sqrt(variance))
