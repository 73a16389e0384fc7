"""The noise of one parameter is independent of the noise of another."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpaudit._arrays import Array
from dpaudit.checks.findings import Finding, Rule
from dpaudit.checks.limits import FALSE_ALARM, largest_ratio, standard_deviations
from dpaudit.checks.measuring import Measurements
from dpaudit.checks.rules._directions import (
    FEWEST,
    TOLERANCE,
    Directions,
    equal_runs,
    noise_directions,
)
from dpaudit.checks.rules._needs import noise, readable
from dpaudit.checks.rules._noise import varies_too_much
from dpaudit.checks.rules.base import Check, Found

RULE = Rule(
    name="noise differs between parameters",
    requirement="The noise of every parameter is drawn independently.",
    cause="The same random key, or the same seed, is used for every tensor, or one draw is "
    "broadcast: differences between parameters are then free of noise.",
    remedy="Split the key (jax.random.split), or draw the noise of all tensors from one generator.",
    seen_in="jax PR #3646",
)

_LAGS = 4
_LONG = 128  # parameters, for the normal approximation at every distance
_TESTS = 4


def check(measured: Measurements, found: Found) -> Finding:
    """Repeated draws, neighbours, halves, and the sum of all parameters."""
    if measured.mixes:
        return RULE.unknown("A public linear map mixes the parameters, and their noise with them.")
    directions = noise_directions(measured)
    if len(directions) < FEWEST:
        return RULE.unknown(f"Only {len(directions)} parameters have noise well above rounding.")
    if equal_runs(measured) is not None:
        return RULE.unknown("Some seeds give the same noise: repair that first.")
    twins = repeated(directions)
    share = float(twins.mean())
    if share > 0:
        return RULE.broken(
            f"{int(twins.sum()):,} of {len(twins):,} parameters have the same noise as another one "
            f"under every seed, the first of them at index {int(directions.places[twins][0]):,}.",
            measured=f"{share:.2g} repeated",
            allowed="none",
        )
    name, excess = largest_dependence(directions.rows)
    seen = {"measured": f"{name}: {excess:.2g}", "allowed": "at most 1"}
    if excess <= 1:
        return RULE.passed(**seen)
    if varies_too_much(measured) or measured.steps > 1:
        return RULE.unknown(
            "Parameters vary together, but more than the noise may depend on the seed: keep the "
            "starting point, the data and the batches fixed, and train one step.",
            **seen,
        )
    return RULE.broken(f"Noise is correlated between parameters ({name}).", **seen)


def repeated(directions: Directions) -> NDArray[np.bool_]:
    """Which directions equal another one, up to sign and rounding."""
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
    """The strongest of four dependences, relative to its limit at the false-alarm level."""
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
    excesses["a fixed distance"] = _shifted(directions, freedom)
    name = max(excesses, key=lambda key: excesses[key])
    return name, excesses[name]


def _shifted(directions: Array, freedom: int) -> float:
    """The strongest correlation between parameters at any fixed distance, relative to its limit."""
    count = len(directions)
    if count < _LONG:
        return 0.0
    spectrum = np.fft.rfft(directions, 2 * count, axis=0)
    products = np.fft.irfft((np.abs(spectrum) ** 2).sum(axis=1))[1 : count - _LONG // 2]
    pairs = count - np.arange(1, len(products) + 1)
    limit = standard_deviations(FALSE_ALARM / _TESTS / len(products))
    return float(np.abs(products * np.sqrt(freedom / pairs)).max()) / limit


def _mean_product(one: Array, other: Array, freedom: int) -> float:
    """The sum of inner products in standard deviations: each product has variance 1/freedom."""
    products = np.einsum("ij,ij->i", one, other)
    return abs(float(products.sum())) * float(np.sqrt(freedom / len(products)))


CHECK = Check(rule=RULE, run=check, needs=(noise, readable))
