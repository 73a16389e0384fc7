"""Every method on every kind of input: a correct number, or a clear error."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpaudit
from dpaudit import Bound, ErrorCounts, Scores, estimate, estimate_all, lower_bound
from dpaudit.curves import GAUSSIAN, gaussian_epsilon
from dpaudit.errors import DpauditError, InvalidInput, InvalidScores
from dpaudit.lower_bounds import METHODS
from dpaudit.lower_bounds.diagnostics import with_failures, within_run_dependence
from dpaudit.scores import Failure

RULES = ("pilot", "simultaneous", "bonferroni", "best", "fixed=0.5")


def gaussian_scores(mu: float, size: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    # Not exactly half, which the one-run methods refuse.
    return random.normal(mu, 1, size), random.normal(0, 1, size + 7)


def test_clopper_pearson_limits_agree_with_published_numbers():
    # Two limits at half the level each, as other packages do; the joint test is tighter.
    def both(ones: list[int], zeros: list[int], **asked: float) -> tuple[float, float]:
        samples = np.repeat([1.0, 0.0], ones), np.repeat([1.0, 0.0], zeros)
        two, joint = (
            lower_bound(*samples, threshold=rule, **asked).epsilon for rule in ("best", "fixed=0.5")
        )
        return two, joint

    two, joint = both([500, 0], [0, 500], delta=0.0, confidence=0.99)
    assert two == pytest.approx(4.541915810224092, rel=1e-9)
    assert joint == pytest.approx(5.37, abs=0.01)
    two, joint = both([490, 10], [20, 480], delta=1e-5)
    assert two == pytest.approx(3.248140, rel=1e-6)
    assert 3.25 < joint < 3.4


@pytest.mark.parametrize(("method", "epsilon"), [("jeffreys", 3.285296), ("joint-beta", 3.407190)])
def test_counts_agree_with_privacy_estimates(method, epsilon):
    counts = ErrorCounts.given(
        true_positives=490, false_negatives=10, false_positives=20, true_negatives=480
    )
    bound = estimate(counts, delta=1e-5, method=method)
    # The public joint-beta integrates on a coarse grid; see tests/lower_bounds/test_bayesian.py.
    assert bound.epsilon == pytest.approx(epsilon, rel=1e-3 if method == "joint-beta" else 1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_a_bound_carries_what_one_must_know(method):
    bound = lower_bound(*gaussian_scores(2, 500), delta=1e-5, method=method)
    assert (bound.side, bound.method, bound.delta) == ("lower", method, 1e-5)
    assert bound.confidence == 0.95
    assert 0 < bound.sample_size <= 1007
    assert 0 < bound.epsilon < 30
    assert {bound, lower_bound(*gaussian_scores(2, 500), delta=1e-5, method=method)} == {bound}
    plain = bound.to_dict()
    assert plain["epsilon"] == bound.epsilon
    assert isinstance(plain["assumptions"], list)
    assert ("mu" in plain) == (METHODS[method].family is GAUSSIAN)
    free = method in ("clopper-pearson", "profile")
    assert (bound.assumptions == ()) == free


@pytest.mark.parametrize("method", METHODS)
def test_more_delta_never_proves_more(method):
    scores = gaussian_scores(2, 300)
    values = [
        lower_bound(*scores, delta=delta, method=method, threshold="fixed=1").epsilon
        for delta in (1e-9, 1e-5, 1e-2, 0.2)
    ]
    assert (np.diff(values) <= 1e-9).all()


@pytest.mark.parametrize("method", ["clopper-pearson", "gaussian-dp", "profile", "jeffreys"])
def test_delta_at_epsilon_is_the_way_back(method):
    scores = gaussian_scores(3, 1000)
    rule = "simultaneous" if method == "clopper-pearson" else "fixed=1.5"
    asked = {"method": method, "threshold": rule}
    there = lower_bound(*scores, delta=0.01, **asked)
    back = lower_bound(*scores, epsilon=there.epsilon, **asked)
    assert back.quantity == "delta"
    assert back.value == back.delta == pytest.approx(0.01, rel=1e-6)


def test_questions_are_asked_one_at_a_time():
    for asked in ({}, {"delta": 1e-5, "epsilon": 1.0}):
        with pytest.raises(InvalidInput, match="either delta or epsilon"):
            lower_bound([1, 2], [0, 1], **asked)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"delta": 1.0}, r"delta must be in \[0, 1\), got 1.0"),
        ({"delta": -0.1}, r"delta must be in \[0, 1\)"),
        ({"delta": math.nan}, "delta must be finite"),
        ({"epsilon": -1.0}, "epsilon must be at least 0"),
        ({"delta": 1e-5, "confidence": 95}, "confidence must be in .* use 0.95"),
        ({"delta": 1e-5, "confidence": 1e-300}, "confidence must be in .* use 0.95"),
        ({"delta": 1e-5, "method": "magic"}, "method must be one of .*, got 'magic'"),
        ({"delta": 1e-5, "seed": -1}, "seed must be at least 0"),
        ({"delta": 0.0, "method": "gaussian-dp"}, "delta must be above 0 for gaussian-dp"),
        ({"epsilon": 1.0, "method": "katz-log"}, "ratio"),
    ],
)
def test_bad_questions(asked, message):
    with pytest.raises(InvalidInput, match=message):
        lower_bound([1, 2, 3], [0, 1, 2], **asked)


@pytest.mark.parametrize("method", METHODS)
def test_a_bound_shrinks_up_to_the_highest_confidence(method):
    random = np.random.default_rng(0)
    scores = random.normal(2, 1, 200), random.normal(0, 1, 201)
    levels = (0.95, 1 - 1e-7, 1 - 1e-9, 1 - 1e-11, 1 - 1e-15)
    found = [lower_bound(*scores, delta=1e-5, method=method, confidence=one) for one in levels]
    epsilons = [bound.epsilon for bound in found]
    assert all(more < less or more == 0 for less, more in pairwise(epsilons))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("ones", "zeros"), [([], [1.0, 2.0]), ([1.0, 2.0], []), ([], [])])
def test_a_missing_class_is_an_error(method, ones, zeros):
    with pytest.raises(InvalidScores, match="canary"):
        lower_bound(ones, zeros, delta=1e-5, method=method)


def test_nan_is_an_error():
    with pytest.raises(InvalidScores, match=r"NaN"):
        lower_bound([1.0, math.nan], [0.0, 1.0], delta=1e-5)


@pytest.mark.parametrize("rule", RULES)
def test_equal_scores_give_no_bound_and_a_reason(rule):
    bound = lower_bound([1.0] * 50, [1.0] * 50, delta=1e-5, threshold=rule)
    assert bound.epsilon == 0
    assert any("nothing can be claimed" in note for note in bound.notes) or rule == "pilot"
    assert bound.notes


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("method", METHODS)
def test_perfect_separation_is_finite(method, rule):
    ones, zeros = np.linspace(1, 2, 200), np.linspace(-2, -1, 209)
    result = estimate_all(
        Scores.from_samples(ones, zeros), methods=[method], delta=1e-5, threshold=rule
    )
    for bound in result:
        assert 0 < bound.epsilon < 50 or bound.notes
    for missing in result.unavailable:
        assert rule == "simultaneous"
        assert "both error rates" in missing.reason


def test_infinite_scores_keep_their_order():
    ones = np.array([math.inf] * 300 + [0.0] * 10)
    zeros = np.array([-math.inf] * 290 + [0.0] * 20)
    for rule in ("pilot", "simultaneous", "best"):
        assert lower_bound(ones, zeros, delta=1e-5, threshold=rule).epsilon > 2
    with pytest.raises(InvalidScores, match="finite"):
        lower_bound(ones, zeros, delta=1e-5, method="gaussian-fit")


def test_scores_that_point_the_wrong_way_are_noticed():
    ones, zeros = gaussian_scores(2, 500)
    bound = lower_bound(zeros, ones, delta=1e-5, method="gaussian-dp")
    assert bound.epsilon == 0
    assert any("wrong way" in note for note in bound.notes)


def test_many_canaries_in_a_run_are_declared():
    random = np.random.default_rng(0)
    coins = random.random(400) < 0.5
    score = random.normal(size=400) + 3 * coins + np.repeat(random.normal(size=20) * 2, 20)
    scores = Scores(score=score, inserted=coins, run=np.repeat(np.arange(20), 20))
    bound = estimate(scores, delta=1e-5, method="gaussian-dp")
    assert "canaries of the same run are independent" in bound.assumptions
    assert any("within-run correlation" in note for note in bound.notes)
    for method in ("one-run", "one-run-fdp"):
        assert not any("independent" in text for text in estimate(
            scores, delta=1e-5, method=method
        ).assumptions)  # fmt: skip
    alone = Scores(score=score, inserted=coins, run=np.zeros(400, dtype=int))
    assert any("one run only" in note for note in estimate(alone, delta=1e-5).notes)


def test_dependence_within_runs_is_measured_as_by_analysis_of_variance():
    """ICC(1) of five runs of four canaries, of the scores less the mean of their kind."""
    random = np.random.default_rng(0)
    score = random.normal(size=(5, 4)) + random.normal(size=(5, 1)) * 0.7
    inserted = np.tile([True, True, False, False], (5, 1))
    residual = score - np.where(inserted, score[:, :2].mean(), score[:, 2:].mean())
    between = 4 * residual.mean(axis=1).var(ddof=1)
    within = residual.var(axis=1, ddof=1).mean()
    correlation = (between - within) / (between + 3 * within)
    assert 0.1 < correlation < 0.9
    scores = Scores(score=score.ravel(), inserted=inserted.ravel(), run=np.repeat(np.arange(5), 4))
    expected = f"{correlation:.4f} (design effect {1 + 3 * correlation:.2f})"
    assert within_run_dependence(scores) == f"within-run correlation of scores {expected}"


def test_gaussian_dp_by_the_papers_rule_is_the_formula():
    from scipy.special import betaincinv, ndtri

    # One threshold only: 20 of 500 false positives, 30 of 500 false negatives.
    ones, zeros = np.repeat([1.0, 0.0], [470, 30]), np.repeat([1.0, 0.0], [20, 480])
    alpha, beta = betaincinv([21, 31], [480, 470], 0.975)
    mu = -ndtri(alpha) - ndtri(beta)
    bound = lower_bound(ones, zeros, delta=1e-5, method="gaussian-dp", threshold="best")
    assert bound.mu == pytest.approx(mu, rel=1e-12)
    assert bound.epsilon == pytest.approx(gaussian_epsilon(1e-5, mu), rel=1e-12)


def test_gaussian_dp_at_a_fixed_threshold_spends_its_level_on_the_pair():
    from dpaudit.claims import Claim
    from dpaudit.claims.fixed_sample import claim_p_value

    counts = ErrorCounts.given(
        true_positives=470, false_negatives=30, false_positives=20, true_negatives=480
    )
    bound = estimate(counts, delta=1e-5, method="gaussian-dp")
    ones, zeros = np.repeat([1.0, 0.0], [470, 30]), np.repeat([1.0, 0.0], [20, 480])
    fixed = lower_bound(ones, zeros, delta=1e-5, method="gaussian-dp", threshold="fixed=0.5")
    paper = lower_bound(ones, zeros, delta=1e-5, method="gaussian-dp", threshold="best")
    assert fixed.epsilon == bound.epsilon > paper.epsilon
    assert claim_p_value(counts, Claim.from_mu(bound.mu))[0] == pytest.approx(0.05, rel=0.1)
    assert claim_p_value(counts, Claim.from_mu(bound.mu + 0.05))[0] > 0.05


def test_counts_refuse_methods_that_need_scores():
    counts = ErrorCounts.given(
        true_positives=5, false_negatives=1, false_positives=1, true_negatives=5
    )
    with pytest.raises(InvalidInput, match="needs the scores"):
        estimate(counts, delta=1e-5, method="one-run")
    with pytest.raises(InvalidScores, match="no inserted"):
        ErrorCounts.given(true_positives=0, false_negatives=0, false_positives=1, true_negatives=5)
    with pytest.raises(InvalidInput, match="false_positives must be at least 0, got -1"):
        ErrorCounts.given(true_positives=1, false_negatives=1, false_positives=-1, true_negatives=5)


@given(
    ones=st.lists(st.floats(allow_nan=False, width=32), min_size=1, max_size=12),
    zeros=st.lists(st.floats(allow_nan=False, width=32), min_size=1, max_size=12),
    method=st.sampled_from(list(METHODS)),
    rule=st.sampled_from(RULES),
    delta=st.sampled_from([0.0, 1e-5, 0.1]),
)
@settings(max_examples=300, deadline=None)
def test_any_scores_give_a_bound_or_a_clear_error(ones, zeros, method, rule, delta):
    try:
        bound = lower_bound(ones, zeros, delta=delta, method=method, threshold=rule)
    except DpauditError:
        return  # a clear error is as good; anything else escapes and fails
    assert 0 <= bound.epsilon < math.inf


def test_a_million_scores():
    random = np.random.default_rng(0)
    ones, zeros = random.normal(1, 1, 500_000), random.normal(0, 1, 500_000)
    exact = gaussian_epsilon(1e-5, 1.0)
    for rule in ("pilot", "simultaneous", "best"):
        bound = lower_bound(ones, zeros, delta=1e-5, method="gaussian-dp", threshold=rule)
        assert 0.95 * exact < bound.epsilon < 1.01 * exact


def test_bounds_refuse_what_is_no_bound():
    for wrong in (
        {"epsilon": -1.0, "delta": 0.1, "side": "upper", "method": "x"},
        {"epsilon": math.nan, "delta": 0.1, "side": "upper", "method": "x"},
        {"epsilon": 1.0, "delta": 1.1, "side": "upper", "method": "x"},
        {"epsilon": math.inf, "delta": 0.1, "side": "lower", "method": "x", "confidence": 0.9},
        {"epsilon": 1.0, "delta": 0.1, "side": "lower", "method": "x"},
    ):
        with pytest.raises(InvalidInput):
            Bound(**wrong)


def test_failures_count_as_the_lowest_score():
    # Randomised response with epsilon 1, where "not inserted" is reported by failing in half of the
    # runs with the canary: exactly (1, 0)-DP if failure is an output, and not without the failures.
    random, right = np.random.default_rng(0), 1 / (1 + math.exp(-1.0))
    exceeded = {"dropped": 0, "lowest": 0}
    for audit in range(40):
        ones = random.random(2000) < right
        zeros = random.random(2000) >= right
        scores = Scores.from_samples(np.ones(int(ones.sum())), zeros)
        failures = [
            Failure(run=10_000 + i, inserted=1, canaries=1, error="", traceback="")
            for i in range(int((~ones).sum()))
        ]
        for name, evidence in (("dropped", scores), ("lowest", with_failures(scores, failures))):
            exceeded[name] += estimate(evidence, delta=0.0, seed=audit).epsilon > 1
    assert exceeded["lowest"] <= 6
    assert exceeded["dropped"] >= 35


@pytest.mark.parametrize("unit", [2.0**530, 2.0**-660, 2.0**1000])
@pytest.mark.parametrize("method", METHODS)
def test_scores_of_any_size_give_the_same_bound(method, unit):
    ones, zeros = gaussian_scores(2, 150)
    expected = lower_bound(ones, zeros, delta=1e-5, method=method).epsilon
    with np.errstate(all="raise", under="ignore"):
        scaled = lower_bound(unit * ones, unit * zeros, delta=1e-5, method=method).epsilon
    assert scaled == pytest.approx(expected, rel=1e-9)


def test_a_normal_pilot_finds_thresholds_in_the_tails():
    bounds = [lower_bound(*gaussian_scores(3.95, 2500, seed), delta=1e-5) for seed in range(30)]
    assert np.mean([bound.epsilon for bound in bounds]) >= 5.3


@pytest.mark.parametrize("evidence", [None, [1.0, 2.0], 3, "scores.csv"])
def test_evidence_of_another_type_is_refused(evidence):
    for call in (
        lambda: estimate(evidence, delta=1e-5),
        lambda: estimate_all(evidence, delta=1e-5),
        lambda: dpaudit.test_claim(evidence, dpaudit.Claim.from_mu(1.0)),
    ):
        with pytest.raises(InvalidInput, match=type(evidence).__name__):
            call()


@pytest.mark.parametrize("methods", [[["clopper-pearson"]], 5, "clopper-pearson", [None]])
def test_methods_of_another_type_are_refused(methods):
    scores = Scores.from_samples([1.0, 2.0], [0.0, 1.0])
    with pytest.raises(InvalidInput, match="method"):
        estimate_all(scores, delta=1e-5, methods=methods)
    if isinstance(methods, list):
        with pytest.raises(InvalidInput, match="method"):
            estimate(scores, delta=1e-5, method=methods[0])


@pytest.mark.parametrize(
    ("method", "threshold", "guarantee"),
    [
        ("clopper-pearson", "pilot", "confidence"),
        ("clopper-pearson", "best", "none"),
        ("gaussian-dp", "bonferroni", "none"),
        ("jeffreys", "fixed=1", "credible"),
        ("joint-beta", "best", "none"),
        ("katz-log", "pilot", "none"),
        ("one-run", "pilot", "confidence"),
        ("profile", "pilot", "confidence"),
    ],
)
def test_only_a_theorem_is_called_confidence(method: str, threshold: str, guarantee: str) -> None:
    random = np.random.default_rng(0)
    coins = random.random(401) < 0.5
    scores = Scores(score=random.normal(size=401) + 2 * coins, inserted=coins)
    assert estimate(scores, delta=1e-5, method=method, threshold=threshold).guarantee == guarantee
