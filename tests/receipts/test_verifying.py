"""A receipt says what was computed; checking it finds what does not follow from its scores."""

from __future__ import annotations

import copy
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from small_audits import CANARY, noisy, play

import dpaudit
from dpaudit import Claim
from dpaudit.errors import InvalidInput
from dpaudit.receipts import Receipt, receipt_of, verify
from dpaudit.receipts.form import as_plain, scores_in
from dpaudit.scores import Store, write_scores

Written = Callable[..., Path]


def leaves(value: Any, where: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of all values that are no list and no object."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        if isinstance(item, dict | list):
            yield from leaves(item, (*where, key))
        else:
            yield (*where, key)


def edited(plain: dict[str, Any], place: tuple[Any, ...], chance: random.Random) -> dict[str, Any]:
    """The data with another value at one place."""
    made = copy.deepcopy(plain)
    inner: Any = made
    for key in place[:-1]:
        inner = inner[key]
    old = inner[place[-1]]
    if isinstance(old, bool):
        new: Any = not old
    elif isinstance(old, int | float):
        new = old + chance.choice([1, -1, 0.5 * (abs(old) + 1)])
    elif isinstance(old, str):
        new = f"{old}1" if set(old) - {"0", "1"} or not old else f"{'10'[int(old[0])]}{old[1:]}"
    else:
        new = "something"
    inner[place[-1]] = new
    return made


def test_a_receipt_agrees_with_itself_and_says_that_its_origin_is_unknown(
    violated: Receipt, kept: Receipt, written: Written
) -> None:
    for receipt in (violated, kept):
        result = verify(written(receipt))
        assert [check.detail for check in result.checks if check.passed is False] == []
        assert result.outcome == "consistent"
        assert result.sentence == "internally consistent, origin unknown"
        assert any("no other audits" in text for text in result.not_checked)
        again = verify(written(receipt, "again.json")).receipt
        assert (again, again.text()) == (receipt, receipt.text())


@pytest.mark.parametrize(
    "settings",
    [
        {"until_violation": True, "runs": 200},
        {"confirm": False, "delta": 1e-6, "confidence": 0.9},
        {"claim": None, "claimed_epsilon": 4.0, "delta": 1e-4},
        {"claim": Claim.from_dpsgd(noise_multiplier=1.0, steps=1)},
    ],
    ids=["until violation", "one test", "one pair", "settings"],
)
@pytest.mark.parametrize("noise", [0.4, 1.0])
def test_receipts_of_all_kinds_of_tests_are_computed_again(
    settings: dict[str, Any], noise: float, written: Written, tmp_path: Path
) -> None:
    receipt = play(tmp_path / "s.sqlite", noisy(noise), **settings)
    result = verify(written(receipt))
    assert [check.detail for check in result.checks if check.passed is False] == []
    assert result.outcome == "consistent"


def test_failed_runs_are_part_of_the_receipt_and_their_tracebacks_are_not(
    written: Written, tmp_path: Path
) -> None:
    receipt = play(tmp_path / "s.sqlite", noisy(1.0, fails=9), anyway=True)
    assert receipt.computed.failed == len(receipt.given.phases[0].failures) > 3
    assert "Traceback" not in receipt.text()
    assert verify(written(receipt)).outcome == "consistent"


def test_a_receipt_of_many_canaries_in_each_run(written: Written, tmp_path: Path) -> None:
    canary = dpaudit.GradientCanary.draw(40, clip_norm=1.0, count=5)

    def train(canary: dpaudit.GradientCanary, inserted: Any, seed: int) -> Any:
        return -(canary.clipped_sum(inserted) + np.random.default_rng(seed).normal(0, 1.0, 40))

    receipt = play(tmp_path / "s.sqlite", train, canary=canary, runs=60, anyway=True)
    assert receipt.given.phases[0].scores == 300
    assert verify(written(receipt)).outcome == "consistent"


def test_a_preset_can_be_checked_with_its_coins(written: Written, tmp_path: Path) -> None:
    from dpaudit.testing import easy_training

    store = tmp_path / "s.sqlite"
    result = dpaudit.audit(
        easy_training(noise_multiplier=2.0), "random-dimension", runs=60, anyway=True, store=store
    )
    with Store.open(store) as opened:
        receipt = receipt_of(opened.audit(result.audit))
    checked = verify(written(receipt))
    assert checked.outcome == "consistent"
    assert {c.name: c.passed for c in checked.checks}["runs and coins"] is True


def test_a_receipt_of_two_data_sets_allows_that_a_record_was_replaced(
    written: Written, tmp_path: Path
) -> None:
    def train(data: Any, seed: int) -> Any:
        return data.sum(axis=0) + np.random.default_rng(seed).normal(0, 1.0, 3)

    replaced = (np.zeros((5, 3)), np.vstack([np.zeros((4, 3)), np.eye(3)[:1]]))
    receipt = play(tmp_path / "s.sqlite", train, canary=None, neighbours=replaced, anyway=True)
    assert verify(written(receipt)).outcome == "consistent"
    assert receipt.computed.adjacency.startswith("add, remove or replace")
    assert "two data sets" in receipt.computed.unit


def test_another_claim_chosen_afterwards_stays_marked(store: Path, written: Written) -> None:
    play(store, noisy(0.5), seed=11)
    with Store.open(store) as opened:
        receipt = receipt_of(opened.audits()[-1], claim=Claim.from_mu(0.5))
    assert receipt.given.asked_afterwards
    assert receipt.computed.fresh_runs == 0
    assert receipt.computed.test is not None
    assert receipt.computed.test["level"] == 0.001
    assert verify(written(receipt)).outcome == "consistent"


FREE = {
    ("dpaudit",),
    *(("given", name) for name in (
        "audit", "name", "created", "finished", "call", "attempts", "plan", "sessions", "played_on",
    )),
    *(("given", "configuration", name) for name in (
        "adversary", "coin", "insertion", "mechanism", "speed",
    )),
}  # fmt: skip
"""Places from which nothing that is computed follows: what the auditor says, and nobody can see."""


def test_of_200_edits_of_an_unsigned_receipt_those_are_found_that_change_what_follows(
    violated: Receipt, written: Written
) -> None:
    """The digest is made again after each, as a forger would."""
    plain, chance = as_plain(violated), random.Random(0)
    places = [place for place in leaves(plain) if place != ("digest",)]
    in_words = [place for place in places if "table" not in place]
    for place in chance.sample(in_words, 150) + chance.sample(places, 50):
        try:
            result = verify(written(edited(plain, place, chance)))
        except InvalidInput:  # of another type, such as text for a missing number
            continue
        free = any(place[: len(start)] == start for start in FREE)
        assert free or result.outcome == "inconsistent", place
        assert {c.name: c.passed for c in result.checks}["digest"] is True


def test_an_edit_that_changes_nothing_computed_is_not_found_without_a_signature(
    violated: Receipt, written: Written
) -> None:
    plain = as_plain(violated)
    plain["given"]["finished"] = "2031-01-01T00:00:00+00:00"
    result = verify(written(plain))
    assert result.outcome == "consistent"
    assert "clocks, software and hardware" in " ".join(result.not_checked)


def test_a_careless_edit_is_found_by_the_digest(violated: Receipt, tmp_path: Path) -> None:
    path = violated.write(tmp_path / "a.json")
    path.write_text(path.read_text("utf8").replace('"name":null', '"name":"other"'), "utf8")
    result = verify(path)
    assert result.outcome == "inconsistent"
    assert {c.name: c.passed for c in result.checks}["digest"] is False


def test_scores_may_be_kept_apart(violated: Receipt, written: Written, tmp_path: Path) -> None:
    phases = tuple(replace(one, table=None) for one in violated.given.phases)
    receipt = replace(violated, given=replace(violated.given, phases=phases)).sealed()
    path = written(receipt)
    assert verify(path).outcome == "incomplete"
    assert "scores are missing" in verify(path).sentence
    files = []
    for phase in violated.given.phases:
        assert phase.table is not None
        files.append(tmp_path / f"scores-{phase.phase}.csv")
        write_scores(scores_in(phase.table), files[-1])
    assert verify(path, scores=files[:1]).outcome == "incomplete"
    assert verify(path, scores=files[::-1]).outcome == "consistent"
    other = tmp_path / "other.csv"
    other.write_text("score,inserted\n1,0\n2,1\n", "utf8")
    assert verify(path, scores=[*files, other]).outcome == "inconsistent"


def test_a_receipt_of_another_version_of_dpaudit_is_read(
    violated: Receipt, written: Written
) -> None:
    lower = dict(violated.computed.lower[0])
    lower["notes"] = ["another sentence about this bound"]
    computed = replace(violated.computed, lower=(lower, *violated.computed.lower[1:]))
    result = verify(written(replace(violated, dpaudit="0.2.9", computed=computed).sealed()))
    assert result.outcome in ("consistent", "inconsistent")
    detail = next(c.detail for c in result.checks if c.name == "bounds and verdict")
    assert "0.2.9" in detail


def test_attempts_at_the_same_training_are_counted(tmp_path: Path) -> None:
    store, train = tmp_path / "s.sqlite", noisy(1.0)
    known = [play(store, train, seed=seed).given.attempts for seed in (0, 1)]
    assert [one.same_training for one in known] == [1, 2]
    other = play(store, noisy(1.0, fails=10**9), seed=2).given.attempts
    assert (other.same_training, other.same_name) == (1, 3)


def test_clock_and_locale_change_nothing(violated: Receipt, tmp_path: Path) -> None:
    path = violated.write(tmp_path / "a.json")
    code = f"""
import locale
for name in ("de_DE.UTF-8", "tr_TR.UTF-8", "C"):
    try:
        locale.setlocale(locale.LC_ALL, name)
    except locale.Error:
        pass
from dpaudit.receipts import verify
result = verify({str(path)!r})
print(result.outcome, result.receipt.text() == open({str(path)!r}, encoding="utf8").read())
"""
    environment = {**os.environ, "TZ": "Asia/Kathmandu", "LC_ALL": "C", "PYTHONUTF8": "0"}
    run = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert run.stdout.split() == ["consistent", "True"]


def test_an_unfinished_audit_has_no_receipt(tmp_path: Path) -> None:
    store = tmp_path / "s.sqlite"
    play(store, noisy(1.0))
    with Store.open(store) as opened:
        done = opened.audits()[0]
        again = opened.begin("half", done.configuration, {"device": "cpu"})
        again.annotate(done.summary or {})
        tiles = list(done.tiles().items())
        again.add_tiles(tiles[: len(tiles) // 2])
        with pytest.raises(InvalidInput, match="must be finished"):
            receipt_of(again)


def test_the_receipt_names_no_file_of_the_auditor(violated: Receipt, tmp_path: Path) -> None:
    text = violated.text()
    assert str(tmp_path) not in text
    assert str(Path(__file__).parent) not in text
    assert CANARY is not None
    assert json.loads(text)["format"] == "dpaudit-receipt"
