"""What a pilot predicts about the rest, and that the prediction makes the bound tighter."""

import numpy as np
import pytest
from scipy.stats import binom, norm

from dpaudit.lower_bounds.foresight import foreseen
from dpaudit.lower_bounds.gaussian_dp import GaussianDP
from dpaudit.lower_bounds.questions import AtDelta
from dpaudit.lower_bounds.thresholds import Pilot, Sample


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
        np.arange(10.0),
        np.append(np.zeros(49), np.inf),
        np.ones(50),
    ],
    ids=["two values", "too few", "infinite", "constant"],
)
def test_a_pilot_that_is_not_normal_foresees_nothing(scores):
    assert foreseen(scores + 3, scores, 450, 450) is None


def test_gaussian_dp_reads_normal_scores_near_the_middle():
    """Where the bound is tightest; sweeps of 50 pilot scores a side miss it by 0.31."""
    random = np.random.default_rng(0)
    missed = [
        Pilot(seed=seed)
        .choose(
            GaussianDP(),
            Sample(
                inserted=random.normal(3.95, 1, 500),
                not_inserted=random.normal(0, 1, 500),
                question=AtDelta(1e-5),
                significance=0.05,
            ),
        )
        .threshold
        - 3.95 / 2
        for seed in range(80)
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
