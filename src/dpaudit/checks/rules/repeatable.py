"""The same seed twice: without it nothing can be taken apart, only averaged."""

from __future__ import annotations

from dpaudit.checks.findings import Finding, Rule
from dpaudit.checks.measuring import Measurements

RULE = Rule(
    name="same seed, same output",
    promise="Called twice with the same seed, the training gives the same parameters.",
    cause="A random generator is not seeded.",
    remedy="Seed every generator from `seed`.",
)

_HOW = (
    "Seed everything from `seed`: torch.manual_seed(seed) and the generator of the DP optimizer, "
    "numpy.random.default_rng(seed), jax.random.key(seed); shuffle the data with a generator of "
    "that seed too, and use no secure_mode here. The checks go on with averages over seeds, which "
    "see only large faults"
)


def check(measured: Measurements, found: dict[str, Finding]) -> Finding:
    """Compare two calls with one seed; a difference is no leak, but it blurs all else."""
    largest = float(measured.repeat_difference.max())
    if measured.repeatable:
        return Finding(
            rule=RULE,
            verdict="passed",
            measured=f"{largest:.2g} apart",
            allowed="rounding",
        )
    return Finding(
        rule=RULE,
        verdict="could not tell",
        measured=f"{largest:.2g} apart",
        allowed="rounding",
        explanation=f"The same seed gives different parameters. {_HOW}.",
    )
