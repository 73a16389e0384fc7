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
from typing import Any, Literal, final

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


Scales = tuple[Array, float]
"""The effect along each coordinate of ``spread``, and its relative error."""

# --- Limits and arithmetic. -----------------------------------------------------------------------


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


def _scales_by_blocks(moved: Array, entries: Array, rounding: Array) -> tuple[Array, float] | None:
    """Fit ``moved = scale * entries`` within blocks that are as short as rounding allows.

    Returns the scale of each coordinate, zero where it did not move, and a typical relative error;
    `None` if even long blocks are too imprecise.
    """
    if not np.all(np.isfinite(moved)):
        return None
    for width in (1, 8, 64):
        found = _in_blocks(moved, entries, rounding, width)
        if found is not None:
            return found
    return None


def _in_blocks(
    moved: Array, entries: Array, rounding: Array, width: int
) -> tuple[Array, float] | None:
    block = np.arange(len(moved)) // width
    weight = np.bincount(block, entries**2)
    scale = np.abs(np.bincount(block, moved * entries) / weight)
    error = np.sqrt(np.bincount(block, (rounding * entries) ** 2)) / weight
    trained = scale > 3 * error
    if not trained.any():
        return None
    relative = float(np.median(error[trained] / scale[trained]))
    if relative > 0.02:
        return None
    return np.where(trained, scale, 0.0)[block], relative


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


def centred(rows: Array) -> Array:
    """The rows minus their mean: outputs of several seeds minus what they share."""
    return np.asarray(rows - rows.mean(axis=0))


def direction(gradient: Array) -> Array:
    """Unit vector along a gradient, also where its norm overflows."""
    if not np.all(np.isfinite(gradient)):
        along = (~np.isfinite(gradient)).astype(np.float64)
    else:
        along = gradient / (float(np.abs(gradient).max()) or 1.0)
    length = float(np.linalg.norm(along)) or 1.0
    return along / length


# --- Responses and measurements. ------------------------------------------------------------------


@final
@dataclass(frozen=True, kw_only=True)
class Response:
    """How far one crafted gradient moved the output along its own direction, with its error."""

    size: float
    error: float
    finite: bool = True


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


