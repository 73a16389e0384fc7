r"""Measurements that all rules share; each is made once, when a rule first asks for it.

With the same seed, everything random is the same, so that

.. math:: \tfrac12 \left( \mathrm{output}(+g) - \mathrm{output}(-g) \right)

is what the gradient :math:`g` itself does: noise, starting point and the other examples cancel,
and so does whatever the mere presence of one more example changes. Learning rate and batch size do
not cancel, but they multiply noise and response alike: only ratios are judged.
"""

from __future__ import annotations

from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import NDArray

from dpaudit.checks.arithmetic import Array, direction, scales_by_blocks, spacing
from dpaudit.checks.subject import Subject
from dpaudit.checks.units import Response, Unit

SEED_OFFSETS = (
    0, 1, 10, 100, 256, 1000, 1024, 65_536, 100_000, 1_000_000, 1_048_576, 2, 7, 16, 64, 128,
    4096, 10_000, 3, 5,
)  # fmt: skip
"""Chosen so that seeds cut down modulo a power of two or ten are seen to repeat themselves."""

SEVERAL = 4
"""Steps of the longer training, where the training lets us choose."""

_ENDLESS = 1e6  # a clipped gradient of so many C keeps a millionth of its length
_WATCHED = 1 << 18  # coordinates whose noise is kept; memory, not mathematics, sets the limit
_SPREAD = 1024  # coordinates of the dense canary that noise is measured against
_IMPRECISE = 0.005
_COARSE = 0.02
_MEANS = 8  # seeds to average over, where the same seed does not give the same result


