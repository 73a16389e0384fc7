"""The pytest plugin: a violated claim fails a test with the path of its report."""

import subprocess
import sys
from xml.etree import ElementTree

SUITE = """
import numpy as np
import pytest

import dpaudit

canary = dpaudit.GradientCanary.draw(200, clip_norm=1.0)


def training(noise):
    def train(canary, inserted, seed, steps=1):
        random = np.random.default_rng(seed)
        theta = np.zeros(canary.parameters)
        for _ in range(steps):
            rows = np.nan_to_num(canary.rows(inserted), nan=0.0, posinf=0.0, neginf=0.0)
            largest = np.maximum(np.abs(rows).max(axis=1, keepdims=True), 1e-300)
            norms = largest * np.linalg.norm(rows / largest, axis=1, keepdims=True)
            clipped = rows * np.minimum(1, 1 / np.maximum(norms, 1e-300))
            theta -= clipped.sum(axis=0) + random.normal(0, noise, theta.shape)
        return theta
    return train


@pytest.mark.dp_audit(noise_multiplier=1.0, steps=1, runs=400)
def test_correct(dpaudit_training):
    assert dpaudit_training(training(1.0), canary=canary).verdict == "consistent"


@pytest.mark.dp_audit(noise_multiplier=1.0, steps=1)
def test_broken_rule(dpaudit_training):
    dpaudit_training(training(0.2), canary=canary)


@pytest.mark.dp_audit(noise_multiplier=1.0, steps=1, check=False)
def test_violation(dpaudit_training):
    dpaudit_training(training(0.05), canary=canary)


@pytest.mark.dp_audit(noise_multiplier=1.0, steps=1, check=False, runs=4)
def test_inconclusive(dpaudit_training):
    dpaudit_training(training(1.0), canary=canary)


@pytest.mark.dp_audit(noise_multiplier=1.0, steps=1, check=False, runs=4, allow_inconclusive=True)
def test_inconclusive_is_allowed(dpaudit_training):
    dpaudit_training(training(1.0), canary=canary)


@pytest.mark.dp_audit(noise_multiplier=1.0, claim=dpaudit.Claim.from_mu(3.0))
def test_steps_unknown(dpaudit_training):
    def train(canary, inserted, seed):
        return training(1.0)(canary, inserted, seed, steps=8 + seed % 2)

    dpaudit_training(train, canary=canary)


def test_without_a_claim(dpaudit_training):
    dpaudit_training(training(1.0), canary=canary)


def live_training(live, noise):
    random = np.random.default_rng(0)
    for _ in range(30):
        (sums,) = live.add([np.zeros(2000)])
        live.observe([sums + random.normal(0, noise, 2000)])


SETTINGS = dict(clip_norm=1.0, noise_multiplier=2.0, sampling_rate=1.0, canaries=500, seed=0)


def test_live(dpaudit_live):
    with dpaudit_live([2000], **SETTINGS) as live:
        live_training(live, noise=2.0)


@pytest.mark.dp_audit(noise_multiplier=2.0, steps=30)
def test_live_violation(dpaudit_live):
    with dpaudit_live([2000], **SETTINGS) as live:
        live_training(live, noise=1.0)


@pytest.mark.dp_audit(sigma=1.0)
def test_misspelt(dpaudit_training):
    dpaudit_training(training(1.0), canary=canary)
"""


def test_a_suite_with_good_and_bad_trainings(tmp_path):
    (tmp_path / "test_it.py").write_text(SUITE)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += ["--junitxml=out.xml", "test_it.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    messages, skipped = {}, {}
    for case in ElementTree.parse(tmp_path / "out.xml").iter("testcase"):
        problems = [*case.findall("failure"), *case.findall("error")]
        messages[case.get("name")] = problems[0].get("message") if problems else None
        skipped |= {case.get("name"): one.get("message") for one in case.findall("skipped")}
    passed = {name for name, message in messages.items() if message is None} - set(skipped)
    assert passed == {"test_correct", "test_live"}
    assert list(skipped) == ["test_inconclusive_is_allowed"]
    assert "Inconclusive: claimed" in skipped["test_inconclusive_is_allowed"]
    assert messages["test_live_violation"].count("Violation") == 1
    assert (tmp_path / "dpaudit-reports" / "test_it.py-test_live_violation.html").exists()
    assert "noise size" in messages["test_broken_rule"]
    page = tmp_path / "dpaudit-reports" / "test_it.py-test_violation.html"
    assert page.exists()
    assert str(page.relative_to(tmp_path)) in messages["test_violation"]
    assert "steps is needed" in messages["test_steps_unknown"]
    assert "claim" in messages["test_without_a_claim"]
    assert "sigma" in messages["test_misspelt"]


def test_a_page_that_cannot_be_written_hides_no_verdict(tmp_path):
    (tmp_path / "test_it.py").write_text(SUITE)
    (tmp_path / "reports").write_text("a file, and no folder")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "violation"]
    command += ["--dpaudit-reports=reports", "test_it.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    for name in ("test_violation", "test_live_violation"):
        assert f"{name} - Failed: dpaudit: Violation: claimed" in done.stdout
    assert "report: none, " in done.stdout
    assert (tmp_path / "reports").read_text() == "a file, and no folder"
