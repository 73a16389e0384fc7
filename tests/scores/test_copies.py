"""Copies of scores are refused whatever their source; scores that take few values are not."""

from __future__ import annotations

import numpy as np
import pytest

import dpaudit
from dpaudit import Scores
from dpaudit.errors import InvalidScores

RANDOM = np.random.default_rng(0)
INSERTED, OTHERS = RANDOM.normal(2, 1, 80), RANDOM.normal(0, 1, 80)


def copied(scores, count):
    return np.concatenate([scores, scores[:count]])


@pytest.mark.parametrize("shuffled", [False, True])
def test_scores_and_a_copy_of_most_of_them_are_refused(shuffled):
    """80 rows and a copy of 79 raised the bound at delta 1e-5 from 7.15 to 9.72."""
    inserted, others = copied(INSERTED, 79), copied(OTHERS, 79)
    if shuffled:
        inserted, others = RANDOM.permutation(inserted), RANDOM.permutation(others)
    with pytest.raises(InvalidScores, match="158 different scores occur exactly 2 times"):
        dpaudit.lower_bound(inserted, others, delta=1e-5)
    frame = Scores(score=others, inserted=np.zeros(159), canary=np.arange(159)).to_pandas()
    with pytest.raises(InvalidScores, match="number the canaries"):
        dpaudit.estimate(frame[["score", "inserted"]], delta=1e-5)
    assert len(Scores.from_pandas(frame)) == 159  # numbered canaries were checked by their maker


@pytest.mark.parametrize(("count", "refused"), [(20, True), (19, False)])
def test_twenty_scores_that_occur_again_in_order_are_a_copy(count, refused):
    scores = np.concatenate([INSERTED, OTHERS[:7], INSERTED[30 : 30 + count]])
    if refused:
        with pytest.raises(InvalidScores, match="20 scores from place 30 on occur again"):
            Scores(score=scores, inserted=np.ones(len(scores)))
    else:
        assert len(Scores(score=scores, inserted=np.ones(len(scores)))) == 106


@pytest.mark.parametrize(("times", "values"), [(2, 20), (7, 18)])
def test_values_that_occur_equally_often_beyond_chance_are_copies(times, values):
    scores = np.repeat(INSERTED[:values], times)
    with pytest.raises(InvalidScores, match=f"occur exactly {times} times"):
        Scores(score=RANDOM.permutation(scores), inserted=np.ones(len(scores)))
    fewer = RANDOM.permutation(scores[times:])
    assert len(Scores(score=fewer, inserted=np.ones(len(fewer)))) == (values - 1) * times


def test_a_score_that_occurs_with_and_without_the_canary_is_no_copy():
    scores = np.repeat(INSERTED, 2)
    assert len(Scores(score=scores, inserted=np.arange(160) % 2)) == 160


@pytest.mark.parametrize("size", [20, 200, 5000])
@pytest.mark.parametrize(
    "discrete",
    [
        lambda x: x > 0,
        np.round,
        lambda x: np.round(x, 1),
        lambda x: np.round(x, 2),
        lambda x: x.astype(np.float16),
        lambda x: x.astype(np.float32),
        lambda x: np.where(x > 0, x, -np.inf),
        lambda x: np.floor(np.exp(4 + x)),
    ],
)
def test_scores_of_few_values_are_no_copies(discrete, size):
    for _ in range(30):
        score = np.asarray(discrete(RANDOM.normal(size=size)), dtype=float)
        coins = RANDOM.random(size) < 0.5
        assert len(Scores(score=score, inserted=coins)) == size
        order = np.argsort(score)
        assert len(Scores(score=score[order], inserted=coins[order])) == size
