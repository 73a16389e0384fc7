"""Claims as curves, and their test: no false alarms, and power where it matters."""

import numpy as np
import pytest
from helpers import binomial

from dpaudit import Claim, ErrorCounts, Scores, test_claim
from dpaudit.claims.fixed_sample import can_refute, claim_p_value, scores_to_refute
from dpaudit.curves import gaussian_delta, gaussian_tradeoff
from dpaudit.errors import InvalidInput, InvalidScores
from dpaudit.report.words import bare_line
from dpaudit.upper_bounds import NoisySteps, PldAccountant


def scores_of(mu: float, size: int, seed: int) -> Scores:
    random = np.random.default_rng(seed)
    return Scores.from_samples(random.normal(mu, 1, size), random.normal(0, 1, size))


def test_claims_say_the_same_in_other_words():
    alpha = np.linspace(0, 1, 101)
    gaussian = Claim.from_dpsgd(noise_multiplier=4, steps=250)
    assert gaussian.tradeoff(alpha) == pytest.approx(gaussian_tradeoff(alpha, 250**0.5 / 4))
    epsilons = np.linspace(0, 30, 600)
    points = Claim.from_points(zip(epsilons, gaussian_delta(epsilons, 1.0), strict=True))
    curve = Claim.from_mu(1.0).tradeoff(alpha)
    assert (points.tradeoff(alpha) <= curve + 1e-12).all()
    assert points.tradeoff(alpha) == pytest.approx(curve, abs=1e-3)


def test_correlated_noise_hides_the_steps_that_contain_the_example():
    """With independent noise mu is the root of the number of these steps over the noise."""
    given = {"noise_multiplier": 4.0, "coefficients": [2.0], "steps": 16}
    assert Claim.from_matrix_factorisation(**given).mu == pytest.approx(1.0)
    some = Claim.from_matrix_factorisation(**given, used=[0, 5, 6, 9])
    assert some.mu == pytest.approx(0.5)
    assert "4 of 16 steps" in some.description


def test_shuffled_epochs_are_gaussian_releases_without_amplification():
    assert Claim.from_shuffled(noise_multiplier=2.0, epochs=1).mu == 0.5
    assert Claim.from_shuffled(noise_multiplier=2.0, epochs=9).mu == 1.5
    with pytest.raises(InvalidInput, match="epochs must be at least 1"):
        Claim.from_shuffled(noise_multiplier=2.0, epochs=0)


def test_every_claim_is_its_own_inverse():
    for claim in (Claim.from_mu(1.3), Claim.from_points([(1.0, 0.1), (2.0, 0.001)])):
        alpha = np.linspace(0.01, 0.5, 50)
        beta = claim.tradeoff(alpha)
        inside = beta > 1e-9
        assert claim.tradeoff(beta)[inside] == pytest.approx(alpha[inside], abs=1e-9)


def test_sampling_through_pld_gives_a_smaller_epsilon():
    sampled = Claim.from_dpsgd(noise_multiplier=1.0, steps=100, sampling_rate=0.01)
    plain = Claim.from_dpsgd(noise_multiplier=1.0, steps=100)
    alpha = np.array([0.01, 0.1, 0.5])
    assert (sampled.tradeoff(alpha) > plain.tradeoff(alpha)).all()


@pytest.mark.parametrize("mu", [0.5, 2.0, 3.95])
def test_false_alarms_at_most_nominal(mu):
    repetitions = 300
    alarms = sum(
        bool(test_claim(scores_of(mu, 200, seed), Claim.from_mu(mu), confidence=0.9).refuted)
        for seed in range(repetitions)
    )
    assert alarms <= 0.1 * repetitions + 3 * np.sqrt(0.09 * repetitions)


def test_p_value_is_valid_at_every_point_of_the_curve():
    # Exact check: enumerate all counts of a small audit whose rates lie on the claimed curve.
    n, claim = 12, Claim.from_mu(1.5)
    fp, fn = (grid.ravel() for grid in np.meshgrid(np.arange(n + 1), np.arange(n + 1)))
    counts = ErrorCounts(
        false_positives=fp, false_negatives=fn, negatives=n, positives=n,
        thresholds=np.full(len(fp), np.nan),
    )  # fmt: skip
    p_values = claim_p_value(counts, claim)
    for alpha in (0.001, 0.05, 0.2266, 0.5, 0.9):
        beta = float(claim.tradeoff(alpha))
        weight = binomial(n, alpha)[fp] * binomial(n, beta)[fn]
        for level in (0.01, 0.05, 0.2):
            assert weight[p_values <= level].sum() <= level + 1e-12


