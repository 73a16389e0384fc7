"""Figures are kept, made again, drawn again; one that fails takes no other along."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest

from dpaudit.adversaries import RandomDimension
from dpaudit.errors import DataError, InvalidInput
from dpaudit.executors import InProcess
from dpaudit_paper import FIGURES, Cost, Figure, Setting, Table, chosen, make_all, making, style
from dpaudit_paper.command import state
from dpaudit_paper.making import scale_done
from dpaudit_paper.registry import missing_needs
from dpaudit_paper.trainings import Line, Trainings, curves, speed_for

RESULTS = Path(__file__).parents[2] / "results"
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
        f"F1a.{ending}" for ending in ("csv", "png", "svg", "pdf", "json")
    ]
    facts = json.loads((tmp_path / "F1a.json").read_text("utf8"))
    assert (facts["scale"], facts["seed"]) == ("quick", 0)
    assert "cpu" in facts["device"]


@pytest.mark.parametrize(
    ("seeds", "said"), [((), ""), ((1,), "one seed, "), ((1, 2, 2), "2 seeds, ")]
)
def test_a_quick_figure_says_how_many_seeds_it_has(seeds, said):
    table = Table.of([{"seed": seed} for seed in seeds])
    expected = f"quick version: {said}fewer runs than the paper"
    assert making._warning({"scale": "quick"}, table) == expected
    assert making._warning({"scale": "full"}, table) == ""


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
    assert state(one, "full", tmp_path, frozenset()) == "done here, in part (full)"
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
    tiny = Trainings(preset="housing", adversary=RandomDimension(), runs=4, insertions=3)

    def measure(setting):
        return curves(setting, [Line(series="A_GC-R", trainings=tiny)])

    pair = [
        Figure(
            id=name, title=name, label="", quick=Cost(cpu=1, gpu=1), full=Cost(cpu=1, gpu=1),
            measure=measure, draw=figure(name).draw,
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
    missing = missing_needs(data_dir=None, device="cpu")

    def here(name, scale):
        return state(FIGURES[name], scale, tmp_path, missing)

    assert here("F1b", "full") == "needs a GPU, CIFAR-10"
    assert here("A10", "quick") == "needs CIFAR-10, weights"
    assert here("A7", "full") == "ready"
    list(make_all([FIGURES["T1"]], QUICK, tmp_path))
    # The quick version of a table without runs is the full one.
    assert here("T1", "full") == "done here (full)"


def test_several_figures_at_the_same_time(tmp_path):
    """Each in a process of its own: one without its data fails alone."""
    figures = [FIGURES[name] for name in ("T1", "A7", "A3a")]
    setting = Setting(scale="quick", device="cpu", data_dir=str(tmp_path / "none"))
    made = {each.id: each for each in make_all(figures, setting, tmp_path, jobs=2)}
    assert {name: each.outcome for name, each in made.items()} == {
        "T1": "made", "A7": "made", "A3a": "failed",
    }  # fmt: skip
    assert "CIFAR-10" in made["A3a"].error
    assert (tmp_path / "A7.csv").read_bytes() == (RESULTS / "A7.csv").read_bytes()
    again = make_all(figures[:2], setting, tmp_path, jobs=2)
    assert [each.outcome for each in again] == ["kept", "kept"]


def killed(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_process_fails_what_is_not_made(tmp_path, monkeypatch):
    monkeypatch.setattr(making, "_make_named", killed)
    made = list(make_all([FIGURES["T1"], FIGURES["T2"]], QUICK, tmp_path, jobs=2))
    assert {each.id: each.outcome for each in made} == {"T1": "failed", "T2": "failed"}
    assert "repeat the command to resume" in made[0].error


def test_figures_name_the_trainings_they_share():
    """F1c and A5 share six of eight, which a pool plays once."""
    needed = [{each.name_in(QUICK) for each in FIGURES[i].trainings(QUICK)} for i in ("F1c", "A5")]
    assert (len(needed[0] & needed[1]), len(needed[1])) == (6, 8)


def test_a_finished_training_is_read_without_its_data(tmp_path):
    """Nothing is crafted or drawn again for the second figure that needs a training."""
    setting = Setting(device="cpu", store=tmp_path / "trainings.sqlite")
    tiny = Trainings(preset="housing", adversary=RandomDimension(), runs=4, insertions=3)
    played = tiny.play(setting)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainings, "mechanism", None)
        read = tiny.play(setting)
    assert np.array_equal(read.scores.score, played.scores.score)
    assert (played.resumed, read.resumed) == (0, 4)


def test_several_jobs_with_an_executor_are_refused(tmp_path):
    setting = Setting(executor=InProcess())
    with pytest.raises(InvalidInput, match="jobs must be 1 with an executor, got 2"):
        list(make_all([FIGURES["T1"]], setting, tmp_path, jobs=2))


def test_auto_trains_the_housing_network_on_the_cpu_even_with_a_gpu(monkeypatch):
    monkeypatch.setattr(Setting, "on_gpu", property(lambda self: True))
    assert speed_for("housing", Setting(device="auto")).device == "cpu"
    assert speed_for("housing", Setting(device="cuda")).device == "cuda"
    assert speed_for("convnet", Setting(device="auto")).device == "auto"
    # Without a C++ compiler there is no fused step, and the machines of an executor choose.
    assert speed_for("housing", Setting(executor=InProcess())).device == "auto"
    monkeypatch.setattr("dpaudit.engine.fused.can_build", lambda: False)
    assert speed_for("housing", Setting(device="auto")).device == "auto"
