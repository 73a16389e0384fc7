"""Each example moves the sum by at most C, however long its gradient is."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dpaudit.checks.findings import Finding, Rule
from dpaudit.checks.measuring import Measurements
from dpaudit.checks.rules._judging import Contribution, contribution, judged, largest
from dpaudit.checks.rules._needs import clipping
from dpaudit.checks.rules.base import Check, Found

RULE = Rule(
    name="bounded contribution",
    requirement="One example moves the sum by at most C, however long its gradient is.",
    cause="",
    remedy="Clip the gradient of each example on its own, before anything is summed or averaged.",
    seen_in="opacus PR #664, tf-privacy #72",
)

_LENGTHS = (1e-3, 1.0, 10.0, 1e3, 1e6)
_AVERAGED_LENGTHS = (1e3, 1e6)


def check(measured: Measurements, found: Found) -> Finding:
    """Crafted gradients along one axis, from a thousandth of C to a million C."""
    lengths = _LENGTHS if measured.repeatable else _AVERAGED_LENGTHS
    unit, clip_norm = measured.unit, measured.subject.clip_norm
    seen = {
        length: contribution(measured, measured.along_axis(length * clip_norm), unit)
        for length in lengths
    }
    worst = largest(seen.values())
    if worst is None or worst.excess <= 0 or worst.covered_by(measured.cover):
        return judged(RULE, measured, worst, broken="")
    cause, precedent = _likely(measured, seen)
    return judged(
        RULE,
        measured,
        worst,
        broken=f"A gradient of norm {worst.length:.3g} C contributes {worst.words}. {cause}",
        seen_in=precedent,
    )


def _likely(measured: Measurements, seen: Mapping[float, Contribution | None]) -> tuple[str, str]:
    """The likely cause, from how the response grows with the gradient's norm; a precedent."""
    sizes = {length: one.size for length, one in seen.items() if one is not None}
    if not np.isfinite(sizes[1e6]):
        return "The output is not a number any more.", ""
    if not measured.repeatable and sizes[1e6] < 100 * sizes[1e3]:
        return "Either contributions are too large, or noise is too small.", ""
    if measured.raw_share > 0.9:
        return (
            "It grows in proportion to the gradient: nothing is clipped. Is the DP optimizer in "
            "use, and is its clip norm C?",
            "opacus PR #664 (clip norm ignored), tf-privacy #72 (optimizer silently inactive)",
        )
    if sizes[1e6] > 100 * sizes[1e3]:
        return (
            f"It grows without limit, with weight {measured.raw_share:.3g}: the raw gradient is "
            "mixed into the private one.",
            "Differentially-Private-Deep-Learning #7",
        )
    return (
        f"It stops growing at {sizes[1e6]:.4g} C: the mean of a batch (or microbatch) is clipped "
        "instead of each example, or gradients are clipped to another norm than the claimed one.",
        "APPFL #349, tf-privacy #81 (means of microbatches)",
    )


CHECK = Check(rule=RULE, run=check, needs=(clipping,))
