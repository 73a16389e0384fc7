"""Every adversary keeps the contract, and the contract finds adversaries that do not."""

from __future__ import annotations

import dataclasses
import itertools
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from dpaudit.adversaries import (
    ADVERSARIES,
    Adversary,
    Canaries,
    CraftedDimensions,
    CraftedGradients,
    DiracGradient,
    HiddenStateAdversary,
    HiddenStateView,
    OneRunWhiteBox,
    SimulatedDimension,
    StandardAdversary,
    StandardView,
    adversary,
)
from dpaudit.errors import InvalidInput
from dpaudit.mechanisms import DPSGD, Insertion
from dpaudit.testing import check_adversary, easy_training

STRATEGIES = [
    SimulatedDimension(simulation=simulation, ranking=ranking)
    for simulation in ("noiseless", "noisy")
    for ranking in ("per-step", "final-model")
]


@pytest.mark.parametrize("shipped", [*ADVERSARIES.values(), *STRATEGIES], ids=repr)
def test_registered_adversaries_keep_the_contract(shipped: Adversary) -> None:
    check_adversary(shipped)


def test_one_class_has_two_names() -> None:
    one_run = adversary("one-run-white-box")
    assert one_run == DiracGradient(subtract=False) == OneRunWhiteBox()
    assert one_run.name == pickle.loads(pickle.dumps(one_run)).name == "one-run-white-box"
    assert adversary("dirac-gradient").name == "dirac-gradient"
    assert len(ADVERSARIES) == 20


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"adversary must be one of random-dimension, .*got 'x'"):
        adversary("x")


def test_the_hidden_state_view_has_no_iterates() -> None:
    shown = {field.name for field in dataclasses.fields(HiddenStateView)}
    assert shown == {"mechanism", "steps", "initial", "final", "insertion"}


class FirstDimensions(HiddenStateAdversary):
    """Keeps the contract; each variant below breaks one rule."""

    name, paper = "first-dimensions", ""

    def __init__(
        self,
        *,
        name: str = "first-dimensions",
        canaries: Callable[[int, float], Canaries] | None = None,
        score: Callable[[Tensor], Tensor] = torch.neg,
    ) -> None:
        self.name, self._canaries, self._score = name, canaries, score  # type: ignore[misc]

    def craft(
        self, mechanism: DPSGD, insertion: Insertion, *, canaries: int, seed: int
    ) -> Canaries:
        crafted = self._canaries or dimensions(torch.arange)
        return crafted(canaries, mechanism.clip_norm)

    def score(self, view: HiddenStateView, canaries: Canaries) -> Tensor:
        moved = view.final if view.initial is None else view.final - view.initial
        return self._score(moved[:, : canaries.count])


def dimensions(chosen: Callable[[int], Tensor]) -> Callable[[int, float], Canaries]:
    return lambda count, norm: CraftedDimensions(dimensions=chosen(count), norm=norm)


class AllIterates(StandardAdversary):
    """Sums what every step moved in one dimension."""

    name, paper = "all-iterates", ""

    def craft(self, mechanism: DPSGD, *rest: Any, canaries: int, **more: Any) -> Canaries:
        return CraftedDimensions(dimensions=torch.arange(canaries), norm=mechanism.clip_norm)

    def score(self, view: StandardView, canaries: Canaries) -> Tensor:
        return -view.iterates.diff(dim=0).sum(0)[:, : canaries.count]


class WrongView(FirstDimensions):
    def score(self, view: StandardView, canaries: Canaries) -> Tensor:  # type: ignore[override]
        return view.iterates[-1]


class Overwrites(FirstDimensions):
    def score(self, view: HiddenStateView, canaries: Canaries) -> Tensor:
        return view.final.mul_(-1)[:, : canaries.count]


class KnownStart(FirstDimensions):
    def score(self, view: HiddenStateView, canaries: Canaries) -> Tensor:
        return -(view.final - view.initial)[:, : canaries.count]  # type: ignore[operator]


class OneCanary(FirstDimensions):
    many = False

    def craft(self, mechanism: DPSGD, *rest: Any, canaries: int, **more: Any) -> Canaries:
        assert canaries == 1
        return CraftedDimensions(dimensions=torch.arange(1), norm=mechanism.clip_norm)

    def score(self, view, canaries):  # type: ignore[no-untyped-def,override]
        return super().score(view, canaries)


@pytest.mark.parametrize("kind", [FirstDimensions, AllIterates, OneCanary])
def test_adversaries_of_others_keep_the_contract(kind: type[Adversary]) -> None:
    check_adversary(kind())


calls = itertools.count()

BROKEN = {
    "name": {"name": ""},
    "the same seed gives another dimensions": {
        "canaries": dimensions(lambda count: torch.arange(21).roll(next(calls))[:count])
    },
    "torch's own generator": {"canaries": dimensions(lambda count: torch.randperm(21)[:count])},
    "norm of a crafted gradient must be .* at most the clip norm .1., got 2": {
        "canaries": lambda count, norm: CraftedGradients(gradients=2 * norm * torch.eye(21)[:count])
    },
    "dimensions must be distinct": {
        "canaries": dimensions(lambda count: torch.zeros(count, dtype=torch.int64))
    },
    "asked for 3 canaries, got 1": {"canaries": dimensions(lambda count: torch.arange(1))},
    "area under the curve 0, needed 0.95: .* change its sign": {"score": torch.clone},
    "shape of scores": {"score": lambda moved: -moved[:, 0]},
    "not finite": {"score": lambda moved: -moved / 0.0 * 0.0},
    "depend on other runs": {"score": lambda moved: moved.mean(0) - moved},
}


@pytest.mark.parametrize("message", BROKEN)
def test_broken_adversaries_are_found(message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_adversary(FirstDimensions(**BROKEN[message]))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (WrongView, "score takes a StandardView, and its base class gives it a HiddenStateView"),
        (Overwrites, "score changes final"),
        (KnownStart, "view.initial is None where every run starts elsewhere"),
    ],
)
def test_broken_scores_are_found(kind: type[Adversary], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_adversary(kind())


def test_a_random_score_is_refused() -> None:
    """With noise far above the signal no score can pass the test of direction."""
    with pytest.raises(AssertionError, match="area under the curve"):
        check_adversary(FirstDimensions(), mechanism=easy_training(noise_multiplier=100.0))
