"""One-run bounds: the p-value of the theorem, its inversion, and the rate of false bounds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from helpers import binomial
from scipy.special import expit, ndtr
from scipy.stats import binom

from dpaudit import Scores, estimate
from dpaudit.curves import GAUSSIAN, pairs_family
from dpaudit.errors import InvalidInput, InvalidScores
from dpaudit.lower_bounds import Pilot
from dpaudit.lower_bounds.guesses import Guesses, GuessPlan, check_fair_coins, count_guesses
from dpaudit.lower_bounds.one_run import (
    of_guesses,
    one_run_delta,
    one_run_epsilon,
    one_run_p_value,
    plan_for,
)
from dpaudit.privacy import Question


def slow_p_value(correct: int, guesses: int, canaries: int, epsilon: float, delta: float) -> float:
    """The theorem as it is written, with the maximum over every i."""
    p = binomial(guesses, float(expit(epsilon)))
    below = np.cumsum(p[:correct][::-1])
    worst = max((below / np.arange(1, correct + 1)).max(), 0.0) if correct else 0.0
    return min(1.0, p[correct:].sum() + 2 * canaries * delta * worst)


@pytest.mark.parametrize("seed", range(40))
def test_p_value_is_the_theorem_for_random_counts(seed: int) -> None:
    rng = np.random.default_rng(seed)
    canaries = int(10 ** rng.uniform(0, 4))
    guesses = int(rng.integers(1, canaries + 1))
    # Half of the cases with nearly all guesses right, where probabilities underflow.
    least = 0 if seed % 2 else int(0.97 * guesses)
    correct = int(rng.integers(least, guesses + 1))
    epsilon, delta = rng.exponential(2), 10 ** rng.uniform(-8, -1)
    ours = one_run_p_value(Guesses(correct, guesses, canaries), epsilon=epsilon, delta=delta)
    assert ours == pytest.approx(
        slow_p_value(correct, guesses, canaries, epsilon, delta), rel=1e-9, abs=1e-13
    )


def test_published_figure_with_the_guess_counts_it_was_made_from() -> None:
    # Normal quantiles, 10,000 a side, shift 1: the best of 386 thresholds guesses 3,376 canaries,
    # 2,807 right. jax-privacy divides the significance by the 386 corners of the convex hull.
    bound = one_run_epsilon(Guesses(2807, 3376, 20_000), delta=1e-6, significance=0.05 / 386)
    assert bound == pytest.approx(1.13346, abs=5e-6)


def test_the_counts_of_that_figure_come_from_its_scores() -> None:
    from scipy.special import ndtri

    quantiles = ndtri((np.arange(10_000) + 0.5) / 10_000)
    scores = np.r_[quantiles + 1, quantiles]
    coins = np.r_[np.ones(10_000, int), np.zeros(10_000, int)]
    assert count_guesses(scores, coins, GuessPlan(top=3376, bottom=0)) == (2807, 3376)


def test_pure_dp_bound_is_exact_for_randomised_response() -> None:
    # Every guess right with probability e^eps/(1+e^eps), independently: the theorem is an equality,
    # so false claims have probability at most 5 % and, but for the lattice, no less.
    for canaries, epsilon in ((30, 0.5), (200, 1.0), (1000, 3.0)):
        p = binomial(canaries, float(expit(epsilon)))
        claims = np.array(
            [
                one_run_epsilon(Guesses(v, canaries, canaries), delta=0.0, significance=0.05)
                for v in range(canaries + 1)
            ]
        )
        false = p[claims > epsilon + 1e-9].sum()
        assert 0.015 < false <= 0.05


@pytest.mark.parametrize(("canaries", "delta"), [(20, 0.02), (50, 0.01), (200, 1e-3)])
def test_no_false_claims_where_a_failure_reveals_everything(canaries: int, delta: float) -> None:
    # With probability delta all coins are published, else randomised response: (eps, delta)-DP.
    epsilon = 1.0
    p = (1 - delta) * binomial(canaries, float(expit(epsilon)))
    p[-1] += delta
    claims = np.array(
        [
            one_run_epsilon(Guesses(v, canaries, canaries), delta=delta, significance=0.05)
            for v in range(canaries + 1)
        ]
    )
    assert p[claims > epsilon].sum() <= 0.05
    deltas = np.array(
        [
            one_run_delta(Guesses(v, canaries, canaries), epsilon=epsilon, significance=0.05)
            for v in range(canaries + 1)
        ]
    )
    assert p[deltas > delta].sum() <= 0.05


def test_no_false_claims_where_single_coins_are_revealed_and_the_rest_abstained_on() -> None:
    # Each coin is published with probability delta: the mechanism is (0, delta)-DP, and the
    # auditor guesses only what it knows, always right.
    canaries, delta = 500, 0.01
    p = binomial(canaries, delta)
    claims = np.array(
        [
            one_run_epsilon(Guesses(v, v, canaries), delta=delta, significance=0.05)
            for v in range(canaries + 1)
        ]
    )
    assert p[claims > 0].sum() <= 0.05


@pytest.mark.parametrize(
    ("family", "truth", "accuracies"),
    [
        (pairs_family(Question(delta=0.0)), 1.0, {expit(1.0): 1.0}),
        (pairs_family(Question(delta=0.02)), 0.5, {0.02 + 0.98 * expit(0.5): 1.0}),
        (pairs_family(Question(epsilon=0.5)), 0.1, {0.1 + 0.9 * expit(0.5): 1.0}),
        (GAUSSIAN, 1.0, {ndtr(0.5): 1.0}),
        # A common coin makes all canaries dependent, and each is still 1-GDP.
        (GAUSSIAN, 1.0, {0.73: 0.8, 0.5: 0.2}),
    ],
)
@pytest.mark.parametrize(("guesses", "canaries"), [(60, 60), (200, 500)])
def test_false_bounds_by_enumeration(family, truth, accuracies, guesses, canaries) -> None:
    """Randomised responses of which a share is certain are exactly as private as claimed."""
    seen = [Guesses(correct, guesses, canaries) for correct in range(guesses + 1)]
    false = np.array([of_guesses(each, family, 0.05) for each in seen]) > truth + 1e-9
    probability = sum(
        share * binom.pmf(np.arange(guesses + 1), guesses, accuracy)[false].sum()
        for accuracy, share in accuracies.items()
    )
    assert probability <= 0.05
    if family.pairs == Question(delta=0.0):
        assert probability > 0.02  # exact there, but for the discreteness


def test_bound_is_where_the_p_value_reaches_the_significance() -> None:
    for counts in ((90, 100, 100), (450, 500, 5000), (17, 17, 40)):
        for delta in (0.0, 1e-6, 1e-4):
            bound = one_run_epsilon(Guesses(*counts), delta=delta, significance=0.05)
            p = one_run_p_value(Guesses(*counts), epsilon=bound, delta=delta)
            assert p == pytest.approx(0.05, rel=1e-6)


def test_p_value_grows_with_epsilon_while_it_can_refute() -> None:
    # The bound is found by bisection, which needs this. Also where 2 m delta is above 1.
    for counts in ((30, 40, 60), (180, 200, 1000), (999, 1000, 1000)):
        for delta in (1e-6, 1e-3, 0.02):
            p = [
                one_run_p_value(Guesses(*counts), epsilon=e, delta=delta)
                for e in np.linspace(0, 8, 300)
            ]
            p = np.array(p)[: int(np.argmax(np.array(p) > 0.4))]
            assert (np.diff(p) >= -1e-15).all()


def test_delta_and_epsilon_bounds_are_inverse() -> None:
    epsilon = one_run_epsilon(Guesses(450, 480, 2000), delta=1e-4, significance=0.05)
    assert one_run_delta(
        Guesses(450, 480, 2000), epsilon=epsilon, significance=0.05
    ) == pytest.approx(1e-4, rel=1e-6)


def test_more_right_guesses_never_lower_the_bound_and_more_delta_never_raises_it() -> None:
    bounds = [
        one_run_epsilon(Guesses(v, 100, 150), delta=1e-5, significance=0.05) for v in range(101)
    ]
    assert bounds == sorted(bounds)
    by_delta = [
        one_run_epsilon(Guesses(90, 100, 150), delta=d, significance=0.05)
        for d in (0, 1e-6, 1e-4, 0.1)
    ]
    assert by_delta == sorted(by_delta, reverse=True)


def test_nothing_is_claimed_without_evidence() -> None:
    for counts in ((0, 0, 0), (0, 0, 10), (0, 10, 10), (5, 10, 10)):
        assert one_run_epsilon(Guesses(*counts), delta=1e-5, significance=0.05) == 0.0
        assert one_run_delta(Guesses(*counts), epsilon=0.0, significance=0.05) == 0.0


def test_a_million_canaries_are_exact() -> None:
    bound = one_run_epsilon(Guesses(400_000, 500_000, 1_000_000), delta=1e-8, significance=0.05)
    # log 4, less about 1.645 standard errors of a log-odds.
    assert bound == pytest.approx(math.log(4) - 1.645 / math.sqrt(500_000 * 0.16), abs=2e-4)
    # All right, where probabilities underflow far above the mode.
    certain = one_run_epsilon(Guesses(10**6, 10**6, 10**6), delta=1e-12, significance=0.05)
    assert certain == pytest.approx(-math.log(math.expm1(math.log(20) / 10**6)), abs=1e-3)


def guesses_by_sorting(scores, coins, top: int, bottom: int, seed: int) -> int:
    """Correct guesses with equal scores in random order: the slow twin of `count_guesses`."""
    shuffled = np.random.default_rng(seed).permutation(len(scores))
    order = shuffled[np.argsort(-scores[shuffled], kind="stable")]
    return int(coins[order[:top]].sum() + (1 - coins[order[len(scores) - bottom :]]).sum())


class TestCountingGuesses:
    def test_top_and_bottom_of_distinct_scores(self) -> None:
        plan = GuessPlan(top=2, bottom=2)
        assert count_guesses([5, 4, 3, 2, 1], [1, 0, 1, 0, 0], plan) == (3, 4)

    @pytest.mark.parametrize(("top", "bottom"), [(5, 3), (9, 9), (12, 8), (0, 20), (7, 0)])
    def test_equal_scores_are_drawn_at_random_and_never_twice(self, top: int, bottom: int) -> None:
        random = np.random.default_rng(top)
        for values in (1, 2, 4):
            scores, coins = random.integers(0, values, 20), random.integers(0, 2, 20)
            plan = GuessPlan(top=top, bottom=bottom)
            fast = [count_guesses(scores, coins, plan, seed=seed)[0] for seed in range(400)]
            slow = [guesses_by_sorting(scores, coins, top, bottom, seed) for seed in range(400)]
            assert {min(fast), max(fast)} <= set(range(min(slow) - 1, max(slow) + 2))
            error = 4 * math.sqrt((np.var(fast) + np.var(slow)) / 400) + 1e-9
            assert np.mean(fast) == pytest.approx(np.mean(slow), abs=error)

    def test_the_number_of_guesses_does_not_depend_on_the_scores(self) -> None:
        random = np.random.default_rng(0)
        for plan in (GuessPlan(top=12, bottom=8, cut=0.5), GuessPlan(top=3, bottom=4, cut=0.5)):
            for _ in range(20):
                scores, coins = random.integers(0, 3, 20), random.integers(0, 2, 20)
                assert count_guesses(scores, coins, plan)[1] == plan.top + plan.bottom

    def test_a_plan_for_every_canary_guesses_equal_scores_together(self) -> None:
        scores, coins = np.r_[np.ones(15), np.zeros(5)], np.r_[np.ones(15), np.zeros(5)]
        assert count_guesses(scores, coins, GuessPlan(top=10, bottom=10, cut=0.5)) == (20, 20)
        assert count_guesses(scores, coins, GuessPlan(top=10, bottom=10)) == (15, 20)

    def test_equal_scores_prove_nothing(self) -> None:
        coins = np.arange(1000) % 2
        correct, guesses = count_guesses(np.zeros(1000), coins, GuessPlan(top=400, bottom=400))
        assert one_run_epsilon(Guesses(correct, guesses, 1000), delta=0.0, significance=0.05) == 0.0

    def test_infinite_scores_rank_at_the_ends(self) -> None:
        scores = [math.inf, 0.0, 1.0, -math.inf]
        assert count_guesses(scores, [1, 0, 1, 0], GuessPlan(top=1, bottom=1)) == (2, 2)

    def test_bad_input_is_named(self) -> None:
        one_each = GuessPlan(top=1, bottom=1)
        with pytest.raises(InvalidInput, match=r"top \+ bottom"):
            count_guesses([1.0, 2.0], [0, 1], GuessPlan(top=2, bottom=1))
        with pytest.raises(InvalidScores, match="NaN"):
            count_guesses([math.nan, 2.0], [0, 1], one_each)
        with pytest.raises(InvalidScores, match="0 or 1 in every row"):
            count_guesses([1.0, 2.0], [0, 2], one_each)
        with pytest.raises(InvalidScores, match="correct <= guesses <= canaries"):
            one_run_epsilon(Guesses(11, 10, 20), delta=0.0, significance=0.05)


def randomised_response(canaries: int, epsilon: float, seed: int) -> Scores:
    random = np.random.default_rng(seed)
    coins = random.random(canaries) < 0.5
    kept = random.random(canaries) < expit(epsilon)
    return Scores(score=np.where(kept, coins, ~coins).astype(float), inserted=coins)


def test_randomised_response_is_guessed_whole() -> None:
    # All 180 canaries that are not pilots, guessed, would give 0.72 on average.
    bounds = np.array(
        [
            estimate(randomised_response(200, 1.0, seed), delta=1e-5, method="one-run").epsilon
            for seed in range(1, 61)
            if randomised_response(200, 1.0, seed).inserted.sum() != 100
        ]
    )
    assert bounds.mean() > 0.6
    assert (bounds > 1.0).mean() <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / len(bounds))


def test_pilot_comes_close_to_the_best_plan() -> None:
    # What a pilot of 10 % chooses, against the best plan with the distribution known.
    canaries, pilot, mu, delta = 20_000, 2000, 1.0, 1e-6
    remaining = canaries - pilot
    best = 0.0
    for cut in np.linspace(0.5, 3.5, 40):
        # Guess "inserted" above mu/2 + cut and "not inserted" below mu/2 - cut.
        right, wrong = ndtr(mu / 2 - cut), ndtr(-mu / 2 - cut)
        guesses = round(remaining * (right + wrong))
        correct = round(remaining * right)
        best = max(
            best,
            one_run_epsilon(Guesses(correct, guesses, remaining), delta=delta, significance=0.05),
        )
    found = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        coins = rng.integers(0, 2, canaries)
        scores = mu * coins + rng.normal(size=canaries)
        family = pairs_family(Question(delta=delta))
        plan = plan_for(family, scores[:pilot], coins[:pilot], remaining, significance=0.05)
        correct, guesses = count_guesses(scores[pilot:], coins[pilot:], plan)
        found.append(
            one_run_epsilon(Guesses(correct, guesses, remaining), delta=delta, significance=0.05)
        )
    assert np.mean(found) > 0.85 * best


def coins_of(inserted: int, total: int, runs: int = 1) -> Scores:
    random = np.random.default_rng(0)
    coins = np.arange(total) < inserted
    run = np.arange(total) % runs
    return Scores(score=random.normal(size=total), inserted=coins, run=run)


@pytest.mark.parametrize("method", ["one-run", "one-run-fdp"])
@pytest.mark.parametrize("inserted", [0.05, 0.4, 0.5])
def test_unfair_coins_are_refused_with_the_reason(method: str, inserted: float) -> None:
    count = round(2000 * inserted)
    with pytest.raises(InvalidScores, match=f"fair coin.*{count:,}"):
        estimate(coins_of(count, 2000), delta=1e-5, method=method)


def test_exactly_half_by_chance_is_refused_with_its_probability_and_a_remedy() -> None:
    coins = np.random.default_rng(0).permutation(np.repeat([True, False], 500))
    scores = Scores(score=coins + np.random.default_rng(1).normal(0, 0.5, 1000), inserted=coins)
    with pytest.raises(InvalidScores, match=r"0\.03.*odd number"):
        estimate(scores, delta=1e-5, method="one-run")


def test_exactly_half_in_every_run_is_refused() -> None:
    coins = np.tile([True, False], 12)
    scores = Scores(score=np.arange(24.0), inserted=coins, run=np.arange(24) // 4)
    with pytest.raises(InvalidScores, match="exactly half"):
        estimate(scores, delta=1e-5, method="one-run")


def test_fair_coins_are_seldom_refused() -> None:
    random, refused = np.random.default_rng(3), 0
    for _ in range(400):
        coins = random.random(500) < 0.5
        try:
            check_fair_coins(Scores(score=random.normal(size=500), inserted=coins))
        except InvalidScores:
            refused += 1
    assert refused <= 0.06 * 400 + 3 * np.sqrt(0.06 * 0.94 * 400)


@pytest.mark.parametrize("method", ["one-run", "one-run-fdp", "one-run-independent"])
def test_failed_runs_count_as_equal_lowest_scores(method: str) -> None:
    random = np.random.default_rng(0)
    coins = random.random(400) < 0.5
    score = random.normal(size=400) + 2 * coins
    score[::5] = -np.inf
    scores = Scores(score=score, inserted=coins, run=np.zeros(400, dtype=int))
    assert 0 < estimate(scores, delta=1e-5, method=method).epsilon < math.inf


@pytest.mark.parametrize("method", ["one-run", "one-run-fdp", "one-run-independent"])
def test_the_guesses_are_counted_without_the_pilot(method: str) -> None:
    """Scores of pilot canaries that are all right, and others without a signal, prove nothing."""
    random = np.random.default_rng(0)
    coins, noise = random.random(401) < 0.5, random.normal(size=401)
    pilot = np.random.default_rng(3).permutation(401)[:80]
    noise[pilot] = np.where(coins[pilot], 5.0, -5.0) + 0.1 * noise[pilot]
    scores = Scores(score=noise, inserted=coins)
    asked = {"delta": 1e-5, "method": method, "threshold": "pilot=0.2", "seed": 3}
    bound = estimate(scores, **asked)
    assert bound.sample_size == 321
    assert bound.details["guesses"] <= 321
    # A twin counts by hand what a plan that guesses every canary gets right.
    if method == "one-run-independent":
        assert abs(bound.details["correct"] - 321 / 2) < 3 * np.sqrt(321 / 4)
    assert bound.epsilon == 0


@pytest.mark.parametrize("method", ["one-run", "one-run-fdp", "one-run-independent"])
def test_the_seed_draws_the_pilot_under_every_rule(method: str) -> None:
    random = np.random.default_rng(0)
    coins = random.random(301) < 0.5
    scores = Scores(score=random.normal(size=301) + 1.5 * coins, inserted=coins)

    def bound(threshold, seed: int = 0):  # type: ignore[no-untyped-def]
        return estimate(scores, delta=1e-5, method=method, threshold=threshold, seed=seed)

    for seed in (1, 2, 3):
        for rule in ("simultaneous", "best", "fixed=1"):
            assert bound(rule, seed).details == bound("pilot", seed).details
            assert any("does not apply" in note for note in bound(rule, seed).notes)
        pilot = Pilot(share=0.3, seed=seed)
        assert bound(pilot).sample_size == 301 - 90
        assert bound(pilot).details == bound("pilot=0.3", seed).details
