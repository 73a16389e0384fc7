"""--junit and --sarif of check, audit and audit."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from dpaudit._version import __version__
from dpaudit.cli import app

ROOT = Path(__file__).parents[2]
TRAINING = """
import numpy as np
import dpaudit

canary = dpaudit.GradientCanary.draw(20, clip_norm=1.0)


def train(canary, inserted, seed):
    noise = np.random.default_rng(seed).normal(0.0, 0.05, canary.parameters)
    return -(canary.clipped_sum(inserted) + noise)


def private_step(gradients, seed):
    return gradients.sum(axis=0) + np.random.default_rng(seed).normal(0, 1, gradients.shape[1])
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(TRAINING)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("mine", None)  # of this folder


def run(*arguments):
    files = ["--junit", "out.xml", "--sarif", "out.sarif"]
    return CliRunner().invoke(app, [*arguments, *files])


def read(folder):
    suite = ElementTree.parse(folder / "out.xml").getroot()
    (found,) = json.loads((folder / "out.sarif").read_text())["runs"]
    return suite, found["results"]


def test_a_violated_claim_is_a_failure_at_the_line_of_the_training(here):
    claim = ["--noise-multiplier", "1", "--steps", "1", "--runs", "60"]
    done = run("audit", "mine.py:train", *claim, "--store", "a.sqlite")
    assert done.exit_code == 1, done.output
    suite, (result,) = read(here)
    assert (suite.get("tests"), suite.get("failures")) == ("1", "1")
    assert suite.find("testcase/failure").get("message") == "violation"
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "mine.py"
    assert TRAINING.splitlines()[place["region"]["startLine"] - 1].startswith("def train")


def test_the_verdict_on_a_preset_has_no_place(here):
    options = ["--runs", "20", "--steps", "2", "--store", "a.sqlite", "--device", "cpu"]
    done = run("audit", "--adversary", "random-dimension", *options)
    assert done.exit_code == 3, done.output
    suite, results = read(here)
    assert suite.get("tests") == "1"
    assert suite.find("testcase").get("file") is None
    assert all("locations" not in one for one in results)


def test_every_rule_of_a_check_is_a_case(here):
    claim = ["--clip-norm", "1", "--noise-multiplier", "1", "--parameters", "50"]
    done = run("check", "mine.py:private_step", "--step", *claim, "--json")
    assert done.exit_code == 1, done.output
    suite, results = read(here)
    cases = {case.get("name"): case for case in suite}
    assert cases["bounded contribution"].find("failure") is not None
    assert cases["noise size"].find("failure") is None
    broken = {one["ruleId"] for one in results if one["level"] == "error"}
    assert "bounded contribution" in broken
    assert len(broken) == int(suite.get("failures"))


def test_a_file_that_cannot_be_written_is_named(here):
    from dpaudit.errors import InvalidInput

    claim = ["--clip-norm", "1", "--noise-multiplier", "1", "--parameters", "50"]
    arguments = ["check", "mine.py:private_step", "--step", *claim, "--junit", "no/such/out.xml"]
    done = CliRunner().invoke(app, arguments)
    assert isinstance(done.exception, InvalidInput)
    assert "--junit" in str(done.exception)


@pytest.fixture
def commands(here):
    """A folder with the command dpaudit, for the shell."""
    file = here / "bin" / "dpaudit"
    file.parent.mkdir()
    file.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m dpaudit "$@"\n')
    file.chmod(0o755)
    return {**os.environ, "PATH": f"{file.parent}{os.pathsep}{os.environ['PATH']}"}


def test_the_github_action_fails_for_a_violation_and_keeps_the_report(here, commands):
    yaml = pytest.importorskip("yaml")
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    inputs = {name: one.get("default", "") for name, one in action["inputs"].items()}
    inputs |= {
        "training": "mine.py:train",
        "claim": "--noise-multiplier 1 --steps 1 --name '* $(touch owned); a b'",
        "runs": "40",
        "workers": "1",
        "install": "",
    }

    def filled(text):
        return re.sub(r"\${{ inputs\.(\w+) }}", lambda found: inputs[found[1]], text)

    step = action["runs"]["steps"][-1]
    values = {name: filled(text) for name, text in step["env"].items()}
    assert step["shell"] == "python"
    done = subprocess.run(
        [sys.executable, "-c", step["run"]], env={**commands, **values}, check=False, cwd=here
    )
    assert done.returncode == 1
    made = {file.name for file in (here / inputs["report"]).iterdir()}
    assert {"audit.html", "audit.xml", "audit.sarif"} <= made
    assert not (here / "owned").exists()
    assert "* $(touch owned); a b" in (here / inputs["report"] / "audit.xml").read_text()


def test_the_version_is_the_same_in_all_files():
    for file, text in (
        ("action.yml", f'default: "dpaudit[report]=={__version__}"'),
        ("CITATION.cff", f"\nversion: {__version__}\n"),
        ("docs/command-line.md", f"uses: dpaudit/dpaudit@v{__version__}\n"),
        ("docs/command-line.md", f"rev: v{__version__}\n"),
    ):
        assert text in (ROOT / file).read_text("utf8"), file
    versions = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text("utf8"), re.MULTILINE)
    assert versions[0] == __version__


def test_the_pre_commit_hook_is_the_check(here, commands):
    yaml = pytest.importorskip("yaml")
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    options = ["mine.py:private_step", "--step", "--clip-norm=1", "--noise-multiplier=1"]
    done = subprocess.run(
        [*hook["entry"].split(), *options, "--parameters=50"],
        env=commands,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done.stderr
    assert "bounded contribution" in done.stdout
