"""Gradients with one extreme entry: what they do to the parameters."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dpaudit.checks.findings import Finding, Rule
from dpaudit.checks.measuring import Measurements
from dpaudit.checks.rules._judging import contribution
from dpaudit.checks.subject import UserCodeFailed


def judge_entries(measured: Measurements, rule: Rule, entries: Mapping[str, float]) -> Finding:
    """Insert gradients with one such entry each; parameters stay finite and the entry is clipped.

    Arguments:
        measured: The measurements.
        rule: The rule to report on.
        entries: The entries, by what they are called in the report.
    """
    allowed = "at most C"
    worst = 0.0
    for name, value in entries.items():
        gradient = measured.along_axis(value)
        try:
            output = measured.subject.output(gradient, measured.seeds[0], measured.steps)
            lost = int(np.sum(~np.isfinite(output)))
            if lost:
                return rule.broken(
                    f"An example with {name} turns {lost:,} of {len(output):,} parameters into "
                    "infinity or NaN.",
                    measured=f"{lost:,} lost",
                    allowed=allowed,
                )
            seen = contribution(measured, gradient, measured.unit)
        except UserCodeFailed as error:
            return rule.unknown(
                "Training stops instead of dropping the example, which can also be observed: "
                f"{error}.",
                measured="an exception",
                allowed=allowed,
            )
        if seen is not None and seen.excess > 0 and not seen.covered_by(measured.cover):
            return rule.broken(
                f"A gradient with {name} is not clipped.", measured=seen.words, allowed=allowed
            )
        worst = max(worst, 0.0 if seen is None else seen.size)
    return rule.passed(measured=f"{worst:.4g} C", allowed=allowed)
