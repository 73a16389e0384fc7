"""``dpaudit check``: exit codes, the table, JSON, and error messages of mistaken calls."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from helpers import dpaudit

from dpaudit.checks import RULES
from dpaudit.executors import InProcess

MODULE = """
import numpy as np

from dpaudit.trainings import GradientCanary

CANARY = GradientCanary.draw(300, clip_norm=2.0)


def canary():
    return CANARY


def private_step(gradients, seed, clip=2.0):
    finite = np.isfinite(gradients).all(axis=1, keepdims=True)
    gradients = np.where(finite, gradients, 0.0)
    largest = np.maximum(np.abs(gradients).max(axis=1, keepdims=True), 1e-300)
    norms = largest * np.linalg.norm(gradients / largest, axis=1, keepdims=True)
    clipped = gradients * np.minimum(1, clip / np.maximum(norms, 1e-300))
    return clipped.sum(axis=0) + np.random.default_rng(seed).normal(0, 2.0, gradients.shape[1])


def train(canary, inserted, seed):
    return -0.1 * private_step(np.vstack([np.eye(3, 300), canary.rows(inserted)]), seed)


def unclipped(canary, inserted, seed):
    rows = np.vstack([np.eye(3, 300), canary.rows(inserted)])
    return -0.1 * private_step(rows, seed, clip=np.inf)


def fails(canary, inserted, seed):
    raise RuntimeError("out of memory")


def leaves(canary, inserted, seed):
    raise SystemExit(0)
"""


ENDINGS = """
import os, sys
os.write(1, b"descriptor 1\\n")
print("standard output")


def leaves(canary, inserted, seed):
    os._exit(0)


def correct(canary, inserted, seed):
    os.write(1, b"descriptor 1\\n")
    from trained_here import train
    return train(canary, inserted, seed)
