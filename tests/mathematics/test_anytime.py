"""A true claim is ever refuted with at most the stated probability."""

from __future__ import annotations

import numpy as np
import pytest

from dpaudit import Claim, ErrorCounts
from dpaudit.claims.anytime import AnytimeTest, Bets, anytime_bounds
from dpaudit.claims.fixed_sample import claim_p_value

LEVEL = 0.05


def ever_refuted(claim: Claim, draw, audits: int, pairs: int) -> float:
    """The share of audits that stop with a violation at any of their pairs."""
    bets, refuted = Bets.against(claim), 0
    for seed in range(audits):
        test = AnytimeTest(claim, confidence=1 - LEVEL, bets=bets)
        test.add(*draw(np.random.default_rng(seed), pairs))
        refuted += test.refuted
    return refuted / audits


def allowed(audits: int) -> float:
    return LEVEL + 3 * np.sqrt(LEVEL * (1 - LEVEL) / audits)


def test_false_alarms_at_the_edge_of_the_claim_with_optional_stopping():
    def gaussian(random, pairs):
        return random.normal(1.0, 1.0, pairs), random.normal(0.0, 1.0, pairs)

    rate = ever_refuted(Claim.from_mu(1.0), gaussian, audits=300, pairs=250)
    assert rate <= allowed(300)
    assert rate > 0.002  # some audits must be unlucky, otherwise the test has no power


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_false_alarms_for_randomised_response(epsilon):
    # The vertex of a bare pair's curve: two values, and the claim touched exactly.
    keep = 1 / (1 + np.exp(-epsilon))

    def response(random, pairs):
        return random.random(pairs) < keep, random.random(pairs) >= keep

    claim = Claim.from_points([(epsilon, 0.0)])
    assert ever_refuted(claim, response, audits=200, pairs=200) <= allowed(200)


def test_false_alarms_when_the_distribution_of_scores_drifts():
    def drifting(random, pairs):
        centre = np.linspace(0, 20, pairs)
        return random.normal(centre + 1.0, 1.0), random.normal(centre, 1.0)

    assert ever_refuted(Claim.from_mu(1.0), drifting, audits=200, pairs=200) <= allowed(200)


def test_optional_stopping_breaks_the_level_of_the_fixed_sample_test():
    # The same true claim, with the best threshold fixed beforehand.
    audits, random, claim = 40, np.random.default_rng(0), Claim.from_mu(1.0)
    misses = np.cumsum(random.normal(1, 1, (audits, 500)) <= 0.5, axis=1)
    alarms = np.cumsum(random.normal(0, 1, (audits, 500)) > 0.5, axis=1)
    smallest = np.ones(audits)
    for pairs in range(10, 501, 35):
        counts = ErrorCounts(
            false_positives=alarms[:, pairs - 1],
            false_negatives=misses[:, pairs - 1],
            negatives=pairs,
            positives=pairs,
            thresholds=np.full(audits, 0.5),
        )
        smallest = np.minimum(smallest, claim_p_value(counts, claim))
    assert np.mean(smallest <= LEVEL) > allowed(audits)


def test_bounds_hold_when_the_audit_stops_as_they_cross_the_truth():
    wrong, audits, random = 0, 25, np.random.default_rng(1)
    for _ in range(audits):
        inserted, others = random.normal(0.6, 1, 100), random.normal(0, 1, 100)
        test = AnytimeTest(Claim.from_mu(0.6))
        test.add(inserted, others)
        bounds = anytime_bounds(test, delta=1e-5)
        # The running maximum of wealth decides, so the last bound is the largest ever seen.
        wrong += bounds["anytime-gaussian-dp"].mu > 0.6
    assert wrong / audits <= allowed(audits)
