"""A gradient counts in its own step only."""

from __future__ import annotations

import numpy as np

from dpaudit.checks.findings import Finding, Rule
from dpaudit.checks.measuring import SEVERAL, Measurements
from dpaudit.checks.rules._growth import growth
from dpaudit.checks.rules._needs import same_output
from dpaudit.checks.rules.base import Check, Found
from dpaudit.checks.subject import StepSubject
from dpaudit.checks.trajectory import trajectory

RULE = Rule(
    name="contribution to its own step only",
    requirement="An example contributes to T steps at most T times as much as to one.",
    cause="Sums of earlier steps are not set to zero, so old gradients are added again under noise "
    "that was meant for one step.",
    remedy="Call zero_grad() after every step, also while accumulating; Opacus clears summed_grad "
    "there.",
    seen_in="opacus PR #203",
)


_PERSISTS = 0.97  # of its own step: an effect on the next step that no usual momentum has


def check(measured: Measurements, found: Found) -> Finding:
    """Noise over response after several steps and after one; for a step, the same call again."""
    if isinstance(measured.subject, StepSubject):
        return _check_memory(measured)
    grown = growth(measured)
    if isinstance(grown, str):
        return RULE.unknown(grown)
    if not grown.in_every_step:
        return RULE.unknown(
            f"In {SEVERAL} steps the canary has {grown.effect:.3g} times the effect of one: it is "
            "not in every step, which this rule needs."
        )
    seen = {"measured": grown.words, "allowed": f"at least {grown.least:.3g}"}
    if grown.factor >= grown.least:
        return RULE.passed(**seen)
    seen_steps = trajectory(measured)
    if not isinstance(seen_steps, str) and abs(seen_steps.persistence) < _PERSISTS:
        return RULE.passed(
            explanation="Noise grows less with the steps than the canary's effect, but no "
            "contribution comes back in a later step.",
            **seen,
        )
    if grown.uncertain:
        return RULE.unknown(
            "More than the noise depends on the seed: keep the starting point, the data and the "
            "batches fixed.",
            **seen,
        )
    return RULE.broken(
        f"After {SEVERAL} steps an example has {1 / grown.factor:.3g} times the influence, "
        "relative to the noise, that it has after one.",
        **seen,
    )


def _check_memory(measured: Measurements) -> Finding:
    """The output of a step must not depend on earlier calls."""
    if measured.remembers:
        return RULE.broken(
            "The step adds the sums of earlier calls to its own.",
            measured="grows",
            allowed="no change",
        )
    if not measured.repeatable:
        return RULE.unknown(same_output(measured))
    again = measured.subject.output(None, measured.seeds[0], measured.steps)
    changed = float(np.abs(again - measured.quiet).max())
    seen = {"measured": f"{changed:.2g} apart", "allowed": "rounding"}
    if changed <= 1e-3 * measured.noise_level():
        return RULE.passed(**seen)
    return RULE.broken("The output of the step depends on gradients of earlier calls.", **seen)


CHECK = Check(rule=RULE, run=check)
