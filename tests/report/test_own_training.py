"""An audit of an own training, read back from its store: what holds, at any delta."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dpaudit import AuditResult, Claim, Store, audit
from dpaudit.audits import read_result
from dpaudit.cli import main
from dpaudit.report import PageData, render_page
from dpaudit.report.pages import record_page

WATCHED = {"claim": Claim.from_mu(0.1), "runs": 400, "until_violation": True}
DPSGD = Claim.from_dpsgd(noise_multiplier=1.0, steps=10)


def sampled() -> Claim:
    """Not at import: the accountant takes a second."""
    return Claim.from_dpsgd(noise_multiplier=1.0, steps=10, sampling_rate=0.1)


PAIR = Claim.from_points([(0.1, 1e-5)])


def noisy_sum(canary: object, inserted: bool, seed: int) -> float:
    if seed % 13 == 0:
        raise RuntimeError("no luck")
    return 3 * float(inserted) + float(np.random.default_rng(seed).normal())


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., AuditResult]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DPAUDIT_STORE", raising=False)

    def play(**options: object) -> AuditResult:
        return audit(
            noisy_sum, **{"store": "dpaudit.sqlite", "name": "own", "anyway": True, **options}
        )  # type: ignore[arg-type]

    return play


def page(**options: float) -> PageData:
    with Store.open("dpaudit.sqlite") as store:
        return record_page(store.audits()[0], **options)


def read(**options: float) -> AuditResult:
    with Store.open("dpaudit.sqlite") as store:
        return read_result(store.audits()[0], **options)


@pytest.mark.parametrize("options", [{"claim": DPSGD, "runs": 80}, WATCHED])
def test_what_is_read_back_is_what_was_played(played, options) -> None:
    result, again = played(**options), read()
    assert again.test == result.test
    assert again.lower == result.lower
    assert again.failures == result.failures
    changes = ("seconds", "device", "notices", "notes")
    one, other = ({**r.to_dict(), **dict.fromkeys(changes)} for r in (again, result))
    assert one == other


@pytest.mark.parametrize(
    ("delta", "confidence"), [(1e-5, 0.95), (1e-3, 0.95), (1e-5, 0.9), (0, 0.9)]
)
def test_only_anytime_bounds_stand_on_the_page_of_an_audit_that_was_watched(
    played, delta: float, confidence: float
) -> None:
    result = played(**WATCHED)
    kept = page(delta=delta, confidence=confidence)
    assert kept.verdict == result.verdict == "violation"
    found = kept.evidence
    assert found is not None
    assert {bound.method for bound in found.lower} <= {"anytime", "anytime-gaussian-dp"}
    assert found.leading.method == ("anytime-gaussian-dp" if delta else "anytime")
    if delta:
        assert found.cautious is not None
        assert found.cautious.method == "anytime"
    assert {(bound.delta, bound.confidence) for bound in found.lower} == {(delta, confidence)}
    assert found.sample == f"{len(result.scores)} scores from {len(result.scores)} runs"
    assert "The scores were tested as they came, and" in render_page([kept])


@pytest.mark.parametrize(
    "claim", [DPSGD, sampled, Claim.from_mu(0.5), Claim.from_epsilon(2.0, 1e-5)]
)
@pytest.mark.parametrize("delta", [1e-3, 1e-5])
def test_a_claim_that_is_a_curve_is_known_at_every_delta(
    played, claim: Claim | Callable[[], Claim], delta: float
) -> None:
    claim = claim if isinstance(claim, Claim) else claim()
    played(claim=claim, runs=80)
    found = page(delta=delta).evidence
    assert found is not None
    assert found.least_upper is not None
    assert found.least_upper.epsilon == pytest.approx(claim.epsilon(delta))
    assert found.tradeoff.claimed is not None


def test_a_pair_says_nothing_below_its_delta(played) -> None:
    played(claim=PAIR, runs=200)
    kept = page(delta=1e-7)
    assert kept.verdict == "violation"
    assert kept.evidence is not None
    assert kept.evidence.least_upper is None
    said = "The claim, (0.1, 1e-05)-DP, says nothing at delta = 1e-07"
    assert any(notice.startswith(said) for notice in kept.notices)
    assert not any("says nothing" in notice for notice in page(delta=1e-5).notices)


def command(monkeypatch, capsys, *words: str) -> str:
    monkeypatch.setattr(sys, "argv", ["dpaudit", *words])
    with pytest.raises(SystemExit):
        main()
    return capsys.readouterr().out


@pytest.mark.parametrize("options", [{"claim": DPSGD, "runs": 80}, WATCHED])
def test_show_prints_bounds_at_the_delta_and_confidence_asked(
    played, options, monkeypatch, capsys
) -> None:
    result = played(**options)
    asked = ("--delta", "1e-3", "--confidence", "0.9")
    printed = command(monkeypatch, capsys, "show", "own", "--all-bounds", *asked)
    found = json.loads(command(monkeypatch, capsys, "show", "own", *asked, "--json"))
    again = read(delta=1e-3, confidence=0.9)
    assert "epsilon at delta = 0.001, lower bounds at 90 % confidence" in printed
    assert f"≥ {again.leading.epsilon:.4f}" in printed
    assert f"≤ {result.test.claim.epsilon(1e-3):.4f}" in printed
    assert [bound["epsilon"] for bound in found["lower"]] == [one.epsilon for one in again.lower]
    assert {bound["delta"] for bound in found["lower"]} == {1e-3}
    assert found["claimed"]["epsilon"] == pytest.approx(result.test.claim.epsilon(1e-3))


def test_the_command_show_takes_delta_and_confidence(played, monkeypatch, capsys) -> None:
    played(claim=DPSGD, runs=80)
    asked = ["--delta", "1e-3", "--confidence", "0.9"]
    for options, said in (
        ([], "delta = 1e-05, lower bounds at 95 %"),
        (asked, "= 0.001, lower bounds at 90 %"),
    ):
        monkeypatch.setattr(sys, "argv", ["dpaudit", "show", "own", "--all-bounds", *options])
        with pytest.raises(SystemExit):
            main()
        assert said in capsys.readouterr().out
