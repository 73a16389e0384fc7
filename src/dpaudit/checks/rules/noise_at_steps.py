"""Noise is as large as claimed in every step, and independent between steps."""

from __future__ import annotations

import numpy as np

from dpaudit.checks.findings import Finding, Rule
from dpaudit.checks.limits import FALSE_ALARM, smallest_ratio, standard_deviations
from dpaudit.checks.measuring import Measurements
from dpaudit.checks.rules._judging import adapts
from dpaudit.checks.rules._noise import varies_too_much
from dpaudit.checks.rules.base import Check, Found
from dpaudit.checks.subject import TrainingSubject
from dpaudit.checks.trajectory import Trajectory, trajectory

RULE = Rule(
    name="noise in every step",
    requirement="The noise of every step is as large as claimed, relative to what an example can "
    "contribute to that step, and independent of the noise of other steps.",
    cause="Noise decays with the steps, stops after some of them, or does not grow with the clip "
    "norm; or draws are cached, reused or negated, so that a combination of iterates has no noise.",
    remedy="Draw new noise of standard deviation sigma C in every step, with the C of that step.",
    seen_in="noise schedules that the accountant does not know; noise cached for speed",
)

_CORRELATED = 0.25
_REPEATED = 0.9
_TOLERATED = 0.05  # other examples react to earlier noise, which changes the response a little


def check(measured: Measurements, found: Found) -> Finding:
    """The canary in one step at a time; the noise of the first steps and of the last one."""
    seen = trajectory(measured)
    if isinstance(seen, str):
        return RULE.unknown(seen)
    broken = _correlation(seen) or _moved_noise(seen) or _size(measured, seen)
    if broken is not None and adapts(measured):
        return RULE.unknown(
            "Long gradients have another effect than short ones suggest, as with an adaptive "
            "optimizer (Adam, RMSprop): check the private gradient with check_step (--step)."
        )
    weights = found["fixed-weights"]
    if broken is not None and weights.measured and weights.verdict != "passed":
        return RULE.unknown(f"See '{weights.rule.name}' first.")
    return broken or _passed(measured, seen)


def _correlation(seen: Trajectory) -> Finding | None:
    matrix = seen.correlations()
    np.fill_diagonal(matrix, 0.0)
    place = int(np.abs(matrix).argmax())
    first, second = sorted(np.unravel_index(place, matrix.shape))
    value = float(matrix[first, second])
    pairs = len(seen.steps) * (len(seen.steps) - 1) / 2
    limit = standard_deviations(FALSE_ALARM / pairs) / np.sqrt(seen.degrees)
    # Reacting examples carry the noise of a step into the following ones.
    limit = min(max(_CORRELATED, limit) + 2 * seen.reaction, _REPEATED)
    if abs(value) <= limit:
        return None
    if max(first, second) >= seen.linked and abs(value) < _REPEATED:
        return None  # momentum and averaging link late steps too, and were not measured there
    how = "the same" if value > 0.95 else "negated" if value < -0.95 else "correlated"
    return RULE.broken(
        f"The noise of steps {seen.steps[first]} and {seen.steps[second]} is {how} "
        f"(correlation {value:.2f}): "
        f"the {'difference' if value > 0 else 'sum'} of the two updates has less noise or none.",
        measured=f"correlation {value:.2f}",
        allowed=f"at most {limit:.2g}",
    )


def _moved_noise(seen: Trajectory) -> Finding | None:
    """Noise of one step that returns in another, at parameters some places further on."""
    value, first, second, distance = seen.largest_shifted_correlation()
    pairs = len(seen.steps) * (len(seen.steps) - 1) / 2 * seen.noise.shape[2]
    limit = standard_deviations(FALSE_ALARM / pairs) / np.sqrt(seen.degrees)
    limit = min(max(2 * _CORRELATED, limit) + 2 * seen.reaction, _REPEATED)
    if abs(value) <= limit:
        return None
    return RULE.broken(
        f"The noise of step {seen.steps[second]} is that of step {seen.steps[first]}, moved by "
        f"{distance:,} parameters (correlation {value:.2f}): combinations of iterates have less "
        "noise or none.",
        measured=f"correlation {value:.2f}",
        allowed=f"at most {limit:.2g}",
    )


def _size(measured: Measurements, seen: Trajectory) -> Finding | None:
    sigma = measured.subject.noise_multiplier
    relative = seen.sizes() / sigma
    level = FALSE_ALARM / len(relative)
    least = float(np.sqrt(smallest_ratio(seen.degrees, level))) * (1 - _TOLERATED)
    worst = int(relative.argmin())
    if relative[worst] >= least:
        return None
    return RULE.broken(
        f"In step {seen.steps[worst]} noise is {relative[worst]:.3g} times as large as the claim "
        "says, relative to what an example contributes to that step.",
        measured=f"{relative[worst]:.3g} x sigma",
        allowed=f"at least {least:.3g} x sigma",
    )


def _passed(measured: Measurements, seen: Trajectory) -> Finding:
    relative = seen.sizes() / measured.subject.noise_multiplier
    told = {
        "measured": f"{relative.min():.3g} to {relative.max():.3g} x sigma",
        "allowed": "at least 1 x sigma",
    }
    growing = relative[: seen.linked]
    schedule = growing.max() > 1.5 * growing.min() and seen.reaction < 0.1
    if schedule and not varies_too_much(measured):
        return RULE.warning(
            "Noise differs between steps by more than half, and is nowhere too small. "
            "Is this schedule intended, and does the accountant know it?",
            **told,
        )
    return RULE.passed(**told)


CHECK = Check(
    rule=RULE,
    run=check,
    applies=lambda subject: isinstance(subject, TrainingSubject),
    after=(
        "bounded",
        "whole-gradient",
        "small-entries",
        "total-change",
        "noise-size",
        "noise-between-steps",
        "accumulation",
    ),
    passed=("noise-presence",),
)
