"""False claims: a bound at 95 % confidence exceeds the truth in at most 5 % of audits.

The small version of benchmarks/coverage.py, whose tables are in the appendix of
docs/choosing-a-bound.md. First without chance, by enumerating every outcome of a small audit;
then by simulated audits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from families import (
    Gaussian,
    Laplace,
    RandomisedResponse,
    ScoreFamily,
    SubsampledGaussian,
    TwoPointMixture,
    draw_sampled_steps,
)
from scipy.special import bdtr

from dpaudit import Bound, Claim, ErrorCounts, Scores, estimate, proven_curve, test_claim
from dpaudit.claims.fixed_sample import claim_p_value
from dpaudit.curves import Family, epsilon_of_errors, mu_of_errors
from dpaudit.errors import InvalidScores
from dpaudit.lower_bounds.joint_test import at_one_threshold

# Fewer of the large audits, which take longest; benchmarks/coverage.py has many more.
AUDITS = {50: 200, 100: 200, 500: 80, 1000: 120}
NOMINAL = 0.05


def limit(audits: int) -> float:
    """The largest share of false claims that is compatible with the nominal level."""
    return NOMINAL + 3 * np.sqrt(NOMINAL * (1 - NOMINAL) / audits)


GAUSSIANS = (Gaussian(0.0), Gaussian(1.0), Gaussian(3.95))
OTHERS = (
    RandomisedResponse(1.0),
    RandomisedResponse(4.0),
    Laplace(1.0),
    TwoPointMixture(1.0),
    TwoPointMixture(4.0),
    SubsampledGaussian(0.1, 2.0),
)


def share_above(truth: float, values: list[float]) -> float:
    return float(np.mean(np.array(values) > truth + 1e-9))


def audits(family: ScoreFamily, each: int, count: int | None = None) -> list[Scores]:
    count = AUDITS[each] if count is None else count
    random = np.random.default_rng([each, count])
    return [Scores.from_samples(*family.audit(each, random)) for _ in range(count)]


def fair_coin_audits(family: ScoreFamily, canaries: int) -> list[Scores]:
    random = np.random.default_rng(canaries)
    coins = random.random((AUDITS[canaries], canaries)) < 0.5
    # Exactly half would be refused, though coins that are fair may hit it.
    coins[2 * coins.sum(axis=1) == canaries, 0] ^= True
    return [Scores(score=family.draw(row, random), inserted=row) for row in coins]


# Without chance: every outcome of an audit with a fixed threshold, weighed by its probability.

EACH = 30
# (false-positive rate, false-negative rate) of the threshold.
RATES = [(0.5, 0.5), (0.3, 0.4), (0.1, 0.1), (0.02, 0.3), (0.3, 0.02), (0.01, 0.01), (0.0, 0.9)]


def outcomes() -> ErrorCounts:
    wrong = np.arange(EACH + 1)
    return ErrorCounts(
        false_positives=np.repeat(wrong, EACH + 1),
        false_negatives=np.tile(wrong, EACH + 1),
        negatives=EACH,
        positives=EACH,
        thresholds=np.full((EACH + 1) ** 2, np.nan),
    )


def probabilities(alpha: float, beta: float) -> np.ndarray:
    wrong = np.arange(EACH + 1)
    of_alpha, of_beta = (np.diff(bdtr(wrong, EACH, rate), prepend=0.0) for rate in (alpha, beta))
    return np.outer(of_alpha, of_beta).ravel()


@cache
def bounds_of_all_outcomes(method: str, delta: float) -> list[Bound]:
    counts = outcomes()
    return [estimate(counts[i], delta=delta, method=method) for i in range(len(counts))]


@pytest.mark.parametrize(("alpha", "beta"), RATES)
@pytest.mark.parametrize("method", ["clopper-pearson", "gaussian-dp"])
def test_exact_false_claims_at_a_fixed_threshold(method: str, alpha: float, beta: float) -> None:
    delta = 1e-3
    bounds = bounds_of_all_outcomes(method, delta)
    if method == "clopper-pearson":
        truth = float(epsilon_of_errors(np.array(alpha), np.array(beta), delta))
        values = np.array([bound.epsilon for bound in bounds])
    else:
        truth = max(float(mu_of_errors(alpha, beta)), 0.0)
        values = np.array([bound.mu for bound in bounds])
    weights = probabilities(alpha, beta)
    assert weights.sum() == pytest.approx(1.0)
    assert weights @ (values > truth + 1e-9) <= NOMINAL


@pytest.mark.parametrize("mu", [0.0, 1.0, 3.0])
def test_exact_false_alarms_along_the_curve_of_a_claim(mu: float) -> None:
    claim = Claim.from_mu(mu)
    alarm = claim_p_value(outcomes(), claim) <= NOMINAL
    for alpha in (0.001, 0.01, 0.05, 0.2, 0.5, 0.9):
        assert probabilities(alpha, float(claim.tradeoff(alpha))) @ alarm <= NOMINAL


# With chance: simulated audits. Small ones often have the same counts.

REMEMBERED: dict[tuple[object, ...], float] = {}


def remembering(counts: ErrorCounts, family: Family, significance: float) -> float:
    """The bound at one threshold, computed once for the same counts."""
    errors = int(counts.false_positives[0]), int(counts.false_negatives[0])
    key = *errors, counts.negatives, counts.positives, family.pairs, significance
    if key not in REMEMBERED:
        REMEMBERED[key] = at_one_threshold(counts, family, significance)
    return REMEMBERED[key]


@pytest.fixture(autouse=True)
def remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The two families of these tests differ by their pairs: mu-GDP has none."""
    monkeypatch.setattr("dpaudit.lower_bounds.methods.at_one_threshold", remembering)


