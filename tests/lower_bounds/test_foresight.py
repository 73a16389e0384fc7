"""What a pilot predicts about the rest, and that the prediction makes the bound tighter."""

import numpy as np
import pytest
from scipy.stats import binom, norm

from dpaudit import lower_bound
from dpaudit.lower_bounds.selection import foreseen


def pilot(spread: float = 1.0, each: int = 50) -> tuple[np.ndarray, np.ndarray]:
    quantiles = norm.ppf((np.arange(each) + 0.5) / each)
    return 3 + spread * quantiles, quantiles


def test_outcomes_are_quantiles_of_the_errors_on_the_rest():
    inserted, others = pilot(spread=2.0)
    outcomes = foreseen(inserted, others, 300, 400)
    assert outcomes is not None
    cuts = outcomes[0].thresholds
    false_positive_rate = norm.sf(cuts, others.mean(), others.std(ddof=1))
    false_negative_rate = norm.cdf(cuts, inserted.mean(), inserted.std(ddof=1))
    for level in (0.1, 0.3, 0.5, 0.7, 0.9):
        found = [one.false_positives for one in outcomes]
        assert any((binom.ppf(level, 400, false_positive_rate) == one).all() for one in found)
        found = [one.false_negatives for one in outcomes]
        assert any((binom.ppf(level, 300, false_negative_rate) == one).all() for one in found)


def test_similar_spreads_are_pooled():
    outcomes = foreseen(*pilot(spread=1.2), 450, 450)
    assert outcomes is not None
    errors = outcomes[2].false_positives, outcomes[2].false_negatives[::-1]
    # The quantiles 0.5 and 0.3 of two equal binomials differ by little at mirrored thresholds.
    assert np.abs(errors[0] - errors[1]).max() <= 12


@pytest.mark.parametrize(
    "scores",
    [
        np.repeat([0.0, 1.0], 25),
        np.array([0.0, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 6] * 2),
        np.arange(10.0),
        np.append(np.zeros(49), np.inf),
        np.ones(50),
    ],
    ids=["two values", "few values", "too few", "infinite", "constant"],
)
def test_a_pilot_that_is_not_normal_foresees_nothing(scores):
    assert foreseen(scores + 3, scores, 450, 450) is None


def test_spreads_below_the_smallest_number_foresee_nothing() -> None:
    inserted, others = pilot()
    assert foreseen(inserted * 1e-250, others, 450, 450) is None
    assert foreseen(inserted, others * 1e-250, 450, 450) is None


def test_gaussian_dp_reads_normal_scores_near_the_middle():
    """Where the bound is tightest; sweeps of 50 pilot scores a side miss it by 0.31."""
    random = np.random.default_rng(0)
    missed = [
        lower_bound(*scores, delta=1e-5, method="gaussian-dp", seed=seed).details["threshold"]
        - 3.95 / 2
        for seed, scores in enumerate(random.normal([[3.95], [0.0]], 1, (80, 2, 500)))
    ]
    assert np.sqrt(np.mean(np.square(missed))) < 0.2


@pytest.mark.parametrize("unit", [1e-200, 1e160])
def test_predictions_do_not_depend_on_the_unit_of_the_scores(unit):
    inserted, others = pilot()
    plain, scaled = (
        foreseen(inserted, others, 450, 450),
        foreseen(inserted * unit, others * unit, 450, 450),
    )
    for one, other in zip(plain, scaled, strict=True):
        assert (np.abs(one.false_positives - other.false_positives) <= 1).all()
        np.testing.assert_allclose(other.thresholds, one.thresholds * unit, rtol=1e-9, atol=0)
