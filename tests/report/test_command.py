"""``dpaudit report``: which audits it takes, and what it says."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from played import normal_scores, settings, store_audit

from dpaudit.report.comparison import MOST_COMPARED
from dpaudit.scores import Store

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, run: Run, tmp_path: Path) -> Run:
    """Runs the command in a folder with two stores: exit code, output, errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DPAUDIT_STORE", raising=False)
    for file, names in (("dpaudit.sqlite", ("first", "second")), ("other.sqlite", ("third",))):
        with Store.open(file) as store:
            for place, name in enumerate(names):
                scores = normal_scores(2.0, runs=100, seed=place)
                store_audit(store, scores, settings(runs=100), name=name)
    return partial(run, "report")


@pytest.mark.parametrize(
    ("arguments", "titles"),
    [
        (["second"], ["second"]),
        (["second", "first"], ["second", "first"]),
        ([], ["first", "second"]),
        (["other.sqlite"], ["third"]),
        (["other.sqlite", "first"], ["third", "first"]),
        (["third", "--store", "other.sqlite"], ["third"]),
        (["first", "dpaudit.sqlite"], ["first", "second"]),
    ],
)
def test_audits_by_name_and_by_store(run: Run, arguments: list[str], titles: list[str]) -> None:
    code, out, err = run(*arguments, "--json")
    assert (code, err) == (0, "")
    printed = json.loads(out)
    assert [audit["title"] for audit in printed["audits"]] == titles
    page = Path(printed["page"])
    assert page.stat().st_size == printed["bytes"]
    assert all(title in page.read_text(encoding="utf8") for title in titles)


def test_delta_is_that_of_the_question(run: Run) -> None:
    printed = json.loads(run("first", "--delta", "1e-3", "--json")[1])
    assert printed["audits"][0]["lower"]["delta"] == 1e-3


def test_run_counts_of_finished_and_unfinished_audits(run: Run) -> None:
    with Store.open("dpaudit.sqlite") as store:
        half = settings(runs=100, seed=4)
        store_audit(store, normal_scores(2.0, runs=50), half, name="half", finished=False)
    printed = json.loads(run("first", "half", "--json")[1])
    counts = [(audit["runs"], audit["runs_asked"]) for audit in printed["audits"]]
    assert counts == [(100, 100), (50, 100)]


def test_out_and_open(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    import webbrowser

    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    code, out, _ = run("first", "--out", "my page.html", "--open")
    assert code == 0
    assert Path("my page.html").exists()
    assert "first: " in out
    assert opened == [Path("my page.html").resolve().as_uri()]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nobody"], "no audit 'nobody'"),
        (["first", "--out", "no/page.html"], "make the folder first"),
        (["first", "--store", "absent.sqlite"], "absent.sqlite"),
        (["first", "--delta", "2"], "delta must be in [0, 1)"),
    ],
)
def test_mistakes_are_one_line(run: Run, arguments: list[str], message: str) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_an_empty_store_has_no_page(run: Run) -> None:
    Store.open("empty.sqlite").close()
    code, _, err = run("empty.sqlite")
    assert code == 2
    assert "there is no audit in empty.sqlite" in err


def test_the_newest_of_many_audits_are_compared(run: Run) -> None:
    with Store.open("many.sqlite") as store:
        for seed in range(MOST_COMPARED + 1):
            scores = normal_scores(2.0, runs=20, seed=seed)
            store_audit(store, scores, settings(runs=20, seed=seed), name=f"audit {seed}")
    code, out, err = run("many.sqlite", "--json")
    titles = [audit["title"] for audit in json.loads(out)["audits"]]
    assert code == 0
    assert titles == [f"audit {seed}" for seed in range(1, MOST_COMPARED + 1)]
    assert f"the newest {MOST_COMPARED} of {MOST_COMPARED + 1} audits" in err
