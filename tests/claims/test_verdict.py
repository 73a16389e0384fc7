"""One verdict: no alarm that is not confirmed, and nothing called consistent without power."""

from __future__ import annotations

import functools
from bisect import bisect_left
from dataclasses import replace

import numpy as np
import pytest
from helpers import changeable

from dpaudit import Claim, ErrorCounts, Scores, test_claim
from dpaudit.claims import CONFIRMED, LIVE, STRICT, UNNAMED, judge, unconfirmed
from dpaudit.claims.anytime import AnytimeTest
from dpaudit.claims.fixed_sample import scores_to_refute
from dpaudit.claims.verdict import _with_e_value, runs_to_refute
from dpaudit.errors import InvalidInput, InvalidScores
from dpaudit.lower_bounds.diagnostics import with_failures
from dpaudit.lower_bounds.joint_test import curve_refuted
from dpaudit.scores import Failure

CLAIM = Claim.from_mu(1.0)


def draw(mu: float, runs: int, seed: int = 0) -> Scores:
    """Half of the runs with the canary."""
    random, half = np.random.default_rng(seed), runs // 2
    return Scores.from_samples(random.normal(mu, 1, half), random.normal(0, 1, half))


def counts(false_positives: int, false_negatives: int, each: int) -> ErrorCounts:
    return ErrorCounts.given(
        true_positives=each - false_negatives,
        false_negatives=false_negatives,
        false_positives=false_positives,
        true_negatives=each - false_positives,
    )


@functools.cache
def counts_at(p_value: float, each: int = 1000) -> ErrorCounts:
    """Counts with at most this p-value, and hardly less."""
    most, least = 31 * each // 100, each // 5
    errors = bisect_left(
        range(least, most),
        True,
        key=lambda few: not curve_refuted(counts(few, few, each), CLAIM.curve, p_value),
    )
    return counts(least + errors - 1, least + errors - 1, each)


