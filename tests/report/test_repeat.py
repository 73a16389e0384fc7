"""What a page says about repeating an audit is that audit."""

from __future__ import annotations

import shlex
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from played import settings

import dpaudit
from dpaudit.audits.description import DescribedTraining, Description
from dpaudit.audits.repeat import repeat
from dpaudit.configuration import Settings, read_settings


def snippets(
    configuration: dict[str, Any], name: str | None = None, **read: float
) -> dict[str, str]:
    made = repeat(
        Description.from_dict(configuration),
        name=name,
        store="my audits.sqlite",
        identity="0123456789abcdef",
        **read,
    )
    return {snippet.caption: snippet.text for snippet in made}


def options(command: str) -> dict[str, str]:
    words = shlex.split(command.replace("\\\n", ""))  # as a shell joins lines
    assert words[:2] == ["dpaudit", "audit"]
    rest = words[3:] if not words[2].startswith("--") else words[2:]
    return {
        key.removeprefix("--").replace("-", "_"): value
        for key, value in zip(rest[::2], rest[1::2], strict=True)
    }


@pytest.mark.parametrize("name", [None, "it's mine; rm -rf /"])
@pytest.mark.parametrize(
    "changed", [{}, {"period": 5, "steps": 1250}, {"runs": 1, "canaries": 50}, {"seed": 9}]
)
def test_the_command_says_every_setting(changed: dict[str, int], name: str | None) -> None:
    configuration = settings(**changed)  # type: ignore[arg-type]
    given = options(snippets(configuration, name)["On the command line"])
    whole = {"runs", "canaries", "steps", "period", "batch_size", "seed"}
    numbers = whole | {"noise_multiplier", "clip_norm", "learning_rate"}
    kinds = {key: int if key in whole else float for key in numbers}
    asked = Settings(**{key: kinds.get(key, str)(value) for key, value in given.items()})
    found = asked.resolved()
    mechanism = configuration["mechanism"]
    assert found.preset == mechanism["name"]
    assert found.adversary == configuration["adversary"]["name"]
    assert (found.runs, found.canaries) == (configuration["runs"], configuration["canaries"])
    assert (found.steps, found.period) == (
        mechanism["steps"],
        configuration["insertion"]["period"],
    )
    for key in ("noise_multiplier", "clip_norm", "learning_rate"):
        assert getattr(found, key) == mechanism[key]
    assert (found.batch_size, found.seed) == (400, configuration["seed"])
    assert (found.name, found.store) == (name, "my audits.sqlite")


def test_settings_without_an_option_go_into_a_file(tmp_path: Any) -> None:
    configuration = settings(horizons=(50, 100))
    configuration["adversary"]["settings"]["simulation"] = "noisy"
    configuration["speed"]["precision"] = "bfloat16"
    made = snippets(configuration)
    file = tmp_path / "audit.toml"
    file.write_text(made["Settings without an option, in audit.toml"])
    read = read_settings(file)
    assert (read.horizons, read.simulation, read.precision) == ((50, 100), "noisy", "bfloat16")
    assert made["On the command line"].startswith("dpaudit audit audit.toml ")


