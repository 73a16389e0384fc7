"""Contract test for lower-bound methods: `check_lower_bound`."""

from __future__ import annotations

import math

import numpy as np

from dpaudit.curves import gaussian_epsilon
from dpaudit.errors import DpauditError, InvalidScores
from dpaudit.lower_bounds.counts import ErrorCounts
from dpaudit.lower_bounds.methods import Method, Request
from dpaudit.lower_bounds.selection import threshold_rule
from dpaudit.privacy import Question
from dpaudit.scores import Scores
from dpaudit.testing._requiring import requiring

_DELTA = 1e-5

_require = requiring("method")


def check_lower_bound(method: Method, *, audits: int = 200, seed: int = 0) -> None:
    """Raise `AssertionError`, with the failing case, if ``method`` breaks the contract.

    The false-positive rate is checked on normal scores, which satisfy the assumptions of every
    method that ships with dpaudit.

    Arguments:
        method: The method to check.
        audits: Number of simulated audits for the false-positive rate.
        seed: Random seed of the scores.

    Example:
        >>> from dpaudit.lower_bounds import METHODS
        >>> check_lower_bound(METHODS["clopper-pearson"], audits=20)
    """
    random = np.random.default_rng(seed)
    check_result(method, _scores(2.0, 300, random))
    check_hard_evidence(method)
    check_confidence(method, _scores(2.0, 300, random))
    for mu in (0.0, 1.0, 3.0):
        check_false_bounds(method, mu, audits, random)


def check_result(method: Method, scores: Scores) -> None:
    """The bound names its side, method and confidence, and is a finite number of at least 0."""
    bound = method.bound(scores, _request())
    _require((bound.side, bound.method, bound.delta) == ("lower", method.name, _DELTA), bound)
    _require(bound.confidence == 0.95 and bound.quantity == "epsilon", bound)
    _require(0 <= bound.epsilon < math.inf, bound)
    _require(bound.sample_size is not None and 0 < bound.sample_size <= len(scores), bound)
    _require(set(method.assumptions) <= set(bound.assumptions), bound)
    _require(bound == method.bound(scores, _request()), "two calls differ", bound)


def check_hard_evidence(method: Method) -> None:
    """Few, equal, infinite or separated scores and extreme counts give a bound or a clear error."""
    cases: list[Scores | ErrorCounts] = [
        Scores.from_samples(ones, zeros)
        for ones, zeros in (
            ([1.0], [0.0]),
            ([1.0, 1.0], [1.0, 1.0]),
            ([math.inf, 1.0, 2.0], [-math.inf, 0.0, 1.0]),
            (np.arange(50) + 1e6, np.arange(50)),
            (np.arange(50), np.arange(50) + 1e6),
        )
    ]
    cases += [
        ErrorCounts.given(
            true_positives=tp, false_negatives=fn, false_positives=fp, true_negatives=tn
        )
        for tp, fn, fp, tn in ((1, 0, 0, 1), (0, 500, 500, 0), (10**9, 0, 0, 10**9), (5, 5, 5, 5))
    ]
    for evidence in cases:
        try:
            bound = method.bound(evidence, _request())
        except DpauditError:
            continue
        _require(0 <= bound.epsilon < math.inf, bound, evidence)
        _require(bound.epsilon > 0 or bound.notes, "a bound of 0 needs a note", bound)
    for missing in (Scores.from_samples([1.0, 2.0], []), Scores.from_samples([], [1.0, 2.0])):
        try:
            method.bound(missing, _request())
        except InvalidScores:
            continue
        _require(False, "scores of one kind must be refused", missing)


def check_confidence(method: Method, scores: Scores) -> None:
    """More confidence never gives a larger bound at the same threshold."""
    bounds = [
        method.bound(scores, _request("fixed=1", confidence)).epsilon for confidence in (0.5, 0.999)
    ]
    _require(bounds[1] <= bounds[0], bounds)


def check_false_bounds(method: Method, mu: float, audits: int, random: np.random.Generator) -> None:
    """At most 5 % of bounds exceed the true epsilon, within three standard deviations."""
    truth = gaussian_epsilon(_DELTA, mu)
    false = 0
    for audit in range(audits):
        try:
            false += method.bound(_scores(mu, 100, random), _request(seed=audit)).epsilon > truth
        except InvalidScores:
            continue  # no bound is no false bound
    share = false / audits
    _require(share <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / audits), share, mu)


def _request(threshold: str = "pilot", confidence: float = 0.95, seed: int = 0) -> Request:
    return Request(
        question=Question(delta=_DELTA),
        rule=threshold_rule(threshold, seed=seed),
        confidence=confidence,
        seed=seed,
    )


def _scores(mu: float, each: int, random: np.random.Generator) -> Scores:
    coins = random.random(2 * each) < 0.5
    return Scores(score=random.normal(size=2 * each) + mu * coins, inserted=coins)
