"""Commands lose no file and no verdict, and end with a clear line whatever they are given."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from helpers import dpaudit, dpaudit_often

from dpaudit.scores import Scores, Store, write_scores

TRAINING = """
import numpy as np
import dpaudit

canary = dpaudit.GradientCanary.draw(20, clip_norm=1.0)


def train(canary, inserted, seed):
    noise = np.random.default_rng(seed).normal(0.0, 0.05, canary.parameters)
    return -(canary.clipped_sum(inserted) + noise)
"""
PIPELINE = """
def neighbours():
    return [1.0, 2.0, 3.0], [1.0, 2.0]


def train(data, seed):
    return sum(data) + seed % 7
"""
AUDIT = ("audit", "mine.py:train", "--noise-multiplier=1", "--steps=1", "--runs=40", "--no-check")
PAIR = ("audit", "pipeline.py:train", "--neighbours=neighbours.py:neighbours")


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(TRAINING)
    (tmp_path / "pipeline.py").write_text(PIPELINE)
    (tmp_path / "neighbours.py").write_text(PIPELINE)
    (tmp_path / "a.toml").write_text("steps = 5\n")
    random = np.random.default_rng(0)
    scores = Scores.from_samples(random.normal(1, 1, 200), random.normal(0, 1, 200))
    write_scores(scores, tmp_path / "scores.csv")
    Store.open(tmp_path / "dpaudit.sqlite").close()
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (("report", "--out=dpaudit.sqlite", "--overwrite"), "--out"),
        (("report", "--out=./dpaudit.sqlite"), "--out"),
        (("report", "other.sqlite", "--out=other.sqlite", "--overwrite"), "--out"),
        ((*AUDIT, "--junit=mine.py", "--overwrite"), "--junit"),
        ((*AUDIT, "--sarif=dpaudit.sqlite", "--overwrite"), "--sarif"),
        ((*AUDIT, "--scores-out=dpaudit.sqlite", "--overwrite"), "--scores-out"),
        ((*AUDIT, "--junit=new.sqlite", "--store=new.sqlite"), "--junit"),
        ((*AUDIT, "--junit=a", "--sarif=a"), "--sarif"),
        ((*AUDIT, "--junit=a", "--scores-out=./a"), "--junit"),
        ((*AUDIT, "--scores-out=own.parquet"), "--scores-out"),
        ((*AUDIT, "--junit=own.parquet"), "--junit"),
        (("check", "mine.py:train", "--noise-multiplier=1", "--junit=mine.py"), "--junit"),
        ((*PAIR, "--claimed-epsilon=8", "--junit=neighbours.py", "--overwrite"), "--junit"),
        (("check", "--pipeline", *PAIR[1:], "--sarif=neighbours.py", "--overwrite"), "--sarif"),
        (("plan", "mine.py:train", "--register=mine.py", "--overwrite"), "--register"),
        (("document", "none.json", "--scores=scores.csv", "--out=scores.csv"), "--out"),
        (("document", "none.json", "--signer=a.toml", "--out=a.toml", "--overwrite"), "--out"),
        ((*AUDIT, "--junit=/dev/fd/77"), "--junit"),
        ((*AUDIT, "--junit=/dev/fd/99999999999999999999"), "--junit"),
        ((*AUDIT, "--junit=/dev/stdin"), "--junit"),
        ((*AUDIT, "--junit=/proc/1/fd/1"), "--junit"),
    ],
)
def test_no_file_is_lost_and_nothing_is_trained(
    here: Path,
    arguments: tuple[str, ...],
    option: str,
    run: Callable[..., tuple[int, str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(here)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (here / "own.parquet").write_bytes(b"PAR1 precious PAR1")
    Store.open(here / "other.sqlite").close()
    before = {path.name: path.read_bytes() for path in here.iterdir()}
    code, _, errors = run(*arguments)
    assert code == 2
    assert option in errors
    assert errors.count("\n") == 1
    after = {path.name: path.read_bytes() for path in here.iterdir() if path.is_file()}
    assert after == before


def test_the_descriptor_of_the_store_is_no_output(here: Path) -> None:
    before = (here / "dpaudit.sqlite").read_bytes()
    ended = dpaudit("show", "--receipt=/proc/self/fd/3", cwd=here)  # that of the store, once open
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
    assert "--receipt" in ended.stderr
    assert (here / "dpaudit.sqlite").read_bytes() == before


def test_the_room_that_the_scores_need_is_checked_before(here: Path) -> None:
    limit = (4_000_000, 4_000_000)
    ended = dpaudit(
        *AUDIT, "--runs=100000", "--scores-out=a.csv", cwd=here,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit),
    )  # fmt: skip
    assert ended.returncode == 2
    assert "--scores-out" in ended.stderr
    assert "full" in ended.stderr


def test_a_plan_of_a_training_that_ends_its_process_is_no_success(here: Path) -> None:
    (here / "ends.py").write_text("import os\n\n\ndef train(*_):\n    os._exit(0)\n")
    ended = dpaudit("plan", "ends.py:train", "--claimed-epsilon=1", cwd=here)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "ended its process" in ended.stderr


SOON = "import os, threading\nthreading.Timer(0.2, os._exit, (0,)).start()\n"
SOON_BY_NAME = SOON.replace("os._exit, (0,)", "lambda: os._exit(0)")
AT_EXIT = "import atexit, os\natexit.register(os._exit, 0)\n"
ELSEWHERE = "import os, sys\nsys.stdout = open('log', 'w')\nos.dup2(sys.stdout.fileno(), 1)\n"
ADVERSARY = "from dpaudit.adversaries import SimulatedDimension as Mine\n"
PRESET = ("housing", "--adversary=own.py:Mine", "--runs=200", "--steps=20")


@pytest.mark.parametrize(
    ("source", "arguments"),
    [
        (SOON + PIPELINE, (*PAIR[:2], "--neighbours=own.py:neighbours", "--claimed-epsilon=1")),
        (SOON_BY_NAME + ADVERSARY, ("audit", *PRESET)),
        (SOON + ADVERSARY, ("plan", *PRESET[1:])),
    ],
)
def test_no_thread_of_the_users_ends_a_command_with_the_code_of_a_verdict(
    here: Path, source: str, arguments: tuple[str, ...]
) -> None:
    (here / "own.py").write_text(source)
    ended = dpaudit(*arguments, cwd=here)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "a module ended the process with exit code 0, without a result" in ended.stderr


def test_what_an_adversary_does_with_standard_output_hides_no_result(here: Path) -> None:
    (here / "own.py").write_text(ELSEWHERE + ADVERSARY)
    ended = dpaudit("plan", *PRESET[1:], cwd=here)
    assert (ended.returncode, "epsilon" in ended.stdout) == (0, True)


@pytest.mark.parametrize("source", [AT_EXIT, ELSEWHERE])
def test_a_module_of_the_users_changes_neither_code_nor_place_of_the_verdict(
    here: Path, source: str
) -> None:
    (here / "own.py").write_text(source + PIPELINE)
    ended = dpaudit(
        *PAIR[:2], "--neighbours=own.py:neighbours", "--claimed-epsilon=1", "--runs=64", cwd=here
    )  # fmt: skip
    assert ended.returncode == 1
    assert ended.stdout.startswith("VIOLATION")


def test_no_text_of_json_is_a_command_of_the_log(here: Path) -> None:
    name = "##[error]stolen"
    ended = dpaudit(*AUDIT, "--name", name, "--json", "--sarif=/dev/stdout", cwd=here)
    assert "##[" not in ended.stdout
    first, end = json.JSONDecoder().raw_decode(ended.stdout)
    assert first["name"] == name
    assert json.loads(ended.stdout[end:])["runs"][0]["results"][0]["ruleId"] == name


def test_an_output_that_fails_hides_neither_the_verdict_nor_the_other_outputs(here: Path) -> None:
    ended = dpaudit(*AUDIT, "--junit=/dev/full", "--sarif=audit.sarif", cwd=here)
    assert "VIOLATION" in ended.stdout
    assert ended.returncode == 1
    assert "--junit" in ended.stderr
    assert (here / "audit.sarif").is_file()
    correct = (here / "mine.py").read_text().replace("0.05", "1.0")
    (here / "right.py").write_text(correct)
    ended = dpaudit(
        "check", "right.py:train", "--noise-multiplier=1", "--junit=/dev/full", cwd=here
    )
    assert "rules" in ended.stdout
    assert ended.returncode == 5


def test_a_closed_pipe_does_not_stop_the_other_outputs(here: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    ended = dpaudit(*AUDIT, "--junit=audit.xml", cwd=here, capture_output=False, stdout=writing)
    os.close(writing)
    assert ended.returncode == 1
    assert (here / "audit.xml").is_file()


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_an_encoding_without_our_signs_still_shows_the_result(here: Path, encoding: str) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    for arguments in (
        ("estimate", "scores.csv", "--delta=1e-5"),
        ("account", "--noise-multiplier=1", "--steps=10", "--delta=1e-5"),
        (*AUDIT, "--name=Ωmega"),
        ("list",),
    ):
        ended = dpaudit(*arguments, cwd=here, env=environment, encoding=encoding)
        assert ended.returncode in (0, 1), ended.stderr
        assert "epsilon" in ended.stdout


def test_inputs_that_never_end_are_refused(here: Path) -> None:
    os.mkfifo(here / "pipe")
    with (here / "sparse.csv").open("wb") as stream:
        stream.truncate(1 << 40)
    (here / "sparse.sqlite").symlink_to("sparse.csv")
    (here / "sparse.parquet").symlink_to("sparse.csv")
    (here / "loop").symlink_to("loop")
    (here / "loop.py").symlink_to("loop.py")
    scores = ("pipe", "/dev/zero", "sparse.csv", "sparse.parquet", "loop", "/dev/random")
    stores = ("pipe", "/dev/zero", "sparse.sqlite", "loop", "/dev/null")
    commands = [
        *(("estimate", place, "--delta=1e-5") for place in scores),
        *(("list", "--store", place) for place in stores),
        *(
            (command, place, "--noise-multiplier=1")
            for place in ("pipe:train", "loop.py:train")
            for command in ("audit", "check")
        ),
    ]
    for command, (code, _, errors) in zip(
        commands, dpaudit_often(*commands, cwd=here), strict=True
    ):
        assert code == 2, (command, errors)
        assert errors.count("\n") == 1 or command[0] in ("audit", "check")


def test_pipes_that_are_open_are_read(here: Path) -> None:
    with (
        (here / "scores.csv").open("rb") as stream,
        subprocess.Popen(["cat"], stdin=stream, stdout=subprocess.PIPE) as cat,
    ):
        ended = dpaudit("estimate", "/dev/stdin", "--delta=1e-5", cwd=here, stdin=cat.stdout)
    assert ended.returncode == 0, ended.stderr


def test_a_deleted_working_directory_is_named(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    for arguments in ("list", "audit mine.py:train --claimed-epsilon 1", "report", "plan"):
        command = f"cd {gone} && rmdir {gone} && exec {sys.executable} -m dpaudit {arguments}"
        ended = subprocess.run(["sh", "-c", command], check=False, capture_output=True, text=True)
        gone.mkdir()
        assert ended.returncode == 2, ended.stderr
        assert ended.stderr.count("\n") == 1
        assert "working directory was deleted" in ended.stderr


@pytest.mark.parametrize("columns", ["0", "1", "-5", "x"])
def test_every_width_of_a_terminal_is_usable(
    here: Path,
    columns: str,
    run: Callable[..., tuple[int, str, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(here)
    monkeypatch.setenv("COLUMNS", columns)
    code, _, errors = run("estimate", "scores.csv", "--delta=1e-5")
    assert code == 0, errors
    assert "Usage" in run("estimate", "--help")[1]


def test_too_few_file_descriptors_end_with_a_remedy(here: Path) -> None:
    command = f"ulimit -n 32; exec {sys.executable} -m dpaudit {' '.join(AUDIT)} --workers 64"
    ended = subprocess.run(
        ["sh", "-c", command], check=False, capture_output=True, text=True, cwd=here, timeout=300
    )
    assert ended.returncode == 2, ended.stderr
    assert "ulimit -n" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_no_name_reaches_the_log_as_a_command(here: Path) -> None:
    name = "x\n::error::stolen ##[error]stolen\x1b[2J\x00"
    ended = dpaudit(*AUDIT, "--name", name.replace("\x00", ""), "--junit=a.xml", cwd=here)
    listed = dpaudit("list", cwd=here)
    for text in (ended.stdout, ended.stderr, listed.stdout, dpaudit("show", cwd=here).stdout):
        assert not any(line.strip().startswith("::") for line in text.split("\n"))
        assert "##[" not in text
        assert "\x1b[2J" not in text
