"""Other seeds, other noise: a run must not use the noise of another one again."""

from __future__ import annotations

import numpy as np

from dpaudit.checks.findings import Finding, Rule
from dpaudit.checks.limits import FALSE_ALARM, standard_deviations
from dpaudit.checks.measuring import Measurements
from dpaudit.checks.rules.noise_directions import equal_runs, noise_directions
from dpaudit.checks.rules.noise_independence import RULE as PARAMETERS
from dpaudit.checks.rules.noise_size import THERE, varies_too_much

RULE = Rule(
    name="noise differs between runs",
    promise="Two runs with different seeds share no noise.",
    cause="The seed is cut down to a few values on its way to the generator of the noise, or only "
    "a part of the noise depends on it: the difference of two runs is then free of noise.",
    remedy="Pass the whole seed on; in production draw it from the operating system.",
    seen_in="weak seeding is among the faults that no audit of scores can see",
)

_FEWEST = 8


def check(measured: Measurements, found: dict[str, Finding]) -> Finding:
    """Compare the outputs of every two seeds."""
    if not measured.noise_is_there:
        return _unknown(f"See '{THERE.name}' first.")
    same = equal_runs(measured)
    if same is not None:
        first, second = (measured.seeds[i] for i in same)
        return Finding(
            rule=RULE,
            verdict="broken",
            measured=f"{first} as {second}",
            allowed="none alike",
            explanation=f"Seeds {first} and {second}, {abs(second - first):,} apart, give the same "
            "output: there are only a few different noises.",
        )
    if found[PARAMETERS.name].verdict == "broken":
        return _unknown(f"Put '{PARAMETERS.name}' right first.")
    if not measured.unit.known:
        return _unknown(f"Nothing is known of what noise does: {measured.unit.why_not}.")
    rows = noise_directions(measured).rows
    count, seeds = rows.shape
    if count < _FEWEST:
        return _unknown(f"There are only {count} parameters with noise that is clear of rounding.")
    products = seeds * (rows.T @ rows) / count
    # Subtracting the mean over seeds makes every two of them correlate by this much.
    away = np.abs(products + 1 / (seeds - 1))[np.triu_indices(seeds, 1)].max()
    limit = standard_deviations(2 * FALSE_ALARM / (seeds * (seeds - 1))) / np.sqrt(count)
    told = {"measured": f"alike: {away:.2g}", "allowed": f"at most {limit:.2g}"}
    if away <= limit:
        return Finding(rule=RULE, verdict="passed", **told)
    if varies_too_much(measured) or measured.steps > 1:
        return Finding(
            rule=RULE,
            verdict="could not tell",
            explanation="Runs vary together, but more than the noise may depend on the seed.",
            **told,
        )
    return Finding(
        rule=RULE,
        verdict="broken",
        explanation="Noise is correlated between runs with different seeds.",
        **told,
    )


def _unknown(reason: str) -> Finding:
    return Finding(rule=RULE, verdict="could not tell", explanation=reason)
