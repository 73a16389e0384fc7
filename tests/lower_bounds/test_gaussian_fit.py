"""The fit of two normal distributions: exact coverage, and refusal where it does not fit."""

import numpy as np
import pytest
from scipy import stats

from dpaudit import lower_bound
from dpaudit.errors import InvalidScores
from dpaudit.lower_bounds.diagnostics import normal_p_values
from dpaudit.lower_bounds.gaussian_fit import fit_gaussian, noncentrality_lower_bound


def test_noncentral_t_against_scipy_stats():
    for t, freedom in ((2.0, 10), (20.0, 98), (9e3, 50)):
        for significance in (0.05, 1e-10):
            bound = noncentrality_lower_bound(t, freedom, significance)
            chance = stats.nct.sf(t, freedom, bound)
            assert chance == pytest.approx(significance, rel=1e-5) or (bound == 0 < chance)
    assert noncentrality_lower_bound(-1.0, 30, 0.05) == 0


def test_the_largest_statistics_give_a_finite_bound():
    ones, zeros = np.array([1e12, 1e12 + 1e-3]), np.array([0.0, 1e-3])
    assert 0 < fit_gaussian(ones, zeros, significance=0.05).mu < np.inf


@pytest.mark.parametrize("size", [3, 20, 200])
@pytest.mark.parametrize("mu", [0.0, 1.0, 4.0])
def test_coverage_is_exact(size, mu):
    random = np.random.default_rng((size, int(mu)))
    repetitions = 600
    false = 0
    for _ in range(repetitions):
        ones, zeros = random.normal(3 + 2 * mu, 2, size), random.normal(3, 2, size)
        false += fit_gaussian(ones, zeros, significance=0.1).mu > mu
    spread = 3.5 * np.sqrt(0.1 * 0.9 / repetitions)
    # Exactly nominal, not merely below: the bound wastes nothing.
    assert 0.1 - spread < false / repetitions < 0.1 + spread


def test_far_fewer_runs_than_counting():
    random = np.random.default_rng(0)
    ones, zeros = random.normal(3.95, 1, 100), random.normal(0, 1, 100)
    fitted = lower_bound(ones, zeros, delta=1e-5, method="gaussian-fit")
    counted = lower_bound(ones, zeros, delta=1e-5, method="gaussian-dp")
    assert fitted.epsilon > counted.epsilon + 0.5
    assert "normality" in " ".join(fitted.notes)


@pytest.mark.parametrize("shape", ["heavy", "spread"])
def test_scores_that_contradict_the_assumption_claim_nothing(shape):
    random = np.random.default_rng(0)
    if shape == "heavy":
        ones, zeros = random.laplace(3, 1, 2000), random.laplace(0, 1, 2000)
    else:
        ones, zeros = random.normal(3, 2, 2000), random.normal(0, 1, 2000)
    bound = lower_bound(ones, zeros, delta=1e-5, method="gaussian-fit")
    assert bound.epsilon == 0
    assert "nothing can be claimed" in bound.notes[0]


def test_too_little_to_fit():
    with pytest.raises(InvalidScores, match="at least 2"):
        lower_bound([1.0], [0.0, 1.0], delta=1e-5, method="gaussian-fit")
    with pytest.raises(InvalidScores, match="vary"):
        lower_bound([1.0, 1.0], [0.0, 0.0], delta=1e-5, method="gaussian-fit")


def test_few_of_a_thousand_normal_audits_are_refused() -> None:
    """The test of normality is asymptotic, so that more than twice its level are refused."""
    random, audits = np.random.default_rng(0), 1500
    refused = sum(
        bool(fit_gaussian(*random.normal(size=(2, 50)), significance=0.05).rejected)
        for _ in range(audits)
    )
    assert 0.0005 <= refused / audits <= 0.01


def test_a_kind_without_any_variance_is_refused() -> None:
    varied = np.random.default_rng(0).normal(size=30)
    for groups in ((varied + 3, np.zeros(30)), (np.full(30, 3.0), varied)):
        fit = fit_gaussian(*groups, significance=0.05)
        assert fit.equal_variance_p_value == 0.0
        assert fit.rejected


@pytest.mark.parametrize("spreads", [(1.0, 1.0), (1.3, 1.0), (0.6, 1.0)])
def test_the_assumption_is_tested_as_in_scipy(spreads: tuple[float, float]) -> None:
    random = np.random.default_rng(0)
    ones, zeros = random.normal(3, spreads[0], 20), random.normal(0, spreads[1], 35)
    residuals = np.concatenate([stats.zscore(ones, ddof=1), stats.zscore(zeros, ddof=1)])
    ratio = np.var(ones, ddof=1) / np.var(zeros, ddof=1)
    equal = 2 * min(stats.f.cdf(ratio, 19, 34), stats.f.sf(ratio, 19, 34))
    expected = stats.normaltest(residuals).pvalue, equal
    assert normal_p_values(ones, zeros) == pytest.approx(expected, rel=1e-9)
    assert normal_p_values(ones[:19], zeros) is None
