"""The joint test where counts are huge, and scipy's own binomial is not to be relied on."""

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import binom

from dpaudit import ErrorCounts
from dpaudit.errors import InvalidInput
from dpaudit.lower_bounds.joint_test import _at_most, refuted_mu


@pytest.mark.parametrize("trials", [10, 10**6, 10**7, 10**8, 10**10])
def test_binomial_p_values_at_every_size(trials):
    errors = np.array([0, trials // 3, trials - 1, trials])
    observed = errors / trials
    spread = np.sqrt(np.maximum(observed * (1 - observed), 1 / trials) / trials)
    rates = np.clip(observed[:, None] + spread[:, None] * np.linspace(-6, 6, 41), 0, 1)
    expected = binom.cdf(errors[:, None], trials, rates)
    np.testing.assert_allclose(_at_most(errors, trials, rates), expected, atol=1e-7)


@pytest.mark.parametrize("size", [10**8, 10**12, 10**15])
def test_many_scores_come_close_to_the_truth_from_below(size):
    wrong = size // 4
    counts = ErrorCounts.given(
        true_positives=size - wrong,
        false_negatives=wrong,
        false_positives=wrong,
        true_negatives=size - wrong,
    )
    truth = 2 * ndtri(0.75)
    assert truth - 20 / np.sqrt(size) - 2e-6 < refuted_mu(counts, 0.05) < truth


def test_counts_beyond_what_floats_hold_are_refused():
    with pytest.raises(
        InvalidInput, match=r"false_positives must be at most 1,000,000,000,000,000"
    ):
        ErrorCounts.given(
            true_positives=1, false_negatives=1, false_positives=10**15 + 1, true_negatives=1
        )
