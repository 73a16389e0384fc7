"""Receipts on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dpaudit.cli import app

TRAINING = """
import numpy as np
from dpaudit import GradientCanary

canary = GradientCanary.draw(6, clip_norm=1.0)

def train(canary, inserted, seed):
    return -(canary.clipped_sum(inserted) + np.random.default_rng(seed).normal(0, 1.0, 6))
"""


@pytest.fixture
def audited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Path:
    """A folder with an audit in its store and the receipt of it."""
    monkeypatch.chdir(tmp_path)
    name = f"training_of_{request.node.name}.py"
    Path(name).write_text(TRAINING, "utf8")
    arguments = ["audit", f"{name}:train", "--noise-multiplier", "1", "--steps", "1"]
    run = CliRunner().invoke(
        app, [*arguments, "--runs", "80", "--no-check", "--receipt", "a.receipt.json"]
    )
    assert run.exit_code in (0, 3), run.output
    return tmp_path / "a.receipt.json"


def test_a_receipt_is_written_and_checked(audited: Path) -> None:
    run = CliRunner().invoke(app, ["verify", str(audited)])
    assert run.exit_code == 0, run.output
    assert "internally consistent, origin unknown" in run.output
    assert "Not checked:" in run.output
    assert max(map(len, run.output.splitlines()[2:])) <= 80
    plain = json.loads(CliRunner().invoke(app, ["verify", str(audited), "--json"]).output)
    assert plain["outcome"] == "consistent"
    text = audited.read_text("utf8")
    audited.write_text(text.replace('"fresh_runs":0', '"fresh_runs":9'), "utf8")
    changed = CliRunner().invoke(app, ["verify", str(audited)])
    assert changed.exit_code == 1
    assert "DIFFERS" in changed.output


def test_show_writes_the_receipt_of_a_stored_audit_without_its_scores(audited: Path) -> None:
    other = audited.with_name("b.receipt.json")
    CliRunner().invoke(app, ["show", "--receipt", str(other), "--digest-only"])
    assert len(other.read_text("utf8")) < len(audited.read_text("utf8"))
    assert CliRunner().invoke(app, ["verify", str(other)]).exit_code == 3


def test_a_plan_is_registered_and_its_audit_recognised(audited: Path) -> None:
    name = next(audited.parent.glob("training_of_*.py")).name
    claim = ["--noise-multiplier", "1", "--steps", "1"]
    plan = ["plan", f"{name}:train", *claim, "--register", "plan.json", "--json"]
    planned = CliRunner().invoke(app, plan)
    assert planned.exit_code == 0, planned.output
    command = json.loads(planned.output)["command"].split()
    runs = command[command.index("--runs") + 1]
    audit = ["audit", f"{name}:train", *claim, "--no-check", "--registered", "plan.json"]
    audit += ["--receipt", "c.receipt.json"]
    other = CliRunner().invoke(app, [*audit, "--runs", "66"])
    assert "must be the plan of this audit" in str(other.exception)
    done = CliRunner().invoke(app, [*audit, "--runs", runs])
    assert done.exit_code in (0, 1, 3), done.output
    run = CliRunner().invoke(app, ["verify", "c.receipt.json", "--registered", "plan.json"])
    assert run.exit_code == 0, run.output
    assert "claim, code, adversary, runs, seed and test are those of the plan" in " ".join(
        run.output.split()
    )
    both = CliRunner().invoke(app, ["combine", "c.receipt.json", str(audited), "--json"])
    assert both.exit_code == 3, (both.output, both.exception)
    assert len(json.loads(both.output)["e_values"]) == 2


def test_documents_are_made_of_a_receipt_that_agrees_with_itself(audited: Path) -> None:
    for kind in ("model-card", "registry", "controls", "page"):
        run = CliRunner().invoke(app, ["document", str(audited), "--kind", kind])
        assert run.exit_code == 0, run.output
        assert "origin unknown" in run.output
    audited.write_text(audited.read_text("utf8").replace('"asked":80', '"asked":90'), "utf8")
    run = CliRunner().invoke(app, ["document", str(audited)])
    assert "needs a receipt that is consistent" in str(run.exception)


def test_the_receipt_of_a_check_is_written_by_its_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("checked_training.py").write_text(TRAINING, "utf8")
    check = ["check", "checked_training.py:train", "--noise-multiplier", "1"]
    run = CliRunner().invoke(app, [*check, "--receipt", "c.receipt.json"])
    assert run.exit_code == 3, run.output
    run = CliRunner().invoke(app, ["verify", "c.receipt.json"])
    assert run.exit_code == 0, run.output
    assert "It states: checked_training.py:train: not tested" in run.output
    plain = json.loads(CliRunner().invoke(app, ["verify", "c.receipt.json", "--json"]).output)
    assert plain["verdicts"] == ["not tested"]
    written = json.loads(Path("c.receipt.json").read_text("utf8"))
    settings = written["cases"][0]["settings"]
    assert (settings["noise_multiplier"], settings["finite_gradients"]) == (1, False)
    assert len(written["code"]) == 32
    refused = CliRunner().invoke(app, [*check, "--receipt", "checked_training.py"])
    assert "--receipt" in str(refused.exception)
