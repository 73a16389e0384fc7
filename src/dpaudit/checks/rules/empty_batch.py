"""A batch without examples is noised like any other."""

from __future__ import annotations

import numpy as np

from dpaudit.checks.arithmetic import centred
from dpaudit.checks.findings import Finding, Rule
from dpaudit.checks.limits import FALSE_ALARM, smallest_ratio
from dpaudit.checks.measuring import Measurements
from dpaudit.checks.rules.base import Check, Found
from dpaudit.checks.subject import StepSubject, UserCodeFailed

RULE = Rule(
    name="empty batches",
    requirement="A step on an empty batch adds the same noise as any other step.",
    cause="Empty batches of Poisson sampling are skipped, or fail: then noise in a step proves "
    "that the batch had an example.",
    remedy="Make the step with noise only; do not skip it.",
    seen_in="opacus #80 and loops that continue on empty batches",
)


def check(measured: Measurements, found: Found) -> Finding:
    """The step on an array of no rows, under several seeds."""
    assert isinstance(measured.subject, StepSubject)
    try:
        rows = np.stack([measured.subject.empty_batch(seed) for seed in measured.seeds])
    except UserCodeFailed as error:
        return RULE.broken(
            f"The step fails on an empty batch, which can be observed: {error}",
            measured="an exception",
            allowed="noise",
        )
    if not np.all(np.isfinite(rows)):
        return RULE.broken(
            "On an empty batch the output is infinite or NaN, which can be observed.",
            measured="not finite",
            allowed="noise",
        )
    noise = centred(rows)[:, measured.watched]
    degrees = (len(rows) - 1) * noise.shape[1]
    usual = measured.noise_level()
    ratio = float(np.sqrt((noise**2).sum() / degrees)) / usual if usual else 1.0
    seen = {"measured": f"{ratio:.3g} x noise", "allowed": "1 x noise"}
    # A mean over the actual batch divides an empty one by 1, which another rule reports.
    if ratio < 0.95 * float(np.sqrt(smallest_ratio(degrees, FALSE_ALARM))) - 0.02:
        return RULE.broken(
            f"On an empty batch noise is {ratio:.3g} times as large as on other batches.", **seen
        )
    return RULE.passed(**seen)


CHECK = Check(
    rule=RULE,
    run=check,
    applies=lambda subject: isinstance(subject, StepSubject),
    after=("bounded", "noise-presence", "zero-gradient"),
)
