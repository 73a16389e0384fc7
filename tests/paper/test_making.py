"""Figures are kept, made again, drawn again; one that fails takes no other along."""

from __future__ import annotations

import json

import pytest

from dpaudit.errors import DataError, InvalidInput
from dpaudit_paper import FIGURES, Cost, Figure, Setting, Table, chosen, make_all, style
from dpaudit_paper.making import scale_done
from dpaudit_paper.states import Surroundings

measured: list[str] = []


def figure(name, *, fails=None, cpu=1.0, leaves_out=False):
    def measure(setting):
        measured.append(name)
        if fails is not None:
            raise fails
        if leaves_out and not setting.on_gpu:
            setting.ledger.leave_out("the large half")
        return Table.of([{"runs": setting.choose(quick=1, full=2), "seed": setting.seed}])

    def draw(table):
        drawing, (axis,) = style.new_figure(height=1.0)
        axis.plot(table.numbers("runs"))
        return drawing

    return Figure(
        id=name,
        title=f"figure {name}",
        label="",
        quick=Cost(cpu=cpu, gpu=1.0),
        full=Cost(cpu=cpu, gpu=1.0),
        measure=measure,
        draw=draw,
        findings=lambda table: f"{int(table.numbers('runs')[0])} runs.",
    )


@pytest.fixture(autouse=True)
def _fresh():
    measured.clear()


def outcomes(*arguments, **options):
    return [made.outcome for made in make_all(*arguments, **options)]


QUICK, FULL = Setting(scale="quick", device="cpu"), Setting(scale="full", device="cpu")


def test_all_files_are_written_and_the_quick_one_says_so(tmp_path):
    (made,) = make_all([figure("F1a")], QUICK, tmp_path)
    assert made.outcome == "made"
    assert [path.name for path in made.files] == [
        f"F1a.{ending}" for ending in ("csv", "png", "svg", "pdf", "md", "json")
    ]
    assert "Quick version" in (tmp_path / "F1a.md").read_text("utf8")
    facts = json.loads((tmp_path / "F1a.json").read_text("utf8"))
    assert (facts["scale"], facts["seed"]) == ("quick", 0)
    assert "cpu" in facts["device"]


def test_what_is_done_is_kept_unless_asked_again(tmp_path):
    one = figure("F1a")
    assert outcomes([one], QUICK, tmp_path) == ["made"]
    assert outcomes([one], QUICK, tmp_path) == ["kept"]
    assert outcomes([one], QUICK, tmp_path, again=True) == ["made"]
    assert measured == ["F1a", "F1a"]


def test_full_replaces_quick_and_quick_never_replaces_full(tmp_path):
    one = figure("F1a")
    assert outcomes([one], QUICK, tmp_path) == ["made"]
    assert outcomes([one], FULL, tmp_path) == ["made"]
    assert outcomes([one], QUICK, tmp_path) == ["kept"]
    assert scale_done(one, tmp_path) == "full"


def test_another_seed_is_another_figure(tmp_path):
    one = figure("F1a")
    list(make_all([one], QUICK, tmp_path))
    (made,) = make_all([one], Setting(scale="quick", device="cpu", seed=3), tmp_path)
    assert made.outcome == "made"


def test_what_was_left_out_for_want_of_a_gpu_is_made_up_for_on_one(tmp_path, monkeypatch):
    one = figure("F1a", leaves_out=True)
    assert outcomes([one], FULL, tmp_path) == ["made"]
    assert outcomes([one], FULL, tmp_path) == ["kept"]
    here = Surroundings(out=tmp_path, missing=frozenset())
    assert here.state(one, "full") == "done here, in part (full)"
    monkeypatch.setattr(Setting, "on_gpu", property(lambda self: True))
    assert outcomes([one], FULL, tmp_path) == ["made"]
    assert outcomes([one], FULL, tmp_path) == ["kept"]


