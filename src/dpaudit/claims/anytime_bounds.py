"""Anytime-valid lower bounds: the largest claim that an e-process refutes.

If a mechanism is mu-GDP, it is also mu'-GDP for every larger mu'. Claims on a fixed grid are tested
from below until the first that is not refuted. The bound exceeds the truth only if the smallest
true claim of the grid was refuted, which has at most the stated probability at any stopping time.
The same holds for epsilon at a given delta.
"""

from __future__ import annotations

from collections.abc import Callable

from dpaudit._arrays import Array
from dpaudit.claims.claim import Claim
from dpaudit.claims.sequential import AnytimeTest
from dpaudit.curves import gaussian_epsilon
from dpaudit.lower_bounds.gaussian_dp import GAUSSIAN_TRADE_OFF
from dpaudit.privacy import Bound, Bounds, Unavailable

STEP = 0.05
LARGEST = 30.0
_AT_ONCE = 64


def anytime_bounds(
    inserted: Array,
    others: Array,
    *,
    delta: float,
    confidence: float = 0.95,
    assumptions: tuple[str, ...] = (),
) -> Bounds:
    """Lower bounds from pairs of scores, valid under optional stopping.

    Arguments:
        inserted: Scores with the canary, in the order in which they were observed.
        others: Scores without the canary, one for each of ``inserted``.
        delta: Delta at which epsilon is bounded.
        confidence: Confidence of each bound.
        assumptions: Further assumptions to state in each bound.

    Example:
        >>> import numpy as np
        >>> random = np.random.default_rng(0)
        >>> there, not_there = random.normal(2, 1, 500), random.normal(0, 1, 500)
        >>> anytime_bounds(there, not_there, delta=1e-5)["anytime-gaussian-dp"].mu
        1.8
    """

    def bound(epsilon: float, method: str, mu: float | None, *own: str) -> Bound:
        return Bound(
            epsilon=epsilon,
            delta=delta,
            side="lower",
            method=method,
            confidence=confidence,
            assumptions=(*own, *assumptions),
            sample_size=2 * len(inserted),
            mu=mu,
            details={"threshold_rule": "as they come"},
        )

    def proven(claim: Callable[[float], Claim]) -> float:
        return _largest_refuted(claim, inserted, others, confidence)

    free = bound(proven(lambda value: Claim.from_points([(value, delta)])), "anytime", None)
    if delta == 0:
        reason = "at delta 0 a Gaussian trade-off function has an infinite epsilon"
        missing = Unavailable(method="anytime-gaussian-dp", reason=reason)
        return Bounds(bounds=(free,), unavailable=(missing,))
    mu = proven(Claim.from_mu)
    gaussian = bound(gaussian_epsilon(delta, mu), "anytime-gaussian-dp", mu, GAUSSIAN_TRADE_OFF)
    return Bounds(bounds=(gaussian, free))


def _largest_refuted(
    claim: Callable[[float], Claim], inserted: Array, others: Array, confidence: float
) -> float:
    largest = 0.0
    for step in range(round(LARGEST / STEP) + 1):
        value = round(step * STEP, 10)
        if not _refutes(AnytimeTest(claim(value), confidence=confidence), inserted, others):
            break
        largest = value
    return largest


def _refutes(test: AnytimeTest, inserted: Array, others: Array) -> bool:
    for start in range(0, len(inserted), _AT_ONCE):
        test.add(inserted[start : start + _AT_ONCE], others[start : start + _AT_ONCE])
        if test.refuted:
            return True
    return False
