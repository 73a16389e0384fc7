"""What a test of a claim could have detected: too little noise, by how much and how surely.

The power is computed from the scores themselves, not from the claim: scores that hardly depend on
the canary could not have shown any bug, whatever the claim says. The scores do not show how much of
their variance is the training's noise. The power takes all of it to be noise, and is too large if
batches or starting points differ between runs too. If the scores are farther apart than
the claim allows, the power is computed as if the claim were met exactly: noise that was too small
in this audit does not make its test stronger.

The power is that of the whole policy: of a first test and its confirmation, it is the product of
both, because fresh runs are independent.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar, final

import numpy as np
from scipy.special import bdtr, bdtrik, ndtr

from dpaudit._arrays import Array
from dpaudit._roots import sign_change
from dpaudit.claims.anytime import AnytimeTest, Bets, Stream
from dpaudit.claims.claim import Claim
from dpaudit.claims.policy import STRICT, Policy
from dpaudit.curves import Curve, mu_of_errors
from dpaudit.lower_bounds.counts import ErrorCounts
from dpaudit.lower_bounds.joint_test import curve_refuted, distances_of
from dpaudit.privacy import DETECT
from dpaudit.scores import Scores

SAME_IN_ALL_RUNS = "batches and starting points are the same in all runs"
"""The condition of every power of scores about whose runs nothing is known."""

SAME_BATCHES = "batches are the same in all runs"
"""The condition where the starting point was given, from which all runs start."""

LARGEST_FACTOR = 100.0
"""Noise that is too small by more than this factor counts as no noise at all."""

_AUDITS = 20  # simulated audits of an anytime-valid test
_MOST_PAIRS = 2000
_FARTHEST = 60.0  # scores farther apart than this, in standard deviations, are never confused


@final
@dataclass(frozen=True, kw_only=True)
class Power:
    """The probability that an audit finds noise that is too small.

    Arguments:
        mu: How far apart the scores are, in standard deviations of their own noise.
        detect: Noise of this fraction of the claimed noise must be detectable, such as 0.5.
        probability: Probability that noise of this fraction is found, over all stages of the test.
        found: Noise this many times too small is found with probability 90 %; `None` if even
            noise `LARGEST_FACTOR` times too small is not.
        missed: Noise up to this many times too small is more likely missed than found; `None`
            if noise of any size is.
        canary: Name of the canary with the least power, if canaries are tested one by one.
        condition: What the stated power assumes beside, in words; empty if it is known that scores
            differ only by the noise and the canary.
    """

    SURE: ClassVar[float] = 0.9
    """Probability with which noise `found` times too small would have been found."""

    mu: float
    detect: float
    probability: float
    found: float | None
    missed: float | None
    canary: str = ""
    condition: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The power as plain data."""
        return {
            "mu": self.mu if math.isfinite(self.mu) else "inf",
            "detect_noise": self.detect,
            "probability": round(self.probability, 4),
            "found_noise_factor": self.found,
            "missed_noise_factor": self.missed,
            "canary": self.canary or None,
            "only_noise_varies": not self.condition or None,
        }


def detection_power(
    evidence: Scores | ErrorCounts | Stream,
    claim: Claim,
    *,
    policy: Policy = STRICT,
    tests: int = 1,
    detect: float = DETECT,
    pilot_share: float = 0.1,
) -> Power:
    """The power of a claim's test on evidence like this, if its noise were smaller.

    Noise that is ``k`` times smaller puts the scores ``k`` times as many of their own standard
    deviations apart, if all of their variance is noise. The scores are taken to be normal with
    equal variances, and no farther apart than the claim allows; the result is an estimate, not a
    bound. Levels are shared by ``tests`` tensors, and noise of the fraction ``detect`` must be
    detectable.

    Example:
        >>> random = np.random.default_rng(0)
        >>> scores = Scores.from_samples(random.normal(1, 1, 400), random.normal(0, 1, 400))
        >>> detection_power(scores, Claim.from_mu(1.0)).probability > 0.9
        True
    """
    mu = separation_of(evidence)
    noised = min(mu, allowed_separation(claim))
    if isinstance(evidence, Stream):
        pairs = min(evidence.pairs, _MOST_PAIRS)
        confidence = 1 - policy.prove / tests

        def power(factor: float) -> float:
            return _anytime_power(claim, factor * noised, pairs, confidence)
    else:
        lost = (0.0, 0.0)
        if isinstance(evidence, ErrorCounts):
            sizes, pilot_share = (evidence.positives, evidence.negatives), 0.0
        else:
            inserted, others = evidence.inserted_scores, evidence.other_scores
            sizes = len(inserted), len(others)
            lost = _share_lost(inserted), _share_lost(others)
        staged = _stages(claim, sizes, policy, tests, pilot_share)

        def power(factor: float) -> float:
            return math.prod(test.power(factor * noised, lost) for test in staged)

    power = lru_cache(maxsize=None)(power)  # the two searches share most of their factors
    return Power(
        mu=mu,
        detect=detect,
        probability=power(1 / detect),
        found=_factor(power, Power.SURE),
        missed=_factor(power, 0.5),
    )


