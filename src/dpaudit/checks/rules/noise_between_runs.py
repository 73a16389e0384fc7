"""Runs with different seeds have different noise."""

from __future__ import annotations

import numpy as np

from dpaudit.checks.findings import Finding, Rule
from dpaudit.checks.limits import FALSE_ALARM, standard_deviations
from dpaudit.checks.measuring import Measurements
from dpaudit.checks.rules._directions import FEWEST, equal_runs, noise_directions
from dpaudit.checks.rules._needs import noise, readable
from dpaudit.checks.rules._noise import varies_too_much
from dpaudit.checks.rules.base import Check, Found, hidden_by

RULE = Rule(
    name="noise differs between runs",
    requirement="Two runs with different seeds have independent noise.",
    cause="Only a few bits of the seed reach the generator of the noise, or only a part of the "
    "noise depends on it: the difference of two runs is then free of noise.",
    remedy="Pass the whole seed on; in production draw it from the operating system.",
    seen_in="fedbiomed #973; an audit of scores cannot see weak seeding",
)


def check(measured: Measurements, found: Found) -> Finding:
    """Compare the outputs of every two seeds."""
    same = equal_runs(measured)
    if same is not None:
        first, second = (measured.seeds[i] for i in same)
        return RULE.broken(
            f"Seeds {first} and {second}, {abs(second - first):,} apart, give the same output: "
            "there are only a few different noise vectors.",
            measured=f"{first} as {second}",
            allowed="none alike",
        )
    reason = hidden_by(found, "noise-between-parameters") or readable(measured)
    if reason:
        return RULE.unknown(reason)
    rows = noise_directions(measured).rows
    count, seeds = rows.shape
    if count < FEWEST:
        return RULE.unknown(f"Only {count} parameters have noise well above rounding.")
    products = seeds * (rows.T @ rows) / count
    # Subtracting the mean over seeds correlates every two of them by -1 / (seeds - 1).
    away = np.abs(products + 1 / (seeds - 1))[np.triu_indices(seeds, 1)].max()
    limit = standard_deviations(2 * FALSE_ALARM / (seeds * (seeds - 1))) / np.sqrt(count)
    seen = {"measured": f"alike: {away:.2g}", "allowed": f"at most {limit:.2g}"}
    if away <= limit:
        return RULE.passed(**seen)
    if varies_too_much(measured) or measured.steps > 1:
        return RULE.unknown(
            "Runs vary together, but more than the noise may depend on the seed.", **seen
        )
    return RULE.broken("Noise is correlated between runs with different seeds.", **seen)


CHECK = Check(rule=RULE, run=check, needs=(noise,))
