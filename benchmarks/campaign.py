"""Attack dpaudit: bad inputs to every command and to the Python API, corrupted stores, kills.

    python benchmarks/campaign.py inputs       # more than 500 bad inputs
    python benchmarks/campaign.py corruptions  # 300 corruptions of a store
    python benchmarks/campaign.py kills        # 100 kills with -9
    python benchmarks/campaign.py              # all of them

Each part prints its counts and updates ``benchmarks/campaign.json``. It fails if an input gives a
traceback or an exit code that means something else, if a corruption changes a number, or if a kill
loses a stored run.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import json
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).with_suffix(".json")
SECONDS = 20.0

_LARGE = (
    "torch",
    "matplotlib.figure",
    "dpaudit.audits",
    "dpaudit.games",
    "dpaudit_paper.landscapes",
)

HOSTILE = (
    "", " ", "nan", "inf", "-inf", "-1", "0", "1", "1e300", "1e-300", "-1e300", "9" * 20,
    "1_000", "١٢", "0x10", "1,5", "[/x]", "[bold]", "\x1b[2J", "../../../etc/passwd", "/dev/full",
    "/dev/null", "/", "no/such/file", "a" * 5_000, "💥", "--help=", "{inserted}", "os:system",
    "x:y:z", ":", "true", "None", "1e5", "0.5", "all",
)  # fmt: skip

BASE = {
    "estimate": ["{scores}", "--delta", "1e-5"],
    "account": ["--noise-multiplier", "1", "--steps", "10", "--delta", "1e-5"],
    "audit": [
        "{training}:train", "--claimed-epsilon", "8", "--runs", "4", "--anyway",
        "--store", ":memory:",
    ],
    "plan": ["--runs", "2"],
    "check": ["{training}:step"],
    "collect": ["{folder}", "--store", "{store}"],
    "list": ["--store", "{store}"],
    "show": ["one", "--store", "{store}"],
    "report": ["one", "--store", "{store}", "--out", "{folder}/page.html"],
    "landscape": [
        "--noise-multiplier", "4", "--batch-size", "8", "--steps", "5", "--delta", "1e-5",
    ],
    "reproduce": ["F1c", "--check"],
}  # fmt: skip

TRAINING = """
import numpy as np

def train(canary, inserted, seed):
    return 3.0 * inserted + np.random.default_rng(seed).normal()

def step(*_, **__):
    return None