@pytest.mark.parametrize("error", [DataError("no CIFAR-10"), ZeroDivisionError("a bug")])
def test_one_failure_does_not_lose_the_others(tmp_path, error):
    made = list(make_all([figure("F1a", fails=error), figure("F1b")], QUICK, tmp_path))
    assert [each.outcome for each in made] == ["failed", "made"]
    assert str(error) in made[0].error
    assert not (tmp_path / "F1a.json").exists()
    # A mistake of the user's is a sentence; a bug keeps its traceback.
    assert (tmp_path / "F1a.error.txt").exists() is not isinstance(error, DataError)


def test_an_interruption_stops_all(tmp_path):
    making = make_all([figure("F1a", fails=KeyboardInterrupt()), figure("F1b")], QUICK, tmp_path)
    with pytest.raises(KeyboardInterrupt):
        list(making)
    assert measured == ["F1a"]


def test_a_broken_file_of_facts_is_reported(tmp_path):
    one = figure("F1a")
    list(make_all([one], QUICK, tmp_path))
    (tmp_path / "F1a.json").write_text("{")
    (made,) = make_all([one], QUICK, tmp_path)
    assert made.outcome == "failed"
    assert "make the figure again" in made.error


def test_out_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match="out must be a folder"):
        list(make_all([figure("F1a")], QUICK, tmp_path / "file"))


def test_trainings_are_kept_in_a_store_and_not_played_twice(tmp_path):
    """A real training, a tiny one: the second figure finds it in the store."""
    from dpaudit.adversaries import RandomDimension
    from dpaudit_paper.readings import curve_rows
    from dpaudit_paper.trainings import Trainings

    tiny = Trainings(preset="housing", adversary=RandomDimension(), runs=4, insertions=3)

    def measure(setting):
        return Table.of(curve_rows(tiny, setting, series="A_GC-R"))

    pair = [
        Figure(
            id=name, title=name, label="", quick=Cost(cpu=1, gpu=1), full=Cost(cpu=1, gpu=1),
            measure=measure, draw=figure(name).draw, findings=lambda table: f"{len(table)} rows.",
        )
        for name in ("F1a", "F1b")
    ]  # fmt: skip
    assert outcomes(pair, QUICK, tmp_path) == ["made", "made"]
    facts = [json.loads((tmp_path / f"{name}.json").read_text()) for name in ("F1a", "F1b")]
    assert [each["audits"][0]["runs_from_store"] for each in facts] == [0, 4]
    assert facts[0]["audits"][0]["examples"] > 20_000
    first, second = ((tmp_path / f"{name}.csv").read_text() for name in ("F1a", "F1b"))
    assert first == second


def test_names_in_any_case_groups_and_all_cheapest_first():
    assert [f.id for f in chosen(["f1C"], scale="quick")] == ["F1c"]
    assert {f.id for f in chosen(["F1"], scale="full")} == {"F1a", "F1b", "F1c"}
    assert {f.id for f in chosen(["A1"], scale="full")} == {"A1"}
    every = chosen(["all", "F1c"], scale="full", gpu=True)
    assert len(every) == len(FIGURES)
    costs = [f.full.gpu for f in every]
    assert costs == sorted(costs)


@pytest.mark.parametrize(("name", "meant"), [("F1d", "F1"), ("A99", "A9"), ("F3bb", "F3b")])
def test_an_unknown_name_says_which_is_nearest(name, meant):
    with pytest.raises(InvalidInput, match=f"no figure or table is called '{name}'; .*{meant}"):
        chosen([name], scale="quick")


def test_states_list_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.delenv("DPAUDIT_DATA", raising=False)
    here = Surroundings.look(out=tmp_path, data_dir=None, device="cpu")
    assert here.state(FIGURES["F1b"], "full") == "needs a GPU, CIFAR-10"
    assert here.state(FIGURES["A10"], "quick") == "needs CIFAR-10, weights"
    assert here.state(FIGURES["A7"], "full") == "ready"
    list(make_all([FIGURES["T1"]], QUICK, tmp_path))
    # The quick version of a table without runs is the full one.
    assert here.state(FIGURES["T1"], "full") == "done here (full)"
