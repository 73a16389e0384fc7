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

from dpaudit._arrays import Array
from dpaudit.checks import cover as covers
from dpaudit.checks import transforms
from dpaudit.checks.arithmetic import centred, direction, spacing
from dpaudit.checks.layout import Tensor
from dpaudit.checks.sampling import offsets
from dpaudit.checks.scales import measured_scales
from dpaudit.checks.subject import StepSubject, Subject
from dpaudit.checks.units import ENDLESS, Response, Unit, unit_along

SEVERAL = 4
"""Steps of the longer training, if the training takes ``steps``."""

_WATCHED = 1 << 18  # coordinates whose noise is kept; memory, not mathematics, sets the limit
_SPREAD = 1024  # coordinates of the dense canary that noise is measured against
_PER_TENSOR = 16  # of them in every tensor, at least
_TRIES = 12  # seeds, to find one under which a sampled canary takes part
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
        self._signs = np.random.default_rng(7).choice([-1.0, 1.0], size=subject.parameters)
        self.seeds = self._with_effect_first([seed + offset for offset in offsets(runs)])
        self._outputs: dict[int, Array] = {}
        self._noises: dict[int, Array] = {}
        self._made: dict[str, Any] = {}
        self._spacing = 0.0
        self._scales: dict[int, tuple[Array, float] | None] = {}

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
            self._spacing = max(self._spacing, spacing(self._outputs[steps].ravel()))
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

    def difference(self, gradient: Array, steps: int | None = None) -> Array:
        """Half the difference between the outputs with this gradient and with its negative."""
        steps = self.steps if steps is None else steps
        seeds = self.seeds[:1] if self.repeatable else self.seeds[:_MEANS]
        total = np.zeros(self.subject.parameters)
        for seed in seeds:
            plus, minus = self.subject.pair(gradient, seed, steps)
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

    cover = cached_property(covers.cover_of_unit)
    cover_of_scales = cached_property(covers.cover_of_scales)
    mixes = cached_property(transforms.mixes)
    moves_alike = cached_property(transforms.moves_alike)
    white = cached_property(transforms.white)
    thresholded = cached_property(transforms.thresholded)

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
            self._scales[steps] = measured_scales(self, steps)
        return self._scales[steps]

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