def test_the_python_makes_the_same_call(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: dict[str, Any] = {}

    class Preset:
        def training(self, **given: Any) -> str:
            calls["training"] = given
            return "the training"

    def audit(training: Any, adversary: Any, **given: Any) -> Any:
        calls["audit"] = (training, adversary, given)
        return SimpleNamespace(report=lambda path: calls.setdefault("page", path))

    monkeypatch.setattr(dpaudit.presets, "preset", lambda name: Preset())
    monkeypatch.setattr(dpaudit, "audit", audit)
    configuration = settings(period=5, steps=1250, horizons=(250,))
    exec(snippets(configuration, "mine")["In Python"], {})
    assert calls["training"]["steps"] == 1250
    training, adversary, given = calls["audit"]
    assert training == "the training"
    assert adversary == dpaudit.adversaries.SimulatedDimension()
    assert (given["runs"], given["seed"], given["name"]) == (400, 3, "mine")
    assert given["insertion"] == dpaudit.Insertion(period=5)
    assert given["horizons"] == [250]
    assert calls["page"] == "page.html"


def test_the_phase_is_an_option_unless_it_is_in_the_middle() -> None:
    configuration = settings(period=5, steps=1250)
    assert "phase" not in options(snippets(configuration)["On the command line"])
    configuration["insertion"]["offset"] = 4
    assert options(snippets(configuration)["On the command line"])["phase"] == "last"
    configuration["insertion"]["offset"] = 2
    assert "On the command line" not in snippets(configuration)


def test_a_changed_preset_has_no_command() -> None:
    configuration = settings(preset="logistic")
    assert "On the command line" not in snippets(configuration)  # another loss
    configuration["mechanism"]["loss"] = "dpaudit.mechanisms.losses.logistic"
    made = snippets(configuration)
    assert "data_dir" not in options(made["On the command line"])
    configuration["mechanism"]["further"] = {"weight_decay": 0.01}
    assert "On the command line" not in snippets(configuration)


def test_crafted_data_are_made_for_the_insertions() -> None:
    configuration = settings(preset="crafted-network", period=5, steps=1250)
    configuration["mechanism"]["loss"] = "dpaudit.mechanisms.losses.hinge"
    assert '    period=5,\n    phase="first",\n' in snippets(configuration)["In Python"]


def test_delta_and_confidence_are_said_where_they_are_not_the_usual() -> None:
    made = snippets(settings(), delta=1e-5, confidence=0.95)
    assert made == snippets(settings())
    # The page may be read at other values than the audit was, so its command says them always.
    page = shlex.split(made.pop("This page").replace("\\\n", ""))
    assert page[-4:] == ["--delta", "1e-05", "--confidence", "0.95"]
    assert not any("delta" in text or "confidence" in text for text in made.values())
    made = snippets(settings(), delta=1e-3, confidence=0.9)
    page = shlex.split(made["This page"].replace("\\\n", ""))
    assert page[-4:] == ["--delta", "0.001", "--confidence", "0.9"]
    given = options(made["On the command line"])
    assert (given["delta"], given["confidence"]) == ("0.001", "0.9")
    assert "Settings without an option, in audit.toml" not in made
    assert "\n    delta=0.001,\n    confidence=0.9,\n" in made["In Python"]


def test_the_python_says_the_precision() -> None:
    configuration = settings()
    assert "Speed" not in snippets(configuration)["In Python"]
    configuration["speed"]["precision"] = "bfloat16"
    text = snippets(configuration)["In Python"]
    compile(text, "page", "exec")
    assert "from dpaudit.engine import Speed\n" in text
    assert '    speed=Speed(precision="bfloat16"),\n' in text


@pytest.mark.parametrize("preset", ["convnet", "resnet18", "alexnet-head"])
def test_data_that_does_not_ship_needs_a_folder(preset: str) -> None:
    made = snippets(settings(preset=preset))
    assert options(made["On the command line"])["data_dir"] == "DIR"
    assert '    data_dir="DIR",\n' in made["In Python"]
    assert "data_dir" not in options(snippets(settings())["On the command line"])


@pytest.mark.parametrize(
    ("data", "folder"),
    [("generated-text", None), ("text.txt", "DIR"), ("generated-text models/gpt2", "DIR")],
)
@pytest.mark.parametrize("preset", ["gpt", "gpt2-lora"])
def test_generated_text_needs_no_folder(preset: str, data: str, folder: str | None) -> None:
    configuration = settings(preset=preset)
    configuration["mechanism"]["data"] = {"name": data, "examples": 8191, "fingerprint": "0"}
    made = snippets(configuration)
    assert options(made["On the command line"]).get("data_dir") == folder
    assert ("data_dir" in made["In Python"]) is (folder is not None)


def test_an_own_training_has_no_command() -> None:
    for change in ({"name": "mine"}, {"loss": "mine.loss"}, {"batches": {"class": "FullBatch"}}):
        configuration = settings()
        configuration["mechanism"] |= change
        made = snippets(configuration)
        assert "On the command line" not in made
        compile(made["In Python"], "page", "exec")


def test_names_from_the_store_are_not_printed_as_code() -> None:
    evil = "Mine(), print('gotcha')"
    configuration = settings()
    configuration["adversary"]["settings"] = {"class": evil}
    code = snippets(configuration)["In Python"]
    assert f"...,  # the adversary of this audit; its class is {evil!r}" in code
    configuration["adversary"]["settings"] = {"class": "RandomDimension", "x=1), print(": 2}
    assert "RandomDimension(" not in snippets(configuration)["In Python"]


def test_names_of_a_stored_training_are_not_printed_as_code() -> None:
    claim = {"description": "a\nprint(1)", "settings": {"evil(); x": 1, "noise_multiplier": 1.0}}
    training = DescribedTraining(name="os; x:system", source="", claim=claim)
    description = replace(Description.from_dict(settings()), mechanism=training)
    made = repeat(description, name=None, store=None, identity="0123")
    text = "\n".join(snippet.text for snippet in made)
    assert "os; x" not in text
    assert "evil" not in text
    unknown = replace(training, name="a:b", claim={"description": "a\nprint(1)"})
    made = repeat(replace(description, mechanism=unknown), name=None, store=None, identity="0123")
    assert "a print(1)" in made[-1].text
