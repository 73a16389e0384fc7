"""Bounds: what they print and that they can be kept in sets and pickled."""

import pickle

import pytest

from dpaudit import Bound

GIVEN = {"epsilon": 2.0, "delta": 1e-5, "side": "lower", "method": "m", "confidence": 0.95}


@pytest.mark.parametrize(
    ("guarantee", "words"),
    [
        ("confidence", "95% confidence"),
        ("credible", "95% credible"),
        ("none", "nominally 95%"),
    ],
)
def test_a_bound_prints_what_is_guaranteed(guarantee: str, words: str) -> None:
    bound = Bound(**GIVEN, guarantee=guarantee)
    assert repr(bound) == f"Bound(epsilon >= 2.0000 at delta=1e-05, {words}, m)"
    assert bound.to_dict()["guarantee"] == guarantee


def test_an_upper_bound_always_holds() -> None:
    bound = Bound(epsilon=2.0, delta=1e-5, side="upper", method="m")
    assert bound.level == ""
    assert bound.to_dict()["guarantee"] is None


def test_equal_bounds_have_equal_hashes_and_survive_pickling() -> None:
    bound = Bound(**GIVEN, details={"curve": [1, 2]})
    again = pickle.loads(pickle.dumps(bound))
    assert again == bound
    assert len({bound, again}) == 1
