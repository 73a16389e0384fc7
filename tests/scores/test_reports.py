"""Scores of other tools: read as they are meant, or refused with the remedy."""

from __future__ import annotations

import json

import numpy as np
import pytest

from dpaudit.errors import InvalidInput, InvalidScores
from dpaudit.scores import Scores, read_scores, write_scores


def canary(included: bool, repetitions: int | None, score: object) -> dict[str, object]:
    return {
        "id": "c",
        "included": included,
        "repetitions": repetitions,
        "scores": {"headline_score": score, "min_k_percent": -1.0},
    }


MEMAUDIT = {
    "schema_version": "1",
    "per_canary": [
        canary(True, 1, 2.5),
        canary(True, 4, 9.0),
        canary(False, 0, 0.5),
        canary(True, 1, 3.0),
        canary(False, None, -0.5),
    ],
}
PRIVACYGUARD = {"train_scores": [2.5, 3], "test_scores": [0.5, -0.5]}
JAX_PRIVACY = {"in_canary_scores": [2.5, 3.0], "out_canary_scores": [0.5, -0.5]}


@pytest.mark.parametrize("report", [MEMAUDIT, PRIVACYGUARD, JAX_PRIVACY])
def test_reports_of_other_tools_are_canaries_of_one_training(tmp_path, report):
    path = tmp_path / "report.json"
    path.write_text("\ufeff" + json.dumps(report))
    scores = read_scores(path)
    np.testing.assert_array_equal(scores.score, [2.5, 3.0, 0.5, -0.5])
    np.testing.assert_array_equal(scores.inserted, [True, True, False, False])
    assert len(set(scores.run)) == 1
    assert len(set(scores.canary)) == 4


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[1, 2]", "must be a report of memaudit"),
        ("{}", "write other scores as CSV"),
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ('{"train_scores": [1, null], "test_scores": [0]}', "must be numbers, got None"),
        ('{"train_scores": [true], "test_scores": [0]}', "must be numbers, got True"),
        ('{"train_scores": 3, "test_scores": [0]}', "must be a list of numbers, got 3"),
        ('{"train_scores": [NaN], "test_scores": [0]}', "score"),
        ('{"per_canary": [3]}', "must have included, repetitions and scores.headline_score"),
        (json.dumps({"per_canary": [canary(True, 1, None)]}), "must be numbers, got None"),
        (json.dumps({"per_canary": [canary(True, 4, 1.0)]}), "repetitions of 1"),
    ],
)
def test_other_json_is_refused_with_the_remedy(tmp_path, content, message):
    path = tmp_path / "report.json"
    path.write_text(content)
    with pytest.raises(InvalidScores, match=message):
        read_scores(path)


def test_scores_are_not_written_as_json(tmp_path):
    with pytest.raises(InvalidInput, match="csv"):
        write_scores(Scores.from_samples([1.0], [0.0]), tmp_path / "scores.json")
