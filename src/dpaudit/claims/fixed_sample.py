r"""P-values of a claim from a fixed number of scores.

Noise that is 20 % too small changes the middle of the trade-off function long before it changes
epsilon at :math:`\delta = 10^{-5}`, so the test compares both error rates with the whole function:
if the claim is true, the false-negative rate is at least ``claim.tradeoff`` of the false-positive
rate. `dpaudit.lower_bounds.joint_test` tests this at one threshold, which a pilot share of the
scores chooses. It assumes nothing about the distribution of the scores, but that they are
independent. `dependent_p_value` does not assume it of the canaries of one run.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dpaudit._arrays import Array
from dpaudit._roots import sign_change
from dpaudit.claims.claim import Claim
from dpaudit.claims.policy import STRICT, Policy
from dpaudit.curves import mu_of_errors
from dpaudit.lower_bounds.counts import ErrorCounts
from dpaudit.lower_bounds.diagnostics import Evidence, dependence_of, evidence_of
from dpaudit.lower_bounds.estimating import estimate
from dpaudit.lower_bounds.guesses import Guesses
from dpaudit.lower_bounds.joint_test import curve_p_value, curve_refuted, distances_of
from dpaudit.lower_bounds.one_run import guesses_refute
from dpaudit.lower_bounds.selection import Fixed, Pilot
from dpaudit.scores import Scores

MOST_SCORES = 100_000_000
"""Largest number of scores that `scores_to_refute` considers."""

FEW_RUNS = 100
"""From so many runs on, one canary of each is enough for a test that allows dependence."""

_PLANNED = 0.05  # the level for which a pilot chooses the threshold, whatever the test's
_CAUTIOUS = 5e-4  # significance of the limits with which a pilot predicts errors on the rest


def claim_p_value(counts: ErrorCounts, claim: Claim) -> Array:
    """The p-value of the claim at each threshold, taken as fixed."""
    return np.array([curve_p_value(counts[place], claim.curve) for place in range(len(counts))])


class SampleTest(NamedTuple):
    """The p-value of a claim, the errors on which it was read, what it assumes, and notes."""

    p_value: float
    counts: ErrorCounts
    assumptions: tuple[str, ...]
    notes: tuple[str, ...]


def sample_test(evidence: Evidence, claim: Claim, rule: Pilot | Fixed) -> SampleTest:
    """Test a claim on independent scores, or on the four counts."""
    if isinstance(evidence, ErrorCounts):
        counts, assumptions, notes = evidence, Fixed.assumptions, tuple[str, ...]()
    else:
        counts, assumptions, notes = errors_at_threshold(evidence, claim, rule)
    return SampleTest(curve_p_value(counts, claim.curve), counts, assumptions, notes)


def errors_at_threshold(
    scores: Scores, claim: Claim, rule: Pilot | Fixed
) -> tuple[ErrorCounts, tuple[str, ...], tuple[str, ...]]:
    """The errors at the threshold that the rule chooses, what this assumes, and notes."""
    evidence_of(scores)  # of both kinds
    growth = 1 / rule.share - 1 if isinstance(rule, Pilot) else 1.0
    counts = rule.choose(
        scores.inserted_scores,
        scores.other_scores,
        lambda pilot: _expected_distances(pilot, claim, growth),
        # A normal pilot places the threshold, but is too small to place mu.
        lambda rest: mu_of_errors(*rest.upper_rates(2 * _PLANNED)),
    )
    assumed, notes = dependence_of(scores)
    return counts, (*rule.assumptions, *assumed), notes


def _expected_distances(pilot: ErrorCounts, claim: Claim, growth: float) -> Array:
    """How far below the claimed curve the errors on the rest are expected, at each threshold.

    Pessimistic, so that a lucky tail does not win; the rest is ``growth`` times the pilot.
    """
    # 200 thresholds are as good as thousands, with the one that separates best.
    fewest = int(np.argmin(pilot.false_positives + pilot.false_negatives))
    spread = np.linspace(0, len(pilot) - 1, 200).astype(np.int64)
    chosen = np.unique(np.append(spread, fewest))
    alpha, beta = pilot[chosen].upper_rates(_CAUTIOUS)
    n, m = (max(1, round(growth * size)) for size in (pilot.negatives, pilot.positives))
    expected = distances_of(n * alpha, m * beta, n, m, claim.curve)
    merit = np.full(len(pilot), -np.inf)
    # If nothing is expected to refute the claim, the best separation may still do it.
    merit[chosen] = expected if expected.max() > 0 else mu_of_errors(alpha, beta)
    return merit


# ---- canaries of one run may depend on each other --------------------------------------------


def dependent_p_value(scores: Scores, claim: Claim, *, seed: int = 0) -> float:
    """The p-value of a claim if the canaries of a run may depend on each other in any way.

    Runs are independent, so one canary of each run is a sample of independent scores. Of less than
    `FEW_RUNS` runs all canaries are guessed, as in an audit with one run. Which of the two tests is
    used depends on the number of runs only.
    """
    if scores.runs >= FEW_RUNS:
        _, first = np.unique(scores.run, return_index=True)
        rows = np.zeros(len(scores), dtype=bool)
        rows[first] = True
        return sample_test(scores.where(rows), claim, Pilot(seed=seed)).p_value
    # Any plan is valid; the pilot plans as for the bound on epsilon at delta 0.
    planned = estimate(scores, delta=0.0, method="one-run", threshold=Pilot(seed=seed))
    guesses, canaries = int(planned.details["guesses"]), int(planned.sample_size or 0)
    return one_run_claim_p_value(Guesses(int(planned.details["correct"]), guesses, canaries), claim)


def one_run_claim_p_value(outcome: Guesses, claim: Claim) -> float:
    """The smallest significance at which so many right guesses refute the claim.

    Example:
        >>> one_run_claim_p_value(Guesses(95, 100, 100), Claim.from_points([(1.0, 0.0)])) < 1e-3
        True
        >>> one_run_claim_p_value(Guesses(70, 100, 100), Claim.from_points([(1.0, 0.0)])) > 0.5
        True
    """

    def refuted(significance: float) -> float:
        return 1.0 if guesses_refute(claim.curve, outcome, significance) else -1.0

    if outcome.correct == 0 or refuted(1 - 1e-9) < 0:
        return 1.0
    low = 1e-12
    return low if refuted(low) > 0 else sign_change(refuted, low, 0.5, tolerance=1e-4)[1]


# ---- what perfect scores could show ----------------------------------------------------------


@lru_cache(maxsize=1024)
def can_refute(
    claim: Claim, positives: int, negatives: int, *, policy: Policy = STRICT, tests: int = 1
) -> bool:
    """Whether scores without any error would refute the claim; sizes without the pilot's scores."""

    def perfect(times: int) -> ErrorCounts:
        return ErrorCounts.given(
            true_positives=times * positives,
            false_negatives=0,
            false_positives=0,
            true_negatives=times * negatives,
        )

    stages = policy.stages(tests)
    return all(curve_refuted(perfect(times), claim.curve, level) for times, level in stages)