def power_of(
    claim: Claim,
    mu: float,
    *,
    scores: int,
    policy: Policy = STRICT,
    tests: int = 1,
    pilot_share: float = 0.1,
) -> float:
    """Probability that a claim is refuted by normal scores that are ``mu`` apart.

    ``scores`` is the number of scores of each kind in the first test, pilot included.

    Example:
        >>> power_of(Claim.from_mu(1.0), 2.0, scores=200) > 0.8
        True
    """
    staged = _stages(claim, (scores, scores), policy, tests, pilot_share)
    return math.prod(test.power(mu) for test in staged)


def _stages(
    claim: Claim, sizes: tuple[int, int], policy: Policy, tests: int, pilot_share: float
) -> list[_Test]:
    """The test of each stage; the second is hardest if all tensors are suspected."""
    inserted, others = ((1 - pilot_share) * size for size in sizes)
    return [
        _test_of(claim, max(1, round(times * inserted)), max(1, round(times * others)), level)
        for times, level in policy.stages(tests)
    ]


def separation(inserted: Array, others: Array) -> float:
    """The difference of the means in standard deviations, at least 0; infinite without noise."""
    finite = np.concatenate([group[np.isfinite(group)] for group in (inserted, others)])
    low, high = (finite.min(), finite.max()) if finite.size else (0.0, 0.0)
    width = high - low or 1.0
    # Infinite scores count as a little farther out than all others.
    ends = low - width, high + width
    with_canary, without = np.clip(inserted, *ends), np.clip(others, *ends)
    if len(with_canary) < 2 or len(without) < 2:
        return 0.0
    spread = math.sqrt((with_canary.var(ddof=1) + without.var(ddof=1)) / 2)
    difference = float(with_canary.mean() - without.mean())
    if spread == 0:
        return math.inf if difference > 0 else 0.0
    return max(0.0, difference / spread)


def separation_of(evidence: Scores | ErrorCounts | Stream) -> float:
    """How far apart the scores are; for counts, normal scores with half an error more of each."""
    if isinstance(evidence, ErrorCounts):
        false_positives = (evidence.false_positives + 0.5) / (evidence.negatives + 1)
        false_negatives = (evidence.false_negatives + 0.5) / (evidence.positives + 1)
        return max(0.0, float(mu_of_errors(false_positives, false_negatives).max()))
    return separation(_ran(evidence.inserted_scores), _ran(evidence.other_scores))


def _ran(scores: Array) -> Array:
    """The scores without those of failed runs, unless all are."""
    lost = np.isneginf(scores)
    return scores if lost.all() else scores[~lost]


def _share_lost(scores: Array) -> float:
    return 1 - len(_ran(scores)) / max(1, len(scores))


@lru_cache(maxsize=256)
def allowed_separation(claim: Claim) -> float:
    r"""How far apart normal scores may be at the threshold at which both error rates are equal.

    The smallest error rates that the claim allows there are both :math:`\Phi(-\mu / 2)`.

    Example:
        >>> round(allowed_separation(Claim.from_mu(2.0)), 3)
        2.0
        >>> round(allowed_separation(Claim.from_points([(1.0, 0.0)])), 3)
        1.232
    """

    def allowed(mu: float) -> float:
        rate = ndtr(-mu / 2)
        return float(claim.tradeoff(rate) - rate)

    if allowed(_FARTHEST) <= 0:
        return _FARTHEST
    return sign_change(allowed, 0.0, _FARTHEST, tolerance=1e-6)[0]


def _factor(power: Callable[[float], float], wanted: float) -> float | None:
    """The smallest factor, to about 5 %, at which the power reaches ``wanted``."""
    if power(LARGEST_FACTOR) < wanted:
        return None
    if power(1.0) >= wanted:
        return 1.0

    def enough(logarithm: float) -> float:
        return 1.0 if power(math.exp(logarithm)) >= wanted else -1.0

    most = math.log(LARGEST_FACTOR)
    return math.exp(sign_change(enough, 0.0, most, tolerance=0.05, most_steps=7)[1])