"""


@pytest.fixture
def run(tmp_path, monkeypatch, run):
    """Runs the command in a folder with the module: exit code, standard output, standard error."""
    (tmp_path / "trained_here.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "trained_here", raising=False)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr("dpaudit.cli._child._executor", InProcess)  # a process takes a second
    return partial(run, "check")


CLAIM = ("--clip-norm", "2", "--noise-multiplier", "1", "--parameters", "300")


def test_a_correct_training_exits_with_0_and_one_short_page(run):
    code, out, err = run("trained_here:private_step", "--step", *CLAIM)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith("PASSED   trained_here:private_step, 11 of 11 rules tested")
    assert len(lines) <= 12
    assert "11 rules: canary has an effect, bounded contribution" in out
    assert "not a proof of privacy" in out


def test_a_broken_rule_exits_with_1_and_is_explained(run):
    code, out, _ = run("trained_here:unclipped", *CLAIM)
    assert code == 1
    assert out.startswith("BROKEN  ")
    assert "bounded contribution: 1e+06 C, allowed at most" in out
    assert "remedy" in out
    assert "opacus PR #664" in out


def test_exit_code_3_is_for_core_rules_that_were_not_tested(run):
    """The training has no argument ``steps``: rules about several steps are listed."""
    code, out, _ = run("trained_here:train", *CLAIM)
    assert code == 0
    assert "not tested  contribution to its own step only" in out
    step = ("trained_here:private_step", "--step", "--clip-norm", "2", "--noise-multiplier", "1")
    assert run(*step)[0] == 0
    code, out, _ = run(*step, "--public-transform")
    assert code == 3
    assert out.startswith("NOT TESTED")


def test_all_shows_what_every_rule_measured(run):
    code, out, _ = run("trained_here:private_step", "--step", *CLAIM, "--all")
    assert code == 0
    assert "noise size: sigma" in out
    assert len([line for line in out.splitlines() if line.startswith("  passed")]) == 11


def test_json_is_one_object(run):
    code, out, err = run("trained_here:unclipped", *CLAIM, "--json")
    told = json.loads(out)
    assert (code, err) == (1, "")
    assert told["passed"] is False
    assert told["false_alarm"] == 1e-6
    verdicts = {finding["rule"]: finding["verdict"] for finding in told["findings"]}
    assert verdicts["bounded contribution"] == "broken"


def test_all_findings_are_written_as_a_page(run, tmp_path):
    page = tmp_path / "check.html"
    assert run("trained_here:unclipped", *CLAIM, "--page", str(page))[0] == 1
    text = page.read_text()
    assert '<span class="badge broken">Broken</span>' in text
    assert text.index("bounded contribution") < text.index("noise size")
    assert "Remedy: " in text
    code, _, err = run("trained_here:unclipped", *CLAIM, "--page", __file__)
    assert code == 2
    assert "--page" in err


def test_the_rules_of_the_docs_are_those_of_the_code():
    page = (Path(__file__).parents[2] / "docs" / "rules-of-check.md").read_text(encoding="utf8")
    rows = [line.split("|")[1].strip() for line in page.splitlines() if line.startswith("| ")]
    told = [row for row in rows if row in {rule.name for rule in RULES}]
    assert told == [rule.name for rule in RULES]


def test_the_canary_may_be_an_attribute_of_the_function(run):
    (Path.cwd() / "trained_here.py").write_text(f"{MODULE}\n\ntrain.canary = CANARY\n")
    assert run("trained_here:train", "--noise-multiplier", "1", "--json")[0] == 0
    code, _, err = run("trained_here:train", "--noise-multiplier", "1", "--parameters", "7")
    assert code == 2
    assert "--parameters is 7, but the canary's is 300" in err


@pytest.mark.parametrize("canary", ["trained_here:CANARY", "trained_here:canary"])
def test_the_canary_may_be_the_users_own(run, canary):
    code, out, _ = run(
        "trained_here:train", "--canary", canary, "--noise-multiplier", "1", "--json"
    )
    assert code == 0
    assert json.loads(out)["passed"] is True


def test_a_single_step_is_checked_with_the_option_step(run):
    step = ("trained_here:private_step", "--step", "--clip-norm", "2")
    assert run(*step, "--noise-multiplier", "1", "--json")[0] == 0
    code, out, _ = run(*step, "--noise-multiplier", "1.5", "--json")
    assert code == 1
    broken = [f["rule"] for f in json.loads(out)["findings"] if f["verdict"] == "broken"]
    assert broken == ["noise size"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("trained_here", *CLAIM), "must look like"),
        (("no_such_module:train", *CLAIM), "cannot import 'no_such_module'"),
        (("trained_here:nothing", *CLAIM), "has no 'nothing'"),
        (("trained_here:train", "--noise-multiplier", "1"), "--parameters, or --canary, is needed"),
        (("trained_here:train", *CLAIM[:4]), "--parameters, or --canary, is needed"),
        (("trained_here:train", *CLAIM[:2], "--noise-multiplier", "0", *CLAIM[4:]), "above 0"),
        (("trained_here:fails", *CLAIM), "RuntimeError: out of memory"),
        (("trained_here:leaves", *CLAIM), "SystemExit: 0"),
        (
            ("trained_here:train", *CLAIM, "--canary", "trained_here:train"),
            "train() missing 3 required positional arguments",
        ),
        (
            ("trained_here:train", *CLAIM[:4], "--canary", "math:pi"),
            "must have clip_norm, as a GradientCanary has, got float",
        ),
        (
            (
                "trained_here:train",
                "--clip-norm",
                "3",
                *CLAIM[2:],
                "--canary",
                "trained_here:CANARY",
            ),
            "the canary's is 2",
        ),
        (("trained_here:train", *CLAIM, "--step", "--canary", "x:y"), "cannot be used with --step"),
        *(
            (
                ("trained_here:private_step", *CLAIM, "--step", "--steps", steps),
                f"--steps cannot be used with --step, got {steps}",
            )
            for steps in ("0", "1")
        ),
        (("trained_here:train", *CLAIM, "--steps", "0"), "steps must be at least 1, got 0"),
        (
            ("trained_here:CANARY", *CLAIM),
            "--parameters is 300, but trained_here:CANARY is a GradientCanary",
        ),
        (("math:pi", "--noise-multiplier", "1"), "MODULE:FUNCTION must be a function"),
        (("trained_here:train", *CLAIM, "--batch-size", "8"), "--batch-size needs --step, got 8"),
    ],
)
def test_a_mistaken_call_exits_with_2_and_one_line(run, arguments, message):
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_the_command_loads_no_framework(tmp_path):
    (tmp_path / "trained_here.py").write_text(MODULE)
    command = [sys.executable, "-X", "importtime", "-m", "dpaudit", "check", "trained_here:train"]
    told = subprocess.run(
        [*command, *CLAIM], capture_output=True, text=True, cwd=tmp_path, check=True
    )
    loaded = {line.rpartition("|")[2].strip().split(".")[0] for line in told.stderr.splitlines()}
    assert not loaded & {"torch", "jax", "opacus", "matplotlib", "dp_accounting"}


def test_output_of_the_training_is_not_taken_for_a_verdict(tmp_path):
    """The training writes to descriptor 1, or ends its process as if all were well."""
    (tmp_path / "trained_here.py").write_text(MODULE)
    (tmp_path / "endings.py").write_text(ENDINGS)

    def ended(function):
        return dpaudit("check", f"endings:{function}", *CLAIM, "--json", cwd=tmp_path)

    correct, left = ended("correct"), ended("leaves")
    assert json.loads(correct.stdout)["passed"] is True
    assert "descriptor 1" in correct.stderr
    assert (correct.returncode, left.returncode, left.stdout) == (0, 2, "")
    assert "endings:leaves" in left.stderr
    assert "exit code 0" in left.stderr
