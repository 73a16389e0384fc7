"""Every step draws noise of its own."""

from __future__ import annotations

import numpy as np

from dpaudit.checks.findings import Finding, Rule
from dpaudit.checks.measuring import SEVERAL, Measurements
from dpaudit.checks.rules._growth import SAME, growth
from dpaudit.checks.rules.base import Check, Found
from dpaudit.checks.subject import TrainingSubject

RULE = Rule(
    name="noise differs between steps",
    requirement="Every step draws its own noise: the variance grows like the number of steps.",
    cause="The generator is seeded again, or the same key is used, at every step: the difference "
    "of two iterates is then free of noise.",
    remedy="Seed once, before training; in JAX fold the step into the key (jax.random.fold_in).",
    seen_in="reused keys as in jax PR #3646",
)

_APART = 0.65  # of sqrt(T): no training lies between this and SAME


def check(measured: Measurements, found: Found) -> Finding:
    """Noise over response after several steps, compared with one step."""
    grown = growth(measured)
    if isinstance(grown, str):
        return RULE.unknown(grown)
    most = float(np.sqrt(SEVERAL))
    seen = {"measured": grown.words, "allowed": f"below {_APART * most:.3g}"}
    if grown.factor < _APART * most:
        return RULE.passed(**seen)
    if grown.factor < SAME * most or grown.uncertain:
        return RULE.unknown(
            "Outputs vary more with the number of steps than independent noise explains; more "
            "than the noise may depend on the seed.",
            **seen,
        )
    return RULE.broken(
        f"In {SEVERAL} steps the noise grows {SEVERAL} times, as if it were the same in every "
        f"step, not {most:.3g} times.",
        **seen,
    )


CHECK = Check(rule=RULE, run=check, applies=lambda subject: isinstance(subject, TrainingSubject))
