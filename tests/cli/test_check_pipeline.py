"""``dpaudit check --pipeline``."""

import json
import subprocess
import sys

import pytest

TRAINING = """
import functools
import numpy as np
from dpaudit.pipelines import public, release

DATA = np.ones((5, 3))

def neighbours():
    return DATA[:4], DATA

def user():
    return DATA[:2], DATA

def train(data, seed, divisor=None):
    print("this is not the result")
    random, theta = np.random.default_rng(seed), np.zeros(3)
    noisy = release(data.sum(axis=0) + random.normal(0, 1.0, 3))
    public(divisor=divisor or len(data))
    return theta - noisy / (divisor or len(data))

def constant(data, seed):
    return train(data, seed, divisor=5)

partial = functools.partial(train, divisor=5)
"""


@pytest.fixture
def run(tmp_path):
    (tmp_path / "mine.py").write_text(TRAINING)

    def call(*arguments, command=("check", "--pipeline")):
        return subprocess.run(
            [sys.executable, "-m", "dpaudit", *command, *arguments],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            check=False,
        )

    return call


def test_a_divisor_from_the_data_ends_with_1(run):
    done = run("mine.py:train", "--json")
    assert done.returncode == 1
    findings = {one["rule"]: one for one in json.loads(done.stdout)["findings"]}
    assert findings["divisor"]["verdict"] == "broken"
    assert findings["divisor"]["epsilon"] > 1


def test_data_sets_beside_a_function_of_another_module(run):
    assert run("mine.py:partial").returncode == 0


def test_a_constant_ends_with_0_and_writes_junit(run, tmp_path):
    arguments = ("--neighbours", "mine.py:neighbours", "--junit", str(tmp_path / "out.xml"))
    done = run("mine.py:constant", *arguments)
    assert done.returncode == 0
    assert "PASSED" in done.stdout
    assert "number of steps" in (tmp_path / "out.xml").read_text()


def test_a_user_with_all_records_is_checked_and_audited(run):
    arguments = ("mine.py:constant", "--neighbours", "mine.py:user")
    without = run(*arguments)
    assert without.returncode == 2
    assert "--unit user" in without.stderr
    checked = run(*arguments, "--unit", "user")
    assert checked.returncode == 0
    assert "3 of 5 records, those of a user, are added" in " ".join(checked.stdout.split())
    audit = ("--noise-multiplier", "2", "--steps", "1", "--runs", "80", "--unit", "user")
    audited = run(*arguments, *audit, "--store", "audits.db", command=("audit",))
    assert audited.returncode == 1
    assert "1 step per user" in audited.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("mine.py:train", "--steps", "3"), "--steps cannot be used"),
        (("mine.py:neighbours",), "train(data, seed)"),
        (("mine.py:train", "--neighbours", "mine.py:DATA"), "pair"),
        (("statistics:mean",), "--neighbours is needed"),
    ],
)
def test_calls_that_do_not_fit(run, arguments, words):
    done = run(*arguments)
    assert done.returncode == 2
    assert words in done.stderr
