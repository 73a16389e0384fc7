r"""The effect of one example against the noise, for any optimizer and any number of steps.

Under a claim of T steps with noise multiplier sigma, no function of the output separates trainings
with and without an example better than a shift by :math:`\sqrt T / \sigma` standard deviations. The
inner product with a fixed direction is such a function, also after Adam or a public transform.
"""

from __future__ import annotations

import numpy as np

from dpaudit._arrays import Array
from dpaudit.checks.arithmetic import direction
from dpaudit.checks.findings import Finding, Rule
from dpaudit.checks.limits import FALSE_ALARM, smallest_ratio
from dpaudit.checks.measuring import Measurements
from dpaudit.checks.rules.base import Check, Found

RULE = Rule(
    name="effect against noise",
    requirement="After T steps one example shifts the output by at most sqrt(T) / sigma standard "
    "deviations of the noise.",
    cause="Noise is added at another place than the contributions are bounded at, for instance "
    "after Adam has rescaled the gradient, or it is missing in some steps.",
    remedy="Clip, sum, add noise, and only then do anything else with the sum.",
    seen_in="noise added to the update of Adam instead of to the gradient",
)

_SEEDS = 8
_LENGTH = 10.0
_SLACK = 0.15  # other examples react, and the noise of an adaptive optimizer is not Gaussian


def check(measured: Measurements, found: Found) -> Finding:
    """The mean shift along fixed directions, in standard deviations from seed to seed."""
    counts = [measured.steps]
    if measured.subject.steps_can_vary and measured.subject.steps > measured.steps:
        counts.append(measured.subject.steps)
    worst, words = 0.0, ""
    sharp = measured.unit.known and measured.repeatable and not measured.thresholded
    for steps in counts:
        if sharp and steps == counts[0] and len(counts) > 1:
            continue  # one step is judged by sharper rules
        for name, gradient in _gradients(measured, few=sharp):
            relative = _shift(measured, gradient, steps)
            if relative > worst:
                worst, words = relative, f"{name} after {steps} steps" if steps > 1 else name
    seen = {
        "measured": f"{worst:.3g} of the claim",
        "allowed": f"at most {1 + _SLACK:.3g}",
    }
    if worst > 1 + _SLACK:
        return RULE.broken(
            f"A gradient in {words} shifts the output by at least {worst:.3g} times as many "
            "standard deviations of the noise as the claim allows.",
            **seen,
        )
    return RULE.passed(**seen)


def _gradients(measured: Measurements, *, few: bool) -> list[tuple[str, Array]]:
    clip_norm = measured.subject.clip_norm
    gradients = [("all parameters", measured.dense(_LENGTH * clip_norm))]
    if not few:
        gradients.append(("one coordinate", measured.along_axis(_LENGTH * clip_norm)))
    return gradients


def _shift(measured: Measurements, gradient: Array, steps: int) -> float:
    """A lower limit of the shift, relative to what the claim allows."""
    subject, along = measured.subject, direction(gradient)
    seeds = measured.seeds[:_SEEDS]
    pairs = [subject.pair(gradient, seed, steps) for seed in seeds]
    shifts = np.array([(plus - minus) @ along for plus, minus in pairs])
    if not np.all(np.isfinite(shifts)):
        return 0.0
    error = 5 * float(shifts.std(ddof=1)) / np.sqrt(len(shifts))
    shift = max(0.0, abs(float(shifts.mean())) - error) / 2
    noise = measured.noise(steps)
    touched = np.flatnonzero(along[measured.watched])
    if len(touched) == 1:
        # One coordinate has few values: those of its tensor have the same scale.
        tensor = measured.tensor_at(int(measured.watched[touched[0]]))
        inside = (measured.watched >= tensor.start) & (measured.watched < tensor.stop)
        touched = np.flatnonzero(inside)
    if not len(touched):
        return 0.0
    values = noise[:, touched]
    degrees = (len(noise) - 1) * len(touched)
    largest = float(np.sqrt((values**2).sum() / degrees / smallest_ratio(degrees, FALSE_ALARM)))
    floor = float(np.sqrt(np.mean(measured.rounding**2)))
    allowed = np.sqrt(steps) / subject.noise_multiplier * max(largest, floor)
    return float(shift / allowed) if allowed > 0 else 0.0


CHECK = Check(
    rule=RULE,
    run=check,
    after=(
        "bounded",
        "whole-gradient",
        "total-change",
        "noise-presence",
        "noise-size",
        "noise-between-steps",
        "accumulation",
        "noise-at-steps",
    ),
)
