"""The canary has an effect: otherwise nothing can be checked."""

from __future__ import annotations

import numpy as np

from dpaudit.checks.findings import Finding, Rule
from dpaudit.checks.measuring import Measurements
from dpaudit.checks.rules.base import Check, Found

RULE = Rule(
    name="canary has an effect",
    requirement="A training with the canary differs from one without it.",
    cause="The training ignores `inserted` or the canary, returns the untrained parameters, or "
    "returns another model than the one it trains.",
    remedy="Add canary.rows(inserted) to the per-example gradients of every step, before clipping, "
    "and return the trained parameters.",
)

_SEEDS = 6
_LENGTHS = (10.0, 0.5)  # times C: a training may drop the longest gradients, or round short ones


def check(measured: Measurements, found: Found) -> Finding:
    """Gradients along an axis and along all parameters, under several seeds."""
    clip_norm, subject = measured.subject.clip_norm, measured.subject
    gradients = [
        shape(length * clip_norm)
        for length in _LENGTHS
        for shape in (measured.dense, measured.along_axis)
    ]
    for steps in dict.fromkeys((measured.steps, max(measured.steps, subject.steps))):
        for seed in measured.seeds[:_SEEDS]:
            for gradient in gradients:
                if not np.array_equal(*subject.pair(gradient, seed, steps)):
                    return RULE.passed()
    why = (
        "train never calls canary.rows or canary.clipped_sum"
        if not subject.canary_was_read
        else f"gradients of norm {_LENGTHS[1]:g} C and {_LENGTHS[0]:g} C change "
        f"nothing under {_SEEDS} seeds"
    )
    return RULE.broken(f"The canary has no effect: {why}. No other rule was checked.")


CHECK = Check(rule=RULE, run=check)
