"""The numbers behind the pictures: exact counts, curves that never say more than was proven."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from played import normal_scores
from scipy.special import ndtri

import dpaudit
from dpaudit.audits import curves
from dpaudit.claims import Claim
from dpaudit.curves import gaussian_delta, gaussian_epsilon, gaussian_tradeoff
from dpaudit.lower_bounds import ErrorCounts, estimate, proven_curve
from dpaudit.report.charts import staircase
from dpaudit.scores import Scores

some_scores = st.lists(
    st.sampled_from([-3.0, -1.0, 0.0, 0.5, 0.50001, 2.0, 1e9, np.inf, -np.inf]), min_size=1
)


@settings(max_examples=60)
@given(inserted=some_scores, others=some_scores, most=st.integers(1, 8))
def test_counts_are_those_of_the_threshold_shown(
    inserted: list[float], others: list[float], most: int
) -> None:
    scores = Scores.from_samples(inserted, others)
    found = curves.thresholds(scores, chosen=0.25, delta=1e-5, confidence=0.95, most=most)
    if found is None:
        return
    counts = found.counts
    assert counts.thresholds[found.start] == 0.25
    for place, threshold in enumerate(counts.thresholds):
        assert counts.false_positives[place] == sum(score > threshold for score in others)
        assert counts.false_negatives[place] == sum(score <= threshold for score in inserted)


def test_a_reading_is_the_bound_of_a_threshold_fixed_beforehand() -> None:
    scores = normal_scores(2.0, runs=600)
    found = curves.thresholds(scores, chosen=1.0, delta=1e-5, confidence=0.9)
    assert found is not None
    for place in (found.start, found.start + 40, 5, len(found.counts) - 5):
        counts = found.counts[place]
        reading = curves.readings(counts, delta=1e-5, confidence=0.9)[0]
        bound = estimate(counts, method="clopper-pearson", delta=1e-5, confidence=0.9)
        # The joint tests of both rates, which the headline uses, are never weaker here.
        assert reading.epsilon <= bound.epsilon + 1e-9
        joint = estimate(counts, method="gaussian-dp", delta=1e-5, confidence=0.9)
        assert reading.gaussian_epsilon <= joint.epsilon + 1e-9


@pytest.mark.parametrize("delta", [1e-12, 1e-5, 1e-2, 0.0])
def test_readings_over_the_whole_range(delta: float) -> None:
    for false_positives, false_negatives, trials in ((0, 0, 1), (3, 0, 4), (1, 100, 50_000)):
        counts = dpaudit.ErrorCounts.given(
            true_positives=trials - false_negatives,
            false_negatives=false_negatives,
            false_positives=false_positives,
            true_negatives=trials - false_positives,
        )
        reading = curves.readings(counts, delta=delta, confidence=0.95)[0]
        assert reading.gaussian_epsilon == pytest.approx(
            gaussian_epsilon(delta, reading.mu), rel=1e-8, abs=1e-12
        )


def test_no_threshold_if_all_scores_are_equal_or_have_one_label() -> None:
    for inserted, others in (([1.0, 1.0], [1.0]), ([1.0, 2.0], []), ([np.inf], [-np.inf])):
        scores = Scores.from_samples(inserted, others)
        found = curves.thresholds(scores, chosen=None, delta=1e-5, confidence=0.95)
        assert found is None or np.isfinite(found.counts.thresholds).all()


@settings(max_examples=60)
@given(inserted=some_scores, others=some_scores)
def test_every_score_is_in_the_histogram(inserted: list[float], others: list[float]) -> None:
    shown = curves.histogram(Scores.from_samples(inserted, others))
    if shown is None:
        assert not np.isfinite([*inserted, *others]).any()
        return
    assert shown.inserted.sum() == pytest.approx(1.0)
    assert shown.others.sum() == pytest.approx(1.0)
    beyond = [s for s in (*inserted, *others) if not shown.edges[0] <= s <= shown.edges[-1]]
    assert shown.outside == len(beyond)


def test_one_far_score_does_not_squeeze_the_others() -> None:
    random = np.random.default_rng(0)
    scores = Scores.from_samples([*random.normal(1, 1, 999), 1e6], random.normal(0, 1, 1000))
    shown = curves.histogram(scores)
    assert shown is not None
    assert shown.outside >= 1
    assert shown.edges[-1] < 20
    assert (shown.inserted > 0.01).sum() > 10


@pytest.mark.parametrize("mu", [0.5, 2.0, 4.0])
def test_the_true_curve_lies_between_the_claimed_and_the_proven_one(mu: float) -> None:
    half = (np.arange(2000) + 0.5) / 2000
    scores = Scores.from_samples(ndtri(half) + mu, ndtri(half))  # no luck in them
    drawn = curves.tradeoff_curves(proven_curve(scores), claim=Claim.from_mu(mu), fitted_mu=mu)
    steps = staircase(drawn.proven)
    alpha = np.linspace(0.001, 0.999, 500)
    place = np.searchsorted(steps.x, alpha, side="right") - 1
    proven = np.where(place < 0, 1.0, steps.y[place])
    assert (gaussian_tradeoff(alpha, mu) <= proven).all()
    assert drawn.claimed is not None
    assert drawn.claimed.y == pytest.approx(gaussian_tradeoff(drawn.claimed.x, mu))


def test_thinning_takes_points_away_and_invents_none() -> None:
    scores = normal_scores(3.0, runs=3000)
    whole = proven_curve(scores)
    drawn = curves.tradeoff_curves(whole, claim=None, fitted_mu=None)
    points = set(zip(whole.false_positive_upper, whole.false_negative_upper, strict=True))
    kept = set(zip(drawn.proven.x, drawn.proven.y, strict=True))
    assert kept <= points
    assert len(kept) < len(points)


def test_delta_of_a_claim_is_its_own() -> None:
    pairs = [(0.5, 0.2), (2.0, 1e-3), (4.0, 1e-6)]
    for epsilon, delta in pairs:
        claimed = curves.claimed_delta(Claim.from_points(pairs), [epsilon])[0]
        assert claimed <= delta * (1 + 1e-6) + 1e-12
    assert curves.claimed_delta(Claim.from_points([(1.0, 0.05)]), [1.0])[0] == pytest.approx(0.05)
    epsilons = np.linspace(0, 6, 13)
    gaussian = gaussian_delta(epsilons, 1.3)
    assert curves.claimed_delta(Claim.from_mu(1.3), epsilons) == pytest.approx(gaussian)
    # The same claim as many pairs, through the other code path.
    many = np.linspace(0, 12, 400)
    as_pairs = Claim.from_points(zip(many, gaussian_delta(many, 1.3), strict=True))
    assert curves.claimed_delta(as_pairs, epsilons) == pytest.approx(gaussian, rel=0.02, abs=1e-7)
    read = Claim.from_epsilon(3.0, 1e-5)
    assert curves.claimed_delta(read, [3.0])[0] == pytest.approx(1e-5, rel=0.05)


def test_profile_from_below_stays_below_the_one_from_above() -> None:
    mu = 2.0
    half = (np.arange(1000) + 0.5) / 1000
    scores = Scores.from_samples(ndtri(half) + mu, ndtri(half))
    drawn = curves.profile_curves(
        proven_curve(scores),
        claim=Claim.from_mu(mu),
        gaussian_mu=1.9,
        delta=1e-5,
        largest_epsilon=10.0,
    )
    assert drawn.claimed is not None
    assert drawn.gaussian is not None
    assert (drawn.proven.y <= drawn.claimed.y + 1e-12).all()
    assert (drawn.gaussian.y <= drawn.claimed.y + 1e-12).all()
    assert (np.diff(drawn.proven.y) <= 1e-12).all()


def test_sweep_and_page_agree_on_how_many_thresholds_there_are() -> None:
    from dpaudit.audits.curves import MOST_THRESHOLDS as CARRIED
    from dpaudit.lower_bounds.counts import MOST_THRESHOLDS

    assert CARRIED >= MOST_THRESHOLDS
    assert isinstance(dpaudit.ErrorCounts.sweep(np.arange(3.0), np.arange(2.0)), ErrorCounts)