@lru_cache(maxsize=64)  # the power is computed for many distances of the scores
def _test_of(claim: Claim, inserted: int, others: int, significance: float) -> _Test:
    """The test, with the claim's curve from a table: fast enough for a million evaluations."""
    rates = np.concatenate([[0.0], ndtr(np.linspace(-9.0, 9.0, 1001)), [1.0]])
    values = claim.tradeoff(rates)

    def tradeoff(alpha: Array) -> Array:
        return np.interp(alpha, rates, values)

    curve = Curve(tradeoff=tradeoff, inverse=tradeoff)
    return _Test(curve=curve, inserted=inserted, others=others, significance=significance)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class _Test:
    """The test of a curve at one threshold, and which numbers of errors it rejects.

    Fewer errors are stronger evidence, so a decision settles all numbers below or above it.
    """

    curve: Curve
    inserted: int
    others: int
    significance: float
    rejected: list[tuple[float, float]] = field(default_factory=list)
    accepted: list[tuple[float, float]] = field(default_factory=list)

    def power(self, mu: float, lost: tuple[float, float] = (0.0, 0.0)) -> float:
        """Probability that the test rejects, at the threshold that suits such scores best.

        The numbers of errors are independent and binomial. The larger the one, the smaller the
        other must be for a rejection, so one walk along quantiles of both finds the region of
        rejection. ``lost`` are the shares of failed runs with and without the canary.
        """
        if mu == 0:
            return 0.0
        mu = min(mu, _FARTHEST)
        thresholds = np.linspace(min(-1.0, mu / 2 - 4), max(mu + 1.0, mu / 2 + 4), 33)
        rates = (1 - lost[1]) * ndtr(-thresholds), lost[0] + (1 - lost[0]) * ndtr(thresholds - mu)
        # The transformation shrinks small numbers.
        many = 10_000 * self.others, 10_000 * self.inserted
        expected = many[0] * rates[0], many[1] * rates[1]
        best = int(np.argmax(distances_of(*expected, *many, self.curve)))
        columns, up_to_column = _binomial(self.others, rates[0][best])
        rows, up_to_row = _binomial(self.inserted, rates[1][best])
        power, before, row = 0.0, 0.0, len(rows) - 1
        for column, up_to_here in zip(columns, up_to_column, strict=True):
            while row >= 0 and not self.rejects(column, rows[row]):
                row -= 1
            if row < 0:
                break
            power += (up_to_here - before) * up_to_row[row]
            before = up_to_here
        return float(power)

    def rejects(self, false_positives: float, false_negatives: float) -> bool:
        """Whether so few errors refute the claim."""
        if any(false_positives <= x and false_negatives <= y for x, y in self.rejected):
            return True
        if any(false_positives >= x and false_negatives >= y for x, y in self.accepted):
            return False
        counts = ErrorCounts.given(
            true_positives=self.inserted - int(false_negatives),
            false_negatives=int(false_negatives),
            false_positives=int(false_positives),
            true_negatives=self.others - int(false_positives),
        )
        rejects = curve_refuted(counts, self.curve, self.significance)
        (self.rejected if rejects else self.accepted).append((false_positives, false_negatives))
        return rejects


def _binomial(count: int, rate: float) -> tuple[Array, Array]:
    """Quantiles of a number of errors, and the probability of at most that many."""
    levels = ndtr(np.linspace(-3.0, 3.0, 25))
    quantiles = np.unique(np.ceil(np.nan_to_num(bdtrik(levels, count, rate))))
    return quantiles, bdtr(quantiles, count, rate)


@lru_cache(maxsize=256)
def _anytime_power(claim: Claim, mu: float, pairs: int, confidence: float) -> float:
    """Share of simulated audits that the anytime-valid test would have stopped.

    Remembered, because a result that is read again needs the same. The noise is the same for
    every ``mu``.
    """
    simulated = np.random.default_rng(0).normal(size=(_AUDITS, 2, pairs))
    refuted, bets = 0, Bets.against(claim)
    for inserted, others in simulated:
        test = AnytimeTest(claim, confidence=confidence, bets=bets)
        start = 0
        while start < pairs and not test.refuted:
            some = slice(start, start + 1 + start // 4)  # when the test chooses its next bets
            test.add(inserted[some] + min(mu, _FARTHEST), others[some])
            start = some.stop
        refuted += test.refuted
    return refuted / len(simulated)
