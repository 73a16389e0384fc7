"""Equal settings are equal text; different ones are shown key by key."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpaudit.errors import InvalidInput
from dpaudit.scores.comparing import canonical_json, differences, identity


def test_spelling_does_not_matter() -> None:
    one = {"clip_norm": 1.0, "steps": 250, "horizons": (10, 20), "deep": {"b": True, "a": None}}
    two = {
        "deep": {"a": None, "b": True},
        "horizons": [10.0, np.int64(20)],
        "steps": np.int32(250),
        "clip_norm": np.float32(1),
    }
    assert canonical_json(one) == canonical_json(two)


def test_values_do() -> None:
    variants = [{"a": 1}, {"a": True}, {"a": "1"}, {"a": 1.5}, {"a": None}, {"a": [1]}, {"b": 1}]
    texts = {canonical_json(variant) for variant in variants}
    assert len(texts) == len(variants)
    assert len({identity(None, text) for text in texts}) == len(variants)
    assert identity("name", "{}") != identity(None, "{}")


@pytest.mark.parametrize(
    ("configuration", "message"),
    [
        ({"rate": math.nan}, r"configuration\.rate must be finite, got nan"),
        ({"a": {"b": [1, math.inf]}}, r"configuration\.a\.b\[1\] must be finite"),
        ({"a": {1: 2}}, "text as keys, got 1"),
        ({"model": object()}, r"configuration\.model must be text, .* got a object"),
        ({"weights": np.zeros(3)}, "got a ndarray"),
        ({"raw": b"x"}, "got a bytes"),
    ],
)
def test_what_is_no_setting(configuration: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        canonical_json(configuration)


def test_differences_are_readable() -> None:
    old = {"steps": 250, "data": {"name": "housing", "n": 5}, "seed": 0, "gone": [1]}
    new = {"steps": 500, "data": {"name": "cifar10", "n": 5}, "seed": 0, "new": {}}
    assert differences(old, new) == (
        "data.name: housing -> cifar10",
        "gone: [1] -> (not set)",
        "new: (not set) -> {}",
        "steps: 250 -> 500",
    )
    assert differences(old, old) == ()
