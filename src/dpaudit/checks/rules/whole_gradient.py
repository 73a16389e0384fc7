"""The clip norm bounds the whole gradient, not each tensor or entry."""

from __future__ import annotations

import numpy as np

from dpaudit.checks.findings import Finding, Rule
from dpaudit.checks.measuring import Measurements
from dpaudit.checks.rules._judging import contribution, judged, largest, many_shapes
from dpaudit.checks.rules._needs import clipping
from dpaudit.checks.rules.base import Check, Found

RULE = Rule(
    name="bounded dense contribution",
    requirement="A gradient spread over all parameters moves the sum by at most C in total.",
    cause="Each parameter tensor, or each entry, is clipped to C on its own, where the claim is "
    "about the whole gradient: with K tensors an example contributes up to sqrt(K) C.",
    remedy="Clip by the norm over all tensors together, or give each tensor C / sqrt(K).",
    seen_in="fedbiomed #1443",
)


def check(measured: Measurements, found: Found) -> Finding:
    """A gradient of norm one million C over all parameters; for a step, many other shapes too."""
    gradients = [measured.dense(1e6 * measured.subject.clip_norm)]
    gradients += many_shapes(measured, lengths=np.geomspace(1e3, 1e12, 12))
    worst = largest(contribution(measured, gradient) for gradient in gradients)
    size = "" if worst is None else worst.words
    return judged(
        RULE,
        measured,
        worst,
        broken=f"Spread over many of the {measured.subject.parameters:,} parameters, an example "
        f"contributes at least {size}, while along one coordinate it contributes at most C.",
    )


CHECK = Check(rule=RULE, run=check, after=("bounded",), needs=(clipping,))
