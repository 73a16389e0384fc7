"""``dpaudit reproduce``: what it lists, makes, keeps, refuses."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from dpaudit.cli._exit import UNEXPECTED
from dpaudit.errors import DataError
from dpaudit_paper import FIGURES
from dpaudit_paper import registry as registry_module

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, run: Run) -> Run:
    monkeypatch.delenv("DPAUDIT_DATA", raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    return partial(run, "reproduce")


def test_without_names_every_figure_is_listed(run: Run, tmp_path: Path) -> None:
    code, out, err = run("--out", str(tmp_path), "--device", "cpu")
    assert (code, err) == (0, "")
    for name, figure in FIGURES.items():
        assert f" {name} " in out
        assert figure.title in out
        assert figure.label in out
    assert "needs a GPU" in out
    assert not list(tmp_path.iterdir())


def test_the_list_as_json(run: Run, tmp_path: Path) -> None:
    code, out, _ = run("--out", str(tmp_path), "--device", "cpu", "--json")
    listed = {entry["id"]: entry for entry in json.loads(out)["figures"]}
    assert code == 0
    assert list(listed) == list(FIGURES)
    assert listed["F1b"]["label"] == "fig:k1_sub2"
    assert listed["F1b"]["state"]["full"].startswith("needs a GPU")
    assert listed["F3a"]["state"] == {"quick": "ready", "full": "ready"}


def test_some_are_made_then_kept_then_drawn_again(run: Run, tmp_path: Path) -> None:
    out_option = ("--out", str(tmp_path), "--device", "cpu", "--json")
    code, out, err = run("A7", "t2", *out_option)
    assert (code, err) == (0, "")
    assert {entry["outcome"] for entry in json.loads(out)["figures"]} == {"made"}
    assert (tmp_path / "A7.svg").read_text().startswith("<?xml")
    first = (tmp_path / "A7.svg").read_bytes()
    _, out, _ = run("A7", *out_option)
    assert [entry["outcome"] for entry in json.loads(out)["figures"]] == ["kept"]
    _, out, _ = run("A7", "--redraw", *out_option)
    assert [entry["outcome"] for entry in json.loads(out)["figures"]] == ["redrawn"]
    assert (tmp_path / "A7.svg").read_bytes() == first


def test_the_outcome_is_printed(run: Run, tmp_path: Path) -> None:
    code, out, _ = run("T1", "--out", str(tmp_path), "--device", "cpu")
    assert code == 0
    assert "[1/1] T1  adversaries of prior work: made" in out
    assert f"1 of 1 are in {tmp_path}" in out.replace("\n", "")


def test_no_file_of_another_is_replaced_unless_asked(run: Run, tmp_path: Path) -> None:
    endings = ("csv", "png", "svg", "pdf", "json")
    made = ("T1", "--device", "cpu", "--again", "--out")
    for ending in endings:
        (folder := tmp_path / ending).mkdir()
        (folder / f"T1.{ending}").write_text("precious")
        code, out, err = run(*made, str(folder))
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert "exists and was not written by dpaudit" in err
        assert [path.read_text() for path in folder.iterdir()] == ["precious"]
    for ending in endings:
        (tmp_path / f"T1.{ending}").write_text("precious")
    assert run(*made, str(tmp_path), "--overwrite")[0] == 0
    assert run(*made, str(tmp_path))[0] == 0


def test_a_drawing_of_another_is_not_replaced(run: Run, tmp_path: Path) -> None:
    run("A7", "--out", str(tmp_path))
    (tmp_path / "A7.png").write_text("precious")
    _, out, _ = run("A7", "--redraw", "--out", str(tmp_path))
    assert "exists and was not written by dpaudit" in out.replace("\n", " ")
    assert (tmp_path / "A7.png").read_text() == "precious"
    assert run("A7", "--redraw", "--overwrite", "--out", str(tmp_path))[0] == 0


def test_an_unknown_name_is_one_line_with_the_nearest(run: Run, tmp_path: Path) -> None:
    code, out, err = run("F3bb", "--out", str(tmp_path))
    assert (code, out) == (2, "")
    assert "did you mean F3b?" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (("--scale", "huge"), "scale must be one of"),
        (("--seed", "-1"), "seed must be"),
        (("--jobs", "0"), "jobs must be"),
        (("--jobs", "2", "--executor", "ray"), "jobs must be 1 with an executor"),
    ],
)
def test_wrong_options_are_one_line(run: Run, tmp_path: Path, option, message) -> None:
    code, _, err = run("T1", "--out", str(tmp_path), "--device", "cpu", *option)
    assert code == 2
    assert message in err


@pytest.mark.parametrize("names", [("T1",), ("T1", "F1b"), ("T1", "--redraw"), ()])
@pytest.mark.parametrize("device", ["foo", "cuda:", "", "cpu\n"])
def test_an_unknown_device_is_refused_before_anything_is_made(
    run: Run, tmp_path: Path, names: tuple[str, ...], device: str
) -> None:
    code, out, err = run(*names, "--out", str(tmp_path), "--device", device)
    assert (code, out) == (2, "")
    assert err == f"dpaudit: device must be auto, cpu, cuda or cuda:N, got {device!r}\n"
    assert not list(tmp_path.iterdir())


def test_without_matplotlib_nothing_is_trained(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, out, err = run("F1c", "--out", str(tmp_path))
    assert (code, out) == (2, "")
    assert "pip install 'dpaudit[plot]'" in err
    assert not list(tmp_path.iterdir())


def test_redrawing_what_was_never_made_fails(run: Run, tmp_path: Path) -> None:
    code, out, err = run("F1c", "--redraw", "--out", str(tmp_path))
    assert code == UNEXPECTED
    assert "cannot read" in out
    assert "1 failed: F1c" in err


def test_all_skips_what_cannot_be_made_and_continues_after_a_failure(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(setting):
        raise DataError("nothing here")

    some = {name: FIGURES[name] for name in ("F1b", "T1", "A7")}
    some["A7"] = replace(some["A7"], measure=fail)
    monkeypatch.setattr(registry_module, "FIGURES", some)
    code, out, err = run("all", "--out", str(tmp_path), "--device", "cpu", "--json")
    printed = json.loads(out)
    assert code == UNEXPECTED
    assert {e["id"]: e["outcome"] for e in printed["figures"]} == {"T1": "made", "A7": "failed"}
    assert printed["skipped"] == [{"id": "F1b", "reason": "needs a GPU, CIFAR-10"}]
    assert "1 failed: A7" in err


def test_a_named_figure_without_its_data_says_what_to_do(run: Run, tmp_path: Path) -> None:
    code, out, err = run("A3a", "--out", str(tmp_path), "--device", "cpu", "--json")
    (entry,) = json.loads(out)["figures"]
    assert code == UNEXPECTED
    assert "no folder for CIFAR-10" in entry["error"]
    assert "1 failed: A3a" in err


def test_the_executor_reaches_the_audits(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _, err = run("F3b", "--out", str(tmp_path), "--executor", "ray", "--slurm-folder", "x")
    assert code == 2
    assert "folder" in err
    given: list[object] = []

    def audit(*_: object, executor: object, **__: object) -> None:
        given.append(executor)
        raise DataError("enough")

    monkeypatch.setattr("dpaudit.audits.audit", audit)
    # Without the ConvNet, whose images are not here.
    monkeypatch.setattr("dpaudit_paper.figures.hidden_state.at_periods", lambda _: [])
    run("F1c", "H1", "--out", str(tmp_path), "--device", "cpu", "--executor", "ray")
    assert [type(one).__name__ for one in given] == ["RayTasks", "RayTasks"]
