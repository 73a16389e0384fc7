"""Bets against a claim: no expected gain if it is true, quick growth if it is not."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.special import ndtr

from dpaudit import Claim
from dpaudit.claims.anytime import (
    AnytimeTest,
    Bets,
    Portfolio,
    anytime_bounds,
    pairs_to_refute,
    supporting_lines,
)
from dpaudit.curves import gaussian_tradeoff
from dpaudit.errors import InvalidScores

CLAIMS = {
    "no leak": lambda: Claim.from_mu(0.0),
    "gaussian": lambda: Claim.from_mu(1.3),
    "far": lambda: Claim.from_mu(6.0),
    "one epsilon": lambda: Claim.from_epsilon(8.0, 1e-5),
    "pair": lambda: Claim.from_points([(2.0, 0.01)]),
    "pure": lambda: Claim.from_points([(1.0, 0.0)]),
    "three pairs": lambda: Claim.from_points([(0.5, 0.2), (1.0, 0.1), (3.0, 1e-3)]),
    # An accountant takes a second, which collecting the tests should not.
    "sampled": lambda: Claim.from_dpsgd(noise_multiplier=1.0, steps=50, sampling_rate=0.05),
}


@pytest.fixture(scope="module", params=CLAIMS)
def claim(request):
    return CLAIMS[request.param]()


def normal(mu: float, pairs: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    return random.normal(mu, 1, pairs), random.normal(0, 1, pairs)


def judged(claim: Claim, inserted: np.ndarray, others: np.ndarray) -> AnytimeTest:
    test = AnytimeTest(claim)
    test.add(inserted, others)
    return test


def test_lines_lie_below_the_curve(claim):
    lines = supporting_lines(claim)
    assert len(lines.p) >= 1
    alpha = np.concatenate([[0.0], np.geomspace(1e-12, 1, 2000), np.linspace(0, 1, 2001)])
    beta = claim.tradeoff(alpha)
    for p, r, c in zip(lines.p, lines.r, lines.c, strict=True):
        assert (p * alpha + r * beta).min() >= c - 1e-12


def test_no_bet_has_an_expected_gain_above_1_if_the_claim_is_true(claim):
    # The theorem itself, at every point of a grid of the null and for every bet.
    payoff = np.exp(Bets.against(claim).payoff.reshape(-1, 4))
    alpha = np.concatenate([[0.0, 1.0], np.geomspace(1e-9, 1, 150), np.linspace(0.001, 0.999, 150)])
    edge = claim.tradeoff(alpha)
    for beta in (edge, edge + 0.3 * (1 - edge), np.ones_like(edge)):
        without = np.outer(payoff[:, 0], 1 - alpha) + np.outer(payoff[:, 1], alpha)
        with_it = np.outer(payoff[:, 2], 1 - beta) + np.outer(payoff[:, 3], beta)
        assert (without * with_it).max() <= 1 + 1e-9


def test_some_bet_grows_if_the_claim_is_false():
    bets = Bets.against(Claim.from_mu(1.0)).payoff.reshape(-1, 4)
    alpha = 0.3
    beta = float(gaussian_tradeoff(alpha, 1.3))
    growth = bets @ [1 - alpha, alpha, 1 - beta, beta]
    assert growth.max() > 0.002


@pytest.mark.parametrize("truth", [1.0, 1.5, 3.0])
@pytest.mark.parametrize("pairs", [1, 5, 40, 400])
def test_a_portfolio_has_no_expected_gain_above_1_if_the_claim_is_true(truth, pairs):
    # Fitted to pairs that break the claim, then evaluated exactly on many that satisfy it.
    portfolio = Portfolio(Bets.against(Claim.from_mu(1.0)))
    portfolio.choose(*normal(truth, pairs, pairs))
    (without_factor, with_factor), cuts = np.exp(portfolio.factors), portfolio.cuts

    def chances(mean, spread):
        return np.diff(ndtr((cuts - mean) / spread), prepend=0.0, append=1.0)

    for centre in np.linspace(-3, 3, 13):
        for spread in (0.3, 1.0, 4.0):
            without, with_it = chances(centre, spread), chances(centre + spread, spread)
            gains = without @ without_factor, with_it @ with_factor
            assert np.prod(gains) <= np.mean(gains) ** 2 <= 1 + 1e-9  # a pair, and a fair coin
    keep = float(ndtr(0.5))  # two values: the claim is met with equality at one point
    for high, low in itertools.permutations(range(len(cuts) + 1), 2):
        without, with_it = np.zeros((2, len(cuts) + 1))
        with_it[[high, low]], without[[high, low]] = (keep, 1 - keep), (1 - keep, keep)
        assert without @ without_factor + with_it @ with_factor <= 2 + 1e-9


def test_a_portfolio_stops_sooner_than_single_bets():
    claim, stopped = Claim.from_mu(1.0), []
    bets = Bets.against(claim)
    for seed in range(40):
        test = AnytimeTest(claim, bets=bets)
        test.add(*normal(1.25, 1000, seed))
        stopped.append(test.refuted_at or np.inf)
    assert np.quantile(stopped, 0.8, method="higher") <= 800  # single bets alone: 1,000


def test_bets_depend_on_nothing_that_comes_later():
    inserted, others = normal(1.5, 200, 0)
    test, other = AnytimeTest(Claim.from_mu(1.0)), AnytimeTest(Claim.from_mu(1.0))
    test.add(inserted[:120], others[:120])
    wealth = test.e_value
    other.add(np.append(inserted[:120], [1e9] * 80), np.append(others[:120], [-1e9] * 80))
    replay = AnytimeTest(Claim.from_mu(1.0))
    replay.add(inserted[:120], others[:120])
    assert replay.e_value == wealth
    assert other.e_value > wealth


def test_one_by_one_or_all_at_once():
    inserted, others = normal(2.0, 300, 1)
    whole, single = AnytimeTest(Claim.from_mu(1.5)), AnytimeTest(Claim.from_mu(1.5))
    whole.add(inserted, others)
    for one, zero in zip(inserted, others, strict=True):
        single.add(one, zero)
    assert single.e_value == pytest.approx(whole.e_value, rel=1e-12)
    assert single.refuted_at == whole.refuted_at
    assert single.p_value == pytest.approx(whole.p_value, rel=1e-12)
    assert whole.p_value <= 1 / whole.e_value


def test_only_the_order_of_scores_counts():
    inserted, others = normal(1.0, 100, 2)
    plain, bent = AnytimeTest(Claim.from_mu(0.5)), AnytimeTest(Claim.from_mu(0.5))
    plain.add(inserted, others)
    bent.add(np.exp(inserted), np.exp(others))
    # Thresholds are mid-points, so a pair between two old scores may fall on either side.
    assert np.log(bent.p_value) == pytest.approx(np.log(plain.p_value), abs=0.7)
    discrete = AnytimeTest(Claim.from_mu(0.5))
    discrete.add(np.zeros(50), np.zeros(50))
    assert discrete.e_value == pytest.approx(1.0)


def test_perfect_separation_stops_soon():
    assert pairs_to_refute(Claim.from_mu(1.6)) <= 30
    assert pairs_to_refute(Claim.from_epsilon(8.0, 1e-5)) <= 30
    assert pairs_to_refute(Claim.from_points([(8.0, 1e-5)]), most=500) is None
    needed = pairs_to_refute(Claim.from_mu(3.6))
    assert 64 < needed < 128
    assert pairs_to_refute(Claim.from_mu(3.6), most=needed) == needed
    assert pairs_to_refute(Claim.from_mu(3.6), most=needed - 1) is None


def test_claims_that_are_one_straight_line_can_be_refuted_too():
    assert pairs_to_refute(Claim.from_points([(0.0, 0.0)])) <= 8
    assert pairs_to_refute(Claim.from_points([(0.0, 0.1)])) <= 10
    assert pairs_to_refute(Claim.from_mu(0.0)) <= 8
    # The smaller the claimed epsilon, the sooner it is refuted.
    needed = [pairs_to_refute(Claim.from_points([(epsilon, 0.0)])) for epsilon in (0.0, 0.5, 1, 2)]
    assert needed == sorted(needed)


def test_a_violation_is_found_and_stays_found():
    found = []
    for seed in range(20):
        test = AnytimeTest(Claim.from_mu(1.0))
        test.add(*normal(2.0, 400, seed))
        found.append(test.refuted_at)
    assert None not in found
    assert np.median(found) <= 60


def test_failed_runs_cost_power_and_nothing_else():
    inserted, others = normal(4.0, 200, 3)
    clean, failing = AnytimeTest(Claim.from_mu(1.0)), AnytimeTest(Claim.from_mu(1.0))
    clean.add(inserted, others)
    inserted[::3] = -np.inf
    others[1::5] = -np.inf
    failing.add(inserted, others)
    assert clean.p_value < failing.p_value <= 1
    only = AnytimeTest(Claim.from_mu(1.0))
    only.add(np.full(20, -np.inf), np.full(20, -np.inf))
    assert only.e_value == pytest.approx(1.0)


def test_bounds_grow_towards_the_truth_and_name_what_they_assume():
    few = anytime_bounds(judged(Claim.from_mu(1.0), *normal(2.0, 100, 4)), delta=1e-5)
    many = anytime_bounds(judged(Claim.from_mu(1.0), *normal(2.0, 2000, 4)), delta=1e-5)
    assert few["anytime-gaussian-dp"].mu < many["anytime-gaussian-dp"].mu <= 2.0
    assert many["anytime-gaussian-dp"].mu > 1.7
    assert many["anytime"].epsilon < many["anytime-gaussian-dp"].epsilon
    assert many["anytime"].assumptions == ()
    assert many["anytime-gaussian-dp"].assumptions
    nothing = anytime_bounds(AnytimeTest(Claim.from_mu(1.0)), delta=0.0)
    assert nothing["anytime"].epsilon == 0
    assert nothing.unavailable[0].method == "anytime-gaussian-dp"


def test_e_values_of_independent_audits_multiply():
    # The mean of an e-value is at most 1 if the claim is true; a running maximum has mean 6.
    random, values, largest = np.random.default_rng(5), [], []
    for _ in range(300):
        test = AnytimeTest(Claim.from_mu(1.0))
        test.add(random.normal(1, 1, 60), random.normal(0, 1, 60))
        values.append(test.e_value)
        largest.append(1 / test.p_value)
    values = np.array(values)
    error = values.std() / np.sqrt(len(values))
    assert values.mean() <= 1 + 3 * error
    products = values[:150] * values[150:]
    assert products.mean() <= 1 + 3 * products.std() / np.sqrt(150)
    assert np.mean(largest) > 1.3


def test_pairs_of_unequal_length_are_refused():
    with pytest.raises(InvalidScores, match="got 3 and 2"):
        AnytimeTest(Claim.from_mu(1.0)).add([1.0, 2.0, 3.0], [0.0, 1.0])


def named(claim: Claim, mus: tuple[float, ...], runs: int, seed: int) -> AnytimeTest:
    """Runs of one canary for each mu, each inserted by a fair coin."""
    random = np.random.default_rng(seed)
    coins = random.random((runs, len(mus))) < 0.5
    test = AnytimeTest(claim, names=[f"tensor {place}" for place in range(len(mus))])
    test.add_coins(random.normal(size=coins.shape) + coins * mus, coins)
    return test


def test_the_wealth_of_several_tensors_is_the_mean_and_runs_are_its_steps():
    test = named(Claim.from_mu(1.0), (1.0, 3.0), 60, 0)
    assert test.steps == 60
    assert test.e_value == pytest.approx(test.e_values.mean())
    assert test.refuted
    assert test.p_values[1] < test.p_values[0]


def test_bets_of_all_tensors_depend_on_earlier_runs_only():
    """Scores of later runs change no wealth that was reached before, of any tensor."""
    random = np.random.default_rng(1)
    coins = random.random((80, 3)) < 0.5
    scores = random.normal(size=(80, 3)) + 2 * coins
    whole, first = (AnytimeTest(Claim.from_mu(1.0), names="abc") for _ in range(2))
    first.add_coins(scores[:50], coins[:50])
    other = scores.copy()
    other[50:] = -other[50:]
    whole.add_coins(other[:50], coins[:50])
    assert whole.e_values == pytest.approx(first.e_values)
    one_by_one = AnytimeTest(Claim.from_mu(1.0), names="abc")
    for row, coin in zip(scores, coins, strict=True):
        one_by_one.add_coins(row, coin)
    first.add_coins(scores[50:], coins[50:])
    assert one_by_one.e_values == pytest.approx(first.e_values, rel=1e-12)


def test_canaries_of_a_run_that_all_say_the_same_count_once():
    """Together a run is one step: a common coin cannot refute a true claim by being repeated."""
    claim, alarms = Claim.from_mu(1.0), {True: 0, False: 0}
    bets = Bets.against(claim)
    for seed in range(40):
        random = np.random.default_rng(seed)
        # Each canary is 0.998-GDP: the run leaks more with probability 0.8, and nothing otherwise.
        coins = random.random((3, 300)) < 0.5
        accuracy = np.where(random.random((3, 1)) < 0.8, 0.73, 0.5)
        shown = np.where(random.random((3, 300)) < accuracy, coins, ~coins)
        for together in (True, False):
            test = AnytimeTest(claim, canaries=300, together=together, bets=bets)
            for row, coin in zip(shown, coins, strict=True):
                test.add_coins(row.astype(float), coin)
            alarms[together] += test.refuted
            assert bool(test.assumptions) is not together
    assert alarms[True] <= 5
    assert alarms[False] > 10


def test_the_bounds_of_named_canaries_are_those_of_the_runs_in_their_order():
    """The scores of one tensor may not be replayed before those of another."""
    test = named(Claim.from_mu(1.0), (2.0, 2.0), 400, 3)
    bounds = anytime_bounds(test, delta=1e-5)
    single = AnytimeTest(Claim.from_mu(1.0))
    for inserted, others in ((own.inserted_scores, own.other_scores) for own in test.streams):
        single.add(inserted[:150], others[:150])
    assert bounds["anytime-gaussian-dp"].mu <= 2.0
    assert bounds["anytime-gaussian-dp"].sample_size == 800
    replayed = test.replayed(Claim.from_mu(bounds["anytime-gaussian-dp"].mu))
    assert replayed.refuted
    assert replayed.steps == test.steps
    # One tensor that leaks nothing costs at most a factor of 2 of the wealth.
    assert (
        anytime_bounds(named(Claim.from_mu(1.0), (2.0, 0.0), 400, 3), delta=1e-5)[
            "anytime-gaussian-dp"
        ].mu
        > 1.2
    )


def test_pairs_and_coins_do_not_mix():
    test = judged(Claim.from_mu(1.0), *normal(1.0, 5, 0))
    with pytest.raises(InvalidScores, match="use one test for each"):
        test.add_coins([1.0], [True])
    with pytest.raises(InvalidScores, match="pairs only without names"):
        AnytimeTest(Claim.from_mu(1.0), names="ab").add([1.0], [0.0])
    with pytest.raises(InvalidScores, match="multiple of 3"):
        AnytimeTest(Claim.from_mu(1.0), canaries=3, together=True).add_coins([1.0], [True])


@pytest.mark.parametrize(
    ("claim", "scale", "e_value", "p_value"),
    [
        (Claim.from_mu(1.0), 1.0, 2.7039255357960057, 0.3105218123528877),
        (
            Claim.from_points([(1.0, 1e-3), (2.0, 1e-5)]),
            2.0,
            1.0788025249276783,
            0.8534702268563532,
        ),
    ],
)
def test_stored_scores_give_the_wealth_that_was_reported(claim, scale, e_value, p_value) -> None:
    """An audit that is shown again replays its scores: bets must not change between versions."""
    scores = np.sin(1.7 * np.arange(60))
    test = AnytimeTest(claim)
    test.add(1.3 + scale * scores[:30], scores[30:])
    assert test.e_value == pytest.approx(e_value, rel=1e-7)
    assert test.p_value == pytest.approx(p_value, rel=1e-7)