def common_coin(seed: int, runs: int = 1) -> Scores:
    """Each canary is 0.998-GDP, and all of a run leak together or not at all."""
    random = np.random.default_rng(seed)
    coins = random.random((runs, 1000 // runs)) < 0.5
    accuracy = np.where(random.random((runs, 1)) < 0.8, 0.73, 0.5)
    shown = np.where(random.random(coins.shape) < accuracy, coins, ~coins)
    run = np.repeat(np.arange(runs), coins.shape[1])
    return Scores(score=shown.ravel().astype(float), inserted=coins.ravel(), run=run)


@pytest.mark.parametrize(
    ("p_value", "verdict", "suspected"),
    [(0.0009, "violation", False), (0.002, "inconclusive", True), (0.045, "inconclusive", True)],
)
def test_without_fresh_runs_only_a_p_value_of_a_thousandth_is_a_violation(
    p_value, verdict, suspected
):
    test = test_claim(counts_at(p_value), CLAIM)
    assert (test.verdict, test.suspected) == (verdict, suspected)
    assert test.level == STRICT.prove == test.policy.false_alarms
    assert test_claim(counts_at(0.06), CLAIM).suspected is False


def test_a_single_test_keeps_its_level():
    test = test_claim(counts_at(0.045), CLAIM, confidence=0.95)
    assert (test.verdict, test.suspected) == ("violation", False)
    assert test.level == pytest.approx(0.05)
    assert test_claim(counts_at(0.045), CLAIM, confidence=0.96).verdict != "violation"


@pytest.mark.parametrize("confidence", [1 - 1e-5, 1 - 1e-7, 1 - 1e-9])
def test_a_violation_can_be_proven_at_any_confidence(confidence):
    # A floor of 1e-5 under every p-value once made this inconclusive.
    random = np.random.default_rng(0)
    far = Scores.from_samples(random.normal(20, 1, 5000), random.normal(0, 1, 5000))
    assert test_claim(far, CLAIM, confidence=confidence).verdict == "violation"
    assert scores_to_refute(CLAIM, policy=unconfirmed(1 - confidence)) < 200


def test_the_first_runs_only_suspect_and_fresh_ones_decide():
    first = judge(counts_at(0.0009), CLAIM, policy=CONFIRMED)
    assert (first.verdict, first.suspected, first.stage) == ("inconclusive", True, 1)
    assert first.to_confirm == (UNNAMED,)
    assert CONFIRMED.false_alarms == pytest.approx(0.001)
    for fresh, verdict in (
        (counts_at(0.019, 2000), "violation"),
        (counts_at(0.04, 2000), "consistent"),
    ):
        test = judge(counts_at(0.0009), CLAIM, policy=CONFIRMED, fresh=fresh)
        assert (test.verdict, test.suspected, test.stage) == (verdict, False, 2)
        assert test.level == 0.02
        assert not test.to_confirm
    # Fresh runs are not read if nothing is suspected.
    calm = judge(counts(330, 330, 1000), CLAIM, policy=CONFIRMED, fresh=counts(0, 0, 2000))
    assert (calm.verdict, calm.stage) == ("consistent", 1)


def test_the_number_of_fresh_runs_is_fixed():
    with pytest.raises(InvalidScores, match=r"exactly 2 times.*2,000, got 1,998"):
        judge(draw(2, 1000), CLAIM, policy=CONFIRMED, fresh=draw(2, 1998, 1))


def test_of_several_tensors_each_has_a_share_of_the_level():
    pairs = {"a": counts_at(0.02), "b": counts(330, 330, 1000)}
    first = judge(pairs, CLAIM, policy=CONFIRMED)
    assert first.to_confirm == ("a",)
    assert first.p_value == pytest.approx(2 * first.tensors["a"].p_value)
    assert judge({**pairs, "c": pairs["b"]}, CLAIM, policy=CONFIRMED).to_confirm == ()
    # One suspected tensor of many is confirmed at the whole level, two at half of it.
    fresh = {"a": counts_at(0.019, 2000), "b": counts_at(0.019, 2000)}
    assert judge(pairs, CLAIM, policy=CONFIRMED, fresh=fresh).refuted == ("a",)
    both = {"a": counts_at(0.02), "b": counts_at(0.02)}
    test = judge(both, CLAIM, policy=CONFIRMED, fresh=fresh)
    assert (test.refuted, test.suspected) == ((), False)
    strong = {"a": counts_at(0.019, 2000), "b": counts_at(0.009, 2000)}
    assert judge(both, CLAIM, policy=CONFIRMED, fresh=strong).refuted == ("b",)
    with pytest.raises(InvalidScores, match="'a'"):
        judge(pairs, CLAIM, policy=CONFIRMED, fresh={"b": fresh["b"]})


def test_false_alarms_of_both_stages_are_a_thousandth():
    # Exact: the distribution of the p-value of 40 and 80 scores a side on the claimed curve.
    from scipy.stats import binom

    alpha = 0.3085
    beta = float(CLAIM.tradeoff(alpha))
    chance = []
    for each, level in ((40, CONFIRMED.suspect), (80, CONFIRMED.confirm)):
        errors, rejected = np.arange(each + 1), np.zeros((each + 1, each + 1))
        y = each
        for x in range(each + 1):  # the more false positives, the fewer false negatives
            while y >= 0 and not curve_refuted(counts(x, y, each), CLAIM.curve, level):
                y -= 1
            rejected[x, : y + 1] = 1
        weights = np.outer(binom.pmf(errors, each, alpha), binom.pmf(errors, each, beta))
        chance.append(float((weights * rejected).sum()))
    assert chance[0] <= 0.05
    assert chance[1] <= 0.02
    assert 0.0002 < np.prod(chance) <= CONFIRMED.false_alarms


def test_chance_level_is_inconclusive_for_counts_as_for_scores():
    assert test_claim(counts(500, 500, 1000), CLAIM).verdict == "inconclusive"
    assert test_claim(draw(0.0, 2000), CLAIM).verdict == "inconclusive"
    assert test_claim(counts(320, 320, 1000), CLAIM).verdict == "consistent"


def test_canaries_that_may_depend_on_each_other_prove_nothing():
    tests = [judge(common_coin(seed), CLAIM) for seed in range(10)]
    assert sum(test.p_value <= 0.001 for test in tests) >= 2  # violations without the rule
    assert not any(test.refuted for test in tests)
    assert all(test.only_if_independent == test.suspected for test in tests)
    confirmed = [judge(common_coin(seed), CLAIM, policy=CONFIRMED) for seed in range(10)]
    assert not any(test.to_confirm for test in confirmed)
    # The bare privacy of each canary is claimed: private gradients change nothing.
    assert not any(judge(common_coin(s), CLAIM, private_gradients=True).refuted for s in range(5))
    # A mechanism with independent noise is claimed: then independence is part of the claim.
    mechanism = Claim.from_dpsgd(noise_multiplier=1.0, steps=1)
    assert any(judge(common_coin(s), mechanism, private_gradients=True).refuted for s in range(10))
    assert not any(judge(common_coin(s), mechanism).refuted for s in range(5))


def test_many_runs_prove_a_violation_whatever_depends():
    random = np.random.default_rng(0)
    coins = random.random((400, 5)) < 0.5
    scores = Scores(
        score=(random.normal(size=coins.shape) + 3 * coins).ravel(),
        inserted=coins.ravel(),
        run=np.repeat(np.arange(400), 5),
    )
    test = judge(scores, CLAIM)
    assert test.verdict == "violation"
    assert test.p_value <= test.tensors[UNNAMED].dependent_p_value <= 0.001


def test_failed_runs_can_hide_a_violation_but_not_make_it_consistent():
    scores = draw(3.0, 400)
    failed = [
        Failure(run=1000 + place, inserted=1, canaries=1, error="", traceback="")
        for place in range(120)
    ]
    test = judge(with_failures(scores, failed), Claim.from_mu(2.3))
    assert judge(scores, Claim.from_mu(2.3)).suspects
    assert not test.suspected
    assert test.hidden_by_failures
    assert test.verdict == "inconclusive"


def test_doubts_and_missing_power_prevent_consistent():
    scores = draw(1.0, 2000)
    assert judge(scores, CLAIM).verdict == "consistent"
    assert judge(scores, CLAIM, doubts=("a reason",)).verdict == "inconclusive"
    assert judge(scores, CLAIM, detect=0.99).verdict == "inconclusive"
    assert judge(scores, CLAIM, detect=0.99, least_power=0.0).verdict == "consistent"


@pytest.mark.parametrize(
    ("mu", "verdict", "suspected"),
    [(2.5, "violation", False), (1.3, "inconclusive", True), (1.0, "consistent", False)],
)
def test_anytime_evidence_is_judged_by_its_wealth(mu, verdict, suspected):
    random = np.random.default_rng(3)
    evidence = AnytimeTest(CLAIM, confidence=1 - STRICT.prove)
    evidence.add(random.normal(mu, 1, 300), random.normal(0, 1, 300))
    test = judge(evidence, CLAIM)
    assert (test.verdict, test.suspected) == (verdict, suspected)
    assert evidence.refuted == (verdict == "violation")
    assert test.p_value == evidence.p_value


def test_an_anytime_violation_names_its_tensors_and_has_a_bare_verdict():
    random = np.random.default_rng(0)
    coins = random.random((400, 2)) < 0.5
    claim = Claim.from_epsilon(4.0, 1e-5)
    evidence = AnytimeTest(claim, confidence=1 - STRICT.prove, names=("calm", "loud"))
    evidence.add_coins(random.normal(size=coins.shape) + coins * (0.5, 3.0), coins)
    test = judge(evidence, claim)
    assert test.verdict == "violation"
    assert test.refuted == ("loud",)
    assert test.bare.verdict != "violation"


def test_dependent_canaries_prove_nothing_as_they_come_either():
    random = np.random.default_rng(0)
    coins = random.random(2000) < 0.5
    for together, verdict in ((False, "inconclusive"), (True, "violation")):
        evidence = AnytimeTest(CLAIM, confidence=0.999, canaries=10, together=together)
        evidence.add_coins(np.where(coins, 3.0, 0.0) + random.normal(size=2000), coins)
        test = judge(evidence, CLAIM)
        assert test.verdict == verdict
        assert test.only_if_independent is not together


@pytest.mark.parametrize("names", [(), ("a", "b", "c")])
@pytest.mark.parametrize("policy", [CONFIRMED, STRICT])
def test_fewer_runs_than_needed_cannot_refute(policy, names):
    needed = runs_to_refute(CLAIM, policy=policy, names=names)

    def perfect(runs: int) -> object:
        half = -(-runs // 2)
        scores = Scores.from_samples(np.ones(half), np.zeros(half))
        return dict.fromkeys(names, scores) if names else scores

    assert judge(perfect(needed), CLAIM, policy=policy).attainable
    fewer = judge(perfect(needed - 6), CLAIM, policy=policy)
    assert not fewer.attainable
    assert fewer.verdict == "inconclusive"
    assert runs_to_refute(Claim.from_points([(40.0, 1e-5)]), policy=policy) is None


def test_one_run_of_many_canaries_must_be_able_to_refute_whatever_depends():
    mechanism = Claim.from_dpsgd(noise_multiplier=0.2, steps=1)
    free = runs_to_refute(mechanism, canaries=200)
    exempt = runs_to_refute(mechanism, canaries=200, private_gradients=True)
    assert exempt < free


def test_what_cannot_be_judged_is_refused():
    with pytest.raises(InvalidInput, match="must be a Claim"):
        judge(draw(1, 100), 1.0)
    with pytest.raises(InvalidScores, match="at least one canary"):
        judge({}, CLAIM)
    with pytest.raises(InvalidInput, match="detect"):
        judge(draw(1, 100), CLAIM, detect=0.0)
    with pytest.raises(InvalidInput, match="use STRICT"):
        judge(AnytimeTest(CLAIM), CLAIM, policy=CONFIRMED)
    with pytest.raises(InvalidInput, match="use STRICT"):
        runs_to_refute(CLAIM, policy=CONFIRMED, anytime=True)
    with pytest.raises(InvalidInput, match="level must be in"):
        unconfirmed(0.0)


def test_an_e_value_along_the_way_decides_at_exactly_its_level() -> None:
    """Half of the levels of `LIVE`: an e-value of 20 suspects, and one of 2,000 proves."""
    scores = Scores.from_samples([0.0, 1.0, 2.0, 3.0], [0.0, 1.0, 2.0, 3.0])
    for e_value, suspected, refuted in (
        (19.99, False, False), (20.0, True, False), (1999.0, True, False), (2000.0, True, True),
    ):  # fmt: skip
        (test,) = judge(
            scores, Claim.from_mu(1.0), policy=LIVE, along_the_way=e_value
        ).tensors.values()
        assert (test.suspected, test.refuted) == (suspected, refuted)
        assert test.e_value == e_value
    dependent = replace(test, needs_independence=True, hidden=True, suspected=False)
    for e_value, doubted in ((19.99, True), (20.0, False)):
        combined = _with_e_value(dependent, e_value, 0.05, 0.0005)
        assert (combined.needs_independence, combined.hidden) == (doubted, doubted)


def test_values_cannot_be_changed_after_they_were_checked() -> None:
    assert changeable("dpaudit.claims") == []
