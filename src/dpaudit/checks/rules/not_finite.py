"""Gradients with an infinite or NaN entry."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dpaudit.checks.findings import Finding, Rule
from dpaudit.checks.libraries import known_weakness
from dpaudit.checks.measuring import Measurements
from dpaudit.checks.rules._extreme import judge_entries
from dpaudit.checks.rules._needs import clipping
from dpaudit.checks.rules.base import Check, Found

RULE = Rule(
    name="infinite and NaN gradients",
    requirement="An example with an infinite or NaN gradient leaves the parameters finite.",
    cause="min(1, C / norm) is 0 or NaN for such an example, and 0 times infinity is NaN: the "
    "parameters become NaN if and only if that example took part.",
    remedy="Replace what is not finite by zero in each example's gradient before clipping, for "
    "instance with torch.nan_to_num(grad_sample, 0.0, 0.0, 0.0). If no gradient can be infinite or "
    "NaN, leave the rule out: finite_gradients=True, --finite-gradients.",
    seen_in="dp-recorder's tests; stock Opacus 1.6",
)


def check(measured: Measurements, found: Found) -> Finding:
    """One entry that is infinite, or not a number."""
    finding = judge_entries(
        measured, RULE, {"an infinite entry": float(np.inf), "a NaN entry": float(np.nan)}
    )
    if finding.verdict != "broken":
        return finding
    infinite = measured.along_axis(float(np.inf))
    known = known_weakness(
        lambda: measured.subject.output(infinite, measured.seeds[0], measured.steps)
    )
    return replace(finding, verdict="warning", explanation=known) if known else finding


CHECK = Check(rule=RULE, run=check, after=("bounded",), needs=(clipping,))
