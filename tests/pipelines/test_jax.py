"""Whole pipelines with jax-privacy and Keras: correct trainings, and settings computed from N."""

import functools
import os

import numpy as np
import pytest

os.environ.setdefault("KERAS_BACKEND", "jax")
pytest.importorskip("jax_privacy")
keras = pytest.importorskip("keras")

import jax.numpy as jnp  # noqa: E402
from helpers import rule_names  # noqa: E402
from jax_privacy import batch_selection, keras_api, noise_addition  # noqa: E402

from dpaudit import check_pipeline  # noqa: E402
from dpaudit.pipelines import with_and_without  # noqa: E402

DATA = np.random.default_rng(1).normal(size=(20, 3)).astype(np.float32)


def poisson(count):
    return batch_selection.CyclicPoissonSampling(sampling_prob=0.25, iterations=5)


def jax_pipeline(strategy_for=poisson, prepare=lambda data: data):
    def train(data, seed):
        strategy = strategy_for(len(data))
        noise = noise_addition.gaussian_privatizer(stddev=1.0, prng_key=seed)
        theta = jnp.zeros(3)
        state, data = noise.init(theta), prepare(data)
        for places in strategy.batch_iterator(len(data), rng=seed):
            rows = jnp.asarray(data)[places.astype(int)]
            rows = rows / jnp.maximum(1, jnp.linalg.norm(rows, axis=1))[:, None]
            noisy, state = noise.update(rows.sum(axis=0), state)
            theta = theta - 0.2 * noisy
        return theta

    return train


def test_correct_poisson_sampling_with_jax_privacy_has_no_finding():
    result = check_pipeline(jax_pipeline(), with_and_without(DATA, 4))
    assert result.passed
    assert not result.warnings
    assert result["batches of other records"].verdict == "passed"
    assert result["returned values"].verdict == "passed"


ADDED = [
    batch_selection.BallsInBinsSampling(cycle_length=4, iterations=8),
    batch_selection.CyclicPoissonSampling(
        sampling_prob=0.5,
        iterations=8,
        cycle_length=2,
        partition_type=batch_selection.PartitionType.INDEPENDENT,
    ),
    batch_selection.BMinSepSampling(sampling_prob=0.3, iterations=8, min_sep=2),
]
"""Samplings for records that are added; only their rates are coupled."""

FIXED = [
    batch_selection.FixedBatchSampling(batch_size=5, iterations=4),
    batch_selection.FixedBatchSampling(batch_size=5, iterations=4, replace=True),
    batch_selection.CyclicPoissonSampling(sampling_prob=0.5, iterations=8, cycle_length=2),
]
"""Samplings for records that are replaced."""


@pytest.mark.parametrize("strategy", [*ADDED, *FIXED], ids=lambda own: type(own).__name__)
def test_other_samplings_of_jax_privacy_have_no_finding(strategy):
    train, other = jax_pipeline(lambda count: strategy), DATA.copy()
    other[-1] = 0
    pairs = [(DATA, other)]
    pairs += [with_and_without(DATA, place) for place in (-1, 0, 7)] * (strategy in ADDED)
    for pair in pairs:
        result = check_pipeline(train, pair)
        assert result.passed
        assert not result.warnings


def test_rate_and_steps_from_the_number_of_records():
    def settings(count):
        return batch_selection.CyclicPoissonSampling(sampling_prob=5 / count, iterations=count // 4)

    result = check_pipeline(jax_pipeline(settings), with_and_without(DATA))
    assert rule_names(result.broken) == {"number of steps", "sampling rate"}


def keras_pipeline(data, seed, poisson=False, shuffle=False):
    inputs, labels = data
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, kernel_initializer="zeros")])
    model = keras_api.make_private(
        model,
        keras_api.DPKerasConfig(
            epsilon=1e6,
            delta=1e-5,
            clipping_norm=1.0,
            batch_size=5,
            gradient_accumulation_steps=1,
            train_steps=4,
            train_size=len(inputs),
            poisson_sampling_in_fit=poisson,
            noise_multiplier=2.0,
            rescale_to_unit_norm=False,
            seed=seed,
        ),
    )
    model.compile(
        optimizer=keras.optimizers.SGD(1.0),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    model.fit(inputs, labels, batch_size=5, epochs=1, shuffle=shuffle, verbose=0)
    return model


@pytest.mark.parametrize("options", [{}, {"shuffle": True}, {"poisson": True}])
def test_a_keras_training_with_a_replaced_record_has_no_finding(options):
    labels, other = np.arange(20) % 2, DATA.copy()
    other[-1] = 0
    train = functools.partial(keras_pipeline, **options)
    result = check_pipeline(train, ((DATA, labels), (other, labels)))
    assert result.passed
    assert not result.warnings


def test_a_keras_training_with_its_number_of_records():
    labels = np.arange(20) % 2
    train = functools.partial(keras_pipeline, poisson=True)
    result = check_pipeline(train, with_and_without((DATA, labels)))
    assert "sampling rate" in rule_names(result.broken)
