"""Noise is Gaussian: normal tails, unbounded, and fine enough to cover every digit."""

from __future__ import annotations

import numpy as np
from scipy import special

from dpaudit.checks.arithmetic import Array
from dpaudit.checks.findings import Finding, Rule
from dpaudit.checks.limits import FALSE_ALARM
from dpaudit.checks.measuring import Measurements
from dpaudit.checks.rules._directions import more_directions
from dpaudit.checks.rules._judging import adapts
from dpaudit.checks.rules._noise import unsuited, varies_too_much
from dpaudit.checks.rules.base import Check, Found, hidden_by
from dpaudit.checks.rules.noise_between_parameters import RULE as PARAMETERS
from dpaudit.checks.rules.noise_between_runs import RULE as RUNS
from dpaudit.checks.rules.noise_presence import RULE as PRESENCE

RULE = Rule(
    name="Gaussian noise",
    requirement="Noise has a normal distribution, as the accountant assumes.",
    cause="Noise is uniform, Laplace, truncated or clamped, or it takes only a few values: an "
    "output that noise cannot reach without the example proves that the example took part.",
    remedy="Draw noise with torch.randn, jax.random.normal or numpy's normal, do not clamp it, and "
    "draw it in the precision of the sum.",
    seen_in="Mironov 2012 (low bits); truncated noise in several forks",
)

_FEWEST = 200  # directions, for the normal approximation of a mean of fourth powers
_EXCESS = 0.15  # kurtosis may differ from 3 by this much
_DEVIATIONS = 8.0  # a normal mean leaves this with probability 1e-15; skewed ones far below 1e-6


_WINDOW = 0.15  # of a grid: how near a value must be to count as a multiple


def check(measured: Measurements, found: Found) -> Finding:
    """Kurtosis, the largest value, and the number of different values."""
    if found[PRESENCE.name].verdict != "passed":
        return RULE.unknown(f"See '{PRESENCE.name}' first.")
    reason = hidden_by(found, RUNS, PARAMETERS) or unsuited(measured)
    if reason:
        return RULE.unknown(reason)
    if measured.moves_alike and adapts(measured):
        return RULE.unknown(
            "The output moves every parameter by the same amount, as the first step of Adam does; "
            "check the noisy gradient before the optimizer."
        )
    directions = more_directions(measured, _FEWEST)
    if len(directions) < _FEWEST:
        return RULE.unknown(
            f"Too few parameters have noise well above rounding: {len(directions)} measurements of "
            f"the shape, and {_FEWEST} are needed."
        )
    repeats = _coarse(measured)
    if repeats is not None:
        return RULE.broken(
            f"Noise takes few different values ({repeats:.2g} of all are repeated), while "
            "gradients do not: digits of the sum that are finer than the noise are visible.",
            measured=f"{repeats:.2g} repeated",
            allowed="none",
        )
    kurtosis, deviations = _kurtosis(directions)
    seen = {"measured": f"kurtosis {kurtosis:.3g}", "allowed": f"3 ± {_EXCESS:g}"}
    bounded = _bounded(measured)
    if bounded is not None:
        return RULE.broken(
            f"Noise never exceeds {bounded:.3g} standard deviations, which normal noise of this "
            "many values would.",
            measured=f"at most {bounded:.3g}",
            allowed="unbounded",
        )
    if abs(kurtosis - 3) <= _EXCESS or deviations <= _DEVIATIONS:
        return RULE.passed(**seen)
    if varies_too_much(measured) or measured.steps > 1:
        return RULE.unknown(
            "Outputs are not normal, but more than the noise may depend on the seed: keep the "
            "starting point, the data and the batches fixed, and train one step.",
            **seen,
        )
    tails = "heavier" if kurtosis > 3 else "lighter"
    return RULE.broken(f"Noise has {tails} tails than a normal distribution.", **seen)


def _kurtosis(directions: Array) -> tuple[float, float]:
    """Kurtosis of the noise, and how many standard deviations it is from that of normal noise."""
    count, seeds = directions.shape
    # An entry of a uniform direction in n - 1 dimensions, embedded in n: E x^4 is known.
    freedom = seeds - 1
    expected = 3 / (freedom * (freedom + 2)) * (freedom / seeds) ** 2
    fourth = (directions**4).mean(axis=1)
    error = float(fourth.std(ddof=1)) / np.sqrt(count)
    return 3 * float(fourth.mean()) / expected, abs(float(fourth.mean()) - expected) / error


def _bounded(measured: Measurements) -> float | None:
    """The largest noise in standard deviations, if normal noise would not stay below it."""
    scaled = measured.scales()
    if scaled is None or measured.mixes or measured.steps > 1:
        return None
    trained = scaled[0] > 0
    columns = np.searchsorted(measured.watched, measured.spread[trained])
    noise = measured.noise()[:, columns] / scaled[0][trained]
    noise = noise / np.sqrt((noise**2).sum() / ((len(noise) - 1) * noise.shape[1]))
    largest = float(np.abs(noise).max())
    # log P(all below): subtracting the mean over seeds changes little at these sizes.
    chance = noise.size * float(special.log_ndtr(largest) + np.log1p(-special.ndtr(-largest)))
    return largest if chance < np.log(FALSE_ALARM) and largest < 4 else None


def _coarse(measured: Measurements) -> float | None:
    """The share of noise on a coarse grid, if gradients are not on it."""
    scaled = measured.scales()
    if scaled is None or measured.mixes or measured.steps > 1:
        return None
    trained = scaled[0] > 0
    places = measured.spread[trained]
    per_unit = scaled[0][trained] / measured.subject.clip_norm
    noise = measured.noise()[:2, np.searchsorted(measured.watched, places)]
    steps = np.abs(noise[1] - noise[0]) / per_unit
    error = measured.rounding[places] / per_unit + scaled[1] * steps
    wild = measured.dense(measured.subject.clip_norm, places)
    wild[places] *= 0.3 + 0.4 * np.random.default_rng(3).random(len(places))
    moved = np.abs(measured.difference(wild))[places] / per_unit
    grain = measured.grain / per_unit
    for share_of in (_repeated, _dyadic):
        share = share_of(steps, error, grain)
        if share > 0.3 and share_of(moved, error, grain) < 0.5 * share:
            return share
    return None


def _dyadic(values: Array, error: Array, grain: Array) -> float:
    """The largest share of values that are multiples of a power of two, beyond chance."""
    best = 0.0
    for power in range(2, 24):
        grid = 2.0**-power
        if float(np.median(error)) > _WINDOW * grid or float(np.median(grain)) > _WINDOW * grid:
            break
        large = values[values > 2 * grid]  # every value is near zero times a large grid
        if len(large) < 0.5 * len(values):
            continue
        away = np.abs(large / grid - np.round(large / grid))
        best = max(best, (float((away < _WINDOW).mean()) - 2 * _WINDOW) / (1 - 2 * _WINDOW))
    return best


def _repeated(values: Array, error: Array, grain: Array) -> float:
    """The share of values that occur more than once, beyond chance."""
    tolerance = max(float(np.median(error)), 1e-12)
    ordered = np.sort(values)
    close = np.diff(ordered) <= tolerance
    # Values on the grid of the output's own type repeat too.
    spread = float(np.sqrt(np.mean(values**2))) or 1.0
    chance = len(values) * (float(np.median(grain)) + tolerance) / spread
    return max(0.0, float(close.mean()) - 4 * chance)


CHECK = Check(rule=RULE, run=check)
