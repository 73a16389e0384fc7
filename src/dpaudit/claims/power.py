"""What a test of a claim could have detected: too little noise, by how much and how surely.

The power is computed from the scores themselves, not from the claim: scores that hardly depend on
the canary could not have shown any bug, whatever the claim says. The scores do not show how much of
their variance is the training's noise. The power takes all of it to be noise, and is too large if
batches or starting points differ between runs too. Scores that are farther apart than the claim
allows count as if they were as far apart as it allows: noise is too small compared with the claim,
and noise that was too small in this audit does not make its test stronger.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, final

import numpy as np
from scipy.special import bdtr, bdtrik, ndtr

from dpaudit._arrays import Array
from dpaudit._roots import sign_change
from dpaudit.claims.bets import Bets
from dpaudit.claims.claim import Claim
from dpaudit.claims.fixed_sample import ClaimTest
from dpaudit.claims.sequential import AnytimeTest
from dpaudit.curves import Curve
from dpaudit.lower_bounds.counts import ErrorCounts
from dpaudit.lower_bounds.joint_test import curve_p_value, distances
from dpaudit.lower_bounds.thresholds import Pilot, ThresholdRule
from dpaudit.privacy import DETECT, LEAST_POWER
from dpaudit.scores import Scores

SURE = 0.9
"""Probability with which the stated factor would have been found."""

LARGEST_FACTOR = 100.0
"""Noise that is too small by more than this factor counts as no noise at all."""

_AUDITS = 20  # simulated audits of an anytime-valid test
_MOST_PAIRS = 2000
_CONDITION = (
    "if batches and starting points are the same in all runs, so that only the noise varies"
)
_FARTHEST = 60.0  # scores farther apart than this, in standard deviations, are never confused
_WEAK = 1.0  # scores closer together than this hardly depend on the canary


@final
@dataclass(frozen=True, kw_only=True)
class Power:
    """The probability that an audit finds noise that is too small.

    Arguments:
        mu: How far apart the scores are, in standard deviations of their own noise.
        detect: Noise of this fraction of the claimed noise must be detectable, such as 0.5.
        probability: Probability that noise of this fraction is found.
        found: Noise this many times too small is found with probability 90 %; `None` if even
            noise `LARGEST_FACTOR` times too small is not.
        missed: Noise up to this many times too small is more likely missed than found; `None`
            if noise of any size is.
        canary: Name of the canary with the least power, if canaries are tested one by one.
        only_noise: Whether it is known that nothing but the noise and the canary differs between
            runs. Otherwise the sentence states it as a condition.
    """

    mu: float
    detect: float
    probability: float
    found: float | None
    missed: float | None
    canary: str = ""
    only_noise: bool = False

    @property
    def sentence(self) -> str:
        """The power in words."""
        where = f" in {self.canary}" if self.canary else ""
        if self.found is None:
            reason = (
                f"the scores hardly depend on the canary (mu = {self.mu:.2g} in units of their "
                "own noise)"
                if self.mu < _WEAK
                else "there are too few scores to tell such noise from what is claimed"
            )
            return (
                f"this audit could not have found too little noise{where}, however small: {reason}"
            )
        where = f" in every tensor ({self.canary} has the least power)" if self.canary else ""
        found, missed = f"{self.found:.3g}", f"{self.missed or 1.0:.3g}"
        if self.found == 1.0:
            return f"scores like these refute the claim with probability {100 * SURE:.0f} % or more"
        condition = "" if self.only_noise else f"{_CONDITION}, "
        return (
            f"{condition}this audit would have found noise {found} times too small"
            f"{where} with probability {100 * SURE:.0f} %"
        ) + (
            ""
            if missed in ("1", found)
            else f"; noise {missed} times too small would more likely have been missed"
        )

    def to_dict(self) -> dict[str, Any]:
        """The power as plain data."""
        return {
            "mu": self.mu if math.isfinite(self.mu) else "inf",
            "detect_noise": self.detect,
            "probability": round(self.probability, 4),
            "found_noise_factor": self.found,
            "missed_noise_factor": self.missed,
            "canary": self.canary or None,
            "only_noise_varies": self.only_noise or None,
            "sentence": self.sentence,
        }


def detection_power(
    scores: Scores,
    claim: Claim,
    *,
    confidence: float = 0.95,
    detect: float = DETECT,
    pilot_share: float = 0.1,
    anytime: bool = False,
) -> Power:
    """The power of a claim's test on scores like these, if their noise were smaller.

    Noise that is ``k`` times smaller puts the scores ``k`` times as many of their own standard
    deviations apart, if all of their variance is noise. The scores are taken to be normal with
    equal variances, and no farther apart than the claim allows; the result is an estimate, not a
    bound.

    Arguments:
        scores: The scores of the audit.
        claim: The claim that was tested.
        confidence: Confidence of the test.
        detect: Noise of this fraction of the claimed noise must be detectable.
        pilot_share: Share of the scores that chooses the threshold.
        anytime: Whether the scores were tested as they came.

    Example:
        >>> random = np.random.default_rng(0)
        >>> scores = Scores.from_samples(random.normal(1, 1, 200), random.normal(0, 1, 200))
        >>> detection_power(scores, Claim.from_mu(1.0)).probability > 0.9
        True
    """
    mu = separation(scores)
    noised = min(mu, allowed_separation(claim))
    inserted, others = len(scores.inserted_scores), len(scores.other_scores)

    if anytime:
        pairs = min(inserted, others, _MOST_PAIRS)

        def power(factor: float) -> float:
            return _anytime_power(claim, factor * noised, pairs, confidence)
    else:
        sizes = [max(1, round((1 - pilot_share) * size)) for size in (inserted, others)]
        test = _Test(claim, sizes[0], sizes[1], 1 - confidence)

        def power(factor: float) -> float:
            return test.power(factor * noised)

    power = lru_cache(maxsize=None)(power)  # the two searches share most of their factors
    return Power(
        mu=mu,
        detect=detect,
        probability=power(1 / detect),
        found=_factor(power, SURE),
        missed=_factor(power, 0.5),
    )


def with_power(
    test: ClaimTest, evidence: Scores | ErrorCounts, rule: ThresholdRule
) -> tuple[ClaimTest, Power | None]:
    """The test with a note on what it could have detected; inconclusive without enough power.

    Arguments:
        test: The test of a claim.
        evidence: The scores or counts that were tested; counts do not show the power.
        rule: The rule that chose the threshold.
    """
    if test.verdict == "violation":
        return test, None
    if not isinstance(evidence, Scores):
        note = "counts do not show what this test could have detected; give the scores"
        return replace(test, notes=(*test.notes, note)), None
    share = rule.share if isinstance(rule, Pilot) else 0.0
    power = detection_power(evidence, test.claim, confidence=test.confidence, pilot_share=share)
    verdict = test.verdict if power.probability >= LEAST_POWER else "inconclusive"
    return replace(test, verdict=verdict, notes=(*test.notes, power.sentence)), power


def power_of(
    claim: Claim, mu: float, *, scores: int, confidence: float = 0.95, pilot_share: float = 0.1
) -> float:
    """Probability that a claim is refuted by normal scores that are ``mu`` apart.

    Arguments:
        claim: The claim to test.
        mu: Distance of the scores with and without the canary, in standard deviations.
        scores: Number of scores with the canary, and of scores without it.
        confidence: Confidence of the test.
        pilot_share: Share of the scores that chooses the threshold.

    Example:
        >>> power_of(Claim.from_mu(1.0), 2.0, scores=100) > 0.8
        True
    """
    size = max(1, round((1 - pilot_share) * scores))
    return _Test(claim, size, size, 1 - confidence).power(mu)


def separation(scores: Scores) -> float:
    """The difference of the means in standard deviations, at least 0; infinite without noise."""
    with_canary, without = _finite(scores.inserted_scores, scores.other_scores)
    if len(with_canary) < 2 or len(without) < 2:
        return 0.0
    spread = math.sqrt((with_canary.var(ddof=1) + without.var(ddof=1)) / 2)
    difference = float(with_canary.mean() - without.mean())
    if spread == 0:
        return math.inf if difference > 0 else 0.0
    return max(0.0, difference / spread)


def _finite(*groups: Array) -> list[Array]:
    """The scores, with infinite ones a little farther out than all others."""
    known = np.concatenate([group[np.isfinite(group)] for group in groups])
    low, high = (known.min(), known.max()) if known.size else (0.0, 0.0)
    width = high - low or 1.0
    return [np.clip(group, low - width, high + width) for group in groups]


@lru_cache(maxsize=256)
def allowed_separation(claim: Claim) -> float:
    r"""How far apart normal scores may be at the threshold at which both error rates are equal.

    The mu of a claim of mu-GDP. The smallest error rates that the claim allows there are both
    :math:`\Phi(-\mu / 2)`.

    Arguments:
        claim: The claim.

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


