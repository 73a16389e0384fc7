"""Gradients that no norm can be computed of: huge, infinite, not a number."""

from __future__ import annotations

import numpy as np

from dpaudit.checks.arithmetic import Array
from dpaudit.checks.findings import Finding, Rule
from dpaudit.checks.measuring import Measurements
from dpaudit.checks.rules.contribution import BOUNDED
from dpaudit.checks.rules.judging import contribution, hidden_by, why_not
from dpaudit.checks.subject import TrainingFailed

HUGE = Rule(
    name="huge and zero gradients",
    promise="A gradient whose norm overflows is clipped or dropped; one of zero does no harm.",
    cause="The square of a large entry overflows, or zero is divided by a norm of zero, and what "
    "comes out is not a number, or not clipped.",
    remedy="Scale by the largest entry before squaring, drop what is not finite, and clip with "
    "min(1, C / norm), never with C / norm alone.",
    seen_in="jax_privacy PR #309 (norms in half precision)",
)
NOT_FINITE = Rule(
    name="infinite and NaN gradients",
    promise="An example with an infinite or NaN gradient leaves the parameters finite.",
    cause="min(1, C / norm) is 0 or NaN for such an example, and 0 times infinity is NaN: the "
    "parameters become NaN if and only if that example took part, which gives it away.",
    remedy="Replace what is not finite by zero in each example's gradient before clipping, for "
    "instance with torch.nan_to_num(grad_sample, 0.0, 0.0, 0.0).",
    seen_in="dp-recorder's tests; Opacus 1.6 as it comes",
)

_LARGE = {"1e30": 1e30, "1e300": 1e300, "zero": 0.0}
_WORDS = {
    "1e30": "an entry of 1e30",
    "1e300": "an entry of 1e300",
    "zero": "nothing but zeros",
    "infinite": "an infinite entry",
    "NaN": "a NaN entry",
}
_STRANGE = {"infinite": np.inf, "NaN": np.nan}


def check_huge(measured: Measurements, found: dict[str, Finding]) -> Finding:
    """Entries of 1e30 and 1e300, where the output's own type can hold them, and all zeros."""
    reason = why_not(measured) or hidden_by(found, BOUNDED)
    if reason:
        return Finding(rule=HUGE, verdict="could not tell", explanation=reason)
    # In float32, 1e300 is infinity: that is the business of the next rule.
    wide = measured.precision < np.finfo(np.float32).eps
    lengths = {name: value for name, value in _LARGE.items() if wide or value < 1e38}
    return _judged(measured, HUGE, lengths)


def check_not_finite(measured: Measurements, found: dict[str, Finding]) -> Finding:
    """One entry that is infinite, or not a number."""
    reason = why_not(measured) or hidden_by(found, BOUNDED)
    if reason:
        return Finding(rule=NOT_FINITE, verdict="could not tell", explanation=reason)
    return _judged(measured, NOT_FINITE, _STRANGE)


def _judged(measured: Measurements, rule: Rule, values: dict[str, float]) -> Finding:
    allowed = "at most C"
    worst = 0.0
    for name, value in values.items():
        try:
            gradient = _with_entry(measured, value)
            output = measured.subject.output(gradient, measured.seeds[0], measured.steps)
            lost = int(np.sum(~np.isfinite(output)))
            if lost:
                return Finding(
                    rule=rule,
                    verdict="broken",
                    measured=f"{name}: {lost:,} lost",
                    allowed=allowed,
                    explanation=f"An example with {_WORDS[name]} turns {lost:,} of "
                    f"{len(output):,} parameters into infinity or NaN.",
                )
            seen = contribution(measured, gradient, measured.unit)
        except TrainingFailed as error:
            return Finding(
                rule=rule,
                verdict="could not tell",
                measured=f"{name}: an exception",
                allowed=allowed,
                explanation=f"Training stops instead of dropping the example, which is seen "
                f"from outside too: {error}.",
            )
        if seen is not None and seen.excess > 0:
            return Finding(
                rule=rule,
                verdict="broken",
                measured=f"{name}: {seen.words}",
                allowed=allowed,
                explanation=f"A gradient with {_WORDS[name]} is not clipped.",
            )
        worst = max(worst, 0.0 if seen is None else seen.size)
    return Finding(rule=rule, verdict="passed", measured=f"{worst:.4g} C", allowed=allowed)


def _with_entry(measured: Measurements, value: float) -> Array:
    gradient = measured.along_axis(1.0)
    gradient[measured.axis] = value
    return gradient
