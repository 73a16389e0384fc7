"""A training that is a program."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from dpaudit import Claim, GradientCanary, ThreatModel, audit
from dpaudit.errors import InvalidInput
from dpaudit.trainings import command
from dpaudit.trainings.shell import ProgramFailed

PROGRAM = """
import sys
import numpy as np
inserted = [bool(int(flag)) for flag in sys.argv[1].split()]
seed, out = int(sys.argv[2]), sys.argv[3]
score = 4.0 * inserted[0] + np.random.default_rng(seed).normal()
print("step 1 of 1")
print(score)
if sys.argv[4:] == ["npy"]:
    np.save(out, np.array([-score, 0.0]))
if sys.argv[4:] == ["npz"]:
    np.savez(out, w=np.array([-score]), b=np.zeros((1, 1)))
if sys.argv[4:] == ["predictions"]:
    np.savez(out, logits=np.array([score, 0.0]), target=np.array(0))
if sys.argv[4:] == ["many"]:
    np.save(out, np.where(inserted, 1.0, -1.0))
"""


def program(tmp_path: Path, *more: str):
    path = tmp_path / "train.py"
    path.write_text(PROGRAM)
    return command([sys.executable, str(path), "{inserted}", "{seed}", "{out}", *more])


def test_the_last_line_is_the_score_and_a_file_the_parameters(tmp_path):
    score = program(tmp_path)(None, True, 5)
    assert score == 4.0 + np.random.default_rng(5).normal()
    assert program(tmp_path, "npy")(None, True, 5).tolist() == [-score, 0.0]
    parts = program(tmp_path, "npz")(None, True, 5)
    assert [part.tolist() for part in parts] == [[-score], [[0.0]]]
    assert program(tmp_path, "many")(None, np.array([True, False]), 5).tolist() == [1.0, -1.0]


def test_a_program_is_audited_like_a_function(tmp_path):
    canary = GradientCanary(parameters=2, dimensions=np.array([0]), clip_norm=1.0, norm=10.0)
    result = audit(
        program(tmp_path, "npz"), canary=canary, claim=Claim.from_mu(1.0), runs=80, workers=2,
        until_violation=True, anyway=True,
    )  # fmt: skip
    assert (result.adversary, result.verdict) == ("parameters", "violation")


def test_predictions_of_a_program_are_scored_as_predictions(tmp_path):
    train = program(tmp_path, "predictions")
    result = audit(train, claim=Claim.from_mu(1.0), runs=8, anyway=True)
    assert result.adversary == "predictions"
    assert result.threat_model is ThreatModel.BLACK_BOX
    assert (result.scores.score < 0).all()


def test_programs_that_fail():
    def says(code: str, **options: float):
        return command([sys.executable, "-c", code, "{inserted}"], **options)

    with pytest.raises(ProgramFailed, match=r"exit code 7: out of memory"):
        says("import sys; print('out of memory', file=sys.stderr); sys.exit(7)")(None, 1, 2)
    with pytest.raises(ProgramFailed, match="no number: 'done'"):
        says("print(1.5); print('done')")(None, 1, 2)
    with pytest.raises(ProgramFailed, match="no number: nothing"):
        says("")(None, 1, 2)
    with pytest.raises(ProgramFailed, match="printed the score nan"):
        says("print('nan')")(None, 1, 2)
    with pytest.raises(ProgramFailed, match="time limit"):
        says("import time; time.sleep(9)", timeout=0.2)(None, 1, 2)


def test_commands_that_cannot_be():
    with pytest.raises(InvalidInput, match="must be a list of words"):
        command("python train.py {inserted}")
    with pytest.raises(InvalidInput, match=r"must contain {inserted}"):
        command(["python", "train.py"])


def test_standard_input_is_empty():
    assert command(["sh", "-c", "cat; echo {inserted}"], timeout=20)(None, True, 0) == 1.0


def test_a_program_that_prints_without_end_is_bounded():
    code = "print('x' * 50_000_000); print({inserted})"
    assert command([sys.executable, "-c", code])(None, True, 0) == 1.0


OWN_GROUP = "import os; os.setsid(); os.execvp('sleep', ['sleep', '1000'])"
STARTS = (f'{sys.executable} -c "{OWN_GROUP}"', "sleep 1000")


@pytest.mark.parametrize("start", STARTS)
def test_nothing_that_a_program_started_outlives_it(tmp_path, start):
    pid = tmp_path / "pid"
    line = f"{start} & echo $! > {pid}; sleep 0.3; echo {{inserted}}"
    assert command(["sh", "-c", line])(None, True, 0) == 1.0
    assert gone(int(pid.read_text()))


@pytest.mark.parametrize("start", STARTS)
def test_a_time_limit_kills_what_the_program_started(tmp_path, start):
    pid = tmp_path / "pid"
    line = f"{start} & echo $! > {pid}; wait; echo {{inserted}}"
    train = command(["sh", "-c", line], timeout=0.5)
    with pytest.raises(ProgramFailed, match=r"0\.5 s"):
        train(None, True, 0)
    assert gone(int(pid.read_text()))


@pytest.mark.parametrize("start", STARTS)
def test_a_program_ends_with_the_audit(tmp_path, start):
    pid, script = tmp_path / "pid", tmp_path / "script.py"
    line = f"{start} & echo $! > {pid}; wait; echo {{inserted}}"
    script.write_text(
        f"from dpaudit.trainings import command\ncommand(['sh', '-c', {line!r}])(0, 1, 0)\n"
    )
    process = subprocess.Popen([sys.executable, str(script)])
    deadline = time.monotonic() + 30
    while not (pid.exists() and pid.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.kill()
    process.wait()
    assert gone(int(pid.read_text()))


def gone(pid: int) -> bool:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize(
    "made",
    [
        "mkfifo {out}",
        "ln -s /dev/zero {out}",
        "ln -s {out} {out}",
        "mkdir {out}",
        "truncate -s 1T {out}",
        "head -c 100 /dev/urandom > {out}",
    ],
)
def test_what_is_no_file_of_numbers_is_a_failure(made):
    train = command(["sh", "-c", f"{made}; : {{inserted}}"], timeout=60)
    with pytest.raises((ProgramFailed, ValueError)):
        train(None, True, 7)
