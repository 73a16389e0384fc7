"""The progress of an audit on a terminal, in a file, and in a notebook."""

from __future__ import annotations

import time

import pytest

from dpaudit.audits import Bar, Silent, progress


def test_the_bar_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    with Bar() as bar:
        bar.begin(runs=5000, done=1000)
        for _ in range(3):
            time.sleep(0.05)
            bar.advance(500)
        time.sleep(0.2)
        bar.notice("a layer without a rule")
    printed = capsys.readouterr()
    assert printed.out == ""
    for words in ("2,500 of 5,000 runs", "runs/s", "without a rule"):
        assert words in printed.err
    assert (bar.runs, bar.done) == (5000, 2500)


def test_the_stage_is_shown_before_there_are_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with Bar() as bar:
        bar.stage("crafting")
        time.sleep(0.2)
    assert "crafting" in capsys.readouterr().err


def test_without_a_terminal_there_is_a_line_every_few_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    clock = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    with Bar() as bar:
        bar.stage("loading")
        bar.stage("crafting")
        bar.begin(runs=10, done=2)
        for _ in range(8):
            clock[0] += 2.0
            bar.advance(1)
        bar.notice("slow")
    printed = capsys.readouterr()
    lines = printed.err.splitlines()
    assert printed.out == ""
    assert lines[0].startswith("dpaudit: training: 5 of 10 runs, 30 runs/min, 10 s left")
    assert [line.split(":")[2].split(" of")[0] for line in lines[:-1]] == [" 5", " 8"]
    assert lines[-1] == "dpaudit: slow"


def test_a_labelled_bar_prints_lines_with_its_label_also_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr("dpaudit.audits.bar.SECONDS_BETWEEN_LINES", 0.0)
    with Bar(label="F1c") as bar:
        bar.notice("begins")
        bar.begin(runs=10, done=2)
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == ["dpaudit: F1c: begins", "dpaudit: F1c: 2 of 10 runs"]


def test_a_stage_without_reports_is_shown_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setattr("dpaudit.audits.bar.SECONDS_BETWEEN_LINES", 0.5)
    with Bar() as bar:
        bar.stage("crafting")
        time.sleep(2.5)  # no callback meanwhile, and nothing changes
    assert capsys.readouterr().err == "dpaudit: crafting\n"


def test_in_a_notebook_there_is_a_bar_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    display = pytest.importorskip("IPython.display")
    shown: list[str] = []

    class Handle:
        def update(self, content: object) -> None:
            shown.append(content.data)  # type: ignore[attr-defined]

    monkeypatch.setattr(display, "display", lambda content, display_id: Handle())
    monkeypatch.setattr(progress, "in_notebook", lambda: True)
    with progress.default_progress() as bar:
        bar.begin(runs=10, done=4)
        bar.advance(1)
    assert '<progress max="10" value="4">' in shown[0]
    assert shown[-1] == ""


def test_outside_of_a_notebook_nothing_is_shown_by_default() -> None:
    assert isinstance(progress.default_progress(), Silent)


def test_silence(capsys: pytest.CaptureFixture[str]) -> None:
    with Silent() as silent:
        silent.begin(runs=10, done=0)
        silent.advance(10)
        silent.notice("not shown")
    assert capsys.readouterr() == ("", "")
