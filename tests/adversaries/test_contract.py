"""Every adversary keeps the contract, and the contract finds adversaries that do not."""

from __future__ import annotations

import dataclasses
import itertools
import pickle
from collections.abc import Callable
from typing import ClassVar

import pytest
import torch

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
from dpaudit.mechanisms.dpsgd import DPSGD, Insertion
from dpaudit.testing import check_adversary, easy_training

STRATEGIES = [
    SimulatedDimension(simulation=simulation, ranking=ranking)
    for simulation in ("noiseless", "noisy")
    for ranking in ("per-step", "final-model")
]


@pytest.mark.parametrize("one", [*ADVERSARIES.values(), *STRATEGIES], ids=repr)
def test_registered_adversaries_keep_the_contract(one: Adversary) -> None:
    check_adversary(one)


def test_one_class_has_two_names() -> None:
    one_run = adversary("one-run-white-box")
    assert one_run == DiracGradient(subtract=False) == OneRunWhiteBox()
    assert one_run.name == pickle.loads(pickle.dumps(one_run)).name == "one-run-white-box"
    assert adversary("dirac-gradient").name == "dirac-gradient"
    assert len(ADVERSARIES) == 18


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"adversary must be one of random-dimension, .*got 'x'"):
        adversary("x")


def test_the_hidden_state_view_has_no_iterates() -> None:
    shown = {field.name for field in dataclasses.fields(HiddenStateView)}
    assert shown == {"mechanism", "steps", "initial", "final", "insertion"}
    with pytest.raises(TypeError, match="iterates"):
        HiddenStateView(mechanism=None, steps=1, initial=None, final=None, iterates=None)  # type: ignore[call-arg, arg-type]


@dataclasses.dataclass(frozen=True)
class EveryIterate(StandardAdversary):
    """Sums what every step moved in one dimension: the same as the final model, seen stepwise."""

    name: ClassVar[str] = "every-iterate"
    paper: ClassVar[str] = ""

    def craft(
        self, mechanism: DPSGD, insertion: Insertion, *, canaries: int, seed: int
    ) -> CraftedDimensions:
        return CraftedDimensions(dimensions=torch.arange(canaries), norm=mechanism.clip_norm)

    def score(self, view: StandardView, canaries: Canaries) -> torch.Tensor:
        assert isinstance(canaries, CraftedDimensions)
        return -view.iterates.diff(dim=0).sum(0)[:, canaries.dimensions]


def test_a_standard_adversary_keeps_the_contract() -> None:
    check_adversary(EveryIterate())


class _Base(HiddenStateAdversary):
    """Keeps the contract; each subclass breaks one rule."""

    name = "base"
    paper = ""

    def craft(
        self, mechanism: DPSGD, insertion: Insertion, *, canaries: int, seed: int
    ) -> Canaries:
        return CraftedDimensions(dimensions=torch.arange(canaries), norm=mechanism.clip_norm)

    def score(self, view: HiddenStateView, canaries: Canaries) -> torch.Tensor:
        return view.final.new_zeros(()) - _moved(view)[:, : canaries.count]


def _moved(view: HiddenStateView) -> torch.Tensor:
    return view.final if view.initial is None else view.final - view.initial


class _Nameless(_Base):
    name = ""


class _WrongView(_Base):
    def score(self, view: StandardView, canaries: Canaries) -> torch.Tensor:  # type: ignore[override]
        return view.iterates[-1]


class _AnotherEachTime(_Base):
    def craft(
        self, mechanism: DPSGD, insertion: Insertion, *, canaries: int, seed: int
    ) -> Canaries:
        turned = torch.roll(torch.arange(21), next(_calls))
        return CraftedDimensions(dimensions=turned[:canaries], norm=mechanism.clip_norm)


_calls = itertools.count()


class _GlobalGenerator(_Base):
    def craft(
        self, mechanism: DPSGD, insertion: Insertion, *, canaries: int, seed: int
    ) -> Canaries:
        return CraftedDimensions(dimensions=torch.randperm(21)[:canaries], norm=mechanism.clip_norm)


class _TooLong(_Base):
    def craft(
        self, mechanism: DPSGD, insertion: Insertion, *, canaries: int, seed: int
    ) -> Canaries:
        return CraftedGradients(gradients=2 * mechanism.clip_norm * torch.eye(21)[:canaries])


class _Twice(_Base):
    def craft(
        self, mechanism: DPSGD, insertion: Insertion, *, canaries: int, seed: int
    ) -> Canaries:
        same = torch.zeros(canaries, dtype=torch.int64)
        return CraftedDimensions(dimensions=same, norm=mechanism.clip_norm)


class _TooFew(_Base):
    def craft(
        self, mechanism: DPSGD, insertion: Insertion, *, canaries: int, seed: int
    ) -> Canaries:
        return CraftedDimensions(dimensions=torch.arange(1), norm=mechanism.clip_norm)


class _WrongWay(_Base):
    def score(self, view: HiddenStateView, canaries: Canaries) -> torch.Tensor:
        return _moved(view)[:, : canaries.count]


class _Flat(_Base):
    def score(self, view: HiddenStateView, canaries: Canaries) -> torch.Tensor:
        return -_moved(view)[:, 0]


class _NotANumber(_Base):
    def score(self, view: HiddenStateView, canaries: Canaries) -> torch.Tensor:
        return -_moved(view)[:, : canaries.count] / 0.0 * 0.0


class _LooksAtOthers(_Base):
    def score(self, view: HiddenStateView, canaries: Canaries) -> torch.Tensor:
        moved = _moved(view)[:, : canaries.count]
        return -(moved - moved.mean(0))


class _Scribbles(_Base):
    def score(self, view: HiddenStateView, canaries: Canaries) -> torch.Tensor:
        view.final.mul_(-1)
        return view.final[:, : canaries.count]


def test_the_base_of_the_broken_adversaries_keeps_the_contract() -> None:
    check_adversary(_Base())


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (_Nameless, "name"),
        (_WrongView, "score takes a StandardView not a"),
        (_AnotherEachTime, "the same seed gives another dimensions"),
        (_GlobalGenerator, "torch's own generator"),
        (_TooLong, "norm of a crafted gradient must be .* at most the clip norm .1., got 2"),
        (_Twice, "dimensions must be distinct"),
        (_TooFew, "asked for 3 canaries, got 1"),
        (_WrongWay, "area under the curve 0.0"),
        (_Flat, "shape of scores"),
        (_NotANumber, "not finite"),
        (_LooksAtOthers, "depend on other runs"),
        (_Scribbles, "score changes final"),
    ],
)
def test_broken_adversaries_are_found(broken: Callable[[], Adversary], said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        check_adversary(broken())


def test_a_random_score_is_refused() -> None:
    """With noise far above the signal no score can pass the test of direction."""
    with pytest.raises(AssertionError, match="area under the curve"):
        check_adversary(_Base(), mechanism=easy_training(noise_multiplier=100.0))