"""


def cases(folder: Path) -> Iterator[list[str]]:
    """For every option of every command some hostile values in place of good ones."""
    from typer.main import get_command

    from dpaudit.cli import COMMANDS, app

    group: Any = get_command(app)
    pick = random.Random(13)
    places = _files(folder)
    for name in COMMANDS:
        base = [word.format(**places) for word in BASE.get(name, [])]
        yield [name, "--no-such-option"]
        yield [name, *base, "one", "too", "many"]
        command = group.get_command(None, name)
        for parameter in command.params:
            flags = [flag for flag in parameter.opts if flag.startswith("--")]
            for value in pick.sample(HOSTILE, 5):
                if not flags:
                    yield [name, value, *base[1:]]
                elif getattr(parameter, "is_flag", False):
                    yield [name, *base, f"{flags[0]}={value}"]
                else:
                    yield [name, *base, flags[0], value]


def _files(folder: Path) -> dict[str, str]:
    from dpaudit.scores import Scores, Store, write_scores

    (folder / "training.py").write_text(TRAINING)
    write_scores(
        Scores.from_samples([3.0, 2.0, 2.5] * 9, [0.1, 0.3, -1.0] * 9), folder / "scores.csv"
    )
    with Store.open(folder / "audits.sqlite") as store:
        store.begin("one", {"runs": 4}, {})
    return {
        "scores": str(folder / "scores.csv"),
        "training": str(folder / "training.py"),
        "store": str(folder / "audits.sqlite"),
        "folder": str(folder),
    }


def calls() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Calls of the Python API with arguments that are wrong."""
    import numpy as np

    import dpaudit
    from dpaudit.data import Examples
    from dpaudit.scores import Scores

    wrong: tuple[Any, ...] = (
        None, "", "x", -1, 0, 0.5, 1.5, math.nan, math.inf, -math.inf, 1e300, 10**30, True, [], {},
        [1, [2]], np.array([]), np.array([[1.0]]), np.array(["a"]), np.datetime64("2020-01-01"),
        object(), b"x", lambda: None, complex(1, 2),
    )  # fmt: skip
    good = Scores.from_samples([3.0, 2.0, 2.5] * 9, [0.1, 0.3, -1.0] * 9)
    for value in wrong:
        yield "Scores.score", lambda v=value: Scores(score=v, inserted=[1, 0])
        yield "Scores.inserted", lambda v=value: Scores(score=[1.0, 2.0], inserted=v)
        yield "Scores.run", lambda v=value: Scores(score=[1.0, 2.0], inserted=[1, 0], run=v)
        yield "estimate.delta", lambda v=value: dpaudit.estimate(good, delta=v)
        yield (
            "estimate.confidence",
            lambda v=value: dpaudit.estimate(good, delta=1e-5, confidence=v),
        )
        yield "estimate.method", lambda v=value: dpaudit.estimate(good, delta=1e-5, method=v)
        yield "estimate.scores", lambda v=value: dpaudit.estimate(v, delta=1e-5)
        yield "Claim.from_mu", lambda v=value: dpaudit.Claim.from_mu(v)
        yield "Claim.from_epsilon", lambda v=value: dpaudit.Claim.from_epsilon(v, 1e-5)
        yield "Examples.features", lambda v=value: Examples(features=v, targets=[0, 1], classes=2)
        yield (
            "Examples.targets",
            lambda v=value: Examples(features=[[1.0], [2.0]], targets=v, classes=2),
        )
        yield "Examples.classes", lambda v=value: Examples(features=[[1.0]], targets=[0], classes=v)


def inputs() -> dict[str, Any]:
    """Run every case in a child process of its own; what it printed must be one clear line."""
    from dpaudit.errors import DpauditError

    folder, counts, bad = Path(tempfile.mkdtemp()), Counter[str](), []
    os.chdir(folder)
    for name in _LARGE:  # imported once, and not in every child
        importlib.import_module(name)
    for arguments in cases(folder):
        code, errors = _child(arguments)
        counts["commands"] += 1
        counts[f"exit code {code}"] += 1
        if code not in (0, 1, 2, 3, "stopped") or "Traceback" in errors:
            bad.append([code, arguments, errors[-300:]])
    for name, call in calls():
        counts["calls"] += 1
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                call()
            counts["accepted"] += 1
        except DpauditError:
            counts["refused"] += 1
        except Exception as error:
            bad.append([name, f"{type(error).__name__}: {error}"[:200]])
    return {"counts": dict(counts), "bad": bad}


def _child(arguments: list[str]) -> tuple[int | str, str]:
    """Fork, run the command there, and read its exit code and standard error."""
    with tempfile.TemporaryFile() as errors:
        return _forked(arguments, errors)


def _forked(arguments: list[str], errors: Any) -> tuple[int | str, str]:
    child = os.fork()
    if child == 0:
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(nothing, 1)
        os.dup2(errors.fileno(), 2)
        from dpaudit.cli import main

        sys.argv = ["dpaudit", *arguments]
        code = 4
        try:
            main()
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 0
        except BaseException as error:
            os.write(2, f"Traceback {error!r}".encode())
        finally:
            with contextlib.suppress(Exception):
                sys.stderr.flush()
            os._exit(code)
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            errors.seek(0)
            return os.waitstatus_to_exitcode(status), errors.read().decode("utf8", "replace")
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "stopped", ""  # it accepted the input and was working


