"""An audit of an own training, read back from its store: what holds, at any delta."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dpaudit import Claim, Store, audit_training
from dpaudit.cli import main
from dpaudit.cli.audit_training import show_stored
from dpaudit.errors import StoreError
from dpaudit.report import PageData, record_page, render_page
from dpaudit.trainings import TrainingAudit
from dpaudit.trainings.auditing import read_training_audit

WATCHED = {"claim": Claim.from_mu(0.1), "runs": 400, "until_violation": True}
DPSGD = Claim.from_dpsgd(noise_multiplier=1.0, steps=10)
SAMPLED = Claim.from_dpsgd(noise_multiplier=1.0, steps=10, sampling_rate=0.1)
PAIR = Claim.from_points([(0.1, 1e-5)])


def noisy_sum(canary: object, inserted: bool, seed: int) -> float:
    if seed % 13 == 0:
        raise RuntimeError("no luck")
    return 3 * float(inserted) + float(np.random.default_rng(seed).normal())


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., TrainingAudit]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DPAUDIT_STORE", raising=False)

    def play(**options: object) -> TrainingAudit:
        return audit_training(noisy_sum, **{"store": "dpaudit.sqlite", "name": "own", **options})  # type: ignore[arg-type]

    return play


def page(**options: float) -> PageData:
    with Store.open("dpaudit.sqlite") as store:
        return record_page(store.audits()[0], **options)


def read(**options: float) -> TrainingAudit:
    with Store.open("dpaudit.sqlite") as store:
        found = read_training_audit(store.audits()[0], **options)
    assert found is not None
    return found


def forget_the_claim() -> None:
    """Make the store one of a dpaudit that did not keep claims."""
    with Store.open("dpaudit.sqlite") as store:
        (record,) = store.audits()
        kept = dict(record.summary or {})
        del kept["promise"]
        record.finish(kept)


@pytest.mark.parametrize("options", [{"claim": DPSGD, "runs": 80}, WATCHED])
def test_what_is_read_back_is_what_was_played(played, options) -> None:
    result, again = played(**options), read()
    assert again.test == result.test
    assert again.lower == result.lower
    assert again.failures == result.failures
    assert again.to_dict() == {**result.to_dict(), "seconds": again.to_dict()["seconds"]}


@pytest.mark.parametrize(
    ("delta", "confidence"), [(1e-5, 0.95), (1e-3, 0.95), (1e-5, 0.9), (0, 0.9)]
)
def test_only_anytime_bounds_stand_on_the_page_of_an_audit_that_was_watched(
    played, delta: float, confidence: float
) -> None:
    result = played(**WATCHED)
    kept = page(delta=delta, confidence=confidence)
    assert (kept.verdict, kept.sentence) == ("violation", result.sentence)
    found = kept.evidence
    assert found is not None
    assert {bound.method for bound in found.lower} <= {"anytime", "anytime-gaussian-dp"}
    assert found.leading.method == ("anytime-gaussian-dp" if delta else "anytime")
    if delta:
        assert found.cautious is not None
        assert found.cautious.method == "anytime"
    assert {(bound.delta, bound.confidence) for bound in found.lower} == {(delta, confidence)}
    assert found.sample == f"{len(result.scores)} scores from {len(result.scores)} runs"
    assert "The scores were watched as they came" in render_page([kept])


@pytest.mark.parametrize(
    "claim", [DPSGD, SAMPLED, Claim.from_mu(0.5), Claim.from_epsilon(2.0, 1e-5)]
)
@pytest.mark.parametrize("delta", [1e-3, 1e-5])
def test_a_claim_that_is_a_curve_is_known_at_every_delta(
    played, claim: Claim, delta: float
) -> None:
    played(claim=claim, runs=80)
    found = page(delta=delta).evidence
    assert found is not None
    assert found.least_upper is not None
    assert found.least_upper.epsilon == pytest.approx(claim.epsilon(delta))
    assert found.tradeoff.promised is not None


def test_a_pair_says_nothing_below_its_delta(played) -> None:
    played(claim=PAIR, runs=200)
    kept = page(delta=1e-7)
    assert kept.verdict == "violation"
    assert kept.evidence is not None
    assert kept.evidence.least_upper is None
    said = "The claim, (0.1, 1e-05)-DP, says nothing at delta = 1e-07"
    assert any(notice.startswith(said) for notice in kept.notices)
    assert not any("says nothing" in notice for notice in page(delta=1e-5).notices)


def test_runs_are_those_that_were_used(played, monkeypatch, capsys) -> None:
    first = played(runs=200, claim=WATCHED["claim"])
    assert (first.runs, first.resumed) == (200, 0)
    watched = played(**{**WATCHED, "runs": 200})
    assert watched.runs < 200
    assert watched.resumed == watched.runs
    for command in (["report", "own"], ["list"]):
        monkeypatch.setattr(sys, "argv", ["dpaudit", *command, "--json"])
        with pytest.raises(SystemExit):
            main()
        (entry,) = json.loads(capsys.readouterr().out)["audits"]
        assert (entry["runs"], entry["runs_asked"]) == (watched.runs, 200)


@pytest.mark.parametrize("options", [{"claim": DPSGD, "runs": 80}, WATCHED])
def test_show_prints_bounds_at_the_delta_and_confidence_asked(played, options, capsys) -> None:
    result = played(**options)
    with Store.open("dpaudit.sqlite") as store:
        entry = {"runs": 400, "runs_asked": 400}
        asked = {"delta": 1e-3, "confidence": 0.9}
        (record,) = store.audits()
        show_stored(record, entry, json=False, **asked)
        printed = capsys.readouterr().out
        show_stored(record, entry, json=True, **asked)
        found = json.loads(capsys.readouterr().out)
    again = read(**asked)
    assert "epsilon at delta = 0.001, lower bounds at 90 % confidence" in printed
    assert f"≥ {again.leading.epsilon:.4f}" in printed
    assert f"≤ {result.test.claim.epsilon(1e-3):.4f}" in printed
    assert result.test.claim.description in printed
    assert "{" not in printed.partition("run ")[0]  # settings are lines, not dictionaries
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
        monkeypatch.setattr(sys, "argv", ["dpaudit", "show", "own", *options])
        with pytest.raises(SystemExit):
            main()
        assert said in capsys.readouterr().out


def test_an_audit_kept_without_its_claim_is_mended_by_its_own_command(played) -> None:
    result = played(claim=DPSGD, runs=80)
    forget_the_claim()
    with pytest.raises(StoreError, match="given again, trains nothing and keeps the claim too"):
        page()
    assert played(claim=DPSGD, runs=80).resumed == 80
    assert page().sentence == result.sentence
