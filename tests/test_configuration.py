"""Options over those of the preset, and mistakes in them."""

from __future__ import annotations

import pytest

from dpaudit.adversaries import RandomDirection, SimulatedDimension
from dpaudit.configuration import Settings
from dpaudit.errors import InvalidInput
from dpaudit.mechanisms.dpsgd import Insertion


def test_default_settings_are_those_of_the_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DPAUDIT_STORE", raising=False)
    found = Settings().resolved()
    assert (found.preset, found.runs, found.canaries, found.steps) == ("housing", 5000, 1, 250)
    assert (found.batch_size, found.learning_rate, found.clip_norm) == (400, 0.1, 1.0)
    assert (found.noise_multiplier, found.delta, found.confidence) == (4.0, 1e-5, 0.95)
    assert found.insertion() == Insertion(period=1, offset=0)
    assert found.crafter() == SimulatedDimension()
    assert (found.seed, found.store, found.name, found.device) == (
        0,
        "dpaudit.sqlite",
        None,
        "auto",
    )


@pytest.mark.parametrize(
    ("given", "steps"),
    [
        (Settings(), 250),
        (Settings(period=5), 1250),
        (Settings(period=25), 6250),
        (Settings(period=5, steps=100), 100),
        (Settings(steps=40), 40),
    ],
)
def test_a_period_alone_keeps_the_insertions(given: Settings, steps: int) -> None:
    assert given.resolved().steps == steps


def test_the_phase_chooses_the_step_of_a_period() -> None:
    assert Settings(period=5, phase="last").resolved().insertion() == Insertion(period=5, offset=4)
    assert Settings(phase="last").resolved().insertion() == Insertion(period=1)
    assert [Insertion(period=5, offset=o).phase for o in (0, 2, 4)] == ["first", None, "last"]
    with pytest.raises(InvalidInput, match=r"phase must be .*middle"):
        Settings(period=5, phase="middle").resolved()


def test_options_over_preset() -> None:
    settings = Settings(preset="convnet", batch_size=64).resolved()
    assert (settings.batch_size, settings.learning_rate) == (64, 0.01)


def test_the_store_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPAUDIT_STORE", "/tmp/mine.sqlite")
    assert Settings().resolved().store == "/tmp/mine.sqlite"
    assert Settings(store="other.sqlite").resolved().store == "other.sqlite"


def test_the_adversary_is_found_by_name() -> None:
    assert Settings(adversary="random-direction").resolved().crafter() == RandomDirection()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (Settings(preset="mnist"), "preset must be one of housing, .*got 'mnist'"),
        (Settings(adversary="nobody"), "adversary must be one of .*got 'nobody'"),
        (Settings(period=300, steps=250), r"period must be at most .*\(250\), got 300"),
        (Settings(period=0), "period must be at least 1, got 0"),
        (Settings(steps=0), "steps must be at least 1, got 0"),
        (Settings(clip_norm=0.0), "clip_norm must be above 0, got 0.0"),
        (Settings(clip_norm=-1.0), "clip_norm must be above 0, got -1.0"),
        (Settings(noise_multiplier=-0.5), "noise_multiplier must be at least 0, got -0.5"),
        (Settings(noise_multiplier=float("nan")), "noise_multiplier must be finite"),
        (Settings(learning_rate=0.0), "learning_rate must be above 0, got 0.0"),
        (Settings(batch_size=0), "batch_size must be at least 1, got 0"),
        (Settings(runs=0), "runs must be at least 4, got 0"),
        (Settings(runs=7), "runs must be even.*got 7"),
        (Settings(canaries=0), "canaries must be at least 1, got 0"),
        (Settings(delta=1.0), "delta must be in"),
        (Settings(confidence=95.0), "confidence must be in .*use 0.95"),
        (Settings(seed=-1), "seed must be at least 0, got -1"),
        (Settings(scores_out="/no/such/folder/s.csv"), "scores_out .*/no/such/folder"),
    ],
    ids=str,
)
def test_bad_settings_are_found_without_reading_data(given: Settings, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        given.resolved()