def corruptions() -> dict[str, Any]:
    """Damage a store 300 times: an error or the same numbers."""
    from dpaudit.errors import StoreError

    where = Path(__file__).parents[1] / "tests" / "scores" / "test_damage.py"
    spec = importlib.util.spec_from_file_location("damage", where)
    assert spec is not None
    assert spec.loader is not None
    damage = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(damage)
    folder, counts, bad = Path(tempfile.mkdtemp()), Counter[str](), []
    damage.make(folder / "whole")
    whole, content = damage.reading(folder / "whole"), (folder / "whole").read_bytes()
    for number in range(10_000, 10_300):
        (folder / "damaged").write_bytes(damage.damaged(content, number))
        counts["corruptions"] += 1
        try:
            same = damage.reading(folder / "damaged") == whole
            counts["unchanged" if same else "changed"] += 1
            if not same:
                bad.append([number, "a number changed"])
        except StoreError:
            counts["noticed"] += 1
        except Exception as error:
            bad.append([number, repr(error)[:200]])
    return {"counts": dict(counts), "bad": bad}


KILLED = """
import sys, time
import numpy as np
import dpaudit

def train(canary, inserted, seed):
    time.sleep(0.02)
    return 1.0 * inserted + np.random.default_rng(seed).normal()

if __name__ == "__main__":
    claim = dpaudit.Claim.from_mu(1.0)
    dpaudit.audit(train, claim=claim, runs=400, store=sys.argv[1], workers=2)
"""


def kills(wanted: int = 100, seed: int = 7) -> dict[str, Any]:
    """Kill audits, or one of their workers, with -9 while they play; nothing stored is lost."""
    from dpaudit.scores import Store

    folder, counts, bad = Path(tempfile.mkdtemp()), Counter[str](), []
    (folder / "killed.py").write_text(KILLED)
    pick, round_ = random.Random(seed), 0
    reference = None
    while counts["kills"] < wanted or reference is None:
        store, kept = folder / f"{round_}.sqlite", frozenset[int]()
        for attempt in range(1_000):
            process = subprocess.Popen(
                [sys.executable, str(folder / "killed.py"), str(store)],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            if reference is not None and attempt < 12 and counts["kills"] < wanted:
                while process.poll() is None and not _children(process.pid):
                    time.sleep(0.02)
                victim = 0
                # A killed worker is replaced, so that the audit continues.
                while process.poll() is None and victim != process.pid and counts["kills"] < wanted:
                    time.sleep(pick.uniform(0.0, 2.5))
                    victim = _victim(process.pid, pick)
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(victim, signal.SIGKILL)
                        counts["kills"] += 1
                        of = "the audit" if victim == process.pid else "workers"
                        counts[f"kills of {of}"] += 1
                if victim == process.pid:
                    process.wait()
                    if store.exists() and store.stat().st_size:
                        with Store.open(store) as opened:
                            for audit in opened.audits():
                                now = audit.finished_tiles()
                                if not kept <= now:
                                    bad.append([round_, attempt, "stored runs were lost"])
                                kept = now
                    continue
            if process.wait() not in (0, 1, 3):
                bad.append([round_, attempt, f"exit code {process.returncode}"])
            break
        with Store.open(store) as opened:
            scores, failures = opened.audits()[0].scores(), opened.audits()[0].failures()
        found = dict(zip(scores.run.tolist(), scores.score.tolist(), strict=True))
        reference = reference or found
        # A run whose worker is killed twice is recorded as failed.
        counts["failed runs"] += len(failures)
        if len(found) + len(failures) != 400 or not found.items() <= reference.items():
            bad.append([round_, "other scores"])
        counts["audits"] += 1
        round_ += 1
    return {"counts": dict(counts), "bad": bad}


def _children(process: int) -> list[int]:
    """The processes that a process has started and that have not ended."""
    try:
        return [
            int(one) for one in Path(f"/proc/{process}/task/{process}/children").read_text().split()
        ]
    except OSError:
        return []


def _victim(audit: int, pick: random.Random) -> int:
    """The audit itself, or one of its worker processes."""
    return pick.choice([audit, *_children(audit)])


def main(parts: list[str]) -> int:
    """Run some parts, store their counts, and fail if anything was bad."""
    known = {"inputs": inputs, "corruptions": corruptions, "kills": kills}
    worst = 0
    for part in parts or list(known):
        found = known[part]()
        stored = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        RESULTS.write_text(json.dumps({**stored, part: found["counts"]}, indent=1) + "\n")
        print(part, json.dumps(found["counts"], indent=1))
        for one in found["bad"]:
            print("BAD", one)
        worst = worst or len(found["bad"])
    return int(bool(worst))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
