"""Coupled draws have the distribution of what they replace, and agree for all other records."""

from collections import Counter

import numpy as np
import pytest

from dpaudit.pipelines import noise_ratio_epsilon
from dpaudit.pipelines.coupling import Draws
from dpaudit.pipelines.random_draws import CoupledGenerator
from dpaudit.pipelines.recording import Recording


def draws(ids, seed=0):
    return Draws(ids=np.array(ids), extras={3}, seed=seed)


WITHOUT, WITH = [0, 1, 2], [0, 3, 1, 2]
"""Numbers of the records, where the record 3 is inserted at the second place."""


@pytest.mark.parametrize("ids", [WITHOUT, WITH])
def test_permutations_are_uniform(ids):
    seen = Counter(
        tuple(draws(ids, seed).permutation("a", len(ids)).tolist()) for seed in range(4800)
    )
    expected = 4800 / (6 if len(ids) == 3 else 24)
    assert len(seen) == 4800 / expected
    assert max(abs(count - expected) for count in seen.values()) < 5 * expected**0.5


def test_an_inserted_record_displaces_one_other_of_a_permutation():
    for seed in range(20):
        first = [WITHOUT[place] for place in draws(WITHOUT, seed).permutation("a", 3)]
        second = [WITH[place] for place in draws(WITH, seed).permutation("a", 4)]
        assert sum(a != b for a, b in zip(first, second[:3], strict=True)) <= 1


def test_poisson_batches_by_size_and_choice_keep_the_other_records():
    for seed in range(50):
        chosen = []
        for ids in (WITHOUT, WITH):
            own = CoupledGenerator(np.random.PCG64(seed), Recording(draws(ids, seed)), "s")
            size = own.binomial(len(ids), 0.5)
            places = own.choice(len(ids), size, replace=False)
            chosen.append({ids[place] for place in places} - {3})
            assert len(places) == size
        assert chosen[0] == chosen[1]


def test_indices_with_replacement_are_uniform_and_agree():
    first = np.concatenate([draws(WITHOUT, s).indices("a", 3, 10) for s in range(400)])
    second = np.concatenate([draws(WITH, s).indices("a", 4, 10) for s in range(400)])
    assert np.abs(np.bincount(first) - 4000 / 3).max() < 200
    assert np.abs(np.bincount(second) - 1000).max() < 150
    numbers = np.array(WITH)[second]
    assert (numbers[numbers != 3] == np.array(WITHOUT)[first][numbers != 3]).all()


@pytest.mark.parametrize(("ratio", "numbers"), [(0.5, 1), (2.0, 10), (1.1, 1000)])
def test_the_epsilon_of_noise_of_another_size_is_that_of_a_simulation(ratio, numbers):
    delta = 0.05
    epsilon = noise_ratio_epsilon(ratio, numbers, delta=delta)
    random = np.random.default_rng(0)
    squares = random.chisquare(numbers, 400_000)
    found = 0.0
    for narrow in (True, False):
        wide = max(ratio, 1 / ratio) ** 2
        x = squares if narrow else squares * wide
        loss = 0.5 * numbers * np.log(wide) - 0.5 * x * (1 - 1 / wide)
        loss = loss if narrow else -loss
        found = max(found, np.maximum(0, 1 - np.exp(epsilon - loss)).mean())
    assert found == pytest.approx(delta, rel=0.03)
