"""``dpaudit audit``: verdicts as exit codes, one JSON object, and mistakes in one line."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from dpaudit.cli import main

MODULE = """
import numpy as np
from dpaudit import GradientCanary

def broken(canary, inserted, seed):
    print("the training prints")
    random = np.random.default_rng(seed)
    return -(canary.clipped_sum(inserted) + random.normal(0, 0.2, canary.parameters))

broken.canary = GradientCanary.draw(12, clip_norm=1.0)
another = GradientCanary.draw(12, clip_norm=1.0, seed=4)

def kept(canary, inserted, seed):
    if seed % 9 == 0:
        raise RuntimeError("no luck")
    return inserted + np.random.default_rng(seed).normal()

def halved(canary, returned):
    return returned / 2

def leaves(canary, inserted, seed):
    raise SystemExit(0 * inserted * seed)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    name = f"module_of_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield name
    sys.modules.pop(name, None)


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["dpaudit", "audit", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


def told(capsys: pytest.CaptureFixture[str]) -> dict:
    return json.loads(capsys.readouterr().out)


def test_a_violation_ends_with_1(module, monkeypatch, capsys):
    claim = ["--claimed-epsilon", "4", "--delta", "1e-5", "--runs", "60"]
    assert call(monkeypatch, f"{module}:broken", *claim, "--json") == 1
    found = told(capsys)
    assert found["verdict"] == "violation"
    assert found["p_value"] <= 0.05
    assert found["e_value"] is None
    assert (found["runs"], found["failures"], found["resumed_runs"]) == (60, [], 0)
    assert found["assumptions"][0].startswith("the claimed (4, 1e-05)")
    assert {bound["method"] for bound in found["lower"]} >= {"gaussian-dp", "clopper-pearson"}
    assert found["threat_model"] == "hidden state"
    assert call(monkeypatch, f"{module}:broken", *claim) == 1
    printed = capsys.readouterr().out
    assert "the training prints" not in printed


def test_consistent_ends_with_0_and_inconclusive_with_3(module, monkeypatch, capsys):
    exact = ["--noise-multiplier", "1", "--steps", "1", "--runs", "300", "--json"]
    assert call(monkeypatch, f"{module}.py:kept", *exact) == 0
    found = told(capsys)
    assert (found["verdict"], found["assumptions"]) == ("consistent", [])
    assert found["failures"][0]["error"] == "RuntimeError: no luck"
    bare = ["--claimed-epsilon", "8", "--pair-only", "--runs", "80", "--json", "--anyway"]
    assert call(monkeypatch, f"{module}.py:kept", *bare) == 3
    assert told(capsys)["verdict"] == "inconclusive"


def test_too_few_runs_are_refused_before_they_are_trained(module, monkeypatch, capsys):
    claim = ["--claimed-epsilon", "8", "--runs"]
    assert call(monkeypatch, f"{module}:broken", *claim, "8") == 2
    said = capsys.readouterr()
    assert "runs must be large enough to refute the claim" in said.err
    assert "the training prints" not in said.err
    needed = re.search(r"--runs (\d+)", said.err)[1]
    assert call(monkeypatch, f"{module}:broken", *claim, "8", "--anyway") == 3
    capsys.readouterr()
    assert call(monkeypatch, f"{module}:broken", *claim, needed) in (1, 3)


def test_failures_that_are_not_shown_are_counted(module, monkeypatch, capsys):
    options = ["--noise-multiplier", "1", "--steps", "1", "--runs", "60", "--all-bounds"]
    call(monkeypatch, f"{module}.py:kept", *options)
    printed = capsys.readouterr().out
    shown = len(re.findall(r"^run \d+ failed", printed, re.MULTILINE))
    failed = int(re.search(r"(\d+)\s+failed", printed)[1])  # of the first line
    assert failed > shown == 3
    assert f"({failed - 3} further run" in printed


def test_until_violation(module, monkeypatch, capsys):
    options = ["--claimed-epsilon", "8", "--until-violation", "--runs", "500", "--json"]
    assert call(monkeypatch, f"{module}:broken", *options) == 1
    found = told(capsys)
    assert found["stopped_at"] == found["runs"] <= 200
    assert found["e_value"] >= 1000


def test_canary_adversary_and_files(module, monkeypatch, capsys, tmp_path):
    options = ["--claimed-epsilon", "1", "--runs", "30", "--name", "mine", "--store", "s.sqlite"]
    more = ["--canary", f"{module}:another", "--scores-out", "scores.csv", "--workers", "2"]
    assert call(monkeypatch, f"{module}:broken", *options, *more, "--json") == 1
    assert told(capsys)["name"] == "mine"
    assert (tmp_path / "scores.csv").exists()
    own = ["--adversary", f"{module}:halved", "--claimed-epsilon", "8", "--runs", "20", "--json"]
    call(monkeypatch, f"{module}:kept", *own)
    assert told(capsys)["adversary"] == "own"


def test_a_canary_of_the_module_needs_no_option(tmp_path, monkeypatch, capsys):
    """The function has no attribute ``canary``; the module has one of that name."""
    (tmp_path / "beside.py").write_text(
        MODULE.replace("broken.canary = ", "canary = ").replace("another =", "other =")
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    try:
        options = ["--claimed-epsilon", "1", "--runs", "30", "--json"]
        assert call(monkeypatch, "beside.py:broken", *options) == 1
        assert told(capsys)["adversary"] == "parameters"
        check = ["dpaudit", "check", "beside.py:broken", "--noise-multiplier", "0.2", "--json"]
        monkeypatch.setattr(sys, "argv", check)
        with pytest.raises(SystemExit):
            main()
        assert told(capsys)["findings"]
    finally:
        sys.modules.pop("beside", None)


def test_list_and_show_know_these_audits(module, monkeypatch, capsys):
    call(monkeypatch, f"{module}:kept", "--claimed-epsilon", "8", "--runs", "30", "--name", "mine")
    capsys.readouterr()
    for words in (["list", "--json"], ["show", "mine", "--json"], ["list"], ["show", "mine"]):
        monkeypatch.setattr(sys, "argv", ["dpaudit", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code in ((0, 3) if words[0] == "show" else (0, None))
        printed = capsys.readouterr().out
        assert "mine" in printed or "RuntimeError" in printed
        if "--json" not in words:
            continue
        found = json.loads(printed)
        assert found


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{}:broken"], "a claim is needed"),
        (["{}:broken", "--noise-multiplier", "1"], "--steps is needed too"),
        (["{}:broken", "--steps", "9"], "--noise-multiplier is needed too"),
        (["{}:broken", "--claimed-epsilon", "8", "--steps", "9"], "not both"),
        (["{}:absent", "--claimed-epsilon", "8"], "has no 'absent'"),
        (["{}", "--claimed-epsilon", "8"], "preset must be one of"),
        (["{}:broken", "--claimed-epsilon", "8", "--period", "2"], "--period cannot be used"),
        (["housing", "--workers", "2"], "--workers is an option for a training function"),
        (["housing", "--preset", "convnet"], "--preset must be left out beside TRAINING"),
        (["no_such_module:train", "--claimed-epsilon", "8"], "cannot import 'no_such_module'"),
        (["nowhere.py:train", "--claimed-epsilon", "8"], "there is no file nowhere.py"),
        (["bad.py:train", "--claimed-epsilon", "8"], "importing 'bad' raised ZeroDivisionError"),
        (
            ["{}:broken", "--claimed-epsilon", "8", "--scores-out", "no/where.csv"],
            "scores-out must be in a folder that is there, got 'no/where.csv'",
        ),
        (
            ["{}:broken", "--claimed-epsilon", "8", "--junit", "no/where.xml"],
            "--junit must be in a folder that is there, got 'no/where.xml'",
        ),
        (["{}:broken", "--claimed-epsilon", "8", "--workers", "0"], "workers must be at least 1"),
        (["leaves.py:train", "--claimed-epsilon", "8"], "importing 'leaves' raised SystemExit: 0"),
        (["wrong.py:train", "--claimed-epsilon", "8"], "'wrong' is not Python: "),
        (["wrong.py:train", "--claimed-epsilon", "8"], "(wrong.py, line 2)"),
        (
            ["{}:leaves", "--claimed-epsilon", "8", "--on-error", "stop"],
            "failed with SystemExit: 0",
        ),
        (["{}:leaves", "--claimed-epsilon", "8", "--workers", "2"], "SystemExit: 0"),
        (["{}:kept", "--claimed-epsilon", "8", "--on-error", "x"], "on_error must be one of"),
        (["{}:kept", "--claimed-epsilon", "8", "--on-error", "stop"], "failed with RuntimeError"),
    ],
)
def test_mistakes_end_with_2(module, monkeypatch, capsys, tmp_path, arguments, message):
    (tmp_path / "bad.py").write_text("1 / 0")
    (tmp_path / "leaves.py").write_text("import sys\nsys.exit(0)")
    (tmp_path / "wrong.py").write_text("x = 1\ndef train(:\n")
    assert call(monkeypatch, *(word.format(module) for word in arguments)) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.startswith("dpaudit: ")
