"""The one-run bound on mu: against a linear program, and against simulated audits."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.special import ndtr, ndtri

from dpaudit.curves import GAUSSIAN, gaussian_epsilon
from dpaudit.errors import InvalidScores
from dpaudit.lower_bounds.guesses import Guesses, GuessPlan, count_guesses
from dpaudit.lower_bounds.one_run import of_guesses


def largest_probability(mu: float, correct: int, guesses: int, canaries: int) -> float:
    """Largest P(W >= correct) that the inequalities of mu-GDP allow, by linear programming.

    Unknown are the probabilities of 0..guesses right guesses. The concave curve is replaced by
    tangents, which only adds freedom; with many of them, hardly any.
    """
    w = np.arange(guesses + 1)
    at = ndtr(np.linspace(-7, 7, 200))
    height, slope = ndtr(ndtri(at) + mu), np.exp(-mu * ndtri(at) - mu * mu / 2)
    rows, limits = [], []
    for c in range(1, guesses + 1):
        right = np.where(w >= c, w, 0) / canaries
        wrong = np.where(w >= c - 1, guesses - w, 0) / canaries
        rows.append(right[None, :] - slope[:, None] * wrong)
        limits.append(height - slope * at)
    solution = linprog(
        -(w >= correct).astype(float),
        A_ub=np.vstack(rows),
        b_ub=np.concatenate(limits),
        A_eq=np.ones((1, guesses + 1)),
        b_eq=[1.0],
    )
    assert solution.status == 0
    return -solution.fun


@pytest.mark.parametrize(
    ("correct", "guesses", "canaries"), [(9, 10, 10), (14, 15, 40), (13, 18, 18), (6, 6, 30)]
)
def test_bound_is_where_the_inequalities_allow_just_the_significance(
    correct: int, guesses: int, canaries: int
) -> None:
    # The recursion assumes which distribution is the worst; the linear program does not.
    significance = 0.1
    mu = of_guesses(Guesses(correct, guesses, canaries), GAUSSIAN, significance)
    allowed = largest_probability(mu, correct, guesses, canaries)
    assert allowed == pytest.approx(significance, rel=0.03)


def test_published_figure_with_the_guess_counts_it_was_made_from() -> None:
    # Normal quantiles, 10,000 a side, shift 1: jax-privacy's best threshold guesses 406 canaries,
    # 379 right, at a significance divided by the 386 corners of the convex hull.
    mu = of_guesses(Guesses(379, 406, 20_000), GAUSSIAN, 0.05 / 386)
    assert gaussian_epsilon(1e-6, mu) == pytest.approx(2.164749, abs=1e-6)
    quantiles = ndtri((np.arange(10_000) + 0.5) / 10_000)
    scores = np.r_[quantiles + 1, quantiles]
    coins = np.r_[np.ones(10_000, int), np.zeros(10_000, int)]
    assert count_guesses(scores, coins, GuessPlan(top=406, bottom=0)) == (379, 406)


def test_bound_grows_with_right_guesses_and_with_the_significance() -> None:
    by_correct = [of_guesses(Guesses(v, 100, 200), GAUSSIAN, 0.05) for v in range(101)]
    assert by_correct == sorted(by_correct)
    by_level = [of_guesses(Guesses(90, 100, 200), GAUSSIAN, s) for s in (1e-6, 1e-3, 0.05, 0.5)]
    assert by_level == sorted(by_level)


def test_few_certain_guesses_beat_many_likely_ones() -> None:
    # The two tails of the same Gaussian canaries (mu = 1): why the plan is worth choosing.
    def bound(cut: float) -> float:
        right, wrong = ndtr(0.5 - cut), ndtr(-0.5 - cut)
        guesses = round(20_000 * (right + wrong))
        return of_guesses(Guesses(round(20_000 * right), guesses, 20_000), GAUSSIAN, 0.05)

    assert bound(2.0) > 1.5 * bound(0.0) > 0


def test_nothing_is_claimed_without_evidence() -> None:
    for counts in ((0, 0, 0), (0, 0, 10), (0, 10, 10), (5, 10, 10)):
        assert of_guesses(Guesses(*counts), GAUSSIAN, 0.05) == 0.0
    with pytest.raises(InvalidScores, match="correct <= guesses <= canaries"):
        of_guesses(Guesses(3, 2, 10), GAUSSIAN, 0.05)


def test_large_runs_are_finite() -> None:
    for counts in ((9500, 10_000, 20_000), (20_000, 20_000, 20_000), (999_990, 10**6, 10**6)):
        mu = of_guesses(Guesses(*counts), GAUSSIAN, 0.05)
        assert 0 < mu < 10
