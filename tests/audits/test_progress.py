"""The bar says how many runs are done, how fast, how long still, and what they show so far."""

from __future__ import annotations

import time

import pytest

from dpaudit.audits import Bar, Silent


def test_the_bar_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    with Bar() as bar:
        assert not bar.wants_bounds
        bar.begin(runs=5000, done=1000)
        assert bar.wants_bounds
        for _ in range(3):
            time.sleep(0.05)
            bar.advance(500)
        bar.bound(12.345)
        time.sleep(0.2)
        bar.notice("a layer without a rule")
    printed = capsys.readouterr()
    assert printed.out == ""
    for words in ("2,500 of 5,000 runs", "runs/s", "epsilon >= 12.35 so far", "without a rule"):
        assert words in printed.err
    assert (bar.runs, bar.done) == (5000, 2500)


def test_without_a_terminal_there_is_no_bar_but_notices_are_heard(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    with Bar() as bar:
        bar.begin(runs=10, done=0)
        bar.advance(5)
        bar.bound(1.0)
        bar.notice("slow")
        assert not bar.wants_bounds
    assert capsys.readouterr().err == "dpaudit: slow\n"


def test_silence(capsys: pytest.CaptureFixture[str]) -> None:
    with Silent() as silent:
        silent.begin(runs=10, done=0)
        silent.advance(10)
        silent.notice("nobody hears this")
    assert capsys.readouterr() == ("", "")
