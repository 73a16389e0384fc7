"""Views contain only what their threat model allows."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pytest
import slow_training
import torch
from torch import Tensor

from dpaudit.adversaries import (
    ADVERSARIES,
    AdaptedGradients,
    AdaptedPoints,
    AdaptiveAdversary,
    AdaptivePoisoning,
    BlackBoxAdversary,
    BlackBoxView,
    Canaries,
    CanaryPoints,
    Canife,
    ChoosesData,
    CraftedDimensions,
    CraftedGradients,
    FlippedLabel,
    HiddenStateAdversary,
    HiddenStateView,
    Moment,
    RandomDimension,
    RandomDirection,
    StandardAdversary,
    StandardView,
)
from dpaudit.adversaries.crafting import audited_mechanism
from dpaudit.audits import audit
from dpaudit.engine import Speed
from dpaudit.engine.starting_points import initial_parameters
from dpaudit.errors import InvalidInput
from dpaudit.games import Game, play, prepare
from dpaudit.games.coins import insertion_coins
from dpaudit.games.tiles import engine_of
from dpaudit.mechanisms.batches import PoissonBatches
from dpaudit.mechanisms.dpsgd import DPSGD, FreshInitialisation, Insertion
from dpaudit.testing import easy_training

SPEED = Speed(device="cpu", compile=False, workers=1)
EXACT = Speed(device="cpu", precision="float64", compile=False, workers=1)


class Spy(BlackBoxAdversary):
    """Keeps the views it is handed."""

    name, paper = "spy", "none"
    seen: ClassVar[list[BlackBoxView]] = []

    def craft(
        self, mechanism: DPSGD, insertion: Insertion, *, canaries: int, seed: int
    ) -> CanaryPoints:
        return FlippedLabel().craft(mechanism, insertion, canaries=canaries, seed=seed)

    def queries(self, mechanism: DPSGD, canaries: Canaries) -> CanaryPoints:
        assert isinstance(canaries, CanaryPoints)
        return canaries

    def score(self, view: BlackBoxView, canaries: Canaries) -> Tensor:
        Spy.seen.append(view)
        return -view.losses


def _game(adversary: Any, mechanism: DPSGD, canaries: int = 2, **more: Any) -> Game:
    crafted = adversary.craft(mechanism, Insertion(), canaries=canaries, seed=1)
    described = {"runs": 6, "seed": 5, **more}
    return Game(mechanism=mechanism, adversary=adversary, canaries=crafted, **described)


def _black_box_view(mechanism: DPSGD) -> BlackBoxView:
    Spy.seen.clear()
    list(play(prepare(_game(Spy(), mechanism), SPEED)))
    return Spy.seen[0]


def _reachable(root: object) -> Iterator[object]:
    """Everything that hangs on ``root``; modules, classes and functions are public code."""
    public = (type, type(gc), type(_reachable), type(gc.collect))
    waiting, known = [root], set()
    while waiting:
        one = waiting.pop()
        if id(one) in known or isinstance(one, public):
            continue
        known.add(id(one))
        yield one
        waiting += gc.get_referents(one)
        waiting += [vars(one)] if hasattr(one, "__dict__") else []


def test_no_parameter_can_be_reached_from_a_black_box() -> None:
    view = _black_box_view(easy_training())
    shown = {field.name for field in dataclasses.fields(BlackBoxView)}
    assert shown == {"mechanism", "steps", "initial_losses", "losses", "outputs"}
    assert view.losses.shape == (6, 2)
    assert view.outputs.shape == (6, 2, 3)
    # What was trained has 21 numbers a run; the mechanism is public, so it is looked at apart.
    answers = dataclasses.replace(view, mechanism=None)  # type: ignore[arg-type]
    tensors = [one for one in _reachable(answers) if isinstance(one, Tensor)]
    assert len(tensors) == 3
    assert all(21 not in tensor.shape for tensor in tensors)
    for tensor in tensors:
        assert tensor.grad_fn is None
        assert tensor._base is None
        assert tensor.untyped_storage().nbytes() == tensor.numel() * 4
    assert not any(isinstance(one, Tensor) for one in _reachable(view.mechanism.data))


def test_the_answers_are_those_of_the_final_models() -> None:
    """A hidden-state adversary in the same game sees the models; the losses must be theirs."""
    training = easy_training()
    view = _black_box_view(training)
    expected = np.concatenate(
        [block.score for _, block in play(prepare(_game(FlippedLabel(), training), SPEED))]
    )
    np.testing.assert_allclose(-view.losses.numpy().ravel(), expected, rtol=1e-5, atol=1e-6)
    assert view.initial_losses is not None
    unknown = dataclasses.replace(training, initialisation=FreshInitialisation())
    assert _black_box_view(unknown).initial_losses is None


@pytest.mark.parametrize(
    "name", [name for name, one in ADVERSARIES.items() if isinstance(one, StandardAdversary)]
)
def test_standard_adversaries_cannot_run_in_the_hidden_state(name: str) -> None:
    training, one = easy_training(), ADVERSARIES[name]
    crafted = one.craft(training, Insertion(), canaries=1, seed=0)
    view = HiddenStateView(
        mechanism=training, steps=20, initial=torch.zeros(21), final=torch.zeros(4, 21)
    )
    with pytest.raises(AttributeError, match="iterates"):
        one.score(view, crafted)  # type: ignore[attr-defined]


class Obstinate(AdaptiveAdversary):
    """Adaptive in type only: whatever it sees, it responds with the canaries it crafted."""

    name, paper = "obstinate", "none"

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def craft(
        self, mechanism: DPSGD, insertion: Insertion, *, canaries: int, seed: int
    ) -> Canaries:
        crafted: Canaries = self.inner.craft(mechanism, insertion, canaries=canaries, seed=seed)
        return crafted

    def respond(self, moment: Moment, canaries: Canaries) -> AdaptedPoints | AdaptedGradients:
        runs = len(moment.current)
        if isinstance(canaries, CanaryPoints):
            return AdaptedPoints(
                features=canaries.features.expand(runs, *canaries.features.shape),
                targets=canaries.targets.expand(runs, -1),
            )
        if isinstance(canaries, CraftedDimensions):
            own = torch.eye(moment.current.shape[1])[canaries.dimensions] * canaries.norm
        else:
            assert isinstance(canaries, CraftedGradients)
            own = canaries.gradients
        return AdaptedGradients(gradients=own.to(moment.current).expand(runs, -1, -1))

    def score(self, view: StandardView, canaries: Canaries) -> Tensor:
        return view.iterates.sum(0)[:, : canaries.count]


def _iterates(described: Game) -> Tensor:
    """All iterates of the engine, in float64, shape (steps + 1, runs, parameters)."""
    engine = engine_of(prepare(described, EXACT), runs=described.runs)
    runs = torch.arange(described.runs)
    start = initial_parameters(
        described.mechanism, seed=described.seed, runs=runs, dtype=torch.float64
    )
    coins = insertion_coins(
        seed=described.seed,
        runs=described.runs,
        canaries=described.canaries.count,
        coin=described.coin,
    )
    return torch.stack([start, *(state[0] for state in engine.states(start, runs, coins))])


@pytest.mark.parametrize("poisson", [False, True], ids=["fixed", "poisson"])
@pytest.mark.parametrize("inner", [FlippedLabel(), RandomDimension(), RandomDirection()], ids=repr)
def test_a_constant_response_equals_fixed_canaries(inner: Any, poisson: bool) -> None:
    training = dataclasses.replace(easy_training(noise_multiplier=1.0), steps=7)
    if poisson:
        training = dataclasses.replace(training, batches=PoissonBatches(rate=0.25))
    period = Insertion(period=3, offset=1)
    ordinary = _game(inner, training, insertion=period)
    adaptive = _game(Obstinate(inner), training, insertion=period)
    np.testing.assert_allclose(_iterates(adaptive), _iterates(ordinary), rtol=1e-9, atol=1e-12)
    expected = slow_training.play(ordinary, run=2)
    np.testing.assert_allclose(_iterates(adaptive)[:, 2], expected, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("adversary", [AdaptivePoisoning(), Canife(genuine=4, steps=2)], ids=repr)
def test_adaptive_adversaries_equal_the_slow_twin(adversary: AdaptiveAdversary) -> None:
    training = dataclasses.replace(easy_training(noise_multiplier=1.0), steps=6)
    described = _game(adversary, training, insertion=Insertion(period=2))
    fast = _iterates(described)
    for run in range(3):
        slow = slow_training.play(described, run)
        np.testing.assert_allclose(fast[:, run], slow, rtol=1e-6, atol=1e-8)


class _TooLong(Obstinate):
    def respond(self, moment: Moment, canaries: Canaries) -> AdaptedGradients:
        ordinary = super().respond(moment, canaries)
        assert isinstance(ordinary, AdaptedGradients)
        return AdaptedGradients(gradients=1.1 * ordinary.gradients)


class _OneForAll(Obstinate):
    def respond(self, moment: Moment, canaries: Canaries) -> AdaptedGradients:
        ordinary = super().respond(moment, canaries)
        assert isinstance(ordinary, AdaptedGradients)
        return AdaptedGradients(gradients=ordinary.gradients[:1])


@pytest.mark.parametrize(
    ("kind", "said"), [(_TooLong, "norm at most the clip norm .1., got 1.1"), (_OneForAll, "shape")]
)
def test_responses_above_the_clip_norm_are_refused(kind: Any, said: str) -> None:
    described = _game(kind(RandomDimension()), easy_training())
    with pytest.raises(InvalidInput, match=said):
        list(play(prepare(described, SPEED)))


@dataclasses.dataclass(frozen=True)
class _QuieterNoise(HiddenStateAdversary, ChoosesData):
    """Chooses more than the data."""

    name: ClassVar[str] = "quieter-noise"
    paper: ClassVar[str] = "none"

    def prepare(self, mechanism: DPSGD) -> DPSGD:
        return dataclasses.replace(mechanism, noise_multiplier=0.1)

    def craft(self, *given: Any, **more: Any) -> Canaries:
        return RandomDimension().craft(*given, **more)

    def score(self, view: HiddenStateView, canaries: Canaries) -> Tensor:
        return RandomDimension().score(view, canaries)


def test_an_adversary_may_change_only_the_data() -> None:
    with pytest.raises(InvalidInput, match="nothing of the mechanism but its data"):
        audit(easy_training(), _QuieterNoise(), runs=10, speed=SPEED, anyway=True)
    training = easy_training()
    assert audited_mechanism(RandomDimension(), training) is training