def test_noise_a_fifth_too_small_is_seen():
    # sigma 20 % too small: mu is 25 % too large.
    found = sum(
        bool(test_claim(scores_of(1.25 * 2, 2000, seed), Claim.from_mu(2.0)).refuted)
        for seed in range(20)
    )
    assert found >= 18


def test_a_leak_in_the_tail_is_found_among_many_thresholds():
    # Four of ten scores with the canary are above all others; the rest are alike.
    random = np.random.default_rng(0)
    inserted, others = np.exp(10 * random.random((2, 2000)))
    inserted[:800] *= np.exp(10)
    test = test_claim(Scores.from_samples(inserted, others), Claim.from_points([(1.0, 0.0)]))
    assert test.verdict == "violation"


def test_a_safe_mechanism_is_consistent():
    verdict = test_claim(scores_of(1.5, 500, 0), Claim.from_mu(2.0))
    assert verdict.verdict == "consistent"
    assert verdict.p_value > 0.5
    # Scores that hardly depend on the canary could not show noise half as large.
    assert test_claim(scores_of(0.5, 500, 0), Claim.from_mu(2.0)).verdict == "inconclusive"


def test_too_few_scores_are_inconclusive():
    verdict = test_claim(scores_of(50.0, 5, 0), Claim.from_points([(8.0, 1e-5)]))
    assert verdict.verdict == "inconclusive"
    assert not verdict.attainable


def test_counts_are_evidence_too():
    counts = ErrorCounts.given(
        true_positives=990, false_negatives=10, false_positives=10, true_negatives=990
    )
    assert test_claim(counts, Claim.from_points([(1.0, 1e-5)])).verdict == "violation"


def test_bad_claims():
    with pytest.raises(InvalidInput, match="mu must be at least 0"):
        Claim.from_mu(-1)
    with pytest.raises(InvalidInput, match="at least one"):
        Claim.from_points([])
    with pytest.raises(InvalidInput, match="noise_multiplier must be above 0"):
        Claim.from_dpsgd(noise_multiplier=0, steps=10)
    for wrong in (
        {"mu": -1},
        {"mu": float("nan")},
        {"mu": float("inf")},
        {},
        {"mu": 1.0, "epsilons": (1.0,), "deltas": (0.1,)},
        {"epsilons": (1.0,)},
        {"epsilons": (-1.0,), "deltas": (0.1,)},
        {"epsilons": (1.0,), "deltas": (1.5,)},
        {"mu": 1.0, "largest_epsilon": float("nan")},
    ):
        with pytest.raises(InvalidInput, match="Claim"):
            Claim(description="x", **wrong)
    with pytest.raises(InvalidInput, match="pilot or fixed"):
        test_claim(scores_of(1, 50, 0), Claim.from_mu(1), threshold="best")
    with pytest.raises(InvalidScores, match="both kinds"):
        test_claim(Scores(score=[1.0], inserted=[1]), Claim.from_mu(1))


def test_one_epsilon_is_a_gaussian_curve_up_to_it_and_tangents_beyond():
    claim = Claim.from_epsilon(3.0, 1e-5)
    pair = Claim.from_points([(3.0, 1e-5)])
    alpha = np.concatenate([np.geomspace(1e-9, 1, 500), np.linspace(0, 1, 500)])
    curve, gaussian = claim.tradeoff(alpha), gaussian_tradeoff(alpha, claim.mu)
    # Between the bare pair, which is implied, and the whole Gaussian curve, which is not.
    assert (curve >= pair.tradeoff(alpha) - 1e-12).all()
    assert (curve <= gaussian + 1e-12).all()
    assert (gaussian - curve).max() <= 1e-5 * (1 + 1e-6)
    # At every smaller epsilon it has exactly the delta of the Gaussian curve.
    for epsilon in (0.0, 1.0, 2.9):
        line = 1 - gaussian_delta(epsilon, claim.mu) - np.exp(epsilon) * alpha
        assert (curve >= line - 1e-12).all()
    beta = np.linspace(0.01, 0.5, 50)
    assert claim.tradeoff(claim.tradeoff(beta)) == pytest.approx(beta, abs=1e-9)


