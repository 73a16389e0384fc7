"""The one-run bound for independent canaries: exact there, false where one coin switches them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import binom

from dpaudit import Scores, estimate
from dpaudit.curves import GAUSSIAN, pairs_family
from dpaudit.lower_bounds.diagnostics import INDEPENDENT_CANARIES
from dpaudit.lower_bounds.guesses import Guesses
from dpaudit.lower_bounds.one_run_independent import of_independent_guesses
from dpaudit.privacy import Question


@pytest.mark.parametrize(("guesses", "mu"), [(20, 0.5), (300, 1.0), (2000, 3.0)])
def test_false_bounds_have_exactly_the_binomial_probability(guesses: int, mu: float) -> None:
    seen = [Guesses(correct, guesses, guesses) for correct in range(guesses + 1)]
    bounds = np.array([of_independent_guesses(one, GAUSSIAN, 0.05) for one in seen])
    assert (np.diff(bounds) >= 0).all()
    false = binom.pmf(np.arange(guesses + 1), guesses, ndtr(mu / 2))[bounds > mu].sum()
    assert 0.01 < false <= 0.05


@pytest.mark.parametrize(
    ("family", "truth", "accuracy"),
    [
        # The corner of (epsilon, delta)-DP is where both error rates are (1 - delta) / (1 + e^eps).
        (pairs_family(Question(delta=0.02)), 1.0, 1 - 0.98 / (1 + math.e)),
        (pairs_family(Question(epsilon=1.0)), 0.1, 1 - 0.9 / (1 + math.e)),
    ],
)
def test_pairs_are_tested_at_the_corner_of_their_curve(family, truth, accuracy) -> None:
    seen = [Guesses(correct, 300, 300) for correct in range(301)]
    bounds = np.array([of_independent_guesses(one, family, 0.05) for one in seen])
    false = binom.pmf(np.arange(301), 300, accuracy)[bounds > truth].sum()
    assert 0.03 < false <= 0.05


def test_bound_approaches_mu_and_names_independence() -> None:
    random = np.random.default_rng(0)
    coins = random.random(40_000) < 0.5
    bound = estimate(
        Scores(score=2 * coins + random.normal(size=40_000), inserted=coins),
        delta=1e-5,
        method="one-run-independent",
    )
    assert bound.mu is not None
    assert 1.9 < bound.mu < 2.02
    assert INDEPENDENT_CANARIES in bound.assumptions


def test_a_common_coin_makes_it_false_and_leaves_the_other_one_run_bounds_true() -> None:
    # Each canary is 1-GDP: with probability 0.8 all get randomised response of accuracy 0.73.
    share, accuracy = 0.8, 0.73
    point = float(ndtr(-1 - _quantile(share * (1 - accuracy))))
    assert 1 - share * accuracy >= point  # the vertex of the trade-off function lies above G_1
    random, false = np.random.default_rng(1), {"one-run-independent": 0, "one-run-fdp": 0}
    audits = 40
    for audit in range(audits):
        coins = random.random(1501) < 0.5
        kept = random.random(1501) < (accuracy if audit < share * audits else 0.5)
        scores = Scores(score=np.where(kept, coins, ~coins).astype(float), inserted=coins)
        for method in false:
            bound = estimate(scores, delta=1e-5, method=method, seed=audit)
            false[method] += (bound.mu or 0.0) > 1
    assert false["one-run-independent"] > 0.6 * audits
    assert false["one-run-fdp"] <= (0.05 + 3 * math.sqrt(0.05 * 0.95 / audits)) * audits


def _quantile(rate: float) -> float:
    from scipy.special import ndtri

    return float(ndtri(rate))