@lru_cache(maxsize=8)
def _interpolated(claim: Claim) -> Curve:
    """The claim's trade-off function from a table: fast enough to be evaluated a million times."""
    rates = np.concatenate([[0.0], ndtr(np.linspace(-9.0, 9.0, 1001)), [1.0]])
    values = claim.tradeoff(rates)
    return Curve(tradeoff=lambda alpha: np.interp(alpha, rates, values))


@final
class _Test:
    """The test of a claim at one threshold, and which numbers of errors it rejects.

    Fewer errors are stronger evidence, so a decision settles all numbers below or above it.

    Arguments:
        claim: The claim to test.
        inserted: Number of scores with the canary.
        others: Number of scores without it.
        significance: Error probability of the test.
    """

    def __init__(self, claim: Claim, inserted: int, others: int, significance: float) -> None:
        self._claim, self._inserted, self._others = claim, inserted, others
        self._significance = significance
        self._rejected: list[tuple[float, float]] = []
        self._accepted: list[tuple[float, float]] = []

    def power(self, mu: float) -> float:
        """Probability that the test rejects, at the threshold that suits such scores best.

        The numbers of errors are independent and binomial. The larger the one, the smaller the
        other must be for a rejection, so one walk along quantiles of both finds the region of
        rejection.

        Arguments:
            mu: Distance of the scores with and without the canary, in standard deviations.
        """
        if mu == 0:
            return 0.0
        mu, inserted, others = min(mu, _FARTHEST), self._inserted, self._others
        thresholds = np.linspace(min(-1.0, mu / 2 - 4), max(mu + 1.0, mu / 2 + 4), 33)
        rates = ndtr(-thresholds), ndtr(thresholds - mu)
        # Rates of many more scores: expected numbers of errors below one half round to zero.
        fine = _counts(rates[0], rates[1], inserted=10_000 * inserted, others=10_000 * others)
        best = int(np.argmax(distances(fine, _interpolated(self._claim))))
        columns, up_to_column = _binomial(others, rates[0][best])
        rows, up_to_row = _binomial(inserted, rates[1][best])
        power, before, row = 0.0, 0.0, len(rows) - 1
        for column, up_to_here in zip(columns, up_to_column, strict=True):
            while row >= 0 and not self._rejects(column, rows[row]):
                row -= 1
            if row < 0:
                break
            power += (up_to_here - before) * up_to_row[row]
            before = up_to_here
        return float(power)

    def _rejects(self, false_positives: float, false_negatives: float) -> bool:
        if any(false_positives <= x and false_negatives <= y for x, y in self._rejected):
            return True
        if any(false_positives >= x and false_negatives >= y for x, y in self._accepted):
            return False
        errors = int(false_positives), int(false_negatives)
        p_value = _p_value(self._claim, *errors, others=self._others, inserted=self._inserted)
        rejects = p_value <= self._significance
        known = self._rejected if rejects else self._accepted
        known.append((false_positives, false_negatives))
        return rejects