@pytest.mark.parametrize(
    ("noise", "steps", "rate"),
    [(0.5, 1, 0.01), (0.7, 100, 0.1), (1.0, 1000, 0.01), (2.0, 100, 0.8), (4.0, 1000, 0.05)],
)
def test_sampled_training_keeps_what_its_epsilon_is_read_as(noise, steps, rate):
    # The assumption that from_epsilon makes, checked against a privacy-loss distribution.
    accountant = PldAccountant(interval=1e-3, points=2**17)
    training = NoisySteps(noise_multiplier=noise, steps=steps, sampling_rate=rate)
    epsilon = accountant.epsilon(training, delta=1e-5).epsilon
    claim = Claim.from_epsilon(epsilon, 1e-5)
    epsilons = np.linspace(0, epsilon, 40)
    true = accountant.deltas(training, epsilons)
    assert (true <= gaussian_delta(epsilons, claim.mu) * (1 + 1e-6)).all()
    # Beyond it the truth may leak more than the Gaussian, but never by more than delta.
    beyond = np.linspace(epsilon, 2 * epsilon, 20)
    excess = accountant.deltas(training, beyond) - gaussian_delta(beyond, claim.mu)
    assert excess.max() <= 1e-5


def test_the_epsilon_of_a_claim():
    assert Claim.from_epsilon(8.0, 1e-5).epsilon(1e-5) == pytest.approx(8.0)
    assert Claim.from_epsilon(8.0, 1e-5).epsilon(1e-7) == np.inf
    assert Claim.from_mu(1.0).epsilon(1e-5) == pytest.approx(4.3772, abs=1e-4)
    assert Claim.from_points([(1.0, 0.1), (2.0, 1e-6)]).epsilon(1e-5) == 2.0
    assert Claim.from_points([(1.0, 0.1)]).epsilon(1e-5) == np.inf


def test_one_pair_fewer_than_needed_cannot_refute():
    claim = Claim.from_mu(1.0)
    each = (scores_to_refute(claim, pilot_share=0.0) or 0) // 2
    assert can_refute(claim, each, each)
    assert not can_refute(claim, each - 1, each - 1)


def test_how_many_scores_could_refute():
    needed = scores_to_refute(Claim.from_mu(1.6))
    perfect = Scores.from_samples(np.ones(needed // 2 + 1), np.zeros(needed // 2 + 1))
    assert test_claim(perfect, Claim.from_mu(1.6)).verdict == "violation"
    fewer = Scores.from_samples(np.ones(needed // 2 - 3), np.zeros(needed // 2 - 3))
    assert test_claim(fewer, Claim.from_mu(1.6)).verdict == "inconclusive"
    assert scores_to_refute(Claim.from_points([(40.0, 1e-5)])) is None


def test_what_a_claim_assumes_is_in_its_test():
    claim = Claim.from_epsilon(1.0, 1e-5)
    assert claim.assumptions[0] in test_claim(scores_of(1.0, 100, 0), claim).assumptions
    assert Claim.from_epsilon(1.0, 0.0).assumptions == ()
    with pytest.raises(InvalidInput, match="epsilon must be above 0"):
        Claim.from_epsilon(0.0, 1e-5)


def test_an_extended_pair_reports_the_verdict_on_the_bare_pair():
    # Exactly 2-DP randomised response: the Gaussian reading flags it, the bare pair does not.
    random = np.random.default_rng(0)
    truth = np.repeat([True, False], 1000)
    score = np.where(random.random(2000) < 1 / (1 + np.exp(-2.0)), truth, ~truth).astype(float)
    scores = Scores(score=score, inserted=truth)
    result = test_claim(scores, Claim.from_epsilon(2.0, 1e-5))
    assert result.verdict == "violation"
    assert result.bare.verdict != "violation"
    assert bare_line(result) == "bare (2, 1e-05): not refuted"
    assert result.to_dict()["bare_verdict"] == result.bare.verdict
    assert test_claim(scores, Claim.from_mu(2.0)).bare is None


def test_a_claim_of_a_huge_epsilon_has_a_curve_without_warnings() -> None:
    with np.errstate(all="raise", under="ignore"):
        curve = Claim.from_epsilon(1e6, 1e-5).tradeoff(np.array([0.0, 1e-9, 1.0]))
    assert curve.tolist() == [1.0, 0.0, 0.0]