@pytest.mark.parametrize("each", [50, 500])
@pytest.mark.parametrize("family", GAUSSIANS, ids=lambda family: family.name)
def test_false_claims_on_gaussian_scores(family: ScoreFamily, each: int) -> None:
    truth, tables = family.epsilon(1e-5), audits(family, each)
    for method, rule in (
        ("clopper-pearson", "pilot"),
        ("clopper-pearson", "simultaneous"),
        ("gaussian-dp", "pilot"),
        ("gaussian-dp", "simultaneous"),
        ("gaussian-fit", "pilot"),
    ):
        claimed = [
            estimate(scores, delta=1e-5, method=method, threshold=rule, seed=seed).epsilon
            for seed, scores in enumerate(tables)
        ]
        assert share_above(truth, claimed) <= limit(len(tables)), (method, rule)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "rule"),
    [
        ("gaussian-dp", "pilot"),
        ("gaussian-dp", "simultaneous"),
        ("clopper-pearson", "pilot"),
        ("gaussian-fit", "pilot"),
        ("one-run-independent", "pilot"),
    ],
)
def test_false_claims_of_ten_thousand_small_audits(method: str, rule: str) -> None:
    """At most 5.7 % where the rate is 5 %; fair coins that are refused count as no claim."""
    count, random = 10_000, np.random.default_rng(len(method) + len(rule))
    mu = 1.0
    truth, false = Gaussian(mu).epsilon(1e-3), 0
    for seed in range(count):
        coins = np.repeat([True, False], 30)
        if method.startswith("one-run"):
            coins = random.random(41) < 0.5
        scores = Scores(score=random.normal(size=len(coins)) + mu * coins, inserted=coins)
        try:
            bound = estimate(scores, delta=1e-3, method=method, threshold=rule, seed=seed)
        except InvalidScores:
            continue
        false += bound.epsilon > truth
    assert false / count <= limit(count)


@pytest.mark.parametrize("each", [50, 500])
@pytest.mark.parametrize("family", OTHERS, ids=lambda family: family.name)
def test_false_claims_on_scores_of_any_shape(family: ScoreFamily, each: int) -> None:
    tables = audits(family, each)
    curves = [proven_curve(scores) for scores in tables]
    for delta in (0.0, 0.01):
        truth = family.epsilon(delta)
        pilot = [
            estimate(scores, delta=delta, seed=seed).epsilon for seed, scores in enumerate(tables)
        ]
        assert share_above(truth, pilot) <= limit(len(tables))
        at_delta = [curve.epsilon_at(delta) for curve in curves]
        assert share_above(truth, at_delta) <= limit(len(tables))
    epsilons = np.linspace(0, 5, 21)
    exact = family.delta(epsilons) + 1e-9
    somewhere = np.mean([(curve.delta_at(epsilons) > exact).any() for curve in curves])
    assert somewhere <= limit(len(tables))


