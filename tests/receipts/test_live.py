"""Receipts of live audits: no score, no seed, and no coordinate."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_audits import noisy, play

from dpaudit import Claim
from dpaudit.errors import InvalidInput
from dpaudit.live import LiveAudit, live_audit
from dpaudit.receipts import Receipt, combine, receipt_of, register, verify
from dpaudit.receipts.combining import calibrated, e_value_of, shared_evidence
from dpaudit.scores import Store

SEED = 987654321


def prepared(store: Path | None, seed: int = SEED, **changed: Any) -> LiveAudit:
    settings = {
        "claim": Claim.from_mu(1.0), "canaries": 200, "clip_norm": 1.0, "noise_multiplier": 1.0,
        "sampling_rate": 1.0, "on_violation": lambda _: None,
    }  # fmt: skip
    return live_audit([2000], seed=seed, store=store, **(settings | changed))


def live(store: Path, seed: int = SEED) -> tuple[Receipt, np.ndarray]:
    """The receipt of a training with 30 % of the claimed noise, and the scores that are secret."""
    random = np.random.default_rng(seed)
    with prepared(store, seed) as audit:
        (sums,) = audit.add([np.zeros(2000)])
        audit.observe([sums + random.normal(0.0, 0.3, 2000)])
    assert audit.result.verdict == "violation"
    with Store.open(store) as opened:
        return receipt_of(opened.audits()[-1]), audit.evidence.scores


def test_a_live_audit_is_computed_again_from_its_numbers_of_errors(
    tmp_path: Path, written: Callable[..., Path]
) -> None:
    receipt, secret = live(tmp_path / "s.sqlite")
    result = verify(written(receipt))
    assert [check.detail for check in result.checks if check.passed is False] == []
    assert result.outcome == "consistent"
    assert any("coins were not checked" in text for text in result.not_checked)
    (session,) = receipt.given.sessions
    assert {"dpaudit", "python", "numpy", "scipy", "system", "device"} <= session.keys()
    assert ("torch" in session) == ("torch" in sys.modules)
    text, table = receipt.text(), receipt.given.phases[0].table
    assert str(SEED) not in text
    assert table is not None
    assert not set(table.score) & set(secret.tolist())
    with Store.open(tmp_path / "s.sqlite") as opened:
        record = opened.audits()[-1]
        assert receipt_of(record, include_scores=False).given.phases[0].table is None
        with pytest.raises(InvalidInput, match="noise of the released model"):
            receipt_of(record, include_scores=True)


def test_the_script_of_a_live_audit_is_named_by_its_digest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "train.py"
    script.write_bytes(b"fit()")
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(script), raising=False)
    receipt, _ = live(tmp_path / "s.sqlite")
    training = receipt.given.configuration["mechanism"]
    assert training["source"] == hashlib.sha256(b"fit()").hexdigest()
    assert str(script) not in receipt.text()


def test_a_live_audit_combines_by_its_p_value(tmp_path: Path, written: Callable[..., Path]) -> None:
    receipt, _ = live(tmp_path / "s.sqlite")
    other, _ = live(tmp_path / "s.sqlite", seed=SEED + 1)
    assert receipt.computed.test is not None
    assert e_value_of(receipt) == calibrated(receipt.computed.test["p_value"])
    assert shared_evidence(receipt, other) == ""
    assert shared_evidence(receipt, receipt) != ""
    run = play(tmp_path / "t.sqlite", noisy(0.5))
    result = combine([written(receipt, "a.json"), written(run, "b.json")])
    assert result.e_value == pytest.approx(e_value_of(receipt) * e_value_of(run))


def test_a_live_audit_that_was_registered_is_recognised_and_another_one_is_not(
    tmp_path: Path, written: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "train.py"
    script.write_bytes(b"fit()")
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(script), raising=False)
    plans = {
        "this": register(prepared(None, seed=5)),  # its seed is drawn again, and is in no plan
        "canaries": register(prepared(None, canaries=300)),
        "claim": register(prepared(None, claim=Claim.from_mu(2.0))),
    }
    script.write_bytes(b"fit(more=True)")
    plans["script"] = register(prepared(None))
    script.write_bytes(b"fit()")
    live(tmp_path / "s.sqlite")
    checks = {}
    with Store.open(tmp_path / "s.sqlite") as opened:
        for name, plan in plans.items():
            assert str(SEED) not in plan.text()
            path = plan.write(tmp_path / f"{name}.json")
            receipt = receipt_of(opened.audits()[-1], plan=plan.digest)
            result = verify(written(receipt, f"{name}.receipt.json"), plan=path)
            checks[name] = [c for c in result.checks if c.name == "registered beforehand"]
    assert [check.passed for check in checks.pop("this")] == [True, None]
    for name, (check,) in checks.items():
        assert check.passed is False
        assert {"script": "its code"}.get(name, name) in check.detail


def test_only_a_live_audit_with_a_claim_and_before_its_steps_is_registered(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="with a claim"):
        register(prepared(None, claim=None))
    with pytest.raises(InvalidInput, match="omit them"):
        register(prepared(None), runs=100)
    with prepared(None) as audit:
        (sums,) = audit.add([np.zeros(2000)])
        audit.observe([sums])
        with pytest.raises(InvalidInput, match="before its first step"):
            register(audit)


def test_the_unit_of_the_claim_is_named(tmp_path: Path) -> None:
    claim = Claim.from_mu(1.0).per("user")
    with prepared(tmp_path / "s.sqlite", claim=claim, unit="user") as audit:
        (sums,) = audit.add([np.zeros(2000)])
        audit.observe([sums + np.random.default_rng(0).normal(0.0, 1.0, 2000)])
    with Store.open(tmp_path / "s.sqlite") as opened:
        stated = receipt_of(opened.audits()[-1]).computed
    assert stated.unit.endswith("the claim is for a user")
    assert stated.adjacency.startswith("add or remove")


def test_attempts_at_a_live_audit_are_those_of_the_same_script(tmp_path: Path) -> None:
    live(tmp_path / "s.sqlite")
    again, _ = live(tmp_path / "s.sqlite", seed=SEED + 1)
    assert (again.given.attempts.same_training, again.given.attempts.same_name) == (2, 2)
