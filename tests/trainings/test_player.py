"""Several processes, and sudden death: the same scores, and nothing lost."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from dpaudit import Claim, GradientCanary, Store, audit
from dpaudit.errors import InvalidInput
from dpaudit.trainings.player import executor_of

CLAIM = Claim.from_mu(1.0)

MODULE = """
import os, sys, time
import numpy as np
from dpaudit.executors import Player

class Threads(Player):
    def open(self):
        return lambda tile, notify: (os.environ["OMP_NUM_THREADS"], os.environ["MKL_NUM_THREADS"])

def train(canary, inserted, seed):
    print("the training prints")
    if seed % 7 == 0:
        raise OSError(f"seed {seed}")
    random = np.random.default_rng(seed)
    return -(canary.clipped_sum(inserted) + random.normal(0, 0.5, canary.parameters))

def dies(canary, inserted, seed):
    if seed % 5 == 0:
        os._exit(0)
    return float(inserted) + np.random.default_rng(seed).normal()
"""

SCRIPT = """
import sys, time
import numpy as np
import dpaudit

def train(canary, inserted, seed):
    time.sleep(0.05)
    return 3.0 * inserted + np.random.default_rng(seed).normal()

if __name__ == "__main__":
    result = dpaudit.audit(
        train, claim=dpaudit.Claim.from_mu(1.0), runs=60, store=sys.argv[1],
        workers=int(sys.argv[2]),
    )
    print(result.resumed, result.verdict, repr(result.scores.score.tolist()))
"""


@pytest.fixture
def trainings(tmp_path, monkeypatch):
    name = f"trainings_of_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    module = __import__(name)
    yield module
    sys.modules.pop(name, None)


def test_scores_and_failures_do_not_depend_on_the_number_of_processes(trainings):
    canary = GradientCanary.draw(6, clip_norm=1.0)
    alone, several = (
        audit(trainings.train, canary=canary, claim=CLAIM, runs=40, workers=workers)
        for workers in (1, 3)
    )
    assert alone.scores.score.tobytes() == several.scores.score.tobytes()
    assert alone.scores.run.tolist() == several.scores.run.tolist()
    assert [f.run for f in alone.failures] == [f.run for f in several.failures] != []
    assert several.failures[0].traceback.endswith(f"{several.failures[0].error}\n")
    assert alone.test == several.test


def test_where_it_stops_does_not_either(trainings):
    canary = GradientCanary.draw(6, clip_norm=1.0)
    alone, several = (
        audit(
            trainings.train, canary=canary, claim=Claim.from_mu(0.5), runs=400, workers=workers,
            until_violation=True,
        )
        for workers in (1, 2)
    )  # fmt: skip
    assert alone.stopped_at == several.stopped_at < 200
    assert alone.scores.score.tobytes() == several.scores.score.tobytes()
    assert alone.test.e_value == several.test.e_value


@pytest.mark.parametrize(("asked", "threads"), [(None, "1"), ("3", "3")])
def test_a_process_has_one_thread_unless_more_are_asked_for(trainings, monkeypatch, asked, threads):
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if asked is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", asked)
    executor = executor_of(1, isolated=True)
    ((_, found),) = executor.play(trainings.Threads(), [0], print)
    assert found == (threads, threads)


def test_what_cannot_be_sent_to_another_process_is_refused_before_training():
    calls: list = []

    def train(canary, inserted, seed):
        calls.append((inserted, seed))
        return 0.0

    with pytest.raises(InvalidInput, match="workers=1"):
        audit(train, claim=CLAIM, workers=2)
    assert calls == []


def test_a_training_that_ends_its_process_is_a_failed_run(trainings):
    result = audit(trainings.dies, claim=CLAIM, runs=20, workers=2, anyway=True)
    assert result.failures
    assert all("exit code 0" in failure.error for failure in result.failures)
    assert result.scores.runs + len(result.failures) == 20


def run_script(tmp_path: Path, workers: int, text: str = SCRIPT) -> subprocess.Popen[str]:
    script = tmp_path / "script.py"
    script.write_text(text)
    return subprocess.Popen(
        [sys.executable, str(script), str(tmp_path / "audits.sqlite"), str(workers)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.mark.parametrize("workers", [1, 2])
def test_the_same_script_resumes_after_kill_9(tmp_path, workers):
    killed = run_script(tmp_path, workers)
    path, kept = tmp_path / "audits.sqlite", 0
    while kept < 8:
        assert killed.poll() is None, killed.communicate()
        time.sleep(0.02)
        if path.exists() and path.stat().st_size:
            with Store.open(path) as store:
                kept = sum(len(audit.finished_tiles()) for audit in store.audits())
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    again = run_script(tmp_path, workers)
    printed, errors = again.communicate(timeout=120)
    assert again.returncode == 0, errors
    resumed, verdict, scores = printed.split(maxsplit=2)
    assert kept <= int(resumed) < 60
    assert verdict == "violation"
    namespace: dict = {}
    exec(SCRIPT.split("if __name__")[0].replace("time.sleep(0.05)", ""), namespace)
    whole = audit(namespace["train"], claim=CLAIM, runs=60)
    assert np.array(eval(scores)).tolist() == whole.scores.score.tolist()


def test_a_script_without_a_main_guard_is_an_error(tmp_path):
    process = run_script(tmp_path, 2, SCRIPT.replace('if __name__ == "__main__":', "if True:"))
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "put the call under if __name__ == '__main__':" in errors
