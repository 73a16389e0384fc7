"""Threshold rules: what each may look at, ties, and the numbers of the issue."""

import numpy as np
import pytest
from scipy.special import ndtri

from dpaudit import lower_bound
from dpaudit.comparisons.rules import BEST, BONFERRONI
from dpaudit.errors import InvalidInput, InvalidScores
from dpaudit.lower_bounds import ErrorCounts, Fixed, Pilot, Simultaneous
from dpaudit.lower_bounds.counts import midpoints
from dpaudit.lower_bounds.selection import threshold_rule


def normal_quantiles(mu: float, size: int = 2500) -> tuple[np.ndarray, np.ndarray]:
    quantiles = ndtri((np.arange(size) + 0.5) / size)
    return quantiles + mu, quantiles


@pytest.mark.parametrize(("mu", "epsilon"), [(1.0, 3.441902), (3.9528, 21.217208)])
def test_bonferroni_agrees_with_jax_privacy_on_gaussian_dp(mu, epsilon):
    bound = lower_bound(
        *normal_quantiles(mu), delta=1e-5, method="gaussian-dp", threshold="bonferroni"
    )
    assert bound.epsilon == pytest.approx(epsilon, rel=1e-6)


@pytest.mark.parametrize(("mu", "epsilon"), [(1.0, 1.351410), (3.9528, 5.321951)])
def test_bonferroni_agrees_with_jax_privacy_on_clopper_pearson(mu, epsilon):
    bound = lower_bound(*normal_quantiles(mu), delta=1e-5, threshold="bonferroni")
    assert bound.epsilon == pytest.approx(epsilon, rel=1e-5)
    assert any("hull" in assumption for assumption in bound.assumptions)


def test_pilot_is_as_tight_as_asked():
    scores = normal_quantiles(3.9528)
    bounds = [
        lower_bound(*scores, delta=1e-5, method="gaussian-dp", seed=seed) for seed in range(20)
    ]
    assert np.mean([bound.epsilon for bound in bounds]) >= 21.7


def test_simultaneous_is_as_tight_as_asked():
    bound = lower_bound(
        *normal_quantiles(3.9528), delta=1e-5, method="gaussian-dp", threshold="simultaneous"
    )
    assert 21.1 <= bound.epsilon <= 23.995
    assert bound.sample_size == 5000


def test_best_says_that_selection_is_not_accounted_for():
    scores = normal_quantiles(1.0, 500)
    best = lower_bound(*scores, delta=1e-5, method="gaussian-dp", threshold="best")
    assert any("selection is not accounted for" in text for text in best.assumptions)
    for rule in ("simultaneous", "bonferroni"):
        other = lower_bound(*scores, delta=1e-5, method="gaussian-dp", threshold=rule)
        assert other.epsilon < best.epsilon


def test_the_evaluated_scores_have_no_say_in_the_pilot_threshold():
    ones, zeros = np.random.default_rng(0).normal([[2.0], [0.0]], 1, (2, 300))
    pilot = Pilot(share=0.2, seed=5)
    seen = lower_bound(ones, zeros, delta=1e-5, threshold=pilot).details["threshold"]
    # Change the scores that were not in the pilot: the threshold must stay.
    order = np.random.default_rng(5).permutation(300)
    changed = ones.copy()
    changed[order[60:]] += 10
    again = lower_bound(changed, zeros, delta=1e-5, threshold=pilot).details["threshold"]
    assert again == seen


def test_seeds_repeat_and_differ():
    scores = np.random.default_rng(1).normal([[1.0], [0.0]], 1, (2, 400))
    same = {lower_bound(*scores, delta=1e-5, seed=3).epsilon for _ in range(3)}
    assert len(same) == 1
    assert len({lower_bound(*scores, delta=1e-5, seed=seed).epsilon for seed in range(8)}) > 1


def test_ties_are_never_split():
    counts = ErrorCounts.sweep(np.array([1.0, 1, 2, 2]), np.array([0.0, 1, 1, 2]))
    assert counts.thresholds.tolist() == [0.5, 1.5]
    assert counts.false_positives.tolist() == [3, 1]
    assert counts.false_negatives.tolist() == [0, 2]


def test_midpoints_next_to_infinities_and_adjacent_floats_separate():
    adjacent = np.nextafter(1.0, 2.0)
    values = np.array([-np.inf, 0.0, 1.0, adjacent, np.inf])
    cuts = midpoints(values)
    for low, cut, high in zip(values[:-1], cuts, values[1:], strict=True):
        assert not low > cut
        assert high > cut
    huge = np.array([-1.7e308, 1.7e308])
    assert np.isfinite(midpoints(huge)).all()


def test_fixed_reads_at_the_given_threshold():
    bound = lower_bound([1.0, 3.0, 5.0], [0.0, 2.0], delta=1e-5, threshold="fixed=2.5")
    assert bound.details["false_negatives"] == 1
    assert bound.details["false_positives"] == 0


@pytest.mark.parametrize(
    ("word", "rule"),
    [
        ("pilot", Pilot()),
        ("pilot=0.25", Pilot(share=0.25)),
        ("simultaneous", Simultaneous()),
        ("bonferroni", BONFERRONI),
        ("best", BEST),
        ("fixed 1.5", Fixed(value=1.5)),
        ("fixed=-2", Fixed(value=-2.0)),
    ],
)
def test_words_for_rules(word, rule):
    assert threshold_rule(word) == rule


@pytest.mark.parametrize("word", ["middle", "fixed", "fixed=x", "pilot=2", "fixed=inf", ""])
def test_words_that_are_no_rules(word):
    with pytest.raises(InvalidInput, match=r"threshold|share"):
        threshold_rule(word)


def test_pilot_needs_two_scores_of_each_kind():
    with pytest.raises(InvalidScores, match="at least 2 inserted"):
        lower_bound([1.0], [0.0, 0.5], delta=1e-5)
    # The other rules work with one of each, and can claim nothing.
    assert lower_bound([1.0], [0.0], delta=1e-5, threshold="simultaneous").epsilon == 0


def test_simultaneous_refuses_methods_without_bands():
    with pytest.raises(InvalidInput, match="both error rates"):
        lower_bound([1, 2], [0, 1], delta=1e-5, method="jeffreys", threshold="simultaneous")


def test_counting_at_one_threshold_agrees_with_counting_at_many():
    random = np.random.default_rng(0)
    ones, zeros = random.integers(0, 9, 200) / 1.0, random.normal(3, 2, 150)
    cuts = np.array([-np.inf, -1.0, 3.0, 4.5, 8.0, np.inf])
    many = ErrorCounts.at(ones, zeros, cuts)
    for place, cut in enumerate(cuts):
        one = ErrorCounts.at(ones, zeros, cut)
        assert one.false_positives[0] == many.false_positives[place]
        assert one.false_negatives[0] == many.false_negatives[place]


def test_randomised_responses_are_not_taken_to_be_normal() -> None:
    """A pilot of 0s and 1s passed as normal, and its threshold lay beyond both: bounds of 0."""
    truthful, bounds = np.e / (1 + np.e), []
    for seed in range(20):
        random = np.random.default_rng(seed)
        ones = (random.random(500) < truthful).astype(float)
        zeros = (random.random(500) > truthful).astype(float)
        bounds.append(lower_bound(ones, zeros, delta=0.0, seed=seed).epsilon)
    assert sum(bound > 0.3 for bound in bounds) >= 18
    assert max(bounds) < 1.4
