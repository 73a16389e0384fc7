"""``dpaudit check --pipeline``."""

import json
import sys
from functools import partial

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
def run(tmp_path, monkeypatch, run):
    """Runs a command in a folder with the module: exit code, standard output, standard error."""
    (tmp_path / "mine.py").write_text(TRAINING)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return run


@pytest.fixture
def check(run):
    return partial(run, "check", "--pipeline")


def test_a_divisor_from_the_data_ends_with_1(check):
    code, out, _ = check("mine.py:train", "--json")
    assert code == 1
    findings = {finding["rule"]: finding for finding in json.loads(out)["findings"]}
    assert findings["divisor"]["verdict"] == "broken"
    assert findings["divisor"]["epsilon"] > 1


def test_data_sets_beside_a_function_of_another_module(check):
    assert check("mine.py:partial")[0] == 0


def test_a_constant_ends_with_0_and_writes_junit(check, tmp_path):
    arguments = ("--neighbours", "mine.py:neighbours", "--junit", str(tmp_path / "out.xml"))
    code, out, _ = check("mine.py:constant", *arguments)
    assert code == 0
    assert "PASSED" in out
    assert "number of steps" in (tmp_path / "out.xml").read_text()


def test_a_user_with_all_records_is_checked_and_audited(run, check):
    arguments = ("mine.py:constant", "--neighbours", "mine.py:user")
    code, _, errors = check(*arguments)
    assert code == 2
    assert "--unit user" in errors
    code, out, _ = check(*arguments, "--unit", "user")
    assert code == 0
    assert "3 of 5 records, those of a user, are added" in " ".join(out.split())
    audit = ("--noise-multiplier", "2", "--steps", "1", "--runs", "80", "--unit", "user")
    code, out, _ = run("audit", *arguments, *audit, "--store", "audits.db")
    assert code == 1
    assert "1 step per user" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("mine.py:train", "--steps", "3"), "--steps cannot be used"),
        (("mine.py:neighbours",), "train(data, seed)"),
        (("mine.py:train", "--neighbours", "mine.py:DATA"), "pair"),
        (("statistics:mean",), "--neighbours is needed"),
    ],
)
def test_calls_that_do_not_fit(check, arguments, words):
    code, _, errors = check(*arguments)
    assert code == 2
    assert words in errors
