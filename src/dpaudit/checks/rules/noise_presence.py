"""Every trained parameter gets noise, and other noise under another seed."""

from __future__ import annotations

import numpy as np

from dpaudit.checks.findings import Finding, Rule
from dpaudit.checks.measuring import Measurements
from dpaudit.checks.rules.base import Check, Found

RULE = Rule(
    name="noise in every parameter",
    requirement="Every trained parameter gets noise, and other noise under another seed.",
    cause="Noise is not added, or not to every tensor, or its generator is seeded with a constant.",
    remedy="Add noise to the clipped sum of every tensor, from a generator seeded with `seed`.",
    seen_in="tf-privacy #72 (DP optimizer silently inactive)",
)

_VISIBLE = 20.0  # claimed noise below so many rounding errors could not be seen


def check(measured: Measurements, found: Found) -> Finding:
    """Look for coordinates that a canary moves and a seed does not."""
    if not measured.noise_is_there:
        return _check_silence(measured)
    allowed = "all trained"
    scaled = measured.scales()
    hidden = measured.subject.public_transform or measured.thresholded
    if scaled is None or hidden or not measured.repeatable:
        return RULE.passed(
            "Outputs vary from seed to seed, but single parameters could not be compared.",
            measured="some",
            allowed=allowed,
        )
    trained = measured.spread[scaled[0] > 0]
    columns = measured.columns(trained)
    spread = np.sqrt(np.mean(measured.noise()[:, columns] ** 2, axis=0))
    # Less than a millionth of the claim is no noise; anything above is a matter of size.
    claimed = scaled[0][scaled[0] > 0] * measured.subject.noise_multiplier / measured.insertions
    silent = spread <= np.maximum(measured.rounding[trained], 1e-6 * claimed)
    silent &= claimed > _VISIBLE * measured.rounding[trained]
    share = float(silent.mean())
    if share == 0:
        return RULE.passed(measured="all", allowed=allowed)
    names = dict.fromkeys(measured.tensor_at(int(index)).name for index in trained[silent])
    return RULE.broken(
        f"{int(silent.sum()):,} of {len(trained):,} trained parameters that were looked at get no "
        f"noise: in {', '.join(names)}.",
        measured=f"{1 - share:.3g} of all",
        allowed=allowed,
    )


def _check_silence(measured: Measurements) -> Finding:
    """No noise was seen: is there none, or does rounding hide it?"""
    floor = float(np.sqrt(np.mean(measured.rounding**2)))
    claimed = measured.unit.size * measured.subject.noise_multiplier * np.sqrt(measured.steps)
    seen = {"measured": "none", "allowed": "all trained"}
    if not measured.unit.known or claimed / measured.insertions <= _VISIBLE * floor:
        return RULE.unknown(
            "Neither noise nor canary rises above the rounding of the parameters. Use a larger "
            "learning rate for the check, return float64, or return how far the parameters moved.",
            **seen,
        )
    return RULE.broken("All seeds give the same parameters: no noise, or always the same.", **seen)


CHECK = Check(rule=RULE, run=check)
