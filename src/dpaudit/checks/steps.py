r"""Rules about several steps: each has noise of its own, and an example counts in its step only.

All of this is read from a `Trajectory`: the canary is inserted in one step only, and outputs after
successive numbers of steps are compared. For a linear optimizer the increment of step :math:`t` is

.. math:: \Delta_t = \sum_{k \le t} H_{tk} (g_k + z_k),

where :math:`H_{tk}`, measured with the canary, holds the learning-rate schedule, momentum and
averaging. Solving for :math:`z_t` gives the noise of every step in units of the largest
contribution to that step.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import final

import numpy as np

from dpaudit._arrays import Array
from dpaudit.checks.contribution import BOUNDED
from dpaudit.checks.findings import Outcome, Probe, Rule, broken, not_tested, passed, warning
from dpaudit.checks.measure import (
    FALSE_ALARM,
    NOT_LINEAR,
    Measurements,
    centred,
    direction,
    noise,
    readable,
    same_output,
    smallest_ratio,
    standard_deviations,
    takes_steps,
)
from dpaudit.checks.noise import SIZE, THERE, varies_too_much

# --- Trajectory: the noise of single steps. -------------------------------------------------------


STEPS = 6
"""Number of steps at the beginning of a training that are compared with each other."""

_ENOUGH = 2000  # values of noise in every step
_WEAK = 0.01  # a canary with less than this share of its largest effect is not in that step
_LONG = 10.0  # times the clip norm
_FAINT = 0.001  # a learning rate that decays this far leaves nothing to measure


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Trajectory:
    """Noise of single steps, in units of the largest contribution to each step.

    Arguments:
        steps: Number of each step, counted from 1.
        noise: Noise of each step: (step, seed, parameter), minus its mean over seeds.
        linked: For how many of the first steps the noise of earlier ones was subtracted.
        persistence: The effect of a contribution on the next step, relative to its own step.
        reaction: How far other examples react to a contribution, in other directions.
    """

    steps: tuple[int, ...]
    noise: Array
    linked: int
    persistence: float
    reaction: float

    @property
    def degrees(self) -> int:
        """Degrees of freedom of the noise of one step."""
        return int((self.noise.shape[1] - 1) * self.noise.shape[2])

    def sizes(self) -> Array:
        """Standard deviation of the noise of each step, in those units."""
        sizes: Array = np.sqrt((self.noise**2).sum(axis=(1, 2)) / self.degrees)
        return sizes

    def correlations(self) -> Array:
        """Correlation of the noise of every two steps."""
        flat = self.noise.reshape(len(self.steps), -1)
        lengths = np.linalg.norm(flat, axis=1)
        return (flat @ flat.T) / np.outer(lengths, lengths)

    def largest_shifted_correlation(self) -> tuple[float, int, int, int]:
        """The largest correlation of two steps at a fixed distance between parameters, cyclically.

        Returns it with the positions of the two steps and the distance.
        """
        size = self.noise.shape[2]
        spectra = np.fft.rfft(self.noise, axis=2)
        lengths = np.sqrt((self.noise**2).sum(axis=(1, 2)))
        best = (0.0, 0, 0, 0)
        for first, second in itertools.combinations(range(len(self.steps)), 2):
            product = (spectra[first].conj() * spectra[second]).sum(axis=0)
            values = np.fft.irfft(product, size) / (lengths[first] * lengths[second])
            values[0] = 0.0
            place = int(np.abs(values).argmax())
            best = max(best, (float(values[place]), first, second, place), key=lambda b: abs(b[0]))
        return best


def trajectory(measured: Measurements) -> Trajectory | None:
    """Measure the first steps, one in the middle and the last one of the user's own number.

    `None` if the canary does not take part in enough of them with a comparable effect.
    """
    course: Trajectory | None = measured.once("trajectory", lambda: _trajectory(measured))
    return course


def _trajectory(measured: Measurements) -> Trajectory | None:
    last = max(measured.subject.steps, 4)
    first = list(range(1, min(last, STEPS) + 1))
    watched = measured.watched
    late = [step for step in (last // 2, last) if step > len(first) + 1]
    count = max(2, min(8, len(measured.seeds), 1 + -(-_ENOUGH // len(watched))))
    outputs = {
        steps: np.stack(
            [measured.subject.output(None, seed, steps)[watched] for seed in measured.seeds[:count]]
        )
        for steps in {*first, *late, *(step - 1 for step in late)} - {0}
    }
    outputs[0] = np.zeros_like(outputs[1])
    response = _OneStepCanary(measured)
    effects = np.array([[response.effect(step, of) for of in first] for step in first])
    own = np.abs(np.diag(effects))
    present = own >= _WEAK * own.max()
    later = np.abs(effects - np.diag(np.diag(effects))).max()
    # Without momentum, steps without the canary can be left out; else their noise stays unknown.
    if present.sum() < 2 or not (present.all() or later < _WEAK * own.max()):
        return None
    # A clip norm that follows a noisy count is another one under each seed.
    scales = measured.seeds[:count] if "step" in measured.subject.kinds else measured.seeds[:1]
    noises: list[Array] = []
    places = np.flatnonzero(present)
    for place in places:
        increment = centred(outputs[first[place]] - outputs[first[place] - 1])
        for earlier, noise_of_earlier in zip(places, noises, strict=False):
            increment = increment - effects[place, earlier] * noise_of_earlier
        own_effects = [response.effect(first[place], first[place], seed) for seed in scales]
        noises.append(increment / np.array(own_effects)[:, None])
    numbers = [first[place] for place in places]
    for step in late:
        effect = response.effect(step, step)
        if abs(effect) > _FAINT * own.max():
            numbers.append(step)
            noises.append(centred(outputs[step] - outputs[step - 1]) / effect)
    return Trajectory(
        steps=tuple(numbers),
        noise=np.stack(noises),
        linked=len(places),
        persistence=float(effects[1, 0] / effects[1, 1]) if present[1] else 0.0,
        reaction=response.reaction(first[-1]) / float(own[present].min()),
    )


@final
class _OneStepCanary:
    """A dense canary in a single step, long enough to contribute as much as it can."""

    def __init__(self, measured: Measurements) -> None:
        self._measured = measured
        self._gradient = measured.dense(_LONG * measured.subject.clip_norm)
        self._along = direction(self._gradient[measured.watched])
        self._changes: dict[tuple[int, int, int], Array] = {}

    def effect(self, step: int, of: int, seed: int | None = None) -> float:
        """Effect on the increment of ``step`` of the largest contribution to step ``of``."""
        seed = self._measured.seeds[0] if seed is None else seed
        return float(self._increment(step, of, seed) @ self._along)

    def _increment(self, step: int, of: int, seed: int) -> Array:
        return self._after(step, of, seed) - self._after(step - 1, of, seed)

    def _after(self, steps: int, of: int, seed: int) -> Array:
        if of > steps:
            return np.zeros(len(self._along))
        if (steps, of, seed) not in self._changes:
            plus, minus = self._measured.subject.pair(self._gradient, seed, steps, only=of - 1)
            self._changes[steps, of, seed] = (plus - minus)[self._measured.watched] / 2
        return self._changes[steps, of, seed]

    def reaction(self, last: int) -> float:
        """The largest change of a step by an earlier contribution, across its direction."""
        seed = self._measured.seeds[0]
        changes = (
            self._increment(step, of, seed) for step in range(2, last + 1) for of in range(1, step)
        )
        across = (change - (change @ self._along) * self._along for change in changes)
        return max((float(np.linalg.norm(change)) for change in across), default=0.0)


def _read_in_every_step(measured: Measurements) -> str:
    """The training reads the canary equally often in every step."""
    if measured.subject.places_per_step is not None:
        return ""
    return (
        "The training does not read the canary in every step: call canary.rows(inserted) "
        "inside the loop, once per step."
    )


def _seen_in_steps(measured: Measurements) -> str:
    """The canary takes part in enough of the first steps."""
    if trajectory(measured) is not None:
        return ""
    return (
        "The canary does not take part in enough steps with a comparable effect, so that single "
        "steps cannot be measured."
    )


_TRAJECTORY_NEEDS = (
    takes_steps, noise, same_output, readable, _read_in_every_step, _seen_in_steps,
)  # fmt: skip

# --- A gradient counts in its own step only. ------------------------------------------------------


_PERSISTS = 0.97  # of its own step: an effect on the next step that no usual momentum has


def _returns_later(measured: Measurements) -> Outcome:
    """What a contribution does to the step after its own.

    With momentum it comes back too, but so does the noise that it was under: the noise of a step,
    less what earlier noise left in it, is new. Where only the sums come back, what is subtracted
    was not there, and the difference correlates with the noise of the step before.
    """
    course = trajectory(measured)
    assert course is not None
    share = abs(course.persistence)
    comparison = {
        "measured": f"{share:.3g} of it in the next step",
        "allowed": f"below {_PERSISTS:g}, or with its noise",
    }
    if share < _PERSISTS or course.correlations()[1, 2] > -_CORRELATED:
        return passed(**comparison)
    if measured.bends:
        return not_tested(NOT_LINEAR)
    return broken(
        f"A contribution comes back in the step after its own, {share:.3g} times as large, without "
        "the noise that it was under.",
        **comparison,
    )


def _remembers(measured: Measurements) -> Outcome:
    """The output of a step must not depend on earlier calls."""
    if measured.remembers:
        return broken(
            "The step adds the sums of earlier calls to its own.",
            measured="grows",
            allowed="no change",
        )
    if not measured.repeatable:
        return not_tested(same_output(measured))
    again = measured.subject.output(None, measured.seeds[0], measured.steps)
    changed = float(np.abs(again - measured.quiet).max())
    comparison = {"measured": f"{changed:.2g} apart", "allowed": "rounding"}
    if changed <= 1e-3 * measured.noise_level():
        return passed(**comparison)
    return broken("The output of the step depends on gradients of earlier calls.", **comparison)


OWN_STEP = Rule(
    name="contribution to its own step only",
    requirement="An example contributes to T steps at most T times as much as to one.",
    cause="Sums of earlier steps are not set to zero, so old gradients are added again under noise "
    "that was meant for one step.",
    remedy="Call zero_grad() after every step, also while accumulating; Opacus clears summed_grad "
    "there.",
    seen_in="opacus PR #203",
    probes=(
        Probe(name="the same call again", run=_remembers, only="step"),
        Probe(
            name="the step after its own",
            run=_returns_later,
            needs=_TRAJECTORY_NEEDS,
            only="several steps",
        ),
    ),
)

# --- Noise in every step. -------------------------------------------------------------------------


_CORRELATED = 0.25
_REPEATED = 0.9
_CHOICE_SEEDS = 6
_UNEQUAL = 0.02  # relative change of the effect of the last step
_TOLERATED = 0.05  # other examples react to earlier noise, which changes the response a little


def _single_steps(measured: Measurements) -> Outcome:
    """The canary in one step at a time; the noise of the first steps and of the last one."""
    course = trajectory(measured)
    assert course is not None
    outcome = _correlation(course) or _moved_noise(course) or _sizes(measured, course)
    if outcome.verdict != "broken":
        return outcome
    if measured.bends:
        return not_tested(
            "The noise decides what a gradient does, as with an adaptive optimizer (Adam, "
            "RMSprop): check the private gradient with check_step (--step)."
        )
    chosen = "training" in measured.subject.kinds and _last_step_varies(measured)
    return not_tested(_CHOICE) if chosen else outcome


_CHOICE = (
    "How much the last step counts depends on the steps before it, as where the learning rate, the "
    "number of steps or the returned iterate is chosen during training. This is private only if "
    "the choice is made by public data or by noisy values: dpaudit check --pipeline shows it."
)


def _last_step_varies(measured: Measurements) -> bool:
    """Whether there are more steps, or the last one has another effect, after other noise."""
    subject, gradient = measured.subject, measured.dense(_LONG * measured.subject.clip_norm)
    steps, along, reads, effects = subject.steps, direction(gradient), set(), []
    for seed in measured.seeds[:_CHOICE_SEEDS]:
        plus, minus = subject.pair(gradient, seed, steps, only=steps - 1)
        calls = subject.canary.calls if subject.canary is not None else []
        reads.add(len(calls))
        if any(present for _, present in calls):  # a sampled canary may be left out
            effects.append(abs(float((plus - minus) @ along)) / 2)
    error = 2 * float(np.sqrt(np.sum((measured.rounding * along) ** 2)))
    largest, least = max(effects, default=0.0), min(effects, default=0.0)
    return len(reads) > 1 or largest - least > _UNEQUAL * largest + error


def _limit(course: Trajectory, least: float, tests: float) -> float:
    """The largest correlation of two steps that independent noise has."""
    limit = standard_deviations(FALSE_ALARM / tests) / np.sqrt(course.degrees)
    # Reacting examples carry the noise of a step into the following ones.
    return float(min(max(least, limit) + 2 * course.reaction, _REPEATED))


def _correlation(course: Trajectory) -> Outcome | None:
    matrix = course.correlations()
    np.fill_diagonal(matrix, 0.0)
    place = int(np.abs(matrix).argmax())
    first, second = sorted(np.unravel_index(place, matrix.shape))
    value = float(matrix[first, second])
    limit = _limit(course, _CORRELATED, len(matrix) * (len(matrix) - 1) / 2)
    if abs(value) <= limit:
        return None
    if second >= course.linked and abs(value) < _REPEATED:
        return None  # momentum and averaging link late steps too, and were not measured there
    how = "the same" if value > 0.95 else "negated" if value < -0.95 else "correlated"
    return broken(
        f"The noise of steps {course.steps[first]} and {course.steps[second]} is {how} "
        f"(correlation {value:.2f}): "
        f"the {'difference' if value > 0 else 'sum'} of the two updates has less noise or none.",
        measured=f"correlation {value:.2f}",
        allowed=f"at most {limit:.2g}",
        remedy="Seed once, before training, and not in every step; in JAX fold the step into the "
        "key (jax.random.fold_in)." * (how == "the same"),
    )


def _moved_noise(course: Trajectory) -> Outcome | None:
    """Noise of one step that returns in another, at parameters some places further on."""
    value, first, second, distance = course.largest_shifted_correlation()
    count = len(course.steps)
    limit = _limit(course, 2 * _CORRELATED, count * (count - 1) / 2 * course.noise.shape[2])
    if abs(value) <= limit:
        return None
    return broken(
        f"The noise of step {course.steps[second]} is that of step {course.steps[first]}, moved by "
        f"{distance:,} parameters (correlation {value:.2f}): combinations of iterates have less "
        "noise or none.",
        measured=f"correlation {value:.2f}",
        allowed=f"at most {limit:.2g}",
    )


def _sizes(measured: Measurements, course: Trajectory) -> Outcome:
    relative = course.sizes() / measured.subject.noise_multiplier
    ratio = smallest_ratio(course.degrees, FALSE_ALARM / len(relative))
    least = float(np.sqrt(ratio)) * (1 - _TOLERATED)
    worst = int(relative.argmin())
    comparison = {
        "measured": f"{relative.min():.3g} to {relative.max():.3g} x sigma",
        "allowed": f"at least {least:.3g} x sigma",
    }
    if relative[worst] < least:
        return broken(
            f"In step {course.steps[worst]} noise is {relative[worst]:.3g} times as large as the "
            "claim says, relative to what an example contributes to that step.",
            **comparison,
        )
    growing = relative[: course.linked]
    schedule = growing.max() > 1.5 * growing.min() and course.reaction < 0.1
    if schedule and not varies_too_much(measured):
        return warning(
            "Noise differs between steps by more than half, and is nowhere too small. "
            "Is this schedule intended, and does the accountant know it?",
            **comparison,
        )
    return passed(**comparison)


EVERY_STEP = Rule(
    name="noise in every step",
    requirement="The noise of every step is as large as claimed, relative to what an example can "
    "contribute to that step, and independent of the noise of other steps.",
    cause="Noise decays with the steps, stops after some of them, or does not grow with the clip "
    "norm; or draws are cached, reused or negated, so that a combination of iterates has no noise.",
    remedy="Draw new noise of standard deviation sigma C in every step, with the C of that step.",
    seen_in="noise schedules that the accountant does not know; noise cached for speed",
    after=(BOUNDED.name, THERE.name, SIZE.name, OWN_STEP.name),
    probes=(
        Probe(
            name="one step at a time",
            run=_single_steps,
            needs=_TRAJECTORY_NEEDS,
            only="several steps",
        ),
    ),
)

# --- The effect of one example against the noise, for any optimizer and any number of steps. ------


_SHIFT_SEEDS = 8
_SLACK = 0.15  # other examples react, and the noise of an adaptive optimizer is not Gaussian


def _shift_of_output(measured: Measurements) -> Outcome:
    """The mean shift along fixed directions, in standard deviations from seed to seed.

    Under a claim of T steps with noise multiplier sigma, no function of the output separates
    trainings with and without an example better than a shift by sqrt(T) / sigma standard
    deviations. The inner product with a fixed direction is such a function, also after Adam.
    """
    subject, length = measured.subject, _LONG * measured.subject.clip_norm
    counts = [measured.steps]
    gradients = {"all parameters": measured.dense(length)}
    sharp = measured.unit.known and measured.repeatable and not measured.thresholded
    if not sharp:
        gradients["one coordinate"] = measured.along_axis(length)
    if subject.steps_can_vary and subject.steps > measured.steps:
        # Where sharper rules judge one step, only the whole training is looked at.
        counts = [subject.steps] if sharp else [*counts, subject.steps]
    shifts = {
        f"{name} after {steps} steps" if steps > 1 else name: _shift(measured, gradient, steps)
        for steps in counts
        for name, gradient in gradients.items()
    }
    words = max(shifts, key=lambda key: shifts[key])
    comparison = {
        "measured": f"{shifts[words]:.3g} of the claim",
        "allowed": f"at most {1 + _SLACK:.3g}",
    }
    if shifts[words] > 1 + _SLACK:
        return broken(
            f"A gradient in {words} shifts the output by at least {shifts[words]:.3g} times as "
            "many standard deviations of the noise as the claim allows.",
            **comparison,
        )
    return passed(**comparison)


def _shift(measured: Measurements, gradient: Array, steps: int) -> float:
    """A lower limit of the shift, relative to what the claim allows."""
    subject, along = measured.subject, direction(gradient)
    pairs = [subject.pair(gradient, seed, steps) for seed in measured.seeds[:_SHIFT_SEEDS]]
    shifts = np.array([(plus - minus) @ along for plus, minus in pairs])
    if not np.all(np.isfinite(shifts)):
        return 0.0
    error = 5 * float(shifts.std(ddof=1)) / np.sqrt(len(shifts))
    shift = max(0.0, abs(float(shifts.mean())) - error) / 2
    touched = np.flatnonzero(along[measured.watched])
    if len(touched) == 1:
        # One coordinate has few values: those of its tensor have the same scale.
        tensor = measured.tensor_at(int(measured.watched[touched[0]]))
        inside = (measured.watched >= tensor.start) & (measured.watched < tensor.stop)
        touched = np.flatnonzero(inside)
    values = measured.noise(steps)[:, touched]
    degrees = (len(values) - 1) * len(touched)
    largest = float(np.sqrt((values**2).sum() / degrees / smallest_ratio(degrees, FALSE_ALARM)))
    allowed = np.sqrt(steps) / subject.noise_multiplier * max(largest, measured.floor)
    return float(shift / allowed) if allowed > 0 else 0.0


AGAINST_NOISE = Rule(
    name="effect against noise",
    requirement="After T steps one example shifts the output by at most sqrt(T) / sigma standard "
    "deviations of the noise.",
    cause="Noise is added at another place than the contributions are bounded at, for instance "
    "after Adam has rescaled the gradient, or it is missing in some steps.",
    remedy="Clip, sum, add noise, and only then do anything else with the sum.",
    seen_in="noise added to the update of Adam instead of to the gradient",
    after=(BOUNDED.name, THERE.name, SIZE.name, OWN_STEP.name, EVERY_STEP.name),
    probes=(Probe(name="shift of the output after all steps", run=_shift_of_output),),
)

RULES = (OWN_STEP, EVERY_STEP, AGAINST_NOISE)
