"""The table of scores: what it refuses, and what it counts."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpaudit.errors import InvalidInput, InvalidScores
from dpaudit.scores import ScoreBlock, Scores

BLOCK = {"run": [0], "canary": [0], "horizon": [1], "inserted": [1], "score": [0.0]}


def test_every_row_is_a_run_by_default() -> None:
    scores = Scores(score=[3, 1, 2], inserted=[1, 0, 1])
    assert scores.run.tolist() == [0, 1, 2]
    assert scores.canary.tolist() == [0, 0, 0]
    assert (scores.runs, scores.canaries_per_run, scores.clustered) == (3, 1, False)


def test_the_two_classes_keep_their_order() -> None:
    scores = Scores(score=[3.0, 1.0, -2.0, 4.0], inserted=[True, False, True, False])
    assert scores.inserted_scores.tolist() == [3.0, -2.0]
    assert scores.other_scores.tolist() == [1.0, 4.0]


def test_columns_have_one_kind_each_and_cannot_be_written() -> None:
    scores = Scores(score=[1, 2], inserted=[1, 0], run=np.array([5, 5], dtype=np.int32))
    assert [c.dtype for c in (scores.score, scores.inserted, scores.run, scores.canary)] == [
        np.float64,
        np.bool_,
        np.int64,
        np.int64,
    ]
    with pytest.raises(ValueError, match="read-only"):
        scores.score[0] = 9.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        scores.score = np.zeros(2)  # type: ignore[misc]


def test_the_callers_array_stays_writable_and_apart() -> None:
    mine = np.array([1.0, 2.0])
    scores = Scores(score=mine, inserted=[1, 0])
    mine[0] = 7.0
    assert scores.score[0] == 1.0


@given(st.lists(st.integers(0, 4), max_size=30))
def test_canaries_are_numbered_within_their_run(run: list[int]) -> None:
    scores = Scores(score=np.zeros(len(run)), inserted=np.zeros(len(run), bool), run=run)
    assert scores.canary.tolist() == [run[:i].count(r) for i, r in enumerate(run)]
    assert scores.runs == len(set(run))
    assert scores.clustered == (len(set(run)) < len(run))
    assert scores.canaries_per_run == max(map(run.count, run), default=0)


def test_infinities_are_scores() -> None:
    scores = Scores(score=[math.inf, -math.inf], inserted=[1, 0])
    assert scores.inserted_scores.tolist() == [math.inf]


def test_nan_is_not() -> None:
    with pytest.raises(InvalidScores, match=r"NaN in 2 of 4 rows, the first is row 1"):
        Scores(score=[0, math.nan, 1, math.nan], inserted=[0, 1, 0, 1])


def test_a_class_may_be_missing() -> None:
    assert len(Scores(score=[1.0], inserted=[1]).other_scores) == 0
    assert len(Scores(score=[], inserted=[])) == 0
    assert Scores(score=[], inserted=[]).runs == 0


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"score": [1.0, 2.0], "inserted": [1]}, "score has 2, inserted has 1"),
        ({"score": [[1.0]], "inserted": [1]}, r"one dimension, got shape \(1, 1\)"),
        ({"score": 1.0, "inserted": [1]}, "one dimension"),
        ({"score": ["a"], "inserted": [1]}, "array of numbers"),
        ({"score": [0, 0], "inserted": [0, 2]}, "0 or 1 in every row, got 2 in row 1"),
        ({"score": [0], "inserted": [math.nan]}, "0 or 1"),
        ({"score": [0], "inserted": ["1"]}, "booleans or 0 and 1"),
        ({"score": [0], "inserted": [0], "run": [0.5]}, "run must hold whole numbers"),
        ({"score": [0], "inserted": [0], "run": [1, 2]}, "run has 2"),
    ],
)
def test_what_is_refused(columns: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Scores(**columns)  # type: ignore[arg-type]


def test_samples_become_labelled_rows() -> None:
    scores = Scores.from_samples([3.0, 2.0], [1.0])
    assert scores.inserted_scores.tolist() == [3.0, 2.0]
    assert scores.other_scores.tolist() == [1.0]
    assert scores.runs == 3


def test_concat_keeps_runs_together() -> None:
    first = Scores(score=[1, 2], inserted=[1, 0], run=[0, 0], canary=[0, 1])
    second = Scores(score=[3, 4], inserted=[1, 0], run=[0, 1], canary=[2, 0])
    whole = Scores.concat([first, second])
    assert whole.score.tolist() == [1, 2, 3, 4]
    assert (whole.runs, whole.canaries_per_run) == (2, 3)
    assert len(Scores.concat([])) == 0


def test_concat_refuses_to_count_a_canary_twice() -> None:
    part = Scores.from_samples([1.0], [0.0])
    with pytest.raises(InvalidScores, match=r"2 .* more than once, the first is run 0, canary 0"):
        Scores.concat([part, part])


def test_a_block_gives_the_scores_of_one_horizon() -> None:
    block = ScoreBlock(
        run=[4, 4, 5, 5],
        canary=[0, 0, 0, 0],
        horizon=[10, 20, 10, 20],
        inserted=[1, 1, 0, 0],
        score=[0.1, 0.2, 0.3, 0.4],
    )
    assert block.horizons == (10, 20)
    assert block.scores(20).score.tolist() == [0.2, 0.4]
    assert block.scores(20).run.tolist() == [4, 5]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"score": [math.nan]}, "NaN in 1 of 1"),
        ({"horizon": [1, 2]}, "horizon has 2"),
        ({"inserted": [3]}, "0 or 1"),
        ({"run": [1.5]}, "run must hold whole numbers"),
    ],
)
def test_a_block_checks_its_columns(change: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidScores, match=message):
        ScoreBlock(**(BLOCK | change))  # type: ignore[arg-type]


@pytest.mark.parametrize("column", ["score", "inserted", "run", "canary"])
def test_nested_lists_of_different_lengths_are_refused(column):
    columns = {"score": [1.0, 2.0], "inserted": [1, 0], "run": [0, 1], "canary": [0, 0]}
    with pytest.raises(InvalidScores, match=column):
        Scores(**{**columns, column: [[1], [0, 1]]})


@pytest.mark.parametrize("column", ["score", "inserted"])
def test_masked_values_are_refused(column: str) -> None:
    columns = {"score": np.array([0.1, 2.0, 99.0]), "inserted": np.array([0, 1, 1])}
    columns[column] = np.ma.masked_array(columns[column], mask=[False, False, True])
    with pytest.raises(InvalidScores, match=f"{column} has 1 masked"):
        Scores(**columns)
    columns[column] = np.ma.masked_array(columns[column].data, mask=False)
    assert len(Scores(**columns)) == 3


def test_masked_samples_are_refused() -> None:
    with pytest.raises(InvalidScores, match="masked"):
        Scores.from_samples(np.ma.masked_greater([0.0, 1.0, 99.0], 50), [0.0, 0.5])