@final
class Measurements:
    """All measurements of a subject, made on demand.

    Arguments:
        subject: What is checked.
        runs: Number of seeds over which noise is measured.
        seed: The first seed.
        axis: The coordinate of the simplest crafted gradient.
    """

    def __init__(self, subject: Subject, *, runs: int, seed: int, axis: int) -> None:
        self.subject = subject
        self.axis = axis
        self.steps = 1 if subject.steps_can_vary else subject.steps
        self.insertions = 1 if subject.steps_can_vary else subject.insertions
        self._signs = np.random.default_rng(7).choice([-1.0, 1.0], size=subject.parameters)
        self.seeds = self._with_effect_first([seed + offset for offset in offsets(runs)])
        self._outputs: dict[int, Array] = {}
        self._noises: dict[int, Array] = {}
        self._made: dict[str, Any] = {}
        self._spacing = 0.0

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

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The parameter tensors, or equal ranges of a flat vector."""
        if not self.subject.tensors:
            self.quiet  # noqa: B018  # the first output shows them
        return self.subject.tensors

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

    @cached_property
    def quiet(self) -> Array:
        """The output without any crafted gradient, under the first seed."""
        return self.subject.output(None, self.seeds[0], self.steps)

    @cached_property
    def repeat_difference(self) -> Array:
        """Difference between two equal calls."""
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
        """Whether equal calls give a growing output: old sums are added again."""
        if self.repeatable or not isinstance(self.subject, StepSubject):
            return False
        outputs = [self.subject.output(None, self.seeds[0], self.steps) for _ in range(3)]
        once, twice = outputs[1] - outputs[0], outputs[2] - outputs[1]
        return bool(np.linalg.norm(twice - once) <= 1e-3 * np.linalg.norm(once))

    @cached_property
    def precision(self) -> float:
        """The relative rounding error of the output, from the type it was computed in."""
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
        # What changes in an unseeded training is noise, not rounding.
        return rounding + self.repeat_difference if self.repeatable else rounding

    def outputs(self, steps: int | None = None) -> Array:
        """Outputs without a canary at the watched coordinates, a row per seed."""
        steps = self.steps if steps is None else steps
        if steps not in self._outputs:
            rows = [
                (
                    self.quiet
                    if steps == self.steps and seed == self.seeds[0]
                    else self.subject.output(None, seed, steps)
                )[self.watched]
                for seed in self.seeds
            ]
            self._outputs[steps] = np.stack(rows)
            # Of all seeds: noise below the spacing may leave the output of one all zero.
            self._spacing = max(self._spacing, _spacing_of(self._outputs[steps].ravel()))
        return self._outputs[steps]

    def noise(self, steps: int | None = None) -> Array:
        """The same minus the mean over seeds."""
        steps = self.steps if steps is None else steps
        if steps not in self._noises:
            self._noises[steps] = centred(self.outputs(steps))
        return self._noises[steps]

    @property
    def grain(self) -> float:
        """The distance between neighbouring numbers in the outputs."""
        self.noise()
        return self._spacing

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
        """A gradient of this norm with entries of equal size, everywhere or at ``places``."""
        gradient = np.zeros(self.subject.parameters)
        where = np.arange(self.subject.parameters) if places is None else places
        gradient[where] = self._signs[where] * (length / np.sqrt(len(where)))
        return gradient

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
        """How far the output moves along this gradient's direction."""
        moved = self.difference(gradient, place=place)
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
        return unit_along(self, self.along_axis(1.0))

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
    def cover(self) -> float:
        """How many times as large as claimed the noise is, relative to the unit along the axis."""
        return _cover_of_unit(self)

    @cached_property
    def cover_of_scales(self) -> float:
        """The same relative to the scales of all coordinates."""
        return _cover_of_scales(self)

    @cached_property
    def mixes(self) -> bool:
        """Whether the output is a public linear map of the private gradient, as a projection."""
        return _mixes(self)

    @cached_property
    def white(self) -> bool:
        """Whether noise has about the same size in all directions."""
        return _white(self)

    @cached_property
    def thresholded(self) -> bool:
        """Whether the output is a public thresholding of the noisy gradient: top-k, clamp, sign."""
        return _thresholded(self)

    @cached_property
    def bends(self) -> bool:
        """Whether the noise decides what a gradient does, as before a tanh, or inside Adam."""
        return _bends(self)

    @cached_property
    def slack(self) -> float:
        """By how much a contribution may exceed the unit.

        One per cent covers the small constants that implementations add to a norm. In a training of
        several steps the other examples react to the canary, which is not its own contribution.
        """
        return 0.01 if self.steps == 1 else 0.1

    @cached_property
    def scales(self) -> Scales | None:
        """The effect of a unit contribution along each coordinate of ``spread``, and its error.

        Zero where a coordinate is not trained; `None` if the measurement is not precise enough.
        After one step the coordinates may have different learning rates. After several, or behind
        a public linear map, they act on each other and only the total is used: for random signs,
        the mean square of the response over coordinates bounds that of the noise for every linear
        dynamics, by the inequality of Cauchy and Schwarz over steps.
        """
        return _measured_scales(self)

    @cached_property
    def noise_with_example(self) -> Array:
        """As `noise`, with one more example, of zero gradient, in every batch."""
        zeros = np.zeros(self.subject.parameters)
        rows = [self.subject.output(zeros, seed, self.steps)[self.watched] for seed in self.seeds]
        return centred(np.stack(rows))

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
        size = float(np.sqrt(np.mean(self.presence**2)))
        floor = float(np.sqrt(np.mean(self.rounding**2)))
        # Some trainings compute in float32 and return float64: rounding is not below this.
        return size > max(10 * floor, 1e-6 * max(self.noise_level(), self.unit.size))