@pytest.mark.parametrize(
    "family", [*GAUSSIANS, Laplace(1.0), TwoPointMixture(4.0)], ids=lambda family: family.name
)
@pytest.mark.parametrize("canaries", [100, 1000])
def test_false_claims_of_one_run(family: ScoreFamily, canaries: int) -> None:
    tables = fair_coin_audits(family, canaries)
    methods = ["one-run", "one-run-fdp"] if isinstance(family, Gaussian) else ["one-run"]
    for method in methods:
        claimed = [
            estimate(scores, delta=1e-5, method=method, seed=seed).epsilon
            for seed, scores in enumerate(tables)
        ]
        assert share_above(family.epsilon(1e-5), claimed) <= limit(len(tables)), method


SAMPLED = {"noise_multiplier": 1.0, "steps": 20, "sampling_rate": 0.1}


def draw_sampled(coins: np.ndarray, random: np.random.Generator) -> np.ndarray:
    return draw_sampled_steps(coins, random, **SAMPLED)


def sampled() -> Claim:
    return Claim.from_dpsgd(**SAMPLED)


@pytest.mark.parametrize(
    ("claim", "draw", "count"),
    [
        (Claim.from_mu(1.0), Gaussian(1.0).draw, 200),
        (Claim.from_mu(3.95), Gaussian(3.95).draw, 200),
        (Claim.from_points([(1.0, 0.01)]), RandomisedResponse(1.0, 0.01).draw, 200),
        (Claim.from_points([(4.0, 0.0)]), RandomisedResponse(4.0).draw, 200),
        (sampled, draw_sampled, 60),  # not at import: the accountant takes a second
    ],
    ids=lambda value: value.description if isinstance(value, Claim) else "",
)
def test_false_alarms_where_a_claim_is_met_exactly(
    claim: Claim | Callable[[], Claim], draw: Callable[..., np.ndarray], count: int
) -> None:
    claim = claim if isinstance(claim, Claim) else claim()
    random, coins = np.random.default_rng(12), np.repeat([True, False], 300)
    audited = (Scores(score=draw(coins, random), inserted=coins) for _ in range(count))
    # The verdict would take longer: without a violation it needs the power.
    alarms = [
        bool(test_claim(scores, claim, seed=seed).refuted) for seed, scores in enumerate(audited)
    ]
    assert np.mean(alarms) <= limit(count)


# The instrument sees what it is there to see.


def test_the_gaussian_rule_is_caught_where_its_assumption_is_false() -> None:
    family = Laplace(1.0)
    claimed = [
        estimate(scores, delta=1e-5, method="gaussian-dp", seed=seed).epsilon
        for seed, scores in enumerate(audits(family, 500, 50))
    ]
    assert share_above(family.epsilon(1e-5), claimed) > 0.9


def test_the_best_threshold_on_the_same_scores_breaks_its_confidence() -> None:
    # Every threshold of this family is at the truth, so that all luck there is can be picked.
    family = TwoPointMixture(1.0)
    tables = audits(family, 1000, 400)
    for rule in ("best", "pilot"):
        claimed = [
            estimate(scores, delta=0.0, threshold=rule, seed=seed).epsilon
            for seed, scores in enumerate(tables)
        ]
        broken = share_above(1.0, claimed) > limit(len(tables))
        assert broken == (rule == "best")


def test_noise_a_fifth_too_small_is_seen_by_the_curve_and_not_at_a_small_delta() -> None:
    claim, family = Claim.from_mu(2.0), Gaussian(2.0 / 0.8)
    claimed = Gaussian(2.0).epsilon(1e-5)
    tables = audits(family, 500, 60)
    alarms = [
        test_claim(scores, claim, seed=i).verdict == "violation" for i, scores in enumerate(tables)
    ]
    bounds = [estimate(scores, delta=1e-5, seed=i).epsilon for i, scores in enumerate(tables)]
    assert np.mean(alarms) >= 0.9
    assert share_above(claimed, bounds) == 0
