"""Exit codes cannot collide, and output never reaches a terminal or a parser unescaped."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from helpers import dpaudit

from dpaudit._validate import printable
from dpaudit.cli._exit import Unwritten, decided, exit_code_of
from dpaudit.cli._output import console, print_json, user_code
from dpaudit.scores import Scores, Store, write_scores

FULL = Path("/dev/full")


@pytest.fixture
def scores(tmp_path: Path) -> str:
    random = np.random.default_rng(0)
    path = tmp_path / "scores.csv"
    write_scores(Scores.from_samples(random.normal(1, 1, 200), random.normal(0, 1, 200)), path)
    return str(path)


def test_a_full_output_device_has_its_own_code_and_one_line(scores: str) -> None:
    for json_too in ([], ["--json"]):
        with FULL.open("w") as full:
            ended = dpaudit(
                "estimate", scores, "--delta", "1e-5", *json_too, capture_output=False, stdout=full,
                stderr=subprocess.PIPE,
            )  # fmt: skip
        assert ended.returncode == 5
        assert ended.stderr.count("\n") == 1
        assert "No space left" in ended.stderr


def test_closed_streams(scores: str) -> None:
    run = f"exec {sys.executable} -m dpaudit estimate --delta 1e-5 {scores}"
    assert subprocess.run(["sh", "-c", f"{run} >&-"], check=False).returncode == 5
    ended = subprocess.run(["sh", "-c", f"{run} 2>&-"], stdout=subprocess.PIPE, check=False)
    assert ended.returncode == 0
    wrong = subprocess.run(["sh", "-c", f"{run}x 2>&-"], stdout=subprocess.PIPE, check=False)
    assert wrong.returncode == 2


def test_a_reader_that_stops_reading(scores: str) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as pipe:
        ended = dpaudit(
            "estimate", scores, "--delta", "1e-5", capture_output=False, stdout=pipe,
            stderr=subprocess.PIPE,
        )  # fmt: skip
    assert ended.returncode == 5
    assert ended.stderr == ""


def test_a_violation_keeps_its_code_if_the_output_cannot_be_written(scores: str) -> None:
    with FULL.open("w") as full:
        ended = dpaudit(
            "estimate", scores, "--delta", "1e-5", "--claimed-mu", "0.1", capture_output=False,
            stdout=full, stderr=subprocess.PIPE,
        )  # fmt: skip
    assert ended.returncode == 1
    assert "No space left" in ended.stderr
    code = exit_code_of(lambda: decided("violation") and fail(Unwritten("--junit: no")))
    assert code == 1
    assert exit_code_of(lambda: fail(Unwritten("--junit: no"))) == 5


def fail(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ZeroDivisionError("by zero"), 4),
        (MemoryError(), 4),
        (RecursionError("deep"), 4),
        (SystemExit(0), 4),
        (KeyboardInterrupt(), 130),
        (OSError(2, "No such file", "x"), 4),
        (OSError(28, "No space left on device"), 5),
        (OSError(36, "File name too long", "x" * 5_000), 2),
    ],
)
def test_the_unexpected_has_a_code_of_its_own_and_one_line(error, code, capsys) -> None:
    assert exit_code_of(lambda: fail(error)) == code
    assert capsys.readouterr().err.count("\n") == 1


def test_long_and_hostile_errors_are_one_bounded_line(capsys) -> None:
    assert exit_code_of(lambda: fail(ValueError("\x1b[2J" + "x" * 10**6))) == 4
    line = capsys.readouterr().err
    assert "\x1b" not in line
    assert len(line) < 5_000


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_sigterm_ends_a_command_as_ctrl_c_does(tmp_path: Path, sent: int, code: int) -> None:
    script = tmp_path / "waits.py"
    script.write_text(
        "import sys, time\nfrom dpaudit.cli._exit import exit_code_of\n"
        "def wait():\n    print('ready', flush=True)\n    time.sleep(60)\n"
        "sys.exit(exit_code_of(wait))\n"
    )
    process = subprocess.Popen(
        [sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.05)
    process.send_signal(sent)
    _, errors = process.communicate(timeout=10)
    assert process.returncode == code
    assert errors.count("\n") == 1


def test_infinity_in_json_is_text(capsys) -> None:
    print_json({"a": float("inf"), "b": [np.float64("-inf")], "c": np.array([1.5])})
    assert json.loads(capsys.readouterr().out) == {"a": "inf", "b": ["-inf"], "c": [1.5]}


@pytest.mark.parametrize("name", ["[/x]", "[bold]", "\x1b[2Jgone", "a\rb", ":smile:", "\x9b31m"])
def test_names_are_printed_and_not_obeyed(tmp_path: Path, name: str, capsys) -> None:
    from dpaudit.cli.audits import list_audits

    path = str(tmp_path / "audits.sqlite")
    with Store.open(path) as store:
        store.begin(name, {"runs": 4, "mechanism": {"name": name}}, {})
    list_audits(path)
    printed = capsys.readouterr().out
    assert printable(name) in printed
    assert not set(printed) & {"\x1b", "\r", "\x9b"}


@pytest.mark.parametrize("columns", ["0", "1", "-1"])
def test_a_terminal_without_columns_is_an_ordinary_one(columns: str, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    screen = console()
    screen.file = io.StringIO()
    screen.print("the verdict")
    assert screen.file.getvalue() == "the verdict\n"


def test_the_console_keeps_its_own_styles() -> None:
    screen = console()
    screen.file, screen._force_terminal = io.StringIO(), True
    screen.print("text", style="bold")
    assert "text" in screen.file.getvalue()


def test_what_users_code_prints_goes_to_standard_error(capfd) -> None:
    with user_code():
        print("printed")
        os.write(1, b"written\n")
        subprocess.run(["echo", "from a child"], check=True)
    print("result")
    out, err = capfd.readouterr()
    assert out == "result\n"
    assert {"printed", "written", "from a child"} <= set(err.splitlines())


TRAINING = """
import os
import numpy as np

print("printed at import")

def train(canary, inserted, seed):
    print("printed by the training")
    os.write(1, b"written by the training\\n")
    if seed % 4 == 0:
        os._exit(0)
    return 3.0 * inserted + np.random.default_rng(seed).normal()
"""


@pytest.mark.slow
def test_a_training_that_exits_with_0_is_a_failed_run(tmp_path: Path) -> None:
    (tmp_path / "exits.py").write_text(TRAINING)
    ended = dpaudit(
        "audit", "exits:train", "--claimed-epsilon", "8", "--runs", "20", "--json",
        cwd=tmp_path,
    )  # fmt: skip
    result = json.loads(ended.stdout)  # and nothing else
    assert ended.returncode != 4, ended.stderr
    assert "printed by the training" in ended.stderr
    assert any("exit code 0" in failure["error"] for failure in result["failures"])


@pytest.mark.parametrize(
    "arguments",
    [
        ("report", "one", "--store", "x" * 5_000),
        ("list", "--store", "x" * 5_000),
        ("report", "x" * 5_000),
        ("estimate", "x" * 5_000, "--delta", "1e-5"),
        ("landscape", "--noise-multiplier", "4", "--batch-size", "8", "--steps", "5", "--shape",
         "x" * 5_000),
        ("landscape", "--noise-multiplier", "4", "--batch-size", "8", "--steps", "5",
         "--simulate", str(10**20)),
    ],
)  # fmt: skip
def test_values_that_no_machine_can_hold_are_mistakes(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, run, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    Store.open("dpaudit.sqlite").close()
    code, _, errors = run(*arguments)
    assert code == 2
    assert errors.startswith("dpaudit: ")