def can_refute_by_guesses(claim: Claim, canaries: int, policy: Policy = STRICT) -> bool:
    """Whether right guesses of all canaries but the pilot's would refute the claim."""

    def perfect(times: int) -> Guesses:
        guesses = max(1, math.floor(0.9 * times * canaries))
        return Guesses(guesses, guesses, guesses)

    return all(
        guesses_refute(claim.curve, perfect(times), level) for times, level in policy.stages()
    )


def scores_to_refute(
    claim: Claim, *, policy: Policy = STRICT, tests: int = 1, pilot_share: float = 0.1
) -> int | None:
    """Number of perfectly separated scores that refute the claim; `None` above `MOST_SCORES`.

    Arguments:
        claim: The claim.
        policy: The levels of the tests; the number is that of the first one.
        tests: Number of tensors that are tested one by one; the number is that of each.
        pilot_share: Share of the scores that chooses the threshold.

    Example:
        >>> scores_to_refute(Claim.from_epsilon(8.0, 1e-5))
        36
        >>> scores_to_refute(Claim.from_points([(8.0, 1e-5)])) > 9000
        True
    """

    def refutes(each: int) -> bool:
        return can_refute(claim, each, each, policy=policy, tests=tests)

    if not refutes(MOST_SCORES // 2):
        return None
    each = bisect_left(range(1, MOST_SCORES // 2), True, key=refutes) + 1
    return math.ceil(2 * each / (1 - pilot_share))