# --- The unit: the effect of a contribution of norm C. --------------------------------------------


def unit_along(measured: Measurements, gradient: Array) -> Unit:
    """The effect of a contribution of norm C along this gradient's direction.

    It is measured with gradients too short to be clipped. It differs between directions if tensors
    have different learning rates.
    """
    full = measured.subject.clip_norm * direction(gradient)
    if not measured.repeatable:
        # A short gradient is invisible in the noise: assume that noise is as claimed.
        size = measured.noise_level() * measured.insertions / np.sqrt(measured.steps)
        size /= measured.subject.noise_multiplier
        return Unit(size=float(size), error=0.05 * float(size), kind="linear")
    # A tenth is below every threshold even where each of a hundred tensors has its own.
    for share in (0.1, 0.5, 1.0):
        seen = measured.response(share * full)
        if seen.error <= _IMPRECISE * seen.size:
            break
    if seen.size <= 2 * seen.error or not seen.finite:
        return Unit(size=0.0, error=seen.error, kind="absent")
    half = measured.response(share / 2 * full)
    slack = 0.02 + 2 * seen.error / seen.size
    if abs(half.size / seen.size - 0.5) <= slack:
        size = seen.size / share
        if measured.steps > 1:
            # The other examples react to a canary, not always in proportion to its norm.
            size = max(size, measured.response(full).size)
        return Unit(size=size, error=seen.error / share, kind="linear")
    if measured.steps == 1 and measured.noise_is_there and measured.bends:
        return Unit(size=seen.size, error=seen.error, kind="unclear")
    long = measured.response(1e3 * full)
    if half.size / seen.size > 0.75:
        return Unit(size=long.size, error=long.error, kind="normalised")
    longer = measured.response(ENDLESS * full)
    if long.finite and abs(longer.size / max(long.size, 1e-300) - 1) <= 0.01 + slack:
        return Unit(size=longer.size, error=longer.error, kind="normalised")
    return Unit(size=seen.size, error=seen.error, kind="unclear")


def _measured_scales(measured: Measurements) -> Scales | None:
    unit, places = measured.unit, measured.spread
    if not measured.repeatable or not unit.known:
        return None
    if unit.kind == "normalised":
        return np.full(len(places), unit.size), unit.error / unit.size
    # Where the dense gradient is clipped by another norm (L1), a much shorter one is not.
    short = 0.1 / float(np.sqrt(len(places)))
    best: Scales | None = None
    for share in (0.1, short, 0.5, 1.0):
        enough = best is not None and np.median(best[0]) > 0.9 * unit.size
        if enough or (best is not None and share > 0.1):
            return best
        if best is None and share == short:
            continue
        scales = _scale_of(measured, share * measured.subject.clip_norm)
        if scales is not None and (best is None or np.median(scales[0]) > np.median(best[0])):
            best = scales
    return best


def _scale_of(measured: Measurements, length: float) -> Scales | None:
    if measured.steps > 1 or measured.mixes:
        return _total_scale(measured, length)
    places = measured.spread
    gradient = measured.dense(length, places)
    moved = measured.difference(gradient)[places]
    entries = gradient[places] / measured.subject.clip_norm
    return _scales_by_blocks(moved, entries, measured.rounding[places])


def _total_scale(measured: Measurements, length: float) -> Scales | None:
    """The same for all coordinates, from three drawings of signs."""
    share, places = length / measured.subject.clip_norm, measured.spread
    if measured.mixes:
        places = np.arange(measured.subject.parameters)
    totals = []
    for drawing in range(3):
        random = np.random.default_rng([7, drawing])
        signs = random.choice([-1.0, 1.0], size=measured.subject.parameters)
        moved = measured.difference(signs * np.abs(measured.dense(length, places)))[places]
        totals.append(float(np.linalg.norm(moved)) / share)
    floor = float(np.linalg.norm(measured.rounding[places])) / share
    # If few directions dominate, three drawings do not agree on a total.
    if not np.isfinite(totals).all() or max(totals) > 1.1 * min(totals):
        return None
    if floor > _COARSE * min(totals):
        return None
    return np.full(len(measured.spread), min(totals)), floor / min(totals)


