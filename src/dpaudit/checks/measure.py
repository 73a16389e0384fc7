r"""How one step is measured: responses, their unit, noise, and what hides them.

With the same seed, everything random is the same, so that

.. math:: \tfrac12 \left( \mathrm{output}(+g) - \mathrm{output}(-g) \right)

is the effect of the gradient :math:`g` itself: noise, starting point and the other examples cancel,
and so does the effect of the mere presence of one more example. Learning rate and batch size do not
cancel, but they multiply noise and response alike: only ratios are judged.

All rules share one `Measurements`, which measures everything once, when a rule first asks for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit._arrays import Array
from dpaudit.checks.subject import StepSubject, Subject, Tensor

FALSE_ALARM = 1e-6
"""Largest probability that one rule about noise reports a correct training as broken."""

SEED_OFFSETS = (
    0, 1, 10, 100, 256, 1000, 1024, 65_536, 100_000, 1_000_000, 1_048_576, 2, 7, 16, 64, 128,
    4096, 10_000, 3, 5,
)  # fmt: skip
"""Chosen so that seeds reduced modulo a power of two or ten repeat themselves."""

FIRST_LOOK = (1 << 14, 24)
"""Values of noise (seeds times parameters) that the first sample has at least, and seeds."""

SECOND_LOOK = (1 << 16, 64)
"""The same for the second sample."""

SUSPICIOUS = 0.01
"""A first sample less likely than this calls for the second one."""

_MOST_SEEDS = 8  # times the least number of seeds
_MOST_LONG = 64  # where a training cannot be shortened to one step

ENDLESS = 1e6
"""A clipped gradient of so many C keeps a millionth of its length."""

_WATCHED = 1 << 18  # coordinates whose noise is kept; memory, not mathematics, sets the limit
_SPREAD = 1024  # coordinates of the dense canary that noise is measured against
_PER_TENSOR = 16  # of them in every tensor, at least
_TRIES = 12  # seeds, to find one under which a sampled canary takes part
_MEANS = 8  # seeds to average over, where the same seed does not give the same result
_IMPRECISE = 0.005  # relative error of a unit
_COARSE = 0.02  # relative error of a scale
_FEW = 6  # seeds, for an estimate that need not be sharp
_ADAPTIVE = 1e3  # effects of a linear optimizer grow less from one step to the next
_BENT = 0.005  # relative change of an effect from seed to seed that rounding does not explain


def smallest_ratio(degrees: int, level: float) -> float:
    """Below this, a sum of squares over its expectation falls with probability ``level``.

    Example:
        >>> round(smallest_ratio(1000, 1e-6), 4)
        0.8016
    """
    return float(2 * special.gammaincinv(degrees / 2, level) / degrees)


def largest_ratio(degrees: int, level: float) -> float:
    """Above this, a sum of squares over its expectation rises with probability ``level``."""
    return float(2 * special.gammainccinv(degrees / 2, level) / degrees)


def standard_deviations(level: float) -> float:
    """Standard deviations that a normal variable exceeds, on either side, at this level.

    Example:
        >>> round(standard_deviations(0.05), 2)
        1.96
    """
    return float(math.sqrt(2) * special.erfcinv(level))


def centred(rows: Array) -> Array:
    """The rows minus their mean: outputs of several seeds minus what they share."""
    return np.asarray(rows - rows.mean(axis=0))


def root_mean_square(values: Array) -> float:
    """The root of the mean of the squares."""
    return float(np.sqrt(np.mean(values**2)))


def direction(gradient: Array) -> Array:
    """Unit vector along a gradient, also where its norm overflows."""
    if not np.all(np.isfinite(gradient)):
        along = (~np.isfinite(gradient)).astype(np.float64)
    else:
        along = gradient / (float(np.abs(gradient).max()) or 1.0)
    return along / (float(np.linalg.norm(along)) or 1.0)


class Response(NamedTuple):
    """How far one crafted gradient moved the output along its own direction, with its error."""

    size: float
    error: float


@final
@dataclass(frozen=True, kw_only=True)
class Unit:
    """The effect of a contribution of norm exactly C on the output.

    Arguments:
        size: How far the output moves.
        error: Error of ``size``.
        kind: ``linear`` if short gradients act in proportion to their norm (clipping),
            ``normalised`` if all act alike (automatic clipping), ``absent`` if no effect was seen,
            ``unclear`` otherwise.
    """

    size: float
    error: float
    kind: Literal["linear", "normalised", "absent", "unclear"]

    @property
    def known(self) -> bool:
        """Whether contributions can be measured in this unit."""
        return self.kind in ("linear", "normalised")

    @property
    def why_not(self) -> str:
        """The reason where it is not known."""
        if self.kind == "absent":
            return (
                "the canary has no effect: is it in the batch under this seed, is its coordinate "
                "trained, and is the optimizer plain SGD? An adaptive one such as Adam hides it; "
                "check its private gradient with check_step"
            )
        return (
            "the output is neither linear in short gradients nor the same for all of them, as with "
            "an adaptive optimizer; check its private gradient with check_step"
        )


Scales = tuple[Array, float]
"""The effect along each coordinate of ``spread``, and its relative error."""


@final
class Measurements:
    """All measurements of a subject, made on demand."""

    def __init__(self, subject: Subject, *, runs: int, seed: int, axis: int) -> None:
        self.subject = subject
        self.axis = axis
        self.steps = 1 if subject.steps_can_vary else subject.steps
        self.insertions = 1 if subject.steps_can_vary else subject.insertions
        self._signs = np.random.default_rng(7).choice([-1.0, 1.0], size=subject.parameters)
        self.seeds = self._with_effect_first([seed + offset for offset in offsets(runs)])
        self._outputs: dict[int, Array] = {}
        self._made: dict[str, Any] = {}
        self.grain = 0.0
        """The distance between neighbouring numbers in the outputs."""

    def _with_effect_first(self, seeds: list[int]) -> tuple[int, ...]:
        """The seeds, with one first under which the canary takes part in the first step."""
        for length in (10.0, 0.5):  # a training may drop the longest gradients
            gradient = self.dense(length * self.subject.clip_norm)
            for place, seed in enumerate(seeds[:_TRIES]):
                if not np.array_equal(*self.subject.pair(gradient, seed, self.steps)):
                    return (seed, *seeds[:place], *seeds[place + 1 :])
        return tuple(seeds)

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """A measurement of another module, made at the first call."""
        if name not in self._made:
            self._made[name] = make()
        return self._made[name]

    # --- Coordinates and crafted gradients. -------------------------------------------------------

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The parameter tensors, or equal ranges of a flat vector."""
        return self.subject.tensors  # the first output, of the constructor, shows them

    @cached_property
    def spread(self) -> NDArray[np.int64]:
        """Coordinates that a dense canary is measured at: some of every tensor."""
        everywhere = np.linspace(0, self.subject.parameters - 1, _SPREAD)
        some = [
            np.linspace(tensor.start, tensor.stop - 1, min(tensor.size, _PER_TENSOR))
            for tensor in self.tensors[:_SPREAD]
            if tensor.size
        ]
        return np.unique(np.concatenate([everywhere, *some]).astype(np.int64))

    @cached_property
    def watched(self) -> NDArray[np.int64]:
        """Coordinates whose noise is kept: evenly spread ones, then the axis and ``spread``.

        The even ones come first and in order, so that noise can be compared at fixed distances.
        """
        count = self.subject.parameters
        even = np.unique(np.linspace(0, count - 1, min(count, _WATCHED)).astype(np.int64))
        return np.concatenate([even, np.setdiff1d([*self.spread, self.axis], even)])

    def columns(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where some coordinates of ``spread`` stand among the watched ones."""
        order = np.argsort(self.watched)
        return np.asarray(order[np.searchsorted(self.watched, places, sorter=order)])

    def tensor_at(self, index: int) -> Tensor:
        """The tensor of a coordinate."""
        return next(tensor for tensor in self.tensors if tensor.start <= index < tensor.stop)

    def along_axis(self, length: float) -> Array:
        """A gradient of this norm along one coordinate."""
        gradient = np.zeros(self.subject.parameters)
        gradient[self.axis] = length
        return gradient

    def dense(self, length: float, places: NDArray[np.int64] | None = None) -> Array:
        """A gradient of this norm with entries of equal size, everywhere or at ``places``."""
        gradient = np.zeros(self.subject.parameters)
        where = np.arange(self.subject.parameters) if places is None else places
        gradient[where] = self._signs[where] * (length / np.sqrt(len(where)))
        return gradient

    # --- Outputs without a canary: rounding and noise. --------------------------------------------

    @cached_property
    def quiet(self) -> Array:
        """The output without any crafted gradient, under the first seed."""
        return self.subject.output(None, self.seeds[0], self.steps)

    @cached_property
    def repeat_difference(self) -> Array:
        """Difference between two equal calls."""
        return np.abs(self.subject.output(None, self.seeds[0], self.steps) - self.quiet)

    @cached_property
    def repeatable(self) -> bool:
        """Whether the same seed gives the same output, up to rounding."""
        largest = float(self.repeat_difference.max())
        return largest == 0.0 or largest <= 1e-3 * root_mean_square(self.noise())

    @cached_property
    def remembers(self) -> bool:
        """Whether equal calls of a step give a growing output: old sums are added again."""
        if self.repeatable or "step" not in self.subject.kinds:
            return False
        outputs = [self.subject.output(None, self.seeds[0], self.steps) for _ in range(3)]
        once, twice = outputs[1] - outputs[0], outputs[2] - outputs[1]
        return bool(np.linalg.norm(twice - once) <= 1e-3 * np.linalg.norm(once))

    @cached_property
    def precision(self) -> float:
        """The relative rounding error of the output, from the type it was computed in."""
        values = self.quiet[self.watched]
        if not np.array_equal(values.astype(np.float32), values):
            return float(np.finfo(np.float64).eps)
        if not np.any(values.astype(np.float32).view(np.uint32) & 0xFFFF):
            return float(2.0**-8)  # bfloat16
        with np.errstate(over="ignore"):
            half = np.array_equal(values.astype(np.float16), values)
        return float(np.finfo(np.float16 if half else np.float32).eps)

    @cached_property
    def rounding(self) -> Array:
        """Absolute rounding error of each coordinate of a difference."""
        self.noise()
        rounding: Array = 4 * self.precision * np.abs(self.quiet) + 2 * self.grain
        # What changes in an unseeded training is noise, not rounding.
        return rounding + self.repeat_difference if self.repeatable else rounding

    @cached_property
    def floor(self) -> float:
        """The rounding of a typical coordinate."""
        return root_mean_square(self.rounding)

    def outputs(self, steps: int | None = None) -> Array:
        """Outputs without a canary at the watched coordinates, a row per seed."""
        steps = self.steps if steps is None else steps
        if steps not in self._outputs:
            rows = [
                self.quiet
                if steps == self.steps and seed == self.seeds[0]
                else self.subject.output(None, seed, steps)
                for seed in self.seeds
            ]
            self._outputs[steps] = np.stack([row[self.watched] for row in rows])
            # Of all seeds: noise below the spacing may leave the output of one all zero.
            self.grain = max(self.grain, _spacing_of(self._outputs[steps].ravel()))
        return self._outputs[steps]

    def noise(self, steps: int | None = None) -> Array:
        """The same minus the mean over seeds."""
        steps = self.steps if steps is None else steps
        noise: Array = self.once(f"noise of {steps}", lambda: centred(self.outputs(steps)))
        return noise

    def noise_level(self) -> float:
        """Standard deviation of one coordinate from seed to seed, over all watched ones."""
        noise = self.noise()
        return root_mean_square(noise) * math.sqrt(len(noise) / (len(noise) - 1))

    @cached_property
    def noise_is_there(self) -> bool:
        """Whether anything changes from one seed to another."""
        return not self.repeatable or self.noise_level() > 3 * self.floor

    def larger_sample(self, wanted: tuple[int, int]) -> Array:
        """Noise over more seeds.

        Arguments:
            wanted: Number of values, seeds times watched parameters, and of seeds: at least.
        """
        values, least = wanted
        short = self.subject.steps_can_vary or self.steps == 1
        most = _MOST_SEEDS * least if short else _MOST_LONG
        count = min(most, max(least, -(-values // len(self.watched))))
        if count <= len(self.seeds):
            return self.noise()
        further: list[Array] = self.once("further outputs", list)
        while len(self.seeds) + len(further) < count:
            seed = max(self.seeds) + 1 + len(further)
            further.append(self.subject.output(None, seed, self.steps)[self.watched])
        return centred(np.vstack([self.outputs(), *further[: count - len(self.seeds)]]))

    # --- Responses. -------------------------------------------------------------------------------

    def difference(self, gradient: Array, *, place: float = 1.0) -> Array:
        """Half the difference between the outputs with this gradient and with its negative."""
        seeds = self.seeds[:1] if self.repeatable else self.seeds[:_MEANS]
        total = np.zeros(self.subject.parameters)
        for seed in seeds:
            plus, minus = self.subject.pair(gradient, seed, self.steps, place=place)
            with np.errstate(invalid="ignore"):
                total += (plus - minus) / (2 * len(seeds))
        return total

    def response(self, gradient: Array, *, place: float = 1.0) -> Response:
        """How far the output moves along this gradient's direction; infinite if not finite."""
        moved = self.difference(gradient, place=place)
        if not np.all(np.isfinite(moved)):
            return Response(np.inf, 0.0)
        along = direction(gradient)
        # Five standard deviations of a mean of half differences, if outputs do not repeat.
        error = (
            float(np.sqrt(np.sum((self.rounding * along) ** 2)))
            if self.repeatable
            else 5 * self.noise_level() / math.sqrt(2 * min(_MEANS, len(self.seeds)))
        )
        return Response(abs(float(moved @ along)), error)

    @cached_property
    def unit(self) -> Unit:
        """The effect of a contribution of norm C along the axis."""
        return self.unit_along(self.along_axis(1.0))

    def unit_along(self, gradient: Array) -> Unit:
        """The effect of a contribution of norm C along this gradient's direction.

        It is measured with gradients too short to be clipped. It differs between directions if
        tensors have different learning rates.
        """
        full = self.subject.clip_norm * direction(gradient)
        if not self.repeatable:
            # A short gradient is invisible in the noise: assume that noise is as claimed.
            size = self.noise_level() * self.insertions / math.sqrt(self.steps)
            size /= self.subject.noise_multiplier
            return Unit(size=size, error=0.05 * size, kind="linear")
        # A tenth is below every threshold even where each of a hundred tensors has its own.
        for share in (0.1, 0.5, 1.0):
            response = self.response(share * full)
            if response.error <= _IMPRECISE * response.size:
                break
        if response.size <= 2 * response.error or not np.isfinite(response.size):
            return Unit(size=0.0, error=response.error, kind="absent")
        half = self.response(share / 2 * full)
        slack = 0.02 + 2 * response.error / response.size
        if abs(half.size / response.size - 0.5) <= slack:
            size = response.size / share
            if self.steps > 1:
                # The other examples react to a canary, not always in proportion to its norm.
                size = max(size, self.response(full).size)
            return Unit(size=size, error=response.error / share, kind="linear")
        if self.steps == 1 and self.noise_is_there and self.bends:
            return Unit(size=response.size, error=response.error, kind="unclear")
        long = self.response(1e3 * full)
        if half.size / response.size > 0.75:
            return Unit(size=long.size, error=long.error, kind="normalised")
        longer = self.response(ENDLESS * full)
        if np.isfinite(longer.size) and (
            abs(longer.size / max(long.size, 1e-300) - 1) <= 0.01 + slack
        ):
            return Unit(size=longer.size, error=longer.error, kind="normalised")
        return Unit(size=response.size, error=response.error, kind="unclear")

    @cached_property
    def raw_share(self) -> float:
        """The share of a long gradient that is not clipped: 1 if nothing is clipped."""
        if not self.unit.known:
            return 0.0
        long = self.response(self.along_axis(1e3 * self.subject.clip_norm))
        endless = self.response(self.along_axis(ENDLESS * self.subject.clip_norm))
        growth = endless.size - endless.error - long.size
        return max(growth, 0.0) / (ENDLESS * self.unit.size)

    @cached_property
    def slack(self) -> float:
        """By how much a contribution may exceed the unit.

        One per cent covers the small constants that implementations add to a norm. In a training of
        several steps the other examples react to the canary, which is not its own contribution.
        """
        return 0.01 if self.steps == 1 else 0.1

    # --- What one more example with a zero gradient does. -----------------------------------------

    @cached_property
    def presence(self) -> Array:
        """The effect of one more example with a zero gradient."""
        zeros = np.zeros(self.subject.parameters)
        return self.subject.output(zeros, self.seeds[0], self.steps) - self.quiet

    @cached_property
    def presence_counts(self) -> bool:
        """Whether one more example with a zero gradient changes more than rounding does."""
        if not np.all(np.isfinite(self.presence)):
            return True
        # Some trainings compute in float32 and return float64: rounding is not below this.
        least = 1e-6 * max(self.noise_level(), self.unit.size)
        return root_mean_square(self.presence) > max(10 * self.floor, least)

    @cached_property
    def noise_with_example(self) -> Array:
        """As `noise`, with one more example, of zero gradient, in every batch."""
        zeros = np.zeros(self.subject.parameters)
        rows = [self.subject.output(zeros, seed, self.steps)[self.watched] for seed in self.seeds]
        return centred(np.stack(rows))

    # --- Scales: the effect of a contribution of norm C along each coordinate. --------------------

    @cached_property
    def scales(self) -> Scales | None:
        """The effect of a unit contribution along each coordinate of ``spread``, and its error.

        Zero where a coordinate is not trained; `None` if the measurement is not precise enough.
        After one step the coordinates may have different learning rates. After several, or behind
        a public linear map, they act on each other and only the total is used: for random signs,
        the mean square of the response over coordinates bounds that of the noise for every linear
        dynamics, by the inequality of Cauchy and Schwarz over steps.
        """
        if not self.repeatable or not self.unit.known:
            return None
        if self.unit.kind == "normalised":
            return np.full(len(self.spread), self.unit.size), self.unit.error / self.unit.size
        clip_norm = self.subject.clip_norm
        scales = self._scales_of(0.1 * clip_norm)
        # Where the dense gradient is clipped by another norm (L1), a much shorter one is not.
        if scales and np.median(scales[0]) <= 0.9 * self.unit.size:
            shorter = self._scales_of(0.1 * clip_norm / math.sqrt(len(self.spread)))
            if shorter and np.median(shorter[0]) > np.median(scales[0]):
                scales = shorter
        return scales or self._scales_of(0.5 * clip_norm) or self._scales_of(clip_norm)

    def _scales_of(self, length: float) -> Scales | None:
        if self.steps > 1 or self.mixes:
            return self._total_scale(length)
        gradient = self.dense(length, self.spread)
        moved = self.difference(gradient)[self.spread]
        entries = gradient[self.spread] / self.subject.clip_norm
        return _fitted_by_blocks(moved, entries, self.rounding[self.spread])

    def _total_scale(self, length: float) -> Scales | None:
        """The same for all coordinates, from three drawings of signs."""
        share, places = length / self.subject.clip_norm, self.spread
        if self.mixes:
            places = np.arange(self.subject.parameters)
        totals = []
        for drawing in range(3):
            random = np.random.default_rng([7, drawing])
            signs = random.choice([-1.0, 1.0], size=self.subject.parameters)
            moved = self.difference(signs * np.abs(self.dense(length, places)))[places]
            totals.append(float(np.linalg.norm(moved)) / share)
        floor = float(np.linalg.norm(self.rounding[places])) / share
        # If few directions dominate, three drawings do not agree on a total.
        if not np.isfinite(totals).all() or max(totals) > 1.1 * min(totals):
            return None
        if floor > _COARSE * min(totals):
            return None
        return np.full(len(self.spread), min(totals)), floor / min(totals)

    @cached_property
    def cover(self) -> float:
        """How many times as large as claimed the noise is, relative to the unit along the axis."""
        if self.scales is None or not self.noise_is_there:
            return 1.0
        tensor, places, scales = self.tensor_at(self.axis), self.spread, self.scales[0]
        near = (places >= tensor.start) & (places < tensor.stop) & (scales > 0)
        around = float(np.median(scales[near])) if near.any() else self.unit.size
        return self.cover_of_scales * around / self.unit.size

    @cached_property
    def cover_of_scales(self) -> float:
        """The same relative to the scales of all coordinates.

        In a training, noise is read from the third step less the second, so that a random starting
        point does not count as noise.
        """
        subject = self.subject
        if self.scales is None or not (self.scales[0] > 0).any():
            return 1.0
        trained = self.scales[0] > 0
        places, claimed = self.spread[trained], subject.noise_multiplier * self.scales[0][trained]
        if isinstance(subject, StepSubject):
            return _deviation(self.noise()[:, self.columns(places)] / claimed)
        if not subject.steps_can_vary or subject.places_per_step is None:
            return 1.0
        outputs = [
            np.stack([subject.output(None, seed, steps)[places] for seed in self.seeds[:_FEW]])
            for steps in (1, 2, 3)
        ]
        gradient = self.along_axis(0.05 * subject.clip_norm)
        second, third = (
            np.subtract(*subject.pair(gradient, self.seeds[0], steps, only=1))[self.axis]
            for steps in (2, 3)
        )
        if not second:
            return 1.0
        carried = third / second - 1  # by momentum, from the second step to the third
        noise = outputs[2] - outputs[1] - carried * (outputs[1] - outputs[0])
        growth = abs(float(second)) / (0.1 * self.unit.size)
        if not 1 / _ADAPTIVE < growth < _ADAPTIVE:
            return float(np.inf)  # short gradients in one step say nothing about another: Adam
        return _deviation(noise / claimed) / growth

    # --- Public transforms of the noisy gradient: no leak, but they hide what rules look at. ------

    @cached_property
    def mixes(self) -> bool:
        """Whether the output is a public linear map of the private gradient, as a projection.

        A gradient along one coordinate then moves others too, in proportion.
        """
        if not self.repeatable or self.steps > 1 or self.unit.kind != "linear":
            return False
        moved = self.difference(self.along_axis(0.1 * self.subject.clip_norm))
        own = abs(float(moved[self.axis]))
        moved[self.axis] = 0.0
        floor = 3 * float(np.linalg.norm(self.rounding))
        return float(np.linalg.norm(moved)) > max(0.02 * own, floor)

    @cached_property
    def white(self) -> bool:
        """Whether noise has about the same size in all directions, as far as the seeds show.

        The inner products of the noise of two seeds have a variance of one over the number of
        directions that the noise has.
        """
        noise = self.noise() / root_mean_square(self.noise())
        seeds, count = noise.shape
        products = (noise @ noise.T / count + 1 / (seeds - 1))[np.triu_indices(seeds, 1)]
        return bool(np.mean(products**2) * count < 1.6)

    @cached_property
    def thresholded(self) -> bool:
        """Whether the output is a public thresholding of the noisy gradient: top-k, clamp, sign.

        A short gradient then moves some coordinates under one seed and others under another seed.
        """
        if not self.repeatable or self.steps > 1 or not self.noise_is_there:
            return False
        short = self.dense(0.01 * self.subject.clip_norm)
        moved = []
        for seed in self.seeds[:3]:
            plus, minus = self.subject.pair(short, seed, self.steps)
            moved.append(np.abs(plus - minus) > 2 * self.rounding)
        # Untrained coordinates never move, and a canary that is not in the batch moves nothing.
        moved = [mask for mask in moved if mask.any()]
        if len(moved) < 2:
            return False
        ever = np.any(moved, axis=0)
        scale = self.unit.size / self.subject.clip_norm if self.unit.known else 1.0
        visible = np.median(2 * self.rounding) < 0.1 * np.abs(short).max() * scale
        return bool(visible and max(mask[ever].mean() for mask in moved) < 0.97)

    @cached_property
    def bends(self) -> bool:
        """Whether the noise decides what a gradient does, as before a tanh, or inside Adam.

        The noise of one step is added to the gradients, so that a gradient has the same effect
        under every seed. Behind a public function of the noisy sum, such as tanh, Adam, the sign or
        a rescaling by its norm, it has not: the gradient here lies along the noise of one seed.
        """
        if not self.repeatable or self.steps > 1 or not self.noise_is_there:
            return False
        half = self.subject.clip_norm / 2
        gradient, noise = self.dense(half), self.noise()[0]
        gradient[self.watched] += noise * (half / np.linalg.norm(noise))
        effects = []
        for seed in self.seeds[:4]:
            plus, minus = self.subject.pair(gradient, seed, self.steps)
            effects.append((plus - minus)[self.watched])
        effects = [effect for effect in effects if np.any(effect)]  # else not in the batch
        if len(effects) < 2:
            return False
        smallest = min(float(np.linalg.norm(effect)) for effect in effects)
        allowed = _BENT + 4 * float(np.linalg.norm(self.rounding[self.watched])) / smallest
        return any(
            float(np.linalg.norm(effect - effects[0])) > allowed * smallest
            for effect in effects[1:]
        )


def offsets(runs: int) -> list[int]:
    """What is added to the first seed, for each of so many runs."""
    further = [offset for offset in range(runs + len(SEED_OFFSETS)) if offset not in SEED_OFFSETS]
    return [*SEED_OFFSETS, *further][:runs]


def _spacing_of(values: Array) -> float:
    """The typical distance between neighbouring numbers, from the last bit that is set.

    A training that returns how far the parameters moved rounded the parameters, not the distance.
    """
    mantissa, exponent = np.frexp(values[values != 0][: 1 << 16])
    if not len(mantissa):
        return 0.0
    digits = np.abs(np.ldexp(mantissa, 53)).astype(np.int64)
    last = (digits & -digits).astype(np.float64)
    return float(np.median(np.ldexp(last, exponent - 53)))


def _fitted_by_blocks(moved: Array, entries: Array, rounding: Array) -> Scales | None:
    """Fit ``moved = scale * entries`` within blocks that are as short as rounding allows.

    Returns the scale of each coordinate, zero where it did not move, and a typical relative error;
    `None` if even long blocks are too imprecise.
    """
    if not np.all(np.isfinite(moved)):
        return None
    for width in (1, 8, 64):
        block = np.arange(len(moved)) // width
        weight = np.bincount(block, entries**2)
        scale = np.abs(np.bincount(block, moved * entries) / weight)
        error = np.sqrt(np.bincount(block, (rounding * entries) ** 2)) / weight
        trained = scale > 3 * error
        relative = float(np.median(error[trained] / scale[trained])) if trained.any() else np.inf
        if relative <= _COARSE:
            return np.where(trained, scale, 0.0)[block], relative
    return None


def _deviation(values: Array) -> float:
    """Standard deviation over rows, pooled over columns."""
    return float(np.sqrt(values.var(axis=0, ddof=1).mean()))


# --- Conditions of probes: each gives the reason why it is not met, or no text. -------------------


NOT_LINEAR = (
    "Some coordinates of the output do not react to short gradients, as behind Adam, top-k or "
    "clamping: check the private gradient before it with check_step (--step)."
)


def same_output(measured: Measurements) -> str:
    """The same seed gives the same output."""
    if measured.repeatable:
        return ""
    return (
        "This needs the same output for the same seed, and two calls with one seed were "
        f"{float(measured.repeat_difference.max()):.2g} apart. Seed everything from `seed`: "
        "torch.manual_seed(seed) and the generator of the DP optimizer, "
        "numpy.random.default_rng(seed), jax.random.key(seed); shuffle the data with a generator "
        "of that seed too, and do not use secure_mode here."
    )


def takes_steps(measured: Measurements) -> str:
    """The training can be asked for any number of steps."""
    if measured.subject.steps_can_vary:
        return ""
    return "Let train take one more argument, `steps`, and train that many steps."


def one_step(measured: Measurements) -> str:
    """The output is that of a single step."""
    if measured.steps == 1:
        return ""
    return "Only one step shows it; let train take `steps`, or check a training of one step."


def other_examples(measured: Measurements) -> str:
    """Further examples can be put beside the canary."""
    if measured.subject.local:
        return "One row is a whole batch, so that no other examples can be added."
    if measured.subject.records == 1 or "step" in measured.subject.kinds:
        return ""
    return "All rows of the canary belong to one user, so that no other examples can be added."


def noise(measured: Measurements) -> str:
    """Something changes from seed to seed."""
    return "" if measured.noise_is_there else "See 'noise in every parameter' first."


def no_transform(measured: Measurements) -> str:
    """No public transform hides single coordinates of the noisy gradient."""
    if "public_transform" in measured.subject.declared:
        return "A public transform of the noisy gradient is declared: check the step before it."
    return NOT_LINEAR if measured.thresholded else ""


def readable(measured: Measurements) -> str:
    """Noise and contributions can be read from the output."""
    reason = no_transform(measured)
    if not reason and not measured.unit.known:
        reason = f"Nothing to compare with: {measured.unit.why_not}."
    return reason


def clipping(measured: Measurements) -> str:
    """Contributions can be read from the output, and the user's code clips them."""
    reason = readable(measured)
    if not reason and measured.subject.asked == {"clipped_sum"}:
        reason = (
            "The training inserts canary.clipped_sum(inserted), which is clipped already. This "
            "rule needs canary.rows(inserted) as per-example gradients."
        )
    return reason
