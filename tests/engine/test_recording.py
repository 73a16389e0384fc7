"""A step recorded on a GPU gives what the step itself gives, and is used only if it does."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from dpaudit.engine import Speed, compiling
from dpaudit.engine.compiling import (
    CHECKED_CALLS,
    Compiled,
    Recorded,
    Results,
    numerics,
    update_distance,
)
from dpaudit.engine.starting_points import initial_parameters
from dpaudit.engine.training import Engine
from dpaudit.presets import preset

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def double(values: Tensor) -> Results:
    return (2 * values,)


def distances(fast: Results, plain: Results, args: tuple[Tensor, ...]) -> list[tuple[float, float]]:
    return [(update_distance(fast[0], plain[0], args[0]), 1e-3)]


def too_little_memory(function: Callable[..., Results], args: tuple[Tensor, ...]) -> float:
    raise torch.OutOfMemoryError("as in the test")


def same(function: Callable[..., Results], args: tuple[Tensor, ...]) -> Callable[[Tensor], Results]:
    return lambda values: (values + values,)


def most(function: Callable[..., Results], args: tuple[Tensor, ...]) -> float:
    return 0.9


@pytest.mark.parametrize(
    ("recorded", "share", "used"),
    [
        (same, most, True),
        (same, lambda function, args: 0.1, False),
        (lambda function, args: lambda values: (0 * values,), most, False),
        (lambda function, args: lambda values: (values * torch.nan,), most, False),
        (too_little_memory, most, False),
        (same, too_little_memory, False),
    ],
    ids=["right", "not worthwhile", "wrong", "not a number", "no memory", "none to measure"],
)
def test_a_recorded_step_is_used_only_if_it_is_right_and_worthwhile(
    monkeypatch: pytest.MonkeyPatch,
    recorded: Callable[..., object],
    share: Callable[..., float],
    used: bool,
) -> None:
    monkeypatch.setattr(compiling, "Recorded", recorded)
    monkeypatch.setattr(compiling, "launching_share", share)
    step = Compiled(double, compiled=False, calls=0, distances=distances)
    step._unrecorded = True
    for values in (torch.ones(3), torch.arange(3.0)):
        assert step(values).tolist() == (2 * values).tolist()
    assert (step._call is not double) == used
    assert not step._unrecorded


def test_a_step_is_not_recorded_while_a_run_diverges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "Recorded", same)
    monkeypatch.setattr(compiling, "launching_share", most)
    step = Compiled(double, compiled=False, calls=0, distances=distances)
    step._unrecorded = True
    step(torch.tensor([1.0, torch.nan]))
    assert step._call is double
    step(torch.tensor([1.0, 2.0]))
    assert step._call is not double


@needs_gpu
def test_replays_take_new_values_and_keep_old_results() -> None:
    values = torch.arange(4.0, device="cuda")
    with torch.no_grad():
        recorded = Recorded(double, (values,))
        (first,), (second,) = recorded(values), recorded(values + 1)
    assert first.tolist() == [0, 2, 4, 6]
    assert second.tolist() == [2, 4, 6, 8]


@needs_gpu
def test_a_step_that_waits_for_the_gpu_is_not_recorded() -> None:
    def waits(values: Tensor) -> Results:
        return (values * values.sum().item(),)

    step = Compiled(waits, compiled=False, calls=0, distances=distances)
    step._unrecorded = True
    for _ in range(3):
        assert step(torch.ones(3, device="cuda")).tolist() == [3, 3, 3]
    assert step._call is waits
    assert torch.cuda.current_stream() == torch.cuda.default_stream()


@needs_gpu
@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty")
def test_a_recording_without_kernels_is_not_used() -> None:
    found = torch.ones(3, device="cuda")

    def remembers(values: Tensor) -> Results:
        return (found if torch.cuda.is_current_stream_capturing() else 2 * values,)

    step = Compiled(remembers, compiled=False, calls=0, distances=distances)
    step._unrecorded = True
    for values in (torch.full((3,), 0.5, device="cuda"), torch.ones(3, device="cuda")):
        assert step(values).tolist() == (2 * values).tolist()
    assert step._call is remembers


@needs_gpu
def test_a_training_is_the_same_with_and_without_recording(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mechanism = preset("housing").training(data_dir=None)
    speed = Speed(device="cuda")
    runs, steps = torch.arange(2), CHECKED_CALLS + 6

    def final(share: float) -> tuple[Tensor, bool]:
        monkeypatch.setattr(compiling, "WORTH_RECORDING", share)
        with numerics(speed.precision, torch.device("cuda")):
            engine = Engine(mechanism, runs=2, speed=speed, compiled=True)
            start = initial_parameters(mechanism, seed=0, runs=runs)
            states = list(engine.states(start, runs, torch.zeros(2, 0), after=[steps]))
        assert engine.notices == ()
        return states[-1], isinstance(getattr(engine._step, "_call", None), Recorded)

    (recorded, was), (launched, was_not) = final(0.0), final(2.0)
    assert (was, was_not) == (True, False)
    assert torch.equal(recorded, launched)
