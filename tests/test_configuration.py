"""Options over CONFIG.toml over the preset, and mistakes in any of them."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from dpaudit.adversaries import RandomDirection, SimulatedDimension
from dpaudit.configuration import Settings, read_settings
from dpaudit.errors import InvalidInput
from dpaudit.mechanisms.dpsgd import Insertion


def _file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return path


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


def test_settings_of_the_file_reach_the_engine(tmp_path: Path) -> None:
    text = "virtual_batch = 32\ntile_size = 7\nprecision = 'float64'\ncompile = 'none'\n"
    speed = read_settings(_file(tmp_path, text)).resolved().arguments()["speed"]
    assert (speed.virtual_batch, speed.tile_size) == (32, 7)
    assert (speed.precision, speed.compile) == ("float64", False)


def test_the_phase_chooses_the_step_of_a_period() -> None:
    assert Settings(period=5, phase="last").resolved().insertion() == Insertion(period=5, offset=4)
    assert Settings(phase="last").resolved().insertion() == Insertion(period=1)
    assert [Insertion(period=5, offset=o).phase for o in (0, 2, 4)] == ["first", None, "last"]
    with pytest.raises(InvalidInput, match=r"phase must be .*middle"):
        Settings(period=5, phase="middle").resolved()


def test_options_over_file_over_preset(tmp_path: Path) -> None:
    file = _file(tmp_path, 'preset = "convnet"\nruns = 10\nbatch_size = 64\nseed = 5\n')
    found = Settings(runs=20).over(read_settings(file)).resolved()
    assert found.runs == 20  # the option
    assert (found.batch_size, found.seed) == (64, 5)  # the file
    assert (found.learning_rate, found.preset) == (0.01, "convnet")  # the preset


def test_a_file_may_spell_keys_like_options_and_names_the_audit(tmp_path: Path) -> None:
    file = _file(tmp_path, "noise-multiplier = 2\nhorizons = [10, 20]\n")
    found = read_settings(file)
    assert (found.noise_multiplier, found.horizons, found.name) == (2, (10, 20), "mine")
    named = read_settings(_file(tmp_path, 'name = "other"'))
    assert named.name == "other"


def test_paths_in_a_file_start_at_its_folder(tmp_path: Path) -> None:
    text = 'store = "a.sqlite"\ndata_dir = "/data"\nscores_out = "s.csv"\n'
    found = read_settings(_file(tmp_path, text))
    assert found.store == str(tmp_path / "a.sqlite")
    assert found.data_dir == "/data"
    assert found.scores_out == str(tmp_path / "s.csv")
    assert read_settings(_file(tmp_path, 'store = ":memory:"')).store == ":memory:"


def test_the_store_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPAUDIT_STORE", "/tmp/mine.sqlite")
    assert Settings().resolved().store == "/tmp/mine.sqlite"
    assert Settings(store="other.sqlite").resolved().store == "other.sqlite"


def test_settings_of_the_simulated_dimension() -> None:
    found = Settings(simulation="noisy", ranking="final-model", simulations=2).resolved()
    assert found.crafter() == SimulatedDimension(
        simulation="noisy", ranking="final-model", simulations=2
    )
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
        (Settings(horizons=(0,)), "horizons must be at least 1, got 0"),
        (Settings(scores_out="/no/such/folder/s.csv"), "scores_out .*/no/such/folder"),
        (Settings(simulation="loud"), "simulation must be one of noiseless, noisy, got 'loud'"),
        (
            Settings(adversary="flipped-label", ranking="per-step"),
            "ranking is not a setting of the adversary flipped-label",
        ),
    ],
    ids=str,
)
def test_bad_settings_are_found_without_reading_data(given: Settings, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        given.resolved()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sigma = 4", "unknown key 'sigma'; the known ones are preset, adversary"),
        ("[mechanism]\nsteps = 3", "unknown key 'mechanism'"),
        ('runs = "many"', "runs in .* must be a whole number, got 'many'"),
        ("runs = 10.5", "runs in .* must be a whole number, got 10.5"),
        ("runs = true", "runs in .* must be a whole number, got True"),
        ('noise_multiplier = "4"', "noise_multiplier in .* must be a number, got '4'"),
        ("preset = 3", "preset in .* must be text, got 3"),
        ("horizons = 10", "horizons in .* must be a list of whole numbers, got 10"),
        ("horizons = [1.5]", r"horizons in .* must be a list of whole numbers, got \[1.5\]"),
        ("runs = ", "is not TOML"),
        ("runs = 1\nruns = 2", "is not TOML"),
        ("clip_norm = 1\nclip-norm = 2", "the same key"),
        (f"runs = {'[' * 10_000}{']' * 10_000}", "is not TOML"),
    ],
)
def test_bad_files(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        read_settings(_file(tmp_path, text))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"cannot read .*absent.toml"):
        read_settings(tmp_path / "absent.toml")
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidInput, match="is not TOML"):
        read_settings(binary)


def test_the_example_file_names_every_setting_with_its_default() -> None:
    example = Path(__file__).parents[1] / "examples" / "audit.toml"
    given, text = read_settings(example), example.read_text()
    for field in dataclasses.fields(Settings):
        assert re.search(rf"^(# )?{field.name} = ", text, flags=re.MULTILINE), field.name
    found, default = given.resolved(), Settings().resolved()
    for field in dataclasses.fields(found):
        if field.name not in ("name", "store"):
            assert getattr(found, field.name) == getattr(default, field.name), field.name
