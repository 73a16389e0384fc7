r"""Measurements that all rules share; each is made once, when a rule first asks for it.

With the same seed, everything random is the same, so that

.. math:: \tfrac12 \left( \mathrm{output}(+g) - \mathrm{output}(-g) \right)

is the effect of the gradient :math:`g` itself: noise, starting point and the other examples cancel,
and so does the effect of the mere presence of one more example. Learning rate and batch size do not
cancel, but they multiply noise and response alike: only ratios are judged.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dpaudit.checks.arithmetic import Array, direction, scales_by_blocks, spacing
from dpaudit.checks.layout import Tensor
from dpaudit.checks.subject import Subject
from dpaudit.checks.units import Response, Unit

SEED_OFFSETS = (
    0, 1, 10, 100, 256, 1000, 1024, 65_536, 100_000, 1_000_000, 1_048_576, 2, 7, 16, 64, 128,
    4096, 10_000, 3, 5,
)  # fmt: skip
"""Chosen so that seeds reduced modulo a power of two or ten repeat themselves."""

SEVERAL = 4
"""Steps of the longer training, if the training takes ``steps``."""

_ENDLESS = 1e6  # a clipped gradient of so many C keeps a millionth of its length
_WATCHED = 1 << 18  # coordinates whose noise is kept; memory, not mathematics, sets the limit
_SPREAD = 1024  # coordinates of the dense canary that noise is measured against
_PER_TENSOR = 16  # of them in every tensor, at least
_IMPRECISE = 0.005
_COARSE = 0.02
_TRIES = 12  # seeds, to find one under which a sampled canary takes part
_ADAPTIVE = 1e3
_FEW = 6  # seeds, for an estimate that need not be sharp
_MEANS = 8  # seeds to average over, where the same seed does not give the same result


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
        count = subject.parameters
        self.watched = np.unique(np.linspace(0, count - 1, min(count, _WATCHED)).astype(np.int64))
        self._signs = np.random.default_rng(7).choice([-1.0, 1.0], size=count)
        self.seeds = self._with_effect_first([seed + offset for offset in _offsets(runs)])
        self._noises: dict[int, Array] = {}
        self._made: dict[str, Any] = {}
        self._spacing = 0.0
        self._scales: dict[int, tuple[Array, float] | None] = {}

    def _with_effect_first(self, seeds: list[int]) -> tuple[int, ...]:
        """The seeds, with one first under which the canary takes part in the first step."""
        gradient = self.dense(10 * self.subject.clip_norm)
        for place, seed in enumerate(seeds[:_TRIES]):
            plus, minus = (
                self.subject.output(sign * gradient, seed, self.steps) for sign in (1.0, -1.0)
            )
            if not np.array_equal(plus, minus):
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
        if self.repeatable or self.subject.noun != "private_step":
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

    def noise(self, steps: int | None = None) -> Array:
        """Outputs without a canary at the watched coordinates: a row per seed, minus their mean."""
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

        It is measured with gradients too short to be clipped. It differs between directions if
        tensors have different learning rates.
        """
        full = self.subject.clip_norm * direction(gradient)
        if not self.repeatable:
            # A short gradient is invisible in the noise: assume that noise is as claimed.
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
                # The other examples react to a canary, not always in proportion to its norm.
                size = max(size, self.response(full).size)
            return Unit(size=size, error=seen.error / share, kind="linear")
        if self.steps == 1 and self.noise_is_there and self.moves_alike:
            return Unit(size=seen.size, error=seen.error, kind="unclear")
        if half.size / seen.size > 0.75:
            long = self.response(1e3 * full)
            return Unit(size=long.size, error=long.error, kind="normalised")
        long, longer = self.response(1e3 * full), self.response(_ENDLESS * full)
        if long.finite and abs(longer.size / max(long.size, 1e-300) - 1) <= 0.01 + slack:
            return Unit(size=longer.size, error=longer.error, kind="normalised")
        return Unit(size=seen.size, error=seen.error, kind="unclear")

    @cached_property
    def raw_share(self) -> float:
        """The share of a long gradient that is not clipped: 1 if nothing is clipped."""
        if not self.unit.known:
            return 0.0
        long = self.response(self.along_axis(1e3 * self.subject.clip_norm))
        endless = self.response(self.along_axis(_ENDLESS * self.subject.clip_norm))
        growth = endless.size - endless.error - long.size
        return max(growth, 0.0) / (_ENDLESS * self.unit.size)

    @cached_property
    def cover(self) -> float:
        """How many times as large as claimed the noise is, relative to `unit`.

        Where short gradients are scaled down (automatic clipping, a public map), contributions and
        noise are both larger than the unit, and only their ratio matters.
        """
        scaled = self.scales() if self.repeatable and self.unit.known else None
        if scaled is None or not self.noise_is_there:
            return 1.0
        tensor = self.tensor_at(self.axis)
        near = (self.spread >= tensor.start) & (self.spread < tensor.stop) & (scaled[0] > 0)
        around = float(np.median(scaled[0][near])) if near.any() else self.unit.size
        return self.cover_of_scales * around / self.unit.size

    @cached_property
    def cover_of_scales(self) -> float:
        """The same relative to `scales`.

        In a training, noise is read from the third step less the second, so that a random starting
        point does not count as noise.
        """
        scaled, subject = self.scales(), self.subject
        if scaled is None or not (scaled[0] > 0).any():
            return 1.0
        trained = scaled[0] > 0
        places, claimed = self.spread[trained], subject.noise_multiplier * scaled[0][trained]
        if subject.noun == "private_step":
            noise = self.noise()[:, np.searchsorted(self.watched, places)]
            return _deviation(noise / claimed)
        if not subject.steps_can_vary or subject.places_per_step is None:
            return 1.0
        outputs = [
            np.stack([subject.output(None, seed, steps)[places] for seed in self.seeds[:_FEW]])
            for steps in (1, 2, 3)
        ]
        gradient = self.along_axis(0.1 * subject.clip_norm)
        second, third = (
            [
                subject.output(sign * gradient, self.seeds[0], steps, only=1)[self.axis]
                for sign in (0.5, -0.5)
            ]
            for steps in (2, 3)
        )
        own = second[0] - second[1]
        if not own:
            return 1.0
        carried = (third[0] - third[1]) / own - 1  # by momentum, from the second step to the third
        noise = outputs[2] - outputs[1] - carried * (outputs[1] - outputs[0])
        growth = abs(own) / (0.1 * self.unit.size)
        if not 1 / _ADAPTIVE < growth < _ADAPTIVE:
            return float(np.inf)  # short gradients in one step say nothing about another: Adam
        return _deviation(noise / claimed) / float(growth)

    @cached_property
    def slack(self) -> float:
        """By how much a contribution may exceed the unit.

        One per cent covers the small constants that implementations add to a norm. In a training of
        several steps the other examples react to the canary, which is not its own contribution.
        """
        return 0.01 if self.steps == 1 else 0.1

    def scales(self, steps: int | None = None) -> tuple[Array, float] | None:
        """The effect of a unit contribution along each coordinate of ``spread``, and its error.

        Zero where a coordinate is not trained; `None` if the measurement is not precise enough.
        After one step the coordinates may have different learning rates. After several, or behind
        a public linear map, they act on each other and only the total is used: for random signs,
        the mean square of the response over coordinates bounds that of the noise for every linear
        dynamics, by the inequality of Cauchy and Schwarz over steps.
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
        # Where the dense gradient is clipped by another norm (L1), a much shorter one is not.
        short = 0.1 / float(np.sqrt(len(places)))
        best: tuple[Array, float] | None = None
        for share in (0.1, short, 0.5, 1.0):
            if share == short and (best is None or np.median(best[0]) > 0.9 * unit.size):
                continue
            found = self._scale_of(share * self.subject.clip_norm, steps)
            if found is not None and (best is None or np.median(found[0]) > np.median(best[0])):
                best = found
            if best is not None and share != 0.1:
                return best
            if best is not None and np.median(best[0]) > 0.9 * unit.size:
                return best
        return best

    def _scale_of(self, length: float, steps: int) -> tuple[Array, float] | None:
        if steps > 1 or self.mixes:
            return self._total_scale(length, steps)
        gradient = self.dense(length, self.spread)
        moved = self.difference(gradient, steps)[self.spread]
        entries = gradient[self.spread] / self.subject.clip_norm
        return scales_by_blocks(moved, entries, self.rounding[self.spread])

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
    def moves_alike(self) -> bool:
        """Whether two runs differ in nearly every parameter by the same amount or not at all.

        This is the first step of Adam, RMSprop or the sign of the gradient, whatever the noise is.
        """
        noise = self.noise()
        changes = np.abs(noise[1] - noise[0])
        largest = float(np.quantile(changes, 0.99))
        alike = np.abs(changes - largest) < 1e-2 * largest
        return bool((alike | (changes < 1e-2 * largest)).mean() > 0.95)

    @cached_property
    def white(self) -> bool:
        """Whether noise has about the same size in all directions, as far as the seeds show.

        The inner products of the noise of two seeds have a variance of one over the number of
        directions that the noise has.
        """
        noise = self.noise() / np.sqrt(np.mean(self.noise() ** 2))
        count, seeds = noise.shape[1], len(noise)
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
            change = self.subject.output(short, seed, self.steps) - self.subject.output(
                -short, seed, self.steps
            )
            moved.append(np.abs(change) > 2 * self.rounding)
        # Untrained coordinates never move, and a canary that is not in the batch moves nothing.
        moved = [mask for mask in moved if mask.any()]
        if len(moved) < 2:
            return False
        ever = np.any(moved, axis=0)
        partly = [float(mask[ever].mean()) for mask in moved]
        scale = self.unit.size / self.subject.clip_norm if self.unit.known else 1.0
        visible = float(np.median(2 * self.rounding)) < 0.1 * float(np.abs(short).max()) * scale
        return bool(visible and max(partly) < 0.97)

    def _total_scale(self, length: float, steps: int) -> tuple[Array, float] | None:
        """The same for all coordinates, from three drawings of signs."""
        share, places = length / self.subject.clip_norm, self.spread
        if self.mixes and steps == self.steps:
            places = np.arange(self.subject.parameters)
        totals = []
        for drawing in range(3):
            random = np.random.default_rng([7, drawing])
            signs = random.choice([-1.0, 1.0], size=self.subject.parameters)
            moved = self.difference(signs * np.abs(self.dense(length, places)), steps)[places]
            totals.append(float(np.linalg.norm(moved)) / share)
        floor = float(np.linalg.norm(self.rounding[places])) / share
        # If few directions dominate, three drawings do not agree on a total.
        if not np.isfinite(totals).all() or max(totals) > 1.1 * min(totals):
            return None
        if floor > _COARSE * min(totals):
            return None
        return np.full(len(self.spread), min(totals)), floor / min(totals)

    @cached_property
    def noise_with_example(self) -> Array:
        """As `noise`, with one more example, of zero gradient, in every batch."""
        zeros = np.zeros(self.subject.parameters)
        outputs = np.stack(
            [self.subject.output(zeros, seed, self.steps)[self.watched] for seed in self.seeds]
        )
        noise: Array = outputs - outputs.mean(axis=0)
        return noise

    @cached_property
    def presence(self) -> Array:
        """The effect of one more example with a zero gradient."""
        zeros = np.zeros(self.subject.parameters)
        return self.subject.output(zeros, self.seeds[0], self.steps) - self.quiet


def _deviation(values: Array) -> float:
    """Standard deviation over rows, pooled over columns."""
    return float(np.sqrt(values.var(axis=0, ddof=1).mean()))


def _offsets(runs: int) -> list[int]:
    further = [offset for offset in range(runs + len(SEED_OFFSETS)) if offset not in SEED_OFFSETS]
    return [*SEED_OFFSETS, *further][:runs]
