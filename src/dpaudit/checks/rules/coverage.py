"""Every trained parameter is trained by the private optimizer."""

from __future__ import annotations

import numpy as np

from dpaudit.checks.findings import Finding, Rule
from dpaudit.checks.measuring import Measurements
from dpaudit.checks.rules._noise import NOT_LINEAR, unsuited
from dpaudit.checks.rules.base import Check, Found, hidden_by
from dpaudit.checks.rules.noise_presence import RULE as PRESENCE
from dpaudit.checks.subject import Subject
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
    if hidden_by(found, PRESENCE):
        return RULE.unknown(hidden_by(found, PRESENCE))
    if not measured.repeatable or not measured.noise_is_there:
        return RULE.unknown("This needs noise, and the same output for the same seed.")
    if measured.subject.public_transform or measured.thresholded:
        return RULE.unknown(unsuited(measured))
    seed = measured.seeds[0]
    change = np.abs(measured.subject.output(None, seed, 2) - measured.quiet)[measured.watched]
    noise = np.sqrt(np.mean(measured.noise() ** 2, axis=0))
    rounding = measured.rounding[measured.watched]
    bare = (noise <= rounding) & (change > 20 * rounding)
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


def applies(subject: Subject) -> bool:
    """Only a training that takes ``steps`` shows it."""
    return subject.steps_can_vary


CHECK = Check(rule=RULE, run=check, applies=applies)