def _cover_of_unit(measured: Measurements) -> float:
    """How many times as large as claimed the noise is, relative to the unit along the axis."""
    scaled = measured.scales if measured.repeatable and measured.unit.known else None
    if scaled is None or not measured.noise_is_there:
        return 1.0
    tensor = measured.tensor_at(measured.axis)
    places = measured.spread
    near = (places >= tensor.start) & (places < tensor.stop) & (scaled[0] > 0)
    around = float(np.median(scaled[0][near])) if near.any() else measured.unit.size
    return measured.cover_of_scales * around / measured.unit.size


def _cover_of_scales(measured: Measurements) -> float:
    """The same relative to the scales of all coordinates.

    In a training, noise is read from the third step less the second, so that a random starting
    point does not count as noise.
    """
    scaled, subject = measured.scales, measured.subject
    if scaled is None or not (scaled[0] > 0).any():
        return 1.0
    trained = scaled[0] > 0
    places, claimed = measured.spread[trained], subject.noise_multiplier * scaled[0][trained]
    if isinstance(subject, StepSubject):
        noise = measured.noise()[:, measured.columns(places)]
        return _deviation(noise / claimed)
    if not subject.steps_can_vary or subject.places_per_step is None:
        return 1.0
    outputs = [
        np.stack([subject.output(None, seed, steps)[places] for seed in measured.seeds[:_FEW]])
        for steps in (1, 2, 3)
    ]
    gradient = measured.along_axis(0.1 * subject.clip_norm)
    second, third = (
        [
            subject.output(sign * gradient, measured.seeds[0], steps, only=1)[measured.axis]
            for sign in (0.5, -0.5)
        ]
        for steps in (2, 3)
    )
    own = second[0] - second[1]
    if not own:
        return 1.0
    carried = (third[0] - third[1]) / own - 1  # by momentum, from the second step to the third
    noise = outputs[2] - outputs[1] - carried * (outputs[1] - outputs[0])
    growth = abs(own) / (0.1 * measured.unit.size)
    if not 1 / _ADAPTIVE < growth < _ADAPTIVE:
        return float(np.inf)  # short gradients in one step say nothing about another: Adam
    return _deviation(noise / claimed) / float(growth)


def _deviation(values: Array) -> float:
    """Standard deviation over rows, pooled over columns."""
    return float(np.sqrt(values.var(axis=0, ddof=1).mean()))


# --- More seeds. ----------------------------------------------------------------------------------


def offsets(runs: int) -> list[int]:
    """What is added to the first seed, for each of so many runs."""
    further = [offset for offset in range(runs + len(SEED_OFFSETS)) if offset not in SEED_OFFSETS]
    return [*SEED_OFFSETS, *further][:runs]


