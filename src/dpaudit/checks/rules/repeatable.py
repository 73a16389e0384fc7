"""The same seed must give the same output: otherwise effects can only be averaged."""

from __future__ import annotations

from dpaudit.checks.findings import Finding, Rule
from dpaudit.checks.measuring import Measurements
from dpaudit.checks.rules.base import Check, Found

RULE = Rule(
    name="same seed, same output",
    requirement="Two calls with the same seed give the same parameters.",
    cause="A random generator is not seeded.",
    remedy="Seed every generator from `seed`.",
)

_HOW = (
    "Seed everything from `seed`: torch.manual_seed(seed) and the generator of the DP optimizer, "
    "numpy.random.default_rng(seed), jax.random.key(seed); shuffle the data with a generator of "
    "that seed too, and do not use secure_mode here. The other checks average over seeds instead, "
    "and then see only large faults"
)


def check(measured: Measurements, found: Found) -> Finding:
    """Compare two calls with one seed; a difference is no leak, but it blurs everything else."""
    seen = {
        "measured": f"{float(measured.repeat_difference.max()):.2g} apart",
        "allowed": "rounding",
    }
    if measured.repeatable:
        return RULE.passed(**seen)
    return RULE.unknown(f"The same seed gives different parameters. {_HOW}.", **seen)


CHECK = Check(rule=RULE, run=check)
