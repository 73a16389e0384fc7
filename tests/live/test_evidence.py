"""What a live audit collects: coordinates, coins, scores, checkpoints."""

import numpy as np
import pytest
from scipy.stats import norm

from dpaudit.errors import InvalidInput
from dpaudit.live.evidence import LiveEvidence, spread


def observed(evidence, random, *, rate, noise):
    return evidence.take_part(rate) + random.normal(0.0, noise, len(evidence.coins))


def test_every_tensor_has_a_canary_and_no_coordinate_has_two():
    sizes = [1000, 3, 1, 0, 50]
    places = spread(sizes, 60, np.random.default_rng(0))
    assert sum(map(len, places)) == 60
    for size, here in zip(sizes, places, strict=True):
        assert len(here) == len(set(here.tolist()))
        assert (size == 0) == (len(here) == 0)
        assert all(0 <= place < size for place in here)


def test_more_canaries_than_parameters_are_refused():
    with pytest.raises(InvalidInput, match=r"number of trained parameters \(10\)"):
        LiveEvidence([4, 6], canaries=11)


def test_scores_are_log_likelihood_ratios():
    evidence = LiveEvidence([500], canaries=100, seed=3)
    random, expected = np.random.default_rng(0), np.zeros(100)
    for rate, noise in [(0.3, 1.0), (1.0, 2.0), (0.01, 0.5)]:
        values = observed(evidence, random, rate=rate, noise=noise)
        evidence.observe(values, rate=rate, noise_multiplier=noise)
        absent = norm.pdf(values, 0, noise)
        there = (1 - rate) * absent + rate * norm.pdf(values, 1, noise)
        expected += np.log(there / absent)
    assert evidence.scores == pytest.approx(expected, rel=1e-9)
    assert evidence.history == [(1.0, 0.3), (2.0, 1.0), (0.5, 0.01)]


def test_with_clipping_per_layer_a_canary_has_a_coordinate_in_every_tensor_that_is_large_enough():
    shares = [0.6, 0.0, 0.8]
    evidence = LiveEvidence([50, 1, 30], canaries=50, seed=3, shares=shares)
    assert [len(here) for here in evidence.places] == [50, 1, 30]
    assert evidence.weights[:30] == pytest.approx(1.0)
    assert evidence.weights[30:] == pytest.approx(0.6)
    added = evidence.added(np.ones(50, dtype=bool))
    assert np.bincount(np.r_[:50, :1, :30], added**2) == pytest.approx(evidence.weights**2)
    assert evidence.along(added) == pytest.approx(evidence.weights)
    noise = np.random.default_rng(0).normal(size=(2000, len(added)))
    assert np.std([evidence.along(row) for row in noise]) == pytest.approx(1.0, rel=0.02)
    with pytest.raises(InvalidInput, match=r"the size of the largest tensor \(50\)"):
        LiveEvidence([50, 1, 30], canaries=51, shares=shares)


def test_a_shorter_canary_is_one_under_more_noise():
    whole = LiveEvidence([100], canaries=100, seed=3)
    half = LiveEvidence([100], canaries=100, seed=3, shares=[0.5])
    values = observed(whole, np.random.default_rng(0), rate=0.5, noise=2.0)
    whole.observe(values, rate=0.5, noise_multiplier=2.0)
    half.observe(values / 2, rate=0.5, noise_multiplier=1.0)
    assert half.scores == pytest.approx(whole.scores)
    assert half.largest_e_value == pytest.approx(whole.largest_e_value)


def test_only_inserted_canaries_take_part_at_the_rate():
    evidence = LiveEvidence([40_000], canaries=20_000, seed=1)
    taking_part = evidence.take_part(0.25)
    assert not taking_part[~evidence.coins].any()
    share = taking_part[evidence.coins].mean()
    assert share == pytest.approx(0.25, abs=5 * np.sqrt(0.25 * 0.75 / evidence.coins.sum()))


def test_a_checkpoint_continues_bit_for_bit():
    def play(evidence, random, steps):
        for _ in range(steps):
            values = observed(evidence, random, rate=0.2, noise=1.0)
            evidence.observe(values, rate=0.2, noise_multiplier=1.0)

    straight, noise = LiveEvidence([300], canaries=50, seed=5), np.random.default_rng(9)
    play(straight, noise, 20)
    first, noise = LiveEvidence([300], canaries=50, seed=5), np.random.default_rng(9)
    play(first, noise, 12)
    second = LiveEvidence([300], canaries=50)  # another seed until the state is loaded
    second.load_state_dict(first.state_dict())
    play(second, noise, 8)
    assert np.array_equal(second.scores, straight.scores)
    assert np.array_equal(second.coins, straight.coins)
    assert second.largest_e_value == straight.largest_e_value
    assert second.history == straight.history


def test_a_checkpoint_of_another_training_is_refused():
    state = LiveEvidence([300], canaries=50).state_dict()
    with pytest.raises(InvalidInput, match="another training"):
        LiveEvidence([301], canaries=50).load_state_dict(state)


def test_whitened_steps_have_independent_noise_and_the_effect_of_the_canary():
    bands, random = (0.8, 0.6, -0.2), np.random.default_rng(0)
    evidence = LiveEvidence([5000], canaries=5000, seed=0, bands=bands)
    strategy = sum(c * np.eye(6, k=-place) for place, c in enumerate(bands))
    noisy = 1.0 + np.linalg.inv(strategy) @ random.normal(size=(6, 5000))
    steps = [evidence.whitened(row) for row in noisy]
    assert [effect for _, effect in steps] == pytest.approx(strategy @ np.ones(6))
    noise = np.array([(values - 1.0) * effect for values, effect in steps])
    assert np.cov(noise) == pytest.approx(np.eye(6), abs=0.08)