def larger_sample(measured: Measurements, wanted: tuple[int, int]) -> Array:
    """Noise as `Measurements.noise` has it, over more seeds.

    Arguments:
        measured: The measurements; they keep the outputs of further seeds.
        wanted: Number of values, seeds times watched parameters, and number of seeds: at least.
    """
    subject, seeds = measured.subject, measured.seeds
    short = subject.steps_can_vary or measured.steps == 1
    values, least = wanted
    most = _MOST_SEEDS * least if short else _MOST_LONG
    count = min(most, max(least, -(-values // len(measured.watched))))
    if count <= len(seeds):
        return measured.noise()
    further: list[Array] = measured.once("further outputs", list)
    while len(seeds) + len(further) < count:
        seed = max(seeds) + 1 + len(further)
        further.append(subject.output(None, seed, measured.steps)[measured.watched])
    return centred(np.vstack([measured.outputs(), *further[: count - len(seeds)]]))


# --- Public transforms of the noisy gradient: no leak, but they hide what rules look at. ----------


def _mixes(measured: Measurements) -> bool:
    """Whether the output is a public linear map of the private gradient, as a projection.

    A gradient along one coordinate then moves others too, in proportion.
    """
    if not measured.repeatable or measured.steps > 1 or measured.unit.kind != "linear":
        return False
    moved = measured.difference(measured.along_axis(0.1 * measured.subject.clip_norm))
    own = abs(float(moved[measured.axis]))
    moved[measured.axis] = 0.0
    floor = 3 * float(np.linalg.norm(measured.rounding))
    return float(np.linalg.norm(moved)) > max(0.02 * own, floor)


def _white(measured: Measurements) -> bool:
    """Whether noise has about the same size in all directions, as far as the seeds show.

    The inner products of the noise of two seeds have a variance of one over the number of
    directions that the noise has.
    """
    noise = measured.noise() / np.sqrt(np.mean(measured.noise() ** 2))
    count, seeds = noise.shape[1], len(noise)
    products = (noise @ noise.T / count + 1 / (seeds - 1))[np.triu_indices(seeds, 1)]
    return bool(np.mean(products**2) * count < 1.6)


def _thresholded(measured: Measurements) -> bool:
    """Whether the output is a public thresholding of the noisy gradient: top-k, clamp, sign.

    A short gradient then moves some coordinates under one seed and others under another seed.
    """
    if not measured.repeatable or measured.steps > 1 or not measured.noise_is_there:
        return False
    short = measured.dense(0.01 * measured.subject.clip_norm)
    moved = []
    for seed in measured.seeds[:3]:
        plus, minus = measured.subject.pair(short, seed, measured.steps)
        moved.append(np.abs(plus - minus) > 2 * measured.rounding)
    # Untrained coordinates never move, and a canary that is not in the batch moves nothing.
    moved = [mask for mask in moved if mask.any()]
    if len(moved) < 2:
        return False
    ever = np.any(moved, axis=0)
    partly = [float(mask[ever].mean()) for mask in moved]
    unit = measured.unit
    scale = unit.size / measured.subject.clip_norm if unit.known else 1.0
    visible = float(np.median(2 * measured.rounding)) < 0.1 * float(np.abs(short).max()) * scale
    return bool(visible and max(partly) < 0.97)


def _bends(measured: Measurements) -> bool:
    """Whether the noise decides what a gradient does, as before a tanh, or inside Adam.

    The noise of one step is added to the gradients, so that a gradient has the same effect under
    every seed. Behind a public function of the noisy sum, such as tanh, Adam, the sign or a
    rescaling by its norm, it has not: the gradient here lies along the noise of one of the seeds.
    """
    if not measured.repeatable or measured.steps > 1 or not measured.noise_is_there:
        return False
    gradient = measured.dense(measured.subject.clip_norm / 2)
    noise = measured.noise()[0]
    gradient[measured.watched] += noise * (measured.subject.clip_norm / 2 / np.linalg.norm(noise))
    effects = []
    for seed in measured.seeds[:4]:
        plus, minus = measured.subject.pair(gradient, seed, measured.steps)
        effect = (plus - minus)[measured.watched]
        if np.any(effect):  # else the canary is not in the batch
            effects.append(effect)
    if len(effects) < 2:
        return False
    smallest = min(float(np.linalg.norm(effect)) for effect in effects)
    allowed = _BENT + 4 * float(np.linalg.norm(measured.rounding[measured.watched])) / smallest
    return any(
        float(np.linalg.norm(effect - effects[0])) > allowed * smallest for effect in effects[1:]
    )


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


def noise(measured: Measurements) -> str:
    """Something changes from seed to seed."""
    return "" if measured.noise_is_there else "See 'noise in every parameter' first."


def no_transform(measured: Measurements) -> str:
    """No public transform hides single coordinates of the noisy gradient."""
    if measured.subject.public_transform:
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
    if not reason and measured.subject.clipping_is_skipped():
        reason = (
            "The training inserts canary.clipped_sum(inserted), which is clipped already. This "
            "rule needs canary.rows(inserted) as per-example gradients."
        )
    return reason
