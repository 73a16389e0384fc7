"""Risk terms: what a claim allows, and what scores show, against exact values."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

import dpaudit
from dpaudit import GradientCanary
from dpaudit.claims import Claim
from dpaudit.claims.risk import RATES, claimed_risk, gaussian_risk, risk_terms, shown_risk
from dpaudit.errors import InvalidScores
from dpaudit.lower_bounds import estimate
from dpaudit.privacy import Bound
from dpaudit.scores import Scores


@pytest.mark.parametrize(
    "claim",
    [
        Claim.from_mu(0.0),
        Claim.from_mu(1.7),
        Claim.from_points([(1.0, 0.0)]),
        Claim.from_points([(0.5, 1e-5), (2.0, 0.0), (0.0, 0.3)]),
        Claim.from_epsilon(8.0, 1e-5),
        Claim.from_dpsgd(noise_multiplier=1.0, steps=20, sampling_rate=0.1),
    ],
)
def test_claimed_terms_are_those_of_the_trade_off_function(claim: Claim) -> None:
    risk = claimed_risk(claim)
    grid = np.linspace(0, 1, 200_001)
    best = float(np.max(1 - grid - claim.tradeoff(grid)))
    assert best - 1e-12 <= risk.advantage <= best + 1e-4
    assert risk.true_positive_rates == tuple(1 - claim.tradeoff(rate) for rate in RATES)
    assert risk.posterior_odds == tuple(
        true / rate for true, rate in zip(risk.true_positive_rates, RATES, strict=True)
    )


def test_pure_differential_privacy_has_known_terms() -> None:
    risk = claimed_risk(Claim.from_points([(np.log(3), 0.0)]))
    assert risk.advantage == pytest.approx((3 - 1) / (3 + 1))
    assert risk.true_positive_rates == pytest.approx((0.03, 0.003))
    assert risk.posterior_odds == pytest.approx((3.0, 3.0))


@pytest.mark.parametrize("law", ["normal", "laplace", "rounded"])
def test_shown_terms_are_below_the_truth_as_often_as_stated(law: str) -> None:
    """Each of the three shown values exceeds the truth in at most 5 % of audits."""
    random, wrong, audits = np.random.default_rng(1), 0, 200
    draw = {
        "normal": lambda: random.normal(0, 1, 150),
        "laplace": lambda: random.laplace(0, 1, 150),
        "rounded": lambda: np.round(random.normal(0, 1, 150)),
    }[law]
    grid = np.linspace(-12, 14, 5001)
    if law == "rounded":
        grid = np.arange(-12, 14) + 0.5
        above = norm.sf(grid), norm.sf(np.arange(-12, 14) + 0.5 - 1)
    elif law == "normal":
        above = norm.sf(grid), norm.sf(grid - 1)
    else:
        tail = lambda x: np.where(x > 0, np.exp(-np.abs(x)) / 2, 1 - np.exp(-np.abs(x)) / 2)  # noqa: E731
        above = tail(grid), tail(grid - 1)
    truth = float(np.max(above[1] - above[0]))
    order = np.argsort(above[0])
    rates = np.interp(RATES, above[0][order], above[1][order])
    for _ in range(audits):
        risk = shown_risk(Scores.from_samples(1 + draw(), draw()))
        shown = np.array([risk.advantage, *risk.true_positive_rates])
        wrong += bool((shown > np.array([truth, *rates]) + 1e-9).any())
    assert wrong <= 0.05 * audits + 3 * np.sqrt(0.05 * 0.95 * audits)


def test_many_separated_scores_show_nearly_everything_and_few_nearly_nothing() -> None:
    many = shown_risk(Scores.from_samples(np.arange(5000) + 1e6, np.arange(5000)))
    assert many.advantage > 0.99
    assert many.true_positive_rates[0] > 0.98
    few = shown_risk(Scores.from_samples([2.0, 3.0], [0.0, 1.0]))
    assert 0 <= few.advantage < 0.2
    equal = shown_risk(Scores.from_samples([1.0] * 9, [1.0] * 9))
    assert (equal.advantage, *equal.true_positive_rates) == pytest.approx((0.0, *RATES))


def test_terms_of_mu_are_those_of_the_gaussian_curve() -> None:
    random = np.random.default_rng(0)
    scores = Scores.from_samples(random.normal(2, 1, 900), random.normal(0, 1, 900))
    bound = estimate(scores, delta=1e-5, method="gaussian-dp")
    risk = gaussian_risk(bound)
    assert bound.mu is not None
    assert risk.true_positive_rates == pytest.approx(
        claimed_risk(Claim.from_mu(bound.mu)).true_positive_rates
    )
    assert risk.assumptions == bound.assumptions
    with pytest.raises(InvalidScores, match="lower bound on mu"):
        gaussian_risk(Bound(epsilon=1.0, delta=0.1, side="upper", method="gaussian"))


def test_scores_that_decided_when_to_stop_show_nothing_by_every_threshold() -> None:
    random = np.random.default_rng(0)
    scores = Scores.from_samples(random.normal(2, 1, 90), random.normal(0, 1, 90))
    bound = estimate(scores, delta=1e-5, method="gaussian-dp")
    sources = [
        [term.source for term in risk_terms(claim, scores, bound, fixed_sample=fixed)]
        for claim, fixed in ((Claim.from_mu(2.0), True), (None, False))
    ]
    assert sources == [["2-GDP", "gaussian-dp", "every threshold"], ["gaussian-dp"]]


def test_a_result_and_its_page_state_what_is_allowed_and_what_was_shown() -> None:
    canary = GradientCanary.draw(6, clip_norm=1.0)

    def train(canary: GradientCanary, inserted: bool, seed: int) -> np.ndarray:
        return -(canary.clipped_sum(inserted) + np.random.default_rng(seed).normal(0, 1.0, 6))

    result = dpaudit.audit(train, canary=canary, claim=Claim.from_mu(1.0), runs=100)
    assert [term.side for term in result.risk] == ["upper", "lower", "lower"]
    assert result.to_dict()["risk"] == [term.to_dict() for term in result.risk]
    (group,) = [one for one in result.page().facts if one.heading == "in risk terms"]
    assert len(group.rows) == 9
    assert dict(group.rows)["claimed: largest advantage"] == "≤ 0.383"
