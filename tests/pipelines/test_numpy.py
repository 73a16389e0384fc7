"""Whole pipelines in plain NumPy, which say what they do, or are seen by their noise."""

import functools

import numpy as np
import pytest
from helpers import rule_names
from numpy.random import default_rng

from dpaudit import check_pipeline
from dpaudit.errors import InvalidInput, TrainingFailed
from dpaudit.pipelines import batch, neighbours_of, public, release, with_and_without

DATA = np.random.default_rng(1).normal(size=(24, 3))


def clipped(rows):
    return rows / np.maximum(1, np.linalg.norm(rows, axis=1))[:, None]


def poisson(data, seed, *, steps=6, divisor=6.0, rate=0.25, marked=True, prepare=None):
    random, theta = np.random.default_rng(seed), np.zeros(3)
    data = data if prepare is None else prepare(data)
    for _ in range(steps):
        places = np.flatnonzero(random.random(len(data)) < rate)
        batch(places)
        total = clipped(data[places]).sum(axis=0) + random.normal(0, 1.0, 3)
        if marked:
            total = release(total)
            public(divisor=divisor)
        theta -= 0.1 * total / divisor
    return theta


@pytest.mark.parametrize("place", [-1, 0, 11])
@pytest.mark.parametrize("marked", [True, False])
def test_correct_poisson_sampling_has_no_finding(place, marked):
    def train(data, seed):
        return poisson(data, seed, marked=marked)

    result = check_pipeline(train, with_and_without(DATA, place))
    assert result.passed
    assert not result.warnings


@pytest.mark.parametrize("places", [[3, 4, 5], [0, 23], [-1, 7]])
def test_a_user_who_is_added_with_all_records(places):
    pair = neighbours_of(with_and_without(DATA, places), unit="user")
    assert pair.words == f"{len(places)} of 24 records, those of a user, are added"
    result = check_pipeline(poisson, pair)
    assert result.passed
    assert not result.warnings
    found = check_pipeline(lambda data, seed: poisson(data, seed, divisor=len(data) / 4), pair)
    assert rule_names(found.broken) == {"divisor"}


def test_missing_values_are_equal_to_themselves():
    data = DATA.copy()
    data[3, 1] = np.nan
    assert neighbours_of(with_and_without(data)).words == "record 24 of 24 is added"
    with pytest.raises(InvalidInput, match="at least one record"):
        with_and_without(data, [])


def test_a_user_who_is_replaced():
    other = DATA.copy()
    other[[2, 9]] = 0
    pair = neighbours_of((DATA, other), unit="user")
    assert pair.extras == {22, 23}
    assert check_pipeline(poisson, pair).passed


def test_shuffled_batches_of_a_replaced_record_have_no_finding():
    def train(data, seed):
        random, theta = np.random.default_rng(seed), np.zeros(3)
        for places in random.permutation(len(data)).reshape(4, 6):
            batch(places)
            theta -= release(clipped(data[places]).sum(axis=0) + random.normal(0, 1.0, 3))
        return theta

    other = DATA.copy()
    other[5] = 0
    result = check_pipeline(train, (DATA, other))
    assert result.passed
    assert not result.warnings


def in_batches(data, seed, *, batches, coupled=True):
    random = default_rng(seed) if coupled else np.random.Generator(np.random.PCG64(seed))
    theta = np.zeros(3)
    for places in batches(random, data):
        batch(places)
        theta -= release(clipped(data[places]).sum(axis=0) + random.normal(0, 1.0, 3))
    return theta


SAMPLINGS = {
    "Poisson": lambda random, data: [np.flatnonzero(random.random(len(data)) < 0.75) for _ in "12"],
    "subsets": lambda random, data: [random.choice(len(data), 6, replace=False) for _ in "1234"],
    "shuffled": lambda random, data: np.array_split(random.permutation(len(data)), 4),
    "with replacement": lambda random, data: [random.choice(len(data), 6) for _ in "1234"],
}


@pytest.mark.parametrize("name", SAMPLINGS)
@pytest.mark.parametrize("place", [-1, 0, 11])
def test_batches_of_a_generator_that_is_not_coupled_are_not_tested(name, place):
    """The same seed gives partly the same batches with N and N + 1 records."""
    train = functools.partial(in_batches, batches=SAMPLINGS[name], coupled=False)
    result = check_pipeline(train, with_and_without(DATA, place))
    assert not result.broken
    assert not result.warnings
    if result.calls > 2:  # by chance, all batches agree
        assert "could not be coupled" in result["batches of other records"].explanation


def test_functions_that_are_imported_by_name_are_coupled_and_restored():
    before = default_rng, np.random.default_rng
    train = functools.partial(in_batches, batches=SAMPLINGS["Poisson"])
    result = check_pipeline(train, with_and_without(DATA))
    assert result["batches of other records"].verdict == "passed"
    assert before == (default_rng, np.random.default_rng)


