r"""Test of a claim with a fixed number of scores.

Noise that is 20 % too small changes the middle of the trade-off function long before it changes
epsilon at :math:`\delta = 10^{-5}`, so the test compares the error rates with the whole function.
It assumes nothing about the distribution of the scores.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from dpaudit import _validate
from dpaudit._arrays import Array
from dpaudit.claims.claim import Claim, Verdict
from dpaudit.curves import mu_of_errors
from dpaudit.errors import InvalidInput, InvalidScores
from dpaudit.lower_bounds.counts import ErrorCounts
from dpaudit.lower_bounds.evidence import Evidence, dependence_of, evidence_of
from dpaudit.lower_bounds.joint_test import curve_p_value, distances
from dpaudit.lower_bounds.levels import Levels, Pointwise
from dpaudit.lower_bounds.questions import AtDelta, Question
from dpaudit.lower_bounds.thresholds import (
    Fixed,
    Pilot,
    Ranking,
    Sample,
    ThresholdRule,
    threshold_rule,
)


@final
@dataclass(frozen=True, kw_only=True)
class ClaimTest:
    """The result of testing a claim.

    Arguments:
        verdict: See `Verdict`.
        p_value: If the claim were true, errors this few would occur with at most this probability.
        claim: The claim that was tested.
        confidence: One minus the accepted false-positive rate of the test.
        sample_size: Number of scores that the test was evaluated on.
        assumptions: What must be true for the test to be valid.
        notes: Diagnostics.
        e_value: For an anytime-valid test: the wealth of the bets against the claim, whose
            expectation is at most 1 if the claim is true.
        bare_verdict: If a single pair was read as a trade-off function: the verdict on the pair
            alone.
    """

    verdict: Verdict
    p_value: float
    claim: Claim
    confidence: float
    sample_size: int
    assumptions: tuple[str, ...]
    notes: tuple[str, ...]
    e_value: float | None = None
    bare_verdict: Verdict | None = None

    @property
    def bare_line(self) -> str | None:
        """The verdict on the bare pair as a line of text; `None` if no pair was extended."""
        if self.bare_verdict is None or self.claim.pair is None:
            return None
        refuted = "refuted" if self.bare_verdict == "violation" else "not refuted"
        return f"bare ({self.claim.pair[0]:g}, {self.claim.pair[1]:g}): {refuted}"

    def to_dict(self) -> dict[str, Any]:
        """The test as plain data."""
        return {
            "verdict": self.verdict,
            "p_value": self.p_value,
            "e_value": self.e_value,
            "claim": self.claim.description,
            "confidence": self.confidence,
            "sample_size": self.sample_size,
            "assumptions": list(self.assumptions),
            "notes": list(self.notes),
            "bare_verdict": self.bare_verdict,
        }

    def __repr__(self) -> str:
        return f"ClaimTest({self.verdict}, p = {self.p_value:.3g}, {self.claim!r})"


def test_claim(
    evidence: Evidence,
    claim: Claim,
    *,
    confidence: float = 0.95,  # noqa: PT028
    threshold: str | ThresholdRule = "pilot",  # noqa: PT028
    seed: int = 0,  # noqa: PT028
) -> ClaimTest:
    """Test whether a mechanism satisfies a claim; valid for any distribution of the scores.

    If the claim is true, the false-negative rate is at least ``claim.tradeoff`` of the
    false-positive rate. `dpaudit.lower_bounds.joint_test` tests this at one threshold.

    Arguments:
        evidence: Scores, or the four counts.
        claim: The claim to test.
        confidence: One minus the false-positive rate of the verdict "violation".
        threshold: ``pilot`` (a share of the scores chooses the threshold) or ``fixed=VALUE``.
        seed: Random seed that draws the pilot scores.

    Example:
        >>> from dpaudit.scores import Scores
        >>> random = np.random.default_rng(0)
        >>> scores = Scores.from_samples(random.normal(2, 1, 1000), random.normal(0, 1, 1000))
        >>> test_claim(scores, Claim.from_mu(1.5)).verdict
        'violation'
        >>> test_claim(scores, Claim.from_mu(2.0)).verdict
        'consistent'
    """
    confidence = _validate.confidence(confidence)
    significance = 1 - confidence
    evidence = evidence_of(evidence)
    if not isinstance(claim, Claim):
        raise InvalidInput(f"claim must be a Claim, got {claim!r}; see Claim.from_epsilon")
    rule = threshold_rule(threshold, seed=seed)
    if not isinstance(rule, Pilot | Fixed):
        raise InvalidInput(
            f"threshold of a claim's test must be pilot or fixed=VALUE, got {threshold!r}; "
            "the p-value holds for a threshold chosen without the scores it is read on"
        )
    counts, assumptions, notes = _evidence(evidence, claim, rule, significance)
    p_value = float(claim_p_value(counts, claim)[0])
    smallest = _perfect_p_value(claim, counts.positives, counts.negatives)
    if p_value <= significance:
        verdict: Verdict = "violation"
    elif smallest > significance:
        verdict = "inconclusive"
        share = rule.share if isinstance(rule, Pilot) else 0.0
        needed = scores_to_refute(claim, confidence=confidence, pilot_share=share)
        enough = f"about {needed:,} scores" if needed else f"more than {MOST_SCORES:,} scores"
        notes = (
            *notes,
            f"even perfect separation would only give p = {smallest:.3g}: run more; with no error "
            f"at all it takes {enough} to refute this claim",
        )
    else:
        verdict = "consistent"
    return ClaimTest(
        verdict=verdict,
        p_value=p_value,
        claim=claim,
        confidence=confidence,
        sample_size=counts.sample_size,
        assumptions=(*claim.assumptions, *assumptions),
        notes=notes,
        bare_verdict=_bare_verdict(evidence, claim, rule, confidence),
    )


def _bare_verdict(
    evidence: Evidence, claim: Claim, rule: ThresholdRule, confidence: float
) -> Verdict | None:
    """The verdict on the claimed pair alone; `None` if the claim is not an extended pair."""
    if claim.bare is None:
        return None
    return test_claim(evidence, claim.bare, confidence=confidence, threshold=rule).verdict


# Pytest would collect a public function of this name wherever it is imported.
test_claim.__test__ = False  # type: ignore[attr-defined]


def claim_p_value(counts: ErrorCounts, claim: Claim) -> Array:
    """The p-value of the claim at each threshold, taken as fixed."""
    return np.array([curve_p_value(one, claim.curve) for one in counts])


def _perfect_p_value(claim: Claim, positives: int, negatives: int) -> float:
    """The p-value of the claim if a threshold separates so many scores without an error."""
    counts = ErrorCounts.given(
        true_positives=positives, false_negatives=0, false_positives=0, true_negatives=negatives
    )
    return curve_p_value(counts, claim.curve)


MOST_SCORES = 100_000_000
"""Largest number of scores that `scores_to_refute` considers."""

_CAUTIOUS = Pointwise(5e-4)
"""The confidence limits with which a pilot predicts the errors on the rest."""


def scores_to_refute(
    claim: Claim, *, confidence: float = 0.95, pilot_share: float = 0.1
) -> int | None:
    """Number of perfectly separated scores that refute the claim; `None` above `MOST_SCORES`.

    Example:
        >>> scores_to_refute(Claim.from_epsilon(8.0, 1e-5))
        16
        >>> scores_to_refute(Claim.from_points([(8.0, 1e-5)]))
        9927
    """

    def refutes(each: int) -> bool:
        return _perfect_p_value(claim, each, each) <= 1 - confidence

    if not refutes(MOST_SCORES // 2):
        return None
    each = bisect_left(range(1, MOST_SCORES // 2), True, key=refutes) + 1
    return math.ceil(2 * each / (1 - pilot_share))


@final
class _SmallestPValue(Ranking):
    """Ranks thresholds by the p-value of the claim to be expected on the rest of the scores.

    Arguments:
        claim: The claim to test.
        growth: Number of scores in the rest divided by that in the pilot.
    """

    name = "claim"
    foresees = True

    def __init__(self, claim: Claim, growth: float) -> None:
        self._claim, self._growth = claim, growth

    def merit(self, counts: ErrorCounts, question: Question, levels: Levels) -> Array:
        # 200 thresholds are as good as thousands, with the one that separates best.
        fewest = int(np.argmin(counts.false_positives + counts.false_negatives))
        spread = np.linspace(0, len(counts) - 1, 200).astype(np.int64)
        chosen = np.unique(np.append(spread, fewest))
        merit = np.full(len(counts), -np.inf)
        expected = self._expected(counts[chosen])
        merit[chosen] = distances(expected, self._claim.curve)
        if merit[chosen].max() <= 0:
            # Nothing is expected to refute the claim; then the best separation may still do it.
            merit[chosen] = mu_of_errors(*_CAUTIOUS.upper_rates(counts[chosen]))
        return merit

    def foreseen_merit(self, counts: ErrorCounts, question: Question, significance: float) -> Array:
        """The bound on mu: a normal pilot places the threshold, but is too small to place mu."""
        return mu_of_errors(*Pointwise(2 * significance).upper_rates(counts))

    def _expected(self, pilot: ErrorCounts) -> ErrorCounts:
        """Pessimistic prediction of the errors on the rest, so that a lucky tail does not win."""
        negatives = max(1, round(self._growth * pilot.negatives))
        positives = max(1, round(self._growth * pilot.positives))
        false_positive_rate, false_negative_rate = _CAUTIOUS.upper_rates(pilot)
        return ErrorCounts(
            false_positives=np.ceil(false_positive_rate * negatives).astype(np.int64),
            false_negatives=np.ceil(false_negative_rate * positives).astype(np.int64),
            negatives=negatives,
            positives=positives,
            thresholds=pilot.thresholds,
        )


def _evidence(
    evidence: Evidence, claim: Claim, rule: ThresholdRule, significance: float
) -> tuple[ErrorCounts, tuple[str, ...], tuple[str, ...]]:
    if isinstance(evidence, ErrorCounts):
        return evidence, Fixed.assumptions, ()
    inserted, others = evidence.inserted_scores, evidence.other_scores
    if len(inserted) == 0 or len(others) == 0:
        raise InvalidScores(
            f"a claim's test needs scores of both kinds, got {len(inserted)} inserted and "
            f"{len(others)} not"
        )
    growth = 1 / rule.share - 1 if isinstance(rule, Pilot) else 1.0
    sample = Sample(
        inserted=inserted, not_inserted=others, question=AtDelta(0.0), significance=significance
    )
    chosen = rule.choose(_SmallestPValue(claim, growth), sample)
    assert chosen is not None  # pilot and fixed always choose
    assumed, notes = dependence_of(evidence)
    return chosen.counts, (*rule.assumptions, *assumed), (*chosen.notes, *notes)
