"""``dpaudit audit``, ``plan``, ``list`` and ``show``: what they print, keep, and refuse."""

from __future__ import annotations

import inspect
import json
import math
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpaudit import audit, plan
from dpaudit.configuration import Settings
from dpaudit.errors import StoreError
from dpaudit.games import Game
from dpaudit.scores import Store, read_scores

Run = Callable[..., tuple[int, str, str]]

# The real preset, cut down: 20 steps of 40 examples, and an adversary that simulates nothing.
USUAL = ["--steps", "20", "--batch-size", "40", "--device", "cpu"]
SMALL = [*USUAL, "--adversary", "random-dimension"]

# A shell's background job ignores SIGINT, and so would everything it starts.
INTERRUPTIBLE = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from dpaudit.cli import main; main()"
)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, run: Run, tmp_path: Path) -> Run:
    """Runs a command in this process and an empty folder: exit code, output, errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DPAUDIT_STORE", raising=False)
    monkeypatch.delenv("DPAUDIT_DATA", raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(
        "dpaudit.audits.bar.SECONDS_BETWEEN_LINES", math.inf
    )  # machines may be slow
    return run


def _json(found: tuple[int, str, str]) -> dict[str, Any]:
    code, out, err = found
    assert (code in (0, 3), err) == (True, "")  # 3: so few runs are inconclusive
    return dict(json.loads(out))


def test_json_has_what_the_issue_asks_for(run: Run) -> None:
    printed = _json(run("audit", "--runs", "100", *USUAL, "--json"))
    keys = ["audit", "lower", "upper", "runs", "canaries", "seconds", "device"]
    assert [key for key in keys if key not in printed] == []
    assert (printed["runs"], printed["canaries"], printed["device"]) == (100, 1, "cpu")
    assert printed["lower"][0]["method"] == "gaussian-dp"
    assert printed["upper"][0]["epsilon"] == pytest.approx(4.98331, abs=1e-4)  # mu = sqrt(20)/4
    assert printed["configuration"]["adversary"]["name"] == "simulated-dimension"
    assert Path("dpaudit.sqlite").exists()


def test_the_verdict_comes_first_on_one_page(run: Run) -> None:
    code, out, err = run("audit", "--runs", "100", *USUAL)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert len(lines) <= 12
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("CONSISTENT   housing, adversary simulated-dimension, 100 trainings")
    claimed, shown, free = (out.index(word) for word in ("claimed", "shown", "without assumptions"))
    assert claimed < shown < free < out.index("dpaudit report")
    assert "epsilon <=  4.98" in out
    assert "batches" not in out  # dpaudit's own trainings have the same batches in every run


def test_all_bounds_follow_the_page_if_asked(run: Run) -> None:
    code, out, _ = run("audit", "--runs", "100", *USUAL, "--all-bounds")
    assert code == 0
    for word in ("≤ 4.9833", "gaussian-dp", "clopper-pearson", "simultaneous", "assumes:"):
        assert word in out
    code, shown, _ = run("show")
    assert code == 0
    assert shown.splitlines()[0] == out.splitlines()[0]
    assert shown.index("claimed") < shown.index("noise_multiplier")
    assert "gaussian-fit" not in shown
    other = run("show", "--claimed-epsilon", "1.5", "--delta", "1e-5")[1]
    assert "epsilon <=  1.50" in other  # not the upper bound of the settings
    assert "VIOLATION" in other or "SUSPECTED" in other
    assert "gaussian-fit" in run("show", "--all-bounds")[1]


def test_an_inconclusive_audit_exits_with_3(run: Run) -> None:
    code, out, _ = run("audit", "--runs", "20", *SMALL)
    assert code == 3
    assert out.startswith("INCONCLUSIVE ")
    assert "Tight" not in out


def test_runs_that_could_refute_nothing_are_refused_before_training(run: Run) -> None:
    code, out, err = run("audit", "housing", "--runs", "4", *USUAL)
    assert (code, out) == (2, "")
    assert "runs must be large enough to refute the claim" in err
    assert run("audit", "housing", "--runs", "4", *USUAL, "--anyway")[0] == 3


def test_the_same_command_plays_again(run: Run) -> None:
    first = _json(run("audit", "--runs", "40", *SMALL, "--json"))
    again = _json(run("audit", "--runs", "40", *SMALL, "--json"))
    assert (first["resumed_runs"], again["resumed_runs"]) == (0, 0)
    assert first["audit"] != again["audit"]
    assert again["lower"] == first["lower"]


def test_scores_go_to_a_file(run: Run) -> None:
    printed = _json(
        run(
            "audit",
            "--runs",
            "40",
            *SMALL,
            "--scores-out",
            "s.csv",
            "--store",
            ":memory:",
            "--json",
        )
    )
    scores = read_scores("s.csv")
    assert (len(scores), int(scores.inserted.sum())) == (40, 20)
    assert not Path("dpaudit.sqlite").exists()
    assert printed["store"] == ":memory:"


def test_options_reach_the_training(run: Run) -> None:
    options = {
        "--adversary": "random-direction",
        "--runs": "6",
        "--canaries": "3",
        "--steps": "12",
        "--period": "4",
        "--noise-multiplier": "2.5",
        "--clip-norm": "0.5",
        "--batch-size": "30",
        "--learning-rate": "0.2",
        "--seed": "9",
        "--delta": "1e-3",
        "--name": "mine",
        "--precision": "bfloat16",
    }
    arguments = [text for pair in options.items() for text in pair]
    printed = _json(run("audit", *arguments, "--device", "cpu", "--json"))
    configuration, training = printed["configuration"], printed["configuration"]["mechanism"]
    assert printed["name"] == "mine"
    assert configuration["speed"]["precision"] == "bfloat16"
    assert configuration["adversary"]["name"] == "random-direction"
    assert (configuration["runs"], configuration["canaries"]) == (6, 3)
    assert configuration["coin"] == "fair"
    assert configuration["insertion"] == {"period": 4, "offset": 0}
    assert (training["steps"], training["noise_multiplier"]) == (12, 2.5)
    assert (training["clip_norm"], training["learning_rate"]) == (0.5, 0.2)
    assert training["batches"]["batch_size"] == 30
    assert configuration["seed"] == training["batches"]["seed"] == 9
    assert printed["upper"][0]["steps"] == 3
    assert printed["lower"][0]["delta"] == 1e-3
    assert {"one-run", "one-run-fdp"} <= {bound["method"] for bound in printed["lower"]}


def test_commands_and_functions_have_one_default_seed() -> None:
    defaults = {inspect.signature(call).parameters["seed"].default for call in (audit, plan, Game)}
    assert defaults == {Settings().resolved().seed} == {0}


def test_list_and_show(run: Run) -> None:
    code, _, err = run("list")
    assert (code, "no store at dpaudit.sqlite" in err) == (2, True)
    first = _json(run("audit", "--runs", "40", *SMALL, "--json"))
    _json(run("audit", "--runs", "60", *SMALL, "--name", "second", "--json"))
    listed = _json(run("list", "--json"))["audits"]
    assert [entry["name"] for entry in listed] == [None, "second"]
    assert [entry["runs"] for entry in listed] == [40, 60]
    assert {entry["state"] for entry in listed} == {"finished"}
    code, out, _ = run("list")
    assert code == 0
    assert first["audit"][:8] in out
    assert "second" in out
    shown = _json(run("show", first["audit"][:6], "--json"))
    assert shown["lower"] == first["lower"]
    assert shown["sessions"][0]["device"] == "cpu"
    other = _json(run("show", "second", "--delta", "1e-2", "--json"))
    assert other["lower"][0]["delta"] == 1e-2
    code, out, _ = run("show", "second")
    assert code == {"consistent": 0, "inconclusive": 3}[other["verdict"]]
    # Read as it was: another delta or confidence only where it is asked for.
    third = _json(
        run("audit", "--name", "third", "--delta", "1e-3", "--runs", "40", *SMALL, "--json")
    )
    assert _json(run("show", "third", "--json"))["lower"] == third["lower"]
    assert _json(run("show", "--json"))["name"] == "third"  # the newest
    assert {e["name"]: e["delta"] for e in _json(run("list", "--json"))["audits"]}["third"] == 1e-3
    assert "noise_multiplier: 4" in out
    assert "60 trainings" in out
    code, _, err = run("show", "nobody")
    assert (code, "no audit 'nobody'" in err) == (2, True)


def test_a_store_with_something_else_in_it(run: Run) -> None:
    with Store.open("mixed.sqlite") as opened:
        opened.begin("foreign", {"steps": 3}, {"by": "hand"})
    (entry,) = _json(run("list", "--store", "mixed.sqlite", "--json"))["audits"]
    assert (entry["name"], entry["state"]) == ("foreign", "unfinished")
    code, _, err = run("show", "foreign", "--store", "mixed.sqlite")
    assert (code, "cannot be read" in err) == (2, True)
    _json(run("audit", "--runs", "20", *SMALL, "--store", "mixed.sqlite", "--json"))


def test_plan_predicts_and_stores_nothing(run: Run) -> None:
    printed = _json(run("plan", "--period", "5", "--runs", "1000", "--batch-size", "40", "--json"))
    assert printed["predicted_epsilon"] == pytest.approx(8.596, abs=1e-3)
    assert printed["upper"][0]["epsilon"] == pytest.approx(23.9954, abs=1e-4)
    expected = printed["expected_lower"][0]
    assert expected["method"] == "gaussian-dp"
    assert 6 < expected["epsilon"] < 8.596
    needed = printed["runs_needed"]
    assert needed["0.8"] < needed["0.9"] < needed["0.95"]
    assert printed["seconds"] > 0
    assert printed["bytes"] > 0
    assert not Path("dpaudit.sqlite").exists()


def test_a_plan_prints_the_command_of_its_audit(run: Run) -> None:
    given = ["--runs", "40", *SMALL, "--confidence", "0.9", "--adversary", "random-dimension"]
    command = _json(run("plan", *given, "--json"))["command"]
    _, out, _ = run("plan", *given)
    assert out.rstrip().endswith(command)
    assert not list(Path().iterdir())
    played = _json(run(*shlex.split(command)[1:], "--json"))
    assert (played["runs"], played["confidence"]) == (40, 0.9)
    assert played["adversary"] == "random-dimension"


def test_an_audit_has_its_own_confidence_everywhere(run: Run) -> None:
    played = _json(run("audit", "--runs", "40", *SMALL, "--confidence", "0.8", "--json"))
    shown = _json(run("show", "--json"))
    planned = _json(run("plan", "--runs", "40", *SMALL, "--confidence", "0.8", "--json"))
    for found in (played, shown):
        assert found["confidence"] == 0.8
        assert {bound["confidence"] for bound in found["lower"]} == {0.8}
    assert {bound["confidence"] for bound in planned["expected_lower"]} == {0.8}
    more = _json(run("show", "--confidence", "0.99", "--json"))
    assert more["lower"][0]["epsilon"] <= played["lower"][0]["epsilon"]


def test_the_plan_in_words(run: Run) -> None:
    code, out, err = run("plan", "--runs", "100", *SMALL)
    assert (code, err) == (0, "")
    for words in (
        "what 100 runs should prove",
        "80 % of that takes",
        "MiB beside torch",
    ):
        assert words in " ".join(out.split())


def test_no_noise_is_an_infinite_upper_bound(run: Run) -> None:
    printed = _json(run("audit", "--runs", "20", *SMALL, "--noise-multiplier", "0", "--json"))
    assert {bound["epsilon"] for bound in printed["upper"]} == {"inf"}
    assert printed["verdict"] == "no-claim"
    code, out, _ = run("plan", "--runs", "20", *SMALL, "--noise-multiplier", "0")
    assert (code, "∞" in out) == (0, True)


@pytest.mark.parametrize("command", ["audit", "plan"])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--preset", "mnist"], "preset must be one of housing, convnet, resnet18, alexnet-head"),
        (["--adversary", "nobody"], "adversary must be one of random-dimension"),
        (["--period", "300", "--steps", "250"], "period must be at most the number of steps (250)"),
        (["--clip-norm", "0"], "clip_norm must be above 0"),
        (["--noise-multiplier", "-1"], "noise_multiplier must be at least 0, got -1"),
        (["--batch-size", "30000"], "batch_size must be at most the number of examples (20640)"),
        (["--canaries", "69"], "canaries must be at most the number of parameters (68), got 69"),
        (["--runs", "11"], "runs must be even"),
        (["--runs", "many"], "Invalid value for '--runs'"),
        (["--preset", "convnet"], "no folder for CIFAR-10"),
        (["--preset", "convnet", "--data-dir", "/no/such"], "no folder /no/such"),
        (["--preset", "alexnet-head"], "no folder for CIFAR-10"),
        (["--device", "abacus"], "device must be auto, cpu, cuda"),
        (["--precision", "half"], "precision must be one of auto, float32, tf32, bfloat16"),
        (["--precision", "tf32", "--device", "cpu"], "which only GPUs compute in"),
        (["--learning-rate", "nan"], "learning_rate must be finite"),
        (["--epochs", "3"], "No such option"),
    ],
    ids=str,
)
def test_mistakes_are_one_line_and_exit_code_2(
    run: Run, command: str, arguments: list[str], message: str
) -> None:
    code, out, err = run(command, *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.startswith("dpaudit: ")
    assert err.count("\n") == 1
    assert not Path("dpaudit.sqlite").exists()


def test_a_file_of_scores_needs_a_folder(run: Run) -> None:
    code, _, err = run("audit", "--scores-out", "/no/such/s.csv")
    assert code == 2
    assert "scores_out must be in a folder that is there" in err


def test_an_interrupted_audit_keeps_its_finished_runs(run: Run, tmp_path: Path) -> None:
    """Interrupted from the keyboard: exit code 130, and finished runs are kept.

    So many runs that they are not done in time, and so few that nothing is compiled.
    """
    arguments = ["audit", "--runs", "100000", *SMALL, "--seed", "1"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "DPAUDIT_STORE": "here.sqlite"}
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTIBLE, *arguments],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 300
    while _stored_runs(tmp_path / "here.sqlite") == 0 and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "of 100,000 runs are kept in here.sqlite; the same command resumes the audit" in err
    kept = _stored_runs(tmp_path / "here.sqlite")
    assert 0 < kept < 100_000

    code, out, _ = run("show", _first(tmp_path / "here.sqlite"), "--store", "here.sqlite")
    assert (code, out.startswith("UNFINISHED ")) == (3, True)


def _first(store: Path) -> str:
    with Store.open(store) as opened:
        return opened.audits()[0].id


def _stored_runs(store: Path) -> int:
    try:
        with Store.open(store, create=False) as opened:
            return sum(
                len(record.finished_tiles()) * record.configuration["speed"]["tile_size"]
                for record in opened.audits()
            )
    except StoreError:
        return 0


@pytest.mark.parametrize("command", ["audit", "plan", "list", "show", "report"])
def test_help_needs_no_torch(command: str) -> None:
    """Nor the statistics, which take longer to import than the rest."""
    code = (
        "import sys\nfrom dpaudit.cli import main\n"
        f"sys.argv = ['dpaudit', {command!r}, '--help']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "sys.exit(any(name in sys.modules for name in ('torch', 'matplotlib', 'scipy')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 0


@pytest.mark.parametrize("command", ["audit", "plan"])
def test_without_torch_the_remedy_is_named(command: str, tmp_path: Path) -> None:
    """In a process of its own, where no module has imported torch before."""
    code = (
        "import sys\nsys.modules['torch'] = None\nfrom dpaudit.cli import main\n"
        f"sys.argv = ['dpaudit', {command!r}, '--runs', '4']\nmain()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 2
    assert "pip install 'dpaudit[train]'" in done.stderr