@lru_cache(maxsize=4096)
def _p_value(
    claim: Claim, false_positives: int, false_negatives: int, *, others: int, inserted: int
) -> float:
    """Remembered, because the power is computed for many distances of the scores."""
    counts = ErrorCounts(
        false_positives=np.array([false_positives]),
        false_negatives=np.array([false_negatives]),
        negatives=others,
        positives=inserted,
        thresholds=np.zeros(1),
    )
    return curve_p_value(counts, _interpolated(claim))


def _binomial(count: int, rate: float) -> tuple[Array, Array]:
    """Quantiles of a number of errors, and the probability of at most that many."""
    levels = ndtr(np.linspace(-3.0, 3.0, 25))
    quantiles = np.unique(np.ceil(np.nan_to_num(bdtrik(levels, count, rate))))
    return quantiles, bdtr(quantiles, count, rate)


def _counts(false_positives: Array, false_negatives: Array, *, inserted: int, others: int) -> Any:
    """The error counts that rates of false positives and false negatives lead to on average."""
    return ErrorCounts(
        false_positives=np.rint(others * false_positives).astype(np.int64),
        false_negatives=np.rint(inserted * false_negatives).astype(np.int64),
        negatives=others,
        positives=inserted,
        thresholds=np.zeros(len(false_positives)),
    )


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
