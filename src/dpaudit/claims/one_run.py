"""Test of a claim from one run with many canaries, valid if canaries depend on each other."""

from __future__ import annotations

from dataclasses import replace

from dpaudit import _validate
from dpaudit._roots import sign_change
from dpaudit.claims.claim import Claim, Verdict
from dpaudit.claims.fixed_sample import ClaimTest
from dpaudit.lower_bounds.estimating import estimate
from dpaudit.lower_bounds.guesses import Guesses
from dpaudit.lower_bounds.one_run_method import FAIR_COINS
from dpaudit.lower_bounds.one_run_recursion import guesses_refute
from dpaudit.lower_bounds.thresholds import Pilot
from dpaudit.scores import Scores


def test_one_run_claim(
    scores: Scores,
    claim: Claim,
    *,
    confidence: float = 0.95,  # noqa: PT028
    seed: int = 0,  # noqa: PT028
) -> ClaimTest:
    """Test a claim with the guesses of one run; canaries may depend on each other.

    See also: `dpaudit.test_claim`, more powerful, for runs or canaries that are independent.

    Arguments:
        scores: Scores of canaries that were inserted by a fair coin each.
        claim: The claim to test.
        confidence: One minus the false-positive rate of the verdict "violation".
        seed: Random seed that draws the pilot canaries, which plan the guesses.
    """
    confidence = _validate.confidence(confidence)
    # Any plan is valid; the pilot plans as for the bound on epsilon at delta 0.
    planned = estimate(scores, delta=0.0, method="one-run", threshold=Pilot(seed=seed))
    guesses, canaries = int(planned.details["guesses"]), int(planned.sample_size or 0)
    seen = Guesses(int(planned.details["correct"]), guesses, canaries)
    p_value = one_run_claim_p_value(seen, claim)
    smallest = one_run_claim_p_value(replace(seen, correct=guesses), claim)
    verdict: Verdict = "consistent" if smallest <= 1 - confidence else "inconclusive"
    return ClaimTest(
        verdict="violation" if p_value <= 1 - confidence else verdict,
        p_value=p_value,
        claim=claim,
        confidence=confidence,
        sample_size=canaries,
        assumptions=(*claim.assumptions, FAIR_COINS),
        notes=planned.notes,
    )


test_one_run_claim.__test__ = False  # type: ignore[attr-defined]  # pytest would collect it


def one_run_claim_p_value(seen: Guesses, claim: Claim) -> float:
    """The smallest significance at which so many right guesses refute the claim.

    Example:
        >>> one_run_claim_p_value(Guesses(95, 100, 100), Claim.from_points([(1.0, 0.0)])) < 1e-3
        True
        >>> one_run_claim_p_value(Guesses(70, 100, 100), Claim.from_points([(1.0, 0.0)])) > 0.5
        True
    """

    def kept(significance: float) -> float:
        return 1.0 if guesses_refute(claim.curve, seen, significance) else -1.0

    if seen.correct == 0 or kept(1 - 1e-9) < 0:
        return 1.0
    low = 1e-12
    return low if kept(low) > 0 else sign_change(kept, low, 0.5, tolerance=1e-4)[1]
