"""Noise is Gaussian: normal tails, unbounded, and fine enough to cover every digit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from scipy import special

from dpaudit._arrays import Array
from dpaudit.checks.findings import Finding, Rule
from dpaudit.checks.limits import FALSE_ALARM, standard_deviations
from dpaudit.checks.measuring import Measurements
from dpaudit.checks.rules._directions import FEWEST, noise_directions
from dpaudit.checks.rules._judging import adapts
from dpaudit.checks.rules._needs import readable
from dpaudit.checks.rules._noise import varies_too_much
from dpaudit.checks.rules.base import Check, Found
from dpaudit.checks.sampling import FIRST_LOOK, SECOND_LOOK, SUSPICIOUS, larger_sample
from dpaudit.checks.transforms import bends, rescales

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
_FEWEST_VALUES = 2000
_FEWEST_NORMS = 30  # parameters
_EXCESS = 0.15  # kurtosis may differ from 3 by this much
_DEVIATIONS = 8.0  # a normal mean leaves this with probability 1e-15; skewed ones far below 1e-6
_TAILS = (0.1, 0.02, 0.005, 0.001, 0.0002)
_WINDOW = 0.15  # of a grid: how near a value must be to count as a multiple


def check(measured: Measurements, found: Found) -> Finding:
    """Kurtosis, tails, the norms of whole draws, and the number of different values."""
    if measured.moves_alike and adapts(measured):
        return RULE.unknown(
            "The output moves every parameter by the same amount, as the first step of Adam does; "
            "check the noisy gradient before the optimizer."
        )
    shape = _shape(measured, FIRST_LOOK)
    if shape is not None and shape.suspicious:
        shape = _shape(measured, SECOND_LOOK)
    if shape is None:
        return RULE.unknown("Too few parameters have noise well above rounding.")
    repeats = _coarse(measured)
    if repeats is not None:
        return RULE.broken(
            f"Noise takes few different values ({repeats:.2g} of all are repeated), while "
            "gradients do not: digits of the sum that are finer than the noise are visible.",
            measured=f"{repeats:.2g} repeated",
            allowed="none",
        )
    broken = shape.tails or ("" if measured.mixes else shape.norms)
    seen = {"measured": f"kurtosis {shape.kurtosis:.3g}", "allowed": f"3 ± {_EXCESS:g}"}
    if not broken:
        return RULE.passed(**seen)
    if bends(measured) if shape.tails else rescales(measured):
        return RULE.unknown(
            "The noise decides what a gradient does, as behind a public transform of the noisy "
            "gradient: check the step before it.",
            **seen,
        )
    if varies_too_much(measured) or measured.steps > 1:
        return RULE.unknown(
            "Outputs are not normal, but more than the noise may depend on the seed: keep the "
            "starting point, the data and the batches fixed, and train one step.",
            **seen,
        )
    return RULE.broken(broken, **seen)


@final
@dataclass(frozen=True, kw_only=True)
class _Shape:
    """The shape of a sample of noise.

    Arguments:
        kurtosis: Its kurtosis, 3 for normal noise.
        deviations: How many standard deviations that is from the kurtosis of normal noise.
        tail_chance: Probability that normal noise has as few large values.
        largest: The largest value, in standard deviations.
        norm_chance: Probability that the norms of draws of normal noise vary as little.
        norm_ratio: The variance of these norms over that of normal noise.
    """

    kurtosis: float
    deviations: float
    tail_chance: float
    largest: float
    norm_chance: float
    norm_ratio: float

    @property
    def suspicious(self) -> bool:
        """Whether a larger sample should decide."""
        chance = min(self.tail_chance, self.norm_chance)
        return chance < SUSPICIOUS or self.deviations > standard_deviations(SUSPICIOUS)

    @property
    def tails(self) -> str:
        """What is wrong with single values; empty if nothing is."""
        if self.tail_chance < FALSE_ALARM / 3:
            return (
                "Noise has too few large values for a normal distribution; the largest is "
                f"{self.largest:.3g} standard deviations."
            )
        if abs(self.kurtosis - 3) > _EXCESS and self.deviations > _DEVIATIONS:
            tails = "heavier" if self.kurtosis > 3 else "lighter"
            return f"Noise has {tails} tails than a normal distribution."
        return ""

    @property
    def norms(self) -> str:
        """What is wrong with whole draws; empty if nothing is."""
        # The chi-square approximation is a little too optimistic for few parameters.
        if self.norm_chance >= FALSE_ALARM / 10:
            return ""
        return (
            "The norms of whole draws of noise vary too little: their variance is "
            f"{self.norm_ratio:.2g} of that of normal noise, as if draws were chosen by their "
            "norm, or scaled to one."
        )


def _shape(measured: Measurements, wanted: tuple[int, int]) -> _Shape | None:
    directions = noise_directions(measured, larger_sample(measured, wanted)).rows
    enough = len(directions) >= FEWEST and directions.size >= _FEWEST_VALUES
    if not enough:
        return None
    kurtosis, deviations = _kurtosis(directions)
    norm_ratio, norm_chance = _norms(directions)
    return _Shape(
        kurtosis=kurtosis,
        deviations=deviations,
        tail_chance=_few_in_tails(directions),
        largest=float(np.abs(directions).max()) * float(np.sqrt(directions.shape[1] - 1)),
        norm_chance=norm_chance,
        norm_ratio=norm_ratio,
    )


def _kurtosis(directions: Array) -> tuple[float, float]:
    """Kurtosis of the noise, and how many standard deviations it is from that of normal noise."""
    count, seeds = directions.shape
    # An entry of a uniform direction in n - 1 dimensions, embedded in n: E x^4 is known.
    freedom = seeds - 1
    expected = 3 / (freedom * (freedom + 2)) * (freedom / seeds) ** 2
    fourth = directions**4
    # Rows are independent, and so, nearly, are the entries of long rows.
    each = fourth.mean(axis=1) if count >= _FEWEST else fourth.ravel()
    error = float(each.std(ddof=1)) / np.sqrt(len(each))
    return 3 * float(fourth.mean()) / expected, abs(float(fourth.mean()) - expected) / error


def _few_in_tails(directions: Array) -> float:
    """Probability that normal noise has as few values beyond one of several limits (Bonferroni).

    The square of an entry of a uniform direction has a beta distribution.
    """
    freedom = directions.shape[1] - 1
    squares = directions**2 * (directions.shape[1] / freedom)
    limits = special.betaincinv(0.5, (freedom - 1) / 2, 1 - np.array(_TAILS))
    chances = [
        special.bdtr(int((squares > limit).sum()), squares.size, share)
        for limit, share in zip(limits, _TAILS, strict=True)
    ]
    return min(1.0, len(_TAILS) * float(min(chances)))


def _norms(directions: Array) -> tuple[float, float]:
    """The variance of the squared norms of draws over its expectation, and its chance to be less.

    Every parameter is scaled to the same variance over the draws. The squared norm of a draw is
    then a sum of beta variables, with a known variance. More variance is no alarm, because data
    that depend on the seed add to it.
    """
    count, draws = directions.shape
    if count < _FEWEST_NORMS:
        return 1.0, 1.0
    squares = (directions**2).sum(axis=0)
    expected = 2 * count * (draws - 2) / (draws * (draws + 1))
    ratio = float(((squares - count / draws) ** 2).sum()) / expected
    chance = float(special.gammainc((draws - 1) / 2, ratio * (draws - 1) / 2))
    return ratio, chance


def _coarse(measured: Measurements) -> float | None:
    """The share of noise on a coarse grid, if gradients are not on it."""
    scaled = measured.scales()
    if scaled is None or measured.mixes or measured.steps > 1:
        return None
    trained = scaled[0] > 0
    places = measured.spread[trained]
    per_unit = scaled[0][trained] / measured.subject.clip_norm
    noise = measured.noise()[:2, measured.columns(places)]
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


CHECK = Check(
    rule=RULE,
    run=check,
    after=("noise-between-runs", "noise-between-parameters"),
    passed=("noise-presence",),
    needs=(readable,),
)
