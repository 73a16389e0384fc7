"""A store with thousands of audits stays usable. Work and bytes are counted, never time."""

from __future__ import annotations

import cProfile
import pstats
import sqlite3
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dpaudit import Claim, audit
from dpaudit.cli.audits import list_audits
from dpaudit.presets import housing
from dpaudit.scores.store import _seal

MANY = 3_000


def train(canary: object, inserted: bool, seed: int) -> float:
    return float(inserted) + np.random.default_rng(seed).normal()


def audit_train(store: Path) -> None:
    audit(train, claim=Claim.from_epsilon(8.0, 1e-5), runs=20, anyway=True, store=store)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a preset's audit and a function's, which have settings of other names."""
    path = tmp_path_factory.mktemp("many") / "two.sqlite"
    audit(housing(noise_multiplier=4.0, steps=5), runs=200, store=path)
    audit_train(path)
    return path


@pytest.fixture(scope="module")
def many(two: Path) -> Path:
    """A store in which both are repeated."""
    path = two.with_name("many.sqlite")
    path.write_bytes(two.read_bytes())
    connection = sqlite3.connect(path)
    for table in ("audits", "sessions", "tiles"):
        rows = connection.execute(f"SELECT * FROM {table}").fetchall()
        for number in range(MANY // 2):
            for old, *rest, _ in rows:
                row = (f"{number:012x}{old[:4]}", *rest)
                places = ", ".join("?" * (len(row) + 1))
                connection.execute(f"INSERT INTO {table} VALUES ({places})", (*row, _seal(row)))
    connection.commit()
    connection.close()
    return path


def calls(work: Callable[[], object]) -> int:
    """How many functions are called."""
    profile = cProfile.Profile()
    profile.runcall(work)
    return int(pstats.Stats(profile).total_calls)


def test_an_audit_does_the_same_in_a_small_and_in_a_large_store(two: Path, many: Path) -> None:
    audit_train(two)  # imports what all audits need
    assert calls(lambda: audit_train(many)) == calls(lambda: audit_train(two))


def test_a_list_takes_little_work_for_each_audit(
    many: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert calls(lambda: list_audits(str(many))) < 1_000 * MANY
    assert capsys.readouterr().out.count("\n") > MANY
