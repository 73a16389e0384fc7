"""Noise does not depend on the gradients of the batch."""

from __future__ import annotations

import numpy as np

from dpaudit._arrays import Array
from dpaudit.checks.findings import Finding, Rule
from dpaudit.checks.measuring import Measurements
from dpaudit.checks.rules._needs import clipping, one_step, same_output
from dpaudit.checks.rules.base import Check, Found
from dpaudit.checks.subject import UserCodeFailed

RULE = Rule(
    name="noise independent of the data",
    requirement="The size of the noise is the same for short and for long gradients.",
    cause="Noise, or the whole update, is scaled by a number computed from the raw batch: its "
    "median or largest norm, its loss, or a learning rate chosen by the raw gradient.",
    remedy="Scale noise by the constant C. A clip norm or learning rate that adapts to the data "
    "needs a private estimate, from noisy values only, that the accountant counts.",
    seen_in="clipping to the batch's true median (arXiv 1905.03871 makes it private)",
)

_COMPANIONS = 256
_MOST_NUMBERS = 1 << 24
_SHORT, _LONG = 1e-3, 1e3  # times C
_TOLERATED = 0.01


def check(measured: Measurements, found: Found) -> Finding:
    """The noise beside many short gradients, and beside many long ones, under the same seeds."""
    try:
        short, error = _noise_beside(measured, _SHORT)
        long, more = _noise_beside(measured, _LONG)
    except UserCodeFailed:
        return RULE.unknown("The training takes one crafted gradient at a time.")
    if not (np.all(np.isfinite(long)) and short @ short > 0):
        return RULE.unknown("Outputs beside long gradients are not finite.")
    factor = float(long @ short / (short @ short))
    seen = {"measured": f"{factor:.4g} times", "allowed": "1 time"}
    if abs(factor - 1) <= _TOLERATED:
        return RULE.passed(**seen)
    # A public function of the noisy gradient, such as its normalisation, does not scale the noise
    # of two seeds by exactly the same factor.
    tolerance = min(1e-3, 0.2 / float(np.sqrt(len(short))))
    rest = float(np.linalg.norm(long - factor * short))
    if rest > tolerance * float(np.linalg.norm(long)) + abs(factor) * error + more:
        return RULE.unknown(
            "Outputs vary by another amount beside long gradients, but not in proportion to the "
            "noise, as behind a public transform of the noisy gradient.",
            **seen,
        )
    return RULE.broken(
        f"With {_count(measured):,} long gradients in the batch, noise is {factor:.4g} times as "
        "large as with as many short ones: the batch decides the size of the noise.",
        **seen,
    )


def _count(measured: Measurements) -> int:
    return max(3, min(_COMPANIONS, _MOST_NUMBERS // measured.subject.parameters))


def _noise_beside(measured: Measurements, length: float) -> tuple[Array, float]:
    """The difference of two seeds beside many gradients of this norm, and its rounding error."""
    subject = measured.subject
    rows = np.random.default_rng(13).standard_normal((_count(measured), subject.parameters))
    rows *= length * subject.clip_norm / np.linalg.norm(rows, axis=1, keepdims=True)
    outputs = [
        subject.output(None, seed, measured.steps, companions=rows) for seed in measured.seeds[:2]
    ]
    rounding = 4 * measured.precision * max(float(np.linalg.norm(one)) for one in outputs)
    return outputs[0] - outputs[1], rounding + 2 * float(np.linalg.norm(measured.rounding))


CHECK = Check(
    rule=RULE,
    run=check,
    after=("bounded",),
    passed=("noise-presence",),
    needs=(same_output, one_step, clipping),
)
