"""Examples refuse what training would choke on, and say where it is."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpaudit.data import Examples
from dpaudit.errors import InvalidInput


def make(**changes: object) -> Examples:
    columns: dict[str, object] = {"features": np.zeros((3, 2)), "targets": [0, 1, 0], "classes": 2}
    return Examples(**(columns | changes))  # type: ignore[arg-type]


def test_kinds_of_numbers() -> None:
    data = make(features=np.arange(6.0).reshape(3, 2))
    assert (data.features.dtype, data.targets.dtype) == (np.float32, np.int64)
    assert make(features=np.array([[1], [2], [7]])).features.dtype == np.int64  # token numbers
    assert make(features=np.zeros((3, 4), dtype=np.uint8)).features.dtype == np.float32
    assert len(data) == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"features": [[0.0], [math.nan], [math.nan]]},
            "2 of 3 examples are not, the first is example 1 with NaN",
        ),
        ({"features": [[0.0], [0.0], [-math.inf]]}, "the first is example 2 with infinite"),
        ({"features": [[0.0], [0.0], [1e39]]}, "finite .in float32.: 1 of 3"),
        ({"features": [["a"], ["b"], ["c"]]}, "features must be numbers"),
        ({"features": 1.0}, "axis of examples"),
        ({"features": np.zeros((2, 2))}, "one length, got 2 and 3"),
        ({"features": np.zeros((0, 2)), "targets": []}, "at least one example"),
        ({"targets": [0, 2, -1]}, r"0\.\.1 for 2 classes: 2 of 3 are not, the first is 2 at exam"),
        ({"targets": [0.0, 1.0, 0.0]}, "targets must be whole numbers .*got float64"),
        ({"targets": 1}, "targets must have an axis of examples"),
        ({"targets": [0.0, float("nan"), 0.0], "classes": None}, "targets must be finite"),
        ({"classes": 1}, "classes must be at least 2, got 1"),
    ],
)
def test_what_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        make(**changes)


def test_take_keeps_the_pairs() -> None:
    data = make(features=np.arange(6.0).reshape(3, 2), name="mine").take([2, 0])
    assert data.features[:, 0].tolist() == [4.0, 0.0]
    assert data.targets.tolist() == [0, 0]
    assert data.name == "mine"


def test_any_change_shows_in_the_fingerprint() -> None:
    variants = [
        make(),
        make(features=np.full((3, 2), 1e-30)),
        make(features=np.zeros((3, 1, 2))),
        make(features=np.zeros((3, 2), dtype=np.int64)),
        make(targets=[0, 1, 1]),
        make(classes=3),
    ]
    assert len({data.fingerprint for data in variants}) == len(variants)
    assert make(name="other").fingerprint == make().fingerprint


@pytest.mark.parametrize("name", ["features", "targets"])
def test_nested_lists_of_different_lengths_are_refused(name):
    columns = {"features": [[1.0], [2.0]], "targets": [0.0, 1.0], name: [[1.0], [1.0, 2.0]]}
    with pytest.raises(InvalidInput, match=name):
        Examples(**columns)
