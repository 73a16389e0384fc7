"""Scores from and to data frames."""

import numpy as np
import pytest

import dpaudit
from dpaudit.errors import InvalidScores

COLUMNS = {
    "note": ["a", "b", "c", "d"],
    "score": [2.0, 0.5, 1.5, -1.0],
    "inserted": [True, False, True, False],
    "run": [0, 0, 1, 1],
}


def frames():
    yield pytest.importorskip("pandas").DataFrame(COLUMNS)
    yield pytest.importorskip("polars").DataFrame(COLUMNS)
    yield pytest.importorskip("pyarrow").table(COLUMNS)


def test_a_frame_of_any_library_becomes_scores():
    for frame in frames():
        scores = dpaudit.Scores.from_pandas(frame)
        assert scores.score.tolist() == COLUMNS["score"]
        assert scores.inserted.tolist() == COLUMNS["inserted"]
        assert scores.run.tolist() == COLUMNS["run"]
        assert scores.canary.tolist() == [0, 1, 0, 1]


def test_a_frame_of_pandas_gives_the_same_scores_again():
    scores = dpaudit.Scores.from_samples([1.0, 2.0], [0.0])
    frame = scores.to_pandas()
    assert list(frame.columns) == ["run", "canary", "inserted", "score"]
    again = dpaudit.Scores.from_pandas(frame)
    for name in frame.columns:
        assert np.array_equal(getattr(again, name), getattr(scores, name))
    frame["score"] = 0.0  # the table's own arrays stay
    assert scores.score.tolist() == [1.0, 2.0, 0.0]


def test_estimate_takes_a_frame():
    random = np.random.default_rng(0)
    scores = dpaudit.Scores.from_samples(random.normal(2, 1, 200), random.normal(0, 1, 200))
    for method in ("clopper-pearson", "gaussian-dp"):
        options = {"delta": 1e-5, "method": method}
        assert dpaudit.estimate(scores.to_pandas(), **options) == dpaudit.estimate(
            scores, **options
        )
    both = dpaudit.estimate_all(scores.to_pandas(), methods=["clopper-pearson"], delta=1e-5)
    assert both["clopper-pearson"] == dpaudit.estimate(scores, delta=1e-5)


def test_a_missing_column_is_named_with_the_columns_there_are():
    pandas = pytest.importorskip("pandas")
    with pytest.raises(InvalidScores, match=r"'inserted'") as error:
        dpaudit.Scores.from_pandas(pandas.DataFrame({"score": [1.0], "member": [1]}))
    assert "member" in str(error.value)
    with pytest.raises(InvalidScores, match="list"):
        dpaudit.Scores.from_pandas([1.0])
