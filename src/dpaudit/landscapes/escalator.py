r"""A clock without a cycle: the batch size that it needs does not grow with the insertion period.

The `Clock` needs k nodes for every unit of its sum. Here step t happens on *floor* t: all floors
have the same layout, and the drift of each step moves the process one floor up. A floor holds a few
*lanes*, each one unit q of the running sum wide, in a corridor that climbs by ``climb`` at every
insertion: at the speed of those sums that end at the decision point of the whole composition. A sum
that falls below the corridor can no longer end in the rejection region with a probability that
matters; it drops into the *pit*, where it stays. A sum above the corridor waits in the top lane.
Neither raises the false-positive rate, and the direction :math:`p_1 > e^\epsilon p_0` needs no more
than that.

The reach is the height of one floor, some 700 C for 250 insertions at sigma = 4, whatever the
period. As with the clock, lanes form a Markov chain with exactly known probabilities.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, final

import numpy as np

from dpaudit import _validate
from dpaudit._arrays import Array
from dpaudit.curves import gaussian_epsilon
from dpaudit.errors import InvalidInput
from dpaudit.landscapes.clock import ChainLandscape
from dpaudit.landscapes.landscapes import inside
from dpaudit.landscapes.pair import DiscretePair, normal_mass
from dpaudit.mechanisms.landscape import LandscapeProcess

MOST_LANES = 120  # a fit's limit: more change nothing for a few hundred insertions


@final
@dataclass(frozen=True, kw_only=True)
class Escalator(ChainLandscape):
    r"""Floors of lanes above a pit; see the module's first paragraph.

    On a floor, lane i has its centre at iW, the pit reaches from :math:`W/2 - 2G` to :math:`W/2`
    with its centre in the middle, and the floor ends a margin above the top lane's centre.

    Arguments:
        phases: The insertion period k.
        lanes: Number of lanes.
        lane: Width W of a lane.
        unit: Units q of the running sum; one lane is one unit.
        most: Largest number of lanes that one insertion can move.
        climb: What the corridor gains at an insertion: residuals are rounded about it.
        start: The lane in which the sum 0 begins, from 1.
        guard: Half the depth G of the pit; at least 9 noise deviations.
        margin: From the top lane's centre to the next floor's pit.

    Example:
        >>> escalator = Escalator(
        ...     phases=5, lanes=15, lane=30.0, unit=4.8, most=3, climb=2.0, start=8, guard=40.0
        ... )
        >>> math.ceil(escalator.least_reach)
        609
    """

    phases: int
    lanes: int
    lane: float
    unit: float
    most: int
    climb: float
    start: int
    guard: float
    margin: float = 18.0

    def __post_init__(self) -> None:
        _validate.integer("phases", self.phases, at_least=1)
        _validate.integer("lanes", self.lanes, at_least=1)
        _validate.integer("most", self.most, at_least=1)
        for name in ("lane", "unit", "guard", "margin"):
            _validate.positive(name, getattr(self, name))
        _validate.real("climb", self.climb)
        _validate.between("start", self.start, 1, self.lanes, closed_low=True, closed_high=True)

    @property
    def bottom(self) -> float:
        """The lowest position of a floor, measured like lanes."""
        return self.lane / 2 - 2 * self.guard

    @property
    def height(self) -> float:
        """From one floor to the next."""
        return self.lanes * self.lane + self.margin - self.bottom

    @property
    def least_reach(self) -> float:
        # One floor up and: out of the pit's far wall; to the next lane's centre; or `most` lanes
        # up from the smallest residual that is rounded to so many.
        rounded = self.most * self.lane - (self.most - 0.5) * self.unit - self.climb
        return self.height + max(self.guard, self.lane / 2, rounded)

    def drift(self, position: Array, reach: float) -> Array:
        position = np.asarray(position, dtype=float)
        # Rounding must agree for positions of 10^7 C, so everything is relative to the floor.
        from_start = position + self.start * self.lane
        floor = np.floor((from_start - self.bottom) / self.height)
        here = from_start - floor * self.height
        lane = np.clip(np.floor(here / self.lane + 0.5), 1, self.lanes)
        units = np.floor((here - lane * self.lane - self.climb) / self.unit + 0.5)
        units = np.clip(units, -self.most, self.most)
        units = np.where(np.mod(floor, self.phases) == 0, units, 0.0)
        following = np.minimum(lane + units, self.lanes)
        fallen = (here < self.lane / 2) | (following < 1)
        target = np.where(fallen, self.lane / 2 - self.guard, following * self.lane)
        return np.clip(target + self.height - here, -reach, reach)

    def edges(self, low: float, high: float, reach: float) -> Array:
        offset = self.start * self.lane
        first = math.floor((low + offset - self.bottom) / self.height)
        last = math.floor((high + offset - self.bottom) / self.height)
        lanes = np.arange(1, self.lanes + 1)
        walls = np.concatenate([[self.bottom], (lanes - 0.5) * self.lane])
        rounding = self.climb + self.unit * (np.arange(-self.most, self.most) + 0.5)
        readings = np.add.outer(lanes * self.lane, rounding[np.abs(rounding) < self.lane / 2])
        edges = [
            np.concatenate([walls, readings.ravel()] if floor % self.phases == 0 else [walls])
            + floor * self.height
            - offset
            for floor in range(first, last + 1)
        ]
        return inside(np.concatenate(edges), low, high)

    def chain(self, process: LandscapeProcess) -> Iterator[DiscretePair]:
        sigma = process.noise_multiplier
        tables = {shift: self._tables(sigma, shift) for shift in (0.0, 1.0)}
        states = [np.eye(self.lanes + 1)[self.start] for _ in range(2)]
        stray = [0.0, 0.0]
        for step in range(1, process.steps + 1):
            inserting = process.inserts(step)
            seen = []
            for canary in range(2):
                where, rounded, lost = tables[float(inserting and canary == 1)]
                stray[canary] += float(states[canary] @ lost)
                seen.append(states[canary] @ where)
                states[canary] = states[canary] @ rounded if inserting else seen[-1]
            yield DiscretePair(seen[0], seen[1], (stray[0], stray[1]))

    def after(self, insertions: int, *, noise_multiplier: float) -> DiscretePair:
        """The last pair of `chain`, computed period by period; fast enough for a fit."""
        idle, _, idle_lost = self._tables(noise_multiplier, 0.0)
        rest = np.linalg.matrix_power(idle, self.phases - 1)
        ends, strays = [], []
        for shift in (0.0, 1.0):
            _, rounded, lost = self._tables(noise_multiplier, shift)
            period = rounded @ rest
            state, stray = np.eye(self.lanes + 1)[self.start], 0.0
            for _ in range(insertions):
                stray += float(state @ lost) + (self.phases - 1) * float(idle_lost.max())
                state = state @ period
            ends.append(state)
            strays.append(stray)
        return DiscretePair(ends[0], ends[1], (strays[0], strays[1]))

    def _tables(self, sigma: float, shift: float) -> tuple[Array, Array, Array]:
        """Transitions from node centres: by position, by rounded residual, and mass not followed.

        Node 0 is the pit. Mass that overshoots the top lane lands in the next floor's pit and
        stays there; only mass that crosses a whole pit is not followed.
        """
        lanes = np.arange(1, self.lanes + 1)
        centres = np.concatenate([[self.lane / 2 - self.guard], lanes * self.lane]) + shift
        top = self.lanes * self.lane + self.margin
        walls = np.concatenate([[self.bottom], (lanes - 0.5) * self.lane, [top]])
        z = (walls - centres[:, None]) / sigma
        where = normal_mass(z[:, :-1], z[:, 1:])
        next_pit = normal_mass(z[:, -1], z[:, -1] + 2 * self.guard / sigma)
        where[:, 0] += next_pit
        lost = normal_mass(-np.inf, z[:, 0]) + normal_mass(
            z[:, -1] + 2 * self.guard / sigma, np.inf
        )

        units = np.arange(-self.most, self.most + 1)
        rounding = np.concatenate([[-np.inf], self.climb + self.unit * (units[1:] - 0.5), [np.inf]])
        rounded = np.zeros_like(where)
        rounded[:, 0] = where[:, 0]
        for lane in lanes:
            cuts = np.clip(lane * self.lane + rounding, walls[lane], walls[lane + 1])
            z = (cuts - centres[:, None]) / sigma
            parts = normal_mass(z[:, :-1], z[:, 1:])
            np.add.at(rounded.T, np.clip(lane + units, 0, self.lanes), parts.T)
        return where, rounded, lost


def fitted_escalator(process: LandscapeProcess, *, delta: float = 1e-5) -> Escalator:
    """A good escalator that fits the batch size: coordinate ascent on the exact chain's epsilon.

    Raises:
        InvalidInput: when not even three lanes fit.
    """
    if process.period is None:
        raise InvalidInput("period must be given for an escalator, got None; pass --period k")
    return _fit(
        process.noise_multiplier,
        process.batch_size,
        process.period,
        process.insertions(process.steps),
        delta,
    )


@dataclass(frozen=True, kw_only=True)
class _Plan:
    """The parameters of a fit, in noise deviations or relative to the whole."""

    lane: float = 7.0
    unit: float = 1.05
    most: int = 2
    start: float = 0.5
    climb: float = 1.0

    def build(self, sigma: float, batch: int, period: int, speed: float) -> Escalator | None:
        guard, margin, lane = 10 * sigma, 4.5 * sigma, self.lane * sigma
        climb, unit = self.climb * speed, self.unit * sigma
        longest = self.most * lane - (self.most - 0.5) * unit - climb
        spare = batch - 2 * guard - margin + lane / 2 - max(guard, lane / 2, longest)
        lanes = min(math.floor(spare / lane), MOST_LANES)
        if lanes < 3:
            return None
        return Escalator(
            phases=period,
            lanes=lanes,
            lane=lane,
            unit=unit,
            most=self.most,
            climb=climb,
            start=min(lanes, max(1, round(self.start * (lanes + 1)))),
            guard=guard,
            margin=margin,
        )


_CHOICES: dict[str, tuple[Any, ...]] = {
    "unit": (0.25, 0.3, 0.4, 0.5, 0.6, 0.75, 0.9, 1.05, 1.2, 1.5, 2.0),
    "most": (1, 2, 3, 4, 6, 8),
    "lane": (5.5, 6.0, 6.5, 7.0, 7.5, 8.0, 9.0, 10.0),
    "start": (0.35, 0.5, 0.65),
    "climb": (0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
}


@lru_cache(maxsize=256)
def _fit(sigma: float, batch: int, period: int, insertions: int, delta: float) -> Escalator:
    epsilon = gaussian_epsilon(delta, math.sqrt(insertions) / sigma)
    # The speed of sums that end where the composition's likelihood ratio is e^epsilon.
    speed = 0.5 + epsilon * sigma**2 / insertions

    def value(plan: _Plan) -> float:
        escalator = plan.build(sigma, batch, period, speed)
        if escalator is None:
            return -1.0
        pair = escalator.after(insertions, noise_multiplier=sigma)
        return pair.one_sided_epsilon(delta)

    # Several starts: with few lanes, the first plan and all single changes of it may give 0.
    starts = (
        _Plan(),
        _Plan(lane=6.0, unit=1.5, most=1),
        _Plan(lane=6.0, unit=2.0, most=1, climb=0.7),
        _Plan(lane=5.5, unit=2.0, most=1, climb=0.5),
    )
    best = max(starts, key=value)
    reached = value(best)
    for _ in range(3):
        before = reached
        for name, choices in _CHOICES.items():
            for choice in choices:
                plan = replace(best, **{name: choice})
                if plan != best and (now := value(plan)) > reached:
                    best, reached = plan, now
        if reached <= before:
            break
    escalator = best.build(sigma, batch, period, speed)
    if escalator is None:
        raise InvalidInput(
            f"batch_size must be at least {math.ceil(49 * sigma)} for an escalator at noise "
            f"multiplier {sigma:g}, got {batch}; it needs a pit and three lanes"
        )
    return escalator
