"""Noise of one parameter says nothing about the noise of another."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpaudit.checks.arithmetic import Array
from dpaudit.checks.findings import Finding, Rule
from dpaudit.checks.limits import FALSE_ALARM, largest_ratio, standard_deviations
from dpaudit.checks.measuring import Measurements
from dpaudit.checks.rules.noise_directions import (
    TOLERANCE,
    Directions,
    equal_runs,
    noise_directions,
)
from dpaudit.checks.rules.noise_size import THERE, varies_too_much

RULE = Rule(
    name="noise differs between parameters",
    promise="Noise is drawn on its own for every parameter.",
    cause="The same random key, or the same seed, is used for every tensor, or one draw is "
    "broadcast: differences between parameters are then free of noise.",
    remedy="Split the key (jax.random.split) or use one generator for all tensors, one after the "
    "other.",
    seen_in="jax PR #3646",
)

_LAGS = 4
_TESTS = 3
_FEWEST = 8


def check(measured: Measurements, found: dict[str, Finding]) -> Finding:
    """Repeated draws, neighbours, halves, and the sum of everything."""
    if not measured.noise_is_there:
        return _unknown(f"See '{THERE.name}' first.")
    if not measured.unit.known:
        return _unknown(f"Nothing is known of what noise does: {measured.unit.why_not}.")
    directions = noise_directions(measured)
    if len(directions) < _FEWEST:
        return _unknown(
            f"There are only {len(directions)} parameters with noise that is clear of rounding."
        )
    if equal_runs(measured) is not None:
        return _unknown("Some seeds give the same noise: put that right first.")
    twins = repeated(directions)
    share = float(twins.mean())
    if share > 0:
        first = int(directions.places[twins][0])
        return Finding(
            rule=RULE,
            verdict="broken",
            measured=f"{share:.2g} repeated",
            allowed="none",
            explanation=f"{int(twins.sum()):,} of {len(twins):,} parameters have the same noise as "
            f"another one under every seed, the first of them at place {first:,}.",
        )
    name, excess = largest_dependence(directions.rows)
    told = {"measured": f"{name}: {excess:.2g}", "allowed": "at most 1"}
    if excess <= 1:
        return Finding(rule=RULE, verdict="passed", **told)
    if varies_too_much(measured) or measured.steps > 1:
        return Finding(
            rule=RULE,
            verdict="could not tell",
            explanation="Parameters vary together, but more than the noise may depend on the seed; "
            "keep the starting point, the data and the batches fixed, and train one step.",
            **told,
        )
    return Finding(
        rule=RULE,
        verdict="broken",
        explanation=f"Noise is correlated between parameters ({name}).",
        **told,
    )


def repeated(directions: Directions) -> NDArray[np.bool_]:
    """Which directions are the same as another one, up to sign and rounding."""
    flip = np.where(directions.rows[:, 0] < 0, -1.0, 1.0)
    order = np.argsort(directions.rows[:, 0] * flip, kind="stable")
    rows, error = (directions.rows * flip[:, None])[order], directions.error[order]
    found = np.zeros(len(rows), dtype=bool)
    for lag in range(1, min(_LAGS, len(rows) - 1) + 1):
        tolerance = TOLERANCE * (error[lag:] + error[:-lag]) + 1e-9
        same = np.all(np.abs(rows[lag:] - rows[:-lag]) <= tolerance[:, None], axis=1)
        found[lag:] |= same
        found[:-lag] |= same
    result = np.zeros(len(rows), dtype=bool)
    result[order] = found
    return result


def largest_dependence(directions: Array) -> tuple[str, float]:
    """The strongest of three dependences, as a fraction of its limit at the false-alarm level."""
    count, seeds = directions.shape
    freedom = seeds - 1
    limit = standard_deviations(FALSE_ALARM / _TESTS)
    half = count // 2
    excesses = {
        "neighbours": _mean_product(directions[:-1], directions[1:], freedom) / limit,
        "halves": _mean_product(directions[:half], directions[half : 2 * half], freedom) / limit,
    }
    total = directions.sum(axis=0)
    together = float(total @ total) / count
    excesses["sum of all"] = together / largest_ratio(freedom, FALSE_ALARM / _TESTS)
    name = max(excesses, key=lambda key: excesses[key])
    return name, excesses[name]


def _mean_product(one: Array, other: Array, freedom: int) -> float:
    """The sum of inner products in its own standard deviations: each has variance 1/freedom."""
    products = np.einsum("ij,ij->i", one, other)
    return abs(float(products.sum())) * float(np.sqrt(freedom / len(products)))


def _unknown(reason: str) -> Finding:
    return Finding(rule=RULE, verdict="could not tell", explanation=reason)