@pytest.mark.parametrize("name", ["subsets", "with replacement"])
def test_batches_of_fixed_size_are_a_warning_for_an_added_record(name):
    train = functools.partial(in_batches, batches=SAMPLINGS[name])
    for place in range(4):
        result = check_pipeline(train, with_and_without(DATA, place))
        assert result.passed
        assert rule_names(result.warnings) == {"batches of other records"}
    other = DATA.copy()
    other[5] = 0
    assert not check_pipeline(train, (DATA, other)).warnings


@pytest.mark.parametrize("drawn", [True, False])
def test_batches_that_the_data_decide_are_found(drawn):
    """Deterministic batches, and drawn ones, whose order follows the number of records."""

    def batches(random, data):
        rest = random.permutation(len(data)) if drawn else np.arange(len(data))
        return [rest[rest % 3 == (i + len(data)) % 3] for i in range(3)]

    train = functools.partial(in_batches, batches=batches)
    assert rule_names(check_pipeline(train, with_and_without(DATA)).broken) == {
        "batches of other records"
    }


def test_a_divisor_from_the_data_is_seen_in_the_noise_of_the_result():
    def train(data, seed):
        return poisson(data, seed, divisor=0.25 * len(data), marked=False)

    result = check_pipeline(train, with_and_without(DATA))
    assert rule_names(result.broken) == {"noise of the result"}
    assert result["noise of the result"].measured == "ratio 0.9583"


def test_a_number_of_steps_from_the_data_is_seen_without_marks():
    def train(data, seed):
        return poisson(data, seed, steps=len(data) // 6, marked=False)

    result = check_pipeline(train, with_and_without(DATA))
    assert {"number of steps", "noise of the result"} <= rule_names(result.broken)


def test_an_inserted_record_shifts_micro_batches():
    """As with PyVacy's samplers: micro-batches of several records are cut from one list."""

    def train(data, seed):
        random, theta = np.random.default_rng(seed), np.zeros(3)
        for _ in range(3):
            total = random.normal(0, 1.0, 3)
            for start in range(0, len(data), 4):
                batch(range(start, min(start + 4, len(data))))
                total += clipped(data[start : start + 4].mean(axis=0)[None])[0]
            public(noise_multiplier=1.0)
            theta -= release(total)
        return theta

    result = check_pipeline(train, with_and_without(DATA, 0))
    assert "batches of other records" in rule_names(result.broken)
    assert result["batches of other records"].epsilon > 20
    assert "batches of other records" in rule_names(check_pipeline(train, data=DATA).broken)


def test_a_named_quantity_that_no_rule_has():
    def train(data, seed):
        public(vocabulary=len(np.unique(data.round())))
        return poisson(data, seed)

    data = DATA.copy()
    data[-1] = 77
    result = check_pipeline(train, with_and_without(data))
    assert rule_names(result.broken) == {"vocabulary"}


def test_what_a_clock_changes_is_not_a_finding():
    ticks = iter(range(100))

    def train(data, seed):
        print(f"took {next(ticks)} s")
        return poisson(data, seed), next(ticks)

    result = check_pipeline(train, with_and_without(DATA))
    assert not result.broken
    assert result["logs"].verdict == "not tested"


def test_file_names(tmp_path):
    def train(data, seed):
        (tmp_path / f"model-{len(data)}.txt").write_text("weights")
        return poisson(data, seed)

    result = check_pipeline(train, with_and_without(DATA))
    assert rule_names(result.broken) == {"files"}


def test_a_pipeline_that_shows_no_step_is_not_tested():
    result = check_pipeline(lambda data, seed: 3.0, with_and_without(DATA))
    assert result.verdict == "not tested"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "give neighbours"),
        ({"neighbours": DATA}, "neighbours must be a pair"),
        ({"neighbours": (DATA, DATA[:20])}, "differ in one record"),
        ({"neighbours": (DATA, DATA + 1)}, "differ in one record, got 24"),
        ({"neighbours": (DATA, DATA)}, "two equal data sets"),
        ({"data": DATA[:1]}, "at least two records"),
        ({"data": 3}, "number of records"),
    ],
)
def test_data_sets_that_are_no_neighbours(arguments, words):
    with pytest.raises(InvalidInput, match=words):
        check_pipeline(poisson, **arguments)


def test_functions_that_do_not_fit():
    with pytest.raises(InvalidInput, match=r"train\(data, seed\)"):
        check_pipeline(lambda data: data, data=DATA)
    with pytest.raises(TrainingFailed, match="ZeroDivisionError"):
        check_pipeline(lambda data, seed: 1 / 0, data=DATA)
