"""Every trained parameter is trained by the private optimizer."""

from __future__ import annotations

import numpy as np

from dpaudit.checks.findings import Finding, Rule
from dpaudit.checks.measuring import Measurements
from dpaudit.checks.rules._needs import NOT_LINEAR, no_transform, noise, same_output
from dpaudit.checks.rules.base import Check, Found
from dpaudit.checks.transforms import bends

RULE = Rule(
    name="every tensor is private",
    requirement="Parameters that change during training get noise, and the canary reaches them.",
    cause="A tensor is trained by another optimizer, or was not registered with the private one.",
    remedy="Give all trainable parameters to the private optimizer, or freeze them.",
    seen_in="heads trained by an optimizer of their own",
)


def check(measured: Measurements, found: Found) -> Finding:
    """Look for coordinates that change from one step to two, without noise in the first step."""
    seed = measured.seeds[0]
    change = np.abs(measured.subject.output(None, seed, 2) - measured.quiet)[measured.watched]
    spread = np.sqrt(np.mean(measured.noise() ** 2, axis=0))
    rounding = measured.rounding[measured.watched]
    bare = (spread <= rounding) & (change > 20 * rounding)
    if not bare.any():
        return RULE.passed(measured="all", allowed="all")
    if bends(measured):
        return RULE.unknown(NOT_LINEAR)
    names = list(dict.fromkeys(measured.tensor_at(int(i)).name for i in measured.watched[bare]))
    return RULE.broken(
        f"{int(bare.sum()):,} parameters change during training without noise: {', '.join(names)}.",
        measured=f"{1 - float(bare.mean()):.3g} of all",
        allowed="all",
    )


CHECK = Check(
    rule=RULE,
    run=check,
    applies=lambda subject: subject.steps_can_vary,
    after=("noise-presence",),
    needs=(noise, same_output, no_transform),
)
