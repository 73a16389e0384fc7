"""The field: what a status follows from, and what the page may name."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from field import kit, page  # noqa: E402
from field.run import libraries  # noqa: E402

import dpaudit  # noqa: E402
from dpaudit.checks import check_step  # noqa: E402
from dpaudit.receipts import verify  # noqa: E402


def step_of(noise):
    def step(gradients, seed):
        lengths = np.linalg.norm(gradients, axis=1, keepdims=True)
        clipped = gradients * np.minimum(1, 1 / np.maximum(lengths, 1e-300))
        return clipped.sum(axis=0) + np.random.default_rng(seed).normal(0, noise, 100)

    return step


def evidence(noise):
    result = check_step(
        step_of(noise), clip_norm=1, noise_multiplier=1, parameters=100, finite_gradients=True
    )
    return kit.evidence_of(result)


def test_the_status_of_a_check_follows_from_its_rules():
    assert evidence(1.0)["status"] == "kept"
    broken = evidence(0.5)
    assert broken["status"] == "broken"
    assert [finding["rule"] for finding in broken["broken"]] == ["noise size"]


@pytest.mark.parametrize(
    ("distance", "runs", "status"),
    [(1.0, 3000, "kept"), (2.0, 3000, "broken"), (1.0, 20, "cannot tell")],
)
def test_the_status_of_a_claim_follows_from_its_test(distance, runs, status):
    random = np.random.default_rng(0)
    scores = dpaudit.Scores.from_samples(
        random.normal(distance, 1, runs), random.normal(0, 1, runs)
    )
    result = dpaudit.test_claim(scores, dpaudit.Claim.from_mu(1.0))
    assert kit.evidence_of(result)["status"] == status


def test_an_exception_of_a_library_cannot_tell():
    @kit.case("raises", claims="nothing")
    def raises():
        raise RuntimeError("no")

    found = kit.run_case(raises.case)
    assert (found["status"], found["error"]) == ("cannot tell", "RuntimeError: no")


def row(**facts):
    return {
        "way": "a way of using it",
        "claims": "something",
        "expected": "broken",
        "status": "broken",
        "cause": "line 7 of secret.py",
        "class_of_bug": "a library: some class",
        "public": "",
        "broken": [{"rule": "noise size", "explanation": ""}],
    } | facts


def test_the_page_names_no_library_whose_cause_is_not_public():
    hidden = "\n".join(page.table([{"library": "Secretlib", "cases": [row()]}]))
    assert "a library: some class" in hidden
    for name in ("Secretlib", "secret.py", "a way of using it"):
        assert name not in hidden
    shown = "\n".join(page.table([{"library": "Openlib", "cases": [row(public="Openlib#1")]}]))
    assert "Openlib#1" in shown
    assert "line 7" in shown


def test_every_result_is_of_a_library_of_the_list_and_every_broken_case_has_a_cause():
    for file in (ROOT / "field" / "results").glob("*.json"):
        assert file.stem in libraries()
        for case in json.loads(file.read_text())["cases"]:
            if case["status"] == "broken":
                assert case["cause"], case["way"]
                assert case["class_of_bug"], case["way"]


def test_an_adapter_runs(tmp_path):
    adapter, out = ROOT / "field" / "adapters" / "optax.py", tmp_path / "cases.json"
    kit.main(str(adapter), str(out), "optax", "a digest")
    assert [case["status"] for case in json.loads(out.read_text())] == ["kept", "broken"]
    receipt = tmp_path / "cases.receipt.json"
    result = verify(receipt)
    assert result.sentence == "internally consistent, origin unknown"
    assert result.verdicts == ("passed", "broken")
    text = receipt.read_text()
    receipt.write_text(text.replace('"verdict":"broken"', '"verdict":"passed"', 1))
    assert verify(receipt).outcome == "inconsistent"


def test_a_tool_has_found_a_bug_at_the_sizes_at_which_it_finds_it_often():
    def rows(found, shown):
        cells = {
            size: {"found": f, "shown": s}
            for size, f, s in zip(("1", "2"), found, shown, strict=True)
        }
        return [cells] * 5

    assert page._cell(rows((False, True), (1.0, 2.0)), [1, 2], True) == "2; 2.00"
    assert page._cell(rows((True, False), (3.0, 2.0)), [1, 2], True) == "1 only; 3.00"
    assert page._cell(rows((False, False), (None, None)), [1, 2], True) == "not found"
    assert page._cell(rows((True, False), (3.0, 2.0)), [1, 2], False) == "5 of 10 alarms; 3.00"


def test_the_page_is_what_the_results_say(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "PAGE", tmp_path / "field.md")
    page.write()
    assert (tmp_path / "field.md").read_text() == (ROOT / "docs" / "field.md").read_text()
