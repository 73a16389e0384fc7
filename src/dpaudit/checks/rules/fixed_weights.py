"""How much each step counts is fixed before training: learning rates, last step, chosen iterate."""

from __future__ import annotations

import numpy as np

from dpaudit._arrays import Array
from dpaudit.checks.arithmetic import direction
from dpaudit.checks.findings import Finding, Rule
from dpaudit.checks.measuring import Measurements
from dpaudit.checks.rules._needs import readable, same_output
from dpaudit.checks.rules.base import Check, Found
from dpaudit.checks.subject import TrainingSubject, UserCodeFailed

RULE = Rule(
    name="fixed weights of the steps",
    requirement="Learning rates, the number of steps and the returned iterate do not depend on the "
    "data.",
    cause="Training stops, lowers its learning rate or chooses a checkpoint by the loss of the "
    "training data.",
    remedy="Choose by public data or by noisy values, or account for the choice "
    "(arXiv 2110.03620).",
    seen_in="early stopping on the training loss",
)

_SEEDS, _FEWEST = 6, 3
_LENGTH = 10.0
_COMPANIONS = 32
_TOLERATED = 0.02
_REACTION = 0.25  # where the canary is in several steps, other examples react to it
_CHOICE = (
    "This is private only if the choice is made by public data or by noisy values. A canary that "
    "is a gradient has no loss, so that neither this check nor an audit shows which data decide."
)


def check(measured: Measurements, found: Found) -> Finding:
    """A canary in the last step only: its effect is the same after any earlier steps."""
    gradient = measured.dense(_LENGTH * measured.subject.clip_norm)
    along = direction(gradient)
    reads, effects = _in_last_step(measured, gradient, along)
    if min(reads) < max(reads):
        return RULE.unknown(
            f"The training reads the canary {min(reads)} to {max(reads)} times, depending on the "
            f"seed and on the gradients. If it stops early, {_CHOICE[0].lower()}{_CHOICE[1:]}",
            measured=f"{min(reads)} to {max(reads)} times",
            allowed="the same",
        )
    if len(effects) < _FEWEST:
        return RULE.unknown("The canary is not in the last step of enough trainings.")
    least, largest = min(effects), max(effects)
    error = 2 * float(np.sqrt(np.sum((measured.rounding * along) ** 2)))
    share = _TOLERATED if measured.subject.steps > 1 or reads[0] == 1 else _REACTION
    if largest <= error:
        return RULE.unknown(
            f"The last step does not count: an earlier iterate is returned. {_CHOICE}",
            measured="0",
            allowed="above 0",
        )
    seen = {
        "measured": f"{least / largest:.3g} to 1",
        "allowed": f"at least {1 - share:.3g}",
    }
    if largest - least <= share * largest + error or not np.isfinite(largest):
        return RULE.passed(**seen)
    return RULE.unknown(
        "How much the last step counts depends on the steps before it: the learning rate, the "
        f"number of steps or the returned iterate is chosen during training. {_CHOICE}",
        **seen,
    )


def _in_last_step(
    measured: Measurements, gradient: Array, along: Array
) -> tuple[list[int], list[float]]:
    """How often each training read the canary, and the effect of the canary in the last step.

    Under some seeds a sampled canary is not in the last step: these have no effect in the list.
    """
    subject, steps = measured.subject, measured.subject.steps
    assert isinstance(subject, TrainingSubject)
    reads, effects, last = [], [], steps - 1
    for place, seed in enumerate(measured.seeds[:_SEEDS]):
        beside = _companions(measured, place)
        outputs = []
        for sign in (1.0, -1.0):
            try:
                one = subject.output(sign * gradient, seed, steps, only=last, companions=beside)
            except UserCodeFailed:  # the training expects exactly one row
                one = subject.output(sign * gradient, seed, steps, only=last)
            outputs.append(one)
            reads.append(subject.reads)
        if subject.canary_took_part:
            effects.append(abs(float((outputs[0] - outputs[1]) @ along)) / 2)
    return reads, effects


def _companions(measured: Measurements, drawing: int) -> Array:
    """Other examples, as many in every drawing: they cancel, or pull all steps in one direction."""
    along = np.random.default_rng([19, drawing]).standard_normal(measured.subject.parameters)
    along *= measured.subject.clip_norm / np.linalg.norm(along)
    signs = np.ones(_COMPANIONS)
    if drawing % 2 == 0:
        signs[::2] = -1.0
    return np.outer(signs, along)


CHECK = Check(
    rule=RULE,
    run=check,
    applies=lambda subject: isinstance(subject, TrainingSubject),
    after=("bounded", "noise-presence"),
    needs=(readable, same_output),
)