@final
class Measurements:
    """Everything that is known about a subject, measured when it is asked for.

    Arguments:
        subject: What is checked.
        runs: Over how many seeds noise is measured.
        seed: The first of them.
        axis: The coordinate of the simplest crafted gradient.
    """

    def __init__(self, subject: Subject, *, runs: int, seed: int, axis: int) -> None:
        self.subject = subject
        self.seeds = tuple(seed + offset for offset in _offsets(runs))
        self.axis = axis
        self.steps = 1 if subject.steps_can_vary else subject.steps
        self.insertions = 1 if subject.steps_can_vary else subject.insertions
        count = subject.parameters
        self.watched = np.unique(np.linspace(0, count - 1, min(count, _WATCHED)).astype(np.int64))
        self.spread = np.unique(np.linspace(0, count - 1, min(count, _SPREAD)).astype(np.int64))
        self._signs = np.random.default_rng(7).choice([-1.0, 1.0], size=count)
        self._noises: dict[int, Array] = {}
        self._spacing = 0.0
        self._scales: dict[int, tuple[Array, float] | None] = {}

    @cached_property
    def quiet(self) -> Array:
        """The output without any crafted gradient, under the first seed."""
        return self.subject.output(None, self.seeds[0], self.steps)

    @cached_property
    def repeat_difference(self) -> Array:
        """What changes when the same call is made again."""
        again = self.subject.output(None, self.seeds[0], self.steps)
        return np.abs(again - self.quiet)

    @cached_property
    def repeatable(self) -> bool:
        """Whether the same seed gives the same output, up to rounding."""
        between_seeds = float(np.sqrt(np.mean(self.noise() ** 2)))
        largest = float(self.repeat_difference.max())
        return largest == 0.0 or largest <= 1e-3 * between_seeds

    @cached_property
    def remembers(self) -> bool:
        """Whether the same call gives more of the same every time: old sums are counted again."""
        if self.repeatable or self.subject.noun != "private_step":
            return False
        outputs = [self.subject.output(None, self.seeds[0], self.steps) for _ in range(3)]
        once, twice = outputs[1] - outputs[0], outputs[2] - outputs[1]
        return bool(np.linalg.norm(twice - once) <= 1e-3 * np.linalg.norm(once))

    @cached_property
    def precision(self) -> float:
        """The relative rounding error of the numbers that come back, whatever type they are in."""
        values = self.quiet[self.watched]
        if np.array_equal(values.astype(np.float32), values):
            bits = values.astype(np.float32).view(np.uint32)
            if not np.any(bits & 0xFFFF):
                return float(2.0**-8)  # bfloat16
            with np.errstate(over="ignore"):
                half = np.array_equal(values.astype(np.float16), values)
            return float(np.finfo(np.float16).eps) if half else float(np.finfo(np.float32).eps)
        return float(np.finfo(np.float64).eps)

    @cached_property
    def rounding(self) -> Array:
        """Absolute rounding error of each coordinate of a difference."""
        self.noise()
        rounding: Array = 4 * self.precision * np.abs(self.quiet) + 2 * self._spacing
        # What an unseeded training changes is noise, not rounding.
        return rounding + self.repeat_difference if self.repeatable else rounding

    def noise(self, steps: int | None = None) -> Array:
        """Outputs without a canary at the watched coordinates, one row a seed, less their mean."""
        steps = self.steps if steps is None else steps
        if steps not in self._noises:
            rows = [
                (
                    self.quiet
                    if steps == self.steps and seed == self.seeds[0]
                    else self.subject.output(None, seed, steps)
                )[self.watched]
                for seed in self.seeds
            ]
            outputs = np.stack(rows)
            # Of all seeds: noise below the spacing may leave the output of one all zero.
            self._spacing = max(self._spacing, spacing(outputs.ravel()))
            self._noises[steps] = outputs - outputs.mean(axis=0)
        return self._noises[steps]

    @cached_property
    def noise_is_there(self) -> bool:
        """Whether anything changes from one seed to another."""
        floor = float(np.sqrt(np.mean(self.rounding**2)))
        return not self.repeatable or self.noise_level() > 3 * floor

    def noise_level(self, steps: int | None = None) -> float:
        """Standard deviation of one coordinate from seed to seed, over all watched ones."""
        noise = self.noise(steps)
        return float(np.sqrt((noise**2).sum() / ((len(noise) - 1) * noise.shape[1])))

    def along_axis(self, length: float) -> Array:
        """A gradient of this norm along one coordinate."""
        gradient = np.zeros(self.subject.parameters)
        gradient[self.axis] = length
        return gradient

    def dense(self, length: float, places: NDArray[np.int64] | None = None) -> Array:
        """A gradient of this norm with entries of one size, everywhere or at some ``places``."""
        gradient = np.zeros(self.subject.parameters)
        where = np.arange(self.subject.parameters) if places is None else places
        gradient[where] = self._signs[where] * (length / np.sqrt(len(where)))
        return gradient

    def difference(self, gradient: Array, steps: int | None = None) -> Array:
        """Half the difference between the outputs with this gradient and with its negative."""
        steps = self.steps if steps is None else steps
        seeds = self.seeds[:1] if self.repeatable else self.seeds[:_MEANS]
        total = np.zeros(self.subject.parameters)
        for seed in seeds:
            plus = self.subject.output(gradient, seed, steps)
            minus = self.subject.output(-gradient, seed, steps)
            with np.errstate(invalid="ignore"):
                total += (plus - minus) / (2 * len(seeds))
        return total

    def response(self, gradient: Array) -> Response:
        """How far the output moves along this gradient's direction."""
        moved = self.difference(gradient)
        if not np.all(np.isfinite(moved)):
            return Response(size=np.inf, error=0.0, finite=False)
        along = direction(gradient)
        return Response(size=abs(float(moved @ along)), error=self._error(along))

    def _error(self, along: Array) -> float:
        if self.repeatable:
            return float(np.sqrt(np.sum((self.rounding * along) ** 2)))
        # Five standard deviations of a mean of half differences.
        return 5 * self.noise_level() / float(np.sqrt(2 * min(_MEANS, len(self.seeds))))

    @cached_property
    def unit(self) -> Unit:
        """The effect of a contribution of norm C along the axis."""
        return self.unit_along(self.along_axis(1.0))

    def unit_along(self, gradient: Array) -> Unit:
        """The effect of a contribution of norm C along this gradient's direction.

        It is read off gradients too short to be clipped, and differs between directions where
        tensors have learning rates of their own.
        """
        full = self.subject.clip_norm * direction(gradient)
        if not self.repeatable:
            # A short gradient drowns in noise. Take the noise for what it is claimed to be.
            size = self.noise_level() * self.insertions / np.sqrt(self.steps)
            size /= self.subject.noise_multiplier
            return Unit(size=float(size), error=0.05 * float(size), kind="linear")
        # A tenth is below every threshold even where each of a hundred tensors has its own.
        for share in (0.1, 0.5, 1.0):
            seen = self.response(share * full)
            if seen.error <= _IMPRECISE * seen.size:
                break
        if seen.size <= 2 * seen.error or not seen.finite:
            return Unit(size=0.0, error=seen.error, kind="absent")
        half = self.response(share / 2 * full)
        slack = 0.02 + 2 * seen.error / seen.size
        if abs(half.size / seen.size - 0.5) <= slack:
            size = seen.size / share
            if self.steps > 1:
                # The other examples react to a canary, and not always in proportion to its length.
                size = max(size, self.response(full).size)
            return Unit(size=size, error=seen.error / share, kind="linear")
        if half.size / seen.size > 0.75:
            long = self.response(1e3 * full)
            return Unit(size=long.size, error=long.error, kind="normalised")
        return Unit(size=seen.size, error=seen.error, kind="unclear")

    @cached_property
    def raw_share(self) -> float:
        """How much of a gradient gets through however long it is: 1 if nothing is clipped."""
        if not self.unit.known:
            return 0.0
        long = self.response(self.along_axis(1e3 * self.subject.clip_norm))
        endless = self.response(self.along_axis(_ENDLESS * self.subject.clip_norm))
        growth = endless.size - endless.error - long.size
        return max(growth, 0.0) / (_ENDLESS * self.unit.size)

    @cached_property
    def slack(self) -> float:
        """By how much a contribution may exceed the unit before it is called too large.

        One per cent covers the small constants that implementations add to a norm. In a training of
        several steps the other examples react to the canary, which is not its own contribution.
        """
        return 0.01 if self.steps == 1 else 0.1

    def scales(self, steps: int | None = None) -> tuple[Array, float] | None:
        """For each coordinate of ``spread``: what a unit contribution along it does, and the error.

        Zero where a coordinate is not trained; `None` where nothing sharp enough can be said. After
        one step the coordinates may have learning rates of their own. After several, they act on
        each other, and only the total is used: for signs drawn at random, the mean square of the
        response over coordinates bounds that of the noise for every linear dynamics, by the
        inequality of Cauchy and Schwarz over steps.
        """
        steps = self.steps if steps is None else steps
        if steps not in self._scales:
            self._scales[steps] = self._measured_scales(steps)
        return self._scales[steps]

    def _measured_scales(self, steps: int) -> tuple[Array, float] | None:
        unit, places = self.unit, self.spread
        if not self.repeatable:
            return None
        if unit.kind != "linear":
            if not unit.known or steps != self.steps:
                return None
            return np.full(len(places), unit.size), unit.error / unit.size
        for share in (0.1, 0.5, 1.0):
            length = share * self.subject.clip_norm
            if steps > 1:
                found = self._total_scale(length, steps)
            else:
                gradient = self.dense(length, places)
                moved = self.difference(gradient, steps)[places]
                entries = gradient[places] / self.subject.clip_norm
                found = scales_by_blocks(moved, entries, self.rounding[places])
            if found is not None:
                return found
        return None

    def _total_scale(self, length: float, steps: int) -> tuple[Array, float] | None:
        """The same for all coordinates, from three drawings of signs."""
        share, places = length / self.subject.clip_norm, self.spread
        totals = []
        for drawing in range(3):
            random = np.random.default_rng([7, drawing])
            signs = random.choice([-1.0, 1.0], size=self.subject.parameters)
            moved = self.difference(signs * np.abs(self.dense(length, places)), steps)[places]
            totals.append(float(np.linalg.norm(moved)) / share)
        floor = float(np.linalg.norm(self.rounding[places])) / share
        # Where few directions rule the dynamics, three drawings do not agree on a total.
        if not np.isfinite(totals).all() or max(totals) > 1.1 * min(totals):
            return None
        if floor > _COARSE * min(totals):
            return None
        return np.full(len(places), min(totals)), floor / min(totals)

    @cached_property
    def noise_with_example(self) -> Array:
        """As `noise`, with an example whose gradient is zero in every batch."""
        zeros = np.zeros(self.subject.parameters)
        outputs = np.stack(
            [self.subject.output(zeros, seed, self.steps)[self.watched] for seed in self.seeds]
        )
        noise: Array = outputs - outputs.mean(axis=0)
        return noise

    @cached_property
    def presence(self) -> Array:
        """What the mere presence of an example changes: one whose gradient is zero."""
        zeros = np.zeros(self.subject.parameters)
        return self.subject.output(zeros, self.seeds[0], self.steps) - self.quiet


def _offsets(runs: int) -> list[int]:
    further = [offset for offset in range(runs + len(SEED_OFFSETS)) if offset not in SEED_OFFSETS]
    return [*SEED_OFFSETS, *further][:runs]
