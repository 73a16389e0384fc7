"""Attack dpaudit: bad inputs to every command and to the Python API, damaged stores, kills.

    python benchmarks/campaign.py                     # all parts
    python benchmarks/campaign.py commands calls      # some of them

- ``commands``: every option of every command with hostile values;
- ``outputs``: every option that writes, on files that must not be lost;
- ``files``: every argument that reads, on pipes, devices, sparse, damaged and endless files;
- ``places``: encodings, terminals, limits, closed streams, deleted folders;
- ``trainings``: trainings that end their process, raise and hold what cannot be shown;
- ``calls``: the Python API with arguments that are wrong;
- ``corruptions``: stores with wrong bytes; ``resealed``: stores with wrong content and right seals;
- ``kills``: audits, and their workers, that are killed with -9.

Each part prints its counts and updates ``benchmarks/campaign.json``, so that an interrupted
campaign continues with the parts that are missing. It fails if an input gives a traceback or an
exit code that means something else, if anything hangs, if a file is lost, if a corruption changes a
number, or if a kill loses a stored run.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import io
import json
import math
import os
import random
import resource
import signal
import sqlite3
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
HANGS = 90.0
"""Seconds after which a command counts as hanging; it takes a few on an idle machine."""

_LARGE = (
    "torch",
    "matplotlib.figure",
    "dpaudit.audits",
    "dpaudit.games",
    "dpaudit.report.rendering",
    "dpaudit.report.pages",
    "dpaudit.cli.audit",
    "dpaudit.cli.audits",
    "dpaudit.cli.report",
    "dpaudit.trainings.player",
    "dpaudit.upper_bounds",
    "dp_accounting.pld.privacy_loss_distribution",
    "jinja2",
    "scipy.stats",
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
    "reproduce": ["F1c", "--list"],
}  # fmt: skip

TRAINING = """
import numpy as np

def train(canary, inserted, seed):
    return 3.0 * inserted + np.random.default_rng(seed).normal()

def pipeline(data, seed):
    return sum(data) + np.random.default_rng(seed).normal()

def step(*_, **__):
    return None
"""


def cases(folder: Path) -> Iterator[list[str]]:
    """For every option of every command some hostile values in place of good ones."""
    from typer.main import get_command

    from dpaudit.cli import COMMANDS, app

    group: Any = get_command(app)
    pick = random.Random(35)
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
    for name, call, own in _of_tests("test_bad_arguments").CALLS:
        for value in (*own, *wrong):
            yield name, lambda c=call, v=value: c(v)
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


def _start() -> Path:
    """A new working directory; what is slow to import is imported once, not in every child."""
    folder = Path(tempfile.mkdtemp())
    os.chdir(folder)
    for name in _LARGE:
        importlib.import_module(name)
    return folder


def commands() -> dict[str, Any]:
    """Run every case in a child process of its own; what it printed must be one clear line."""
    folder, counts, bad = _start(), Counter[str](), _Bad()
    for arguments in cases(folder):
        code, _, errors = _child(arguments, seconds=SECONDS)
        counts["commands"] += 1
        counts[f"exit code {code}"] += 1
        if code not in (0, 1, 2, 3, 5, "stopped") or "Traceback" in errors:
            bad.append([code, arguments, errors[-300:]])
    return {"counts": dict(counts), "bad": bad}


def api() -> dict[str, Any]:
    """Call the Python API with wrong arguments: an error of dpaudit, or a result."""
    from dpaudit.errors import DpauditError

    folder, counts, bad = _start(), Counter[str](), _Bad()
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
    counts["files left"] = len(list(folder.iterdir()))
    return {"counts": dict(counts), "bad": bad}


_CHILDREN: Counter[str] = Counter()
"""Commands that this process has started."""


def _child(
    arguments: list[str], *, seconds: float = HANGS, before: Callable[[], object] = lambda: None
) -> tuple[int | str, str, str]:
    """Fork, run the command there, and give its exit code and what it printed.

    Arguments:
        arguments: Those of the command.
        seconds: Seconds after which it is killed; the code is then "stopped".
        before: Called in the child first, for limits and environment variables.
    """
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        child = os.fork()
        if child == 0:
            os.setsid()
            _run(arguments, output.fileno(), errors.fileno(), before)
        _CHILDREN[arguments[0]] += 1
        if sum(_CHILDREN.values()) % 50 == 0:
            print(f"{sum(_CHILDREN.values())} commands", file=sys.stderr, flush=True)
        deadline, done, status = time.monotonic() + seconds, 0, 0
        while not done and time.monotonic() < deadline:
            done, status = os.waitpid(child, os.WNOHANG)
            time.sleep(0.01)
        if not done:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
        texts = []
        for stream in (output, errors):
            stream.seek(0)
            texts.append(stream.read(10_000_000).decode("utf8", "replace"))
        return os.waitstatus_to_exitcode(status) if done else "stopped", texts[0], texts[1]


def _run(arguments: list[str], output: int, errors: int, before: Callable[[], object]) -> None:
    """Replace this process by the command."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for old, new in ((nothing, 0), (output, 1), (errors, 2)):
        os.dup2(old, new)
    # As at the start of an interpreter, which reads the environment for these.
    sys.argv = ["dpaudit", *arguments]
    code = 4
    try:
        before()
        encoding, _, policy = os.environ.get("PYTHONIOENCODING", "utf-8").partition(":")
        for name, number in (("stdout", 1), ("stderr", 2)):
            stream = None
            with contextlib.suppress(OSError):  # closed
                raw = os.fdopen(number, "wb", closefd=False)
                kind = "backslashreplace" if number == 2 else policy or "strict"
                stream = io.TextIOWrapper(raw, encoding=encoding or "utf-8", errors=kind)
            setattr(sys, name, stream)
        from dpaudit.cli import main

        main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.write(2, f"Traceback {error!r}".encode())
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
        with contextlib.suppress(Exception):
            sys.stderr.flush()
        os._exit(code)


VERDICTS = (
    "VIOLATION", "CONSISTENT", "INCONCLUSIVE", "BROKEN", "PASSED", "NOT TESTED", "NO CLAIM",
    '"verdict"',
)  # fmt: skip


def _judged(code: int | str, arguments: list[str], output: str, errors: str) -> list[Any]:
    """What is wrong with the end of a command; empty if nothing is."""
    if code not in (0, 1, 2, 3, 5):
        return [[code, arguments, errors[-300:]]]
    if "Traceback" in errors and "in a worker process" not in errors.lower():
        return [["traceback", arguments, errors[-300:]]]
    if code == 0 and not output.strip():
        return [["success without output", arguments]]
    if arguments[0] in ("audit", "check") and code in (0, 1, 3) and arguments[-1] != "--help":
        upper = output.replace("\0", "").upper()  # also in UTF-16
        if (
            not any(word.upper() in upper for word in VERDICTS)
            and "junit=/dev/stdout" not in output
        ):
            return [["no verdict", code, arguments, output[-200:]]]
    return []


def _precious(folder: Path) -> dict[str, str]:
    """Digests of the files that no command may change."""
    names = ("mine.py", "canary.py", "pair.py", "own.xml", "own.csv", "own.parquet", "a.toml")
    return {
        name: hashlib.sha256((folder / name).read_bytes()).hexdigest()
        for name in names
        if (folder / name).is_file()
    }


def _furnish(folder: Path) -> None:
    """Files of every kind that a user may name by mistake."""
    _files(folder)
    (folder / "mine.py").write_text(TRAINING)
    (folder / "canary.py").write_text("value = 3\n")
    (folder / "pair.py").write_text("def pair():\n    return [1.0, 2.0], [1.0]\n")
    (folder / "own.xml").write_text("<precious/>")
    (folder / "own.csv").write_text("score,inserted\n1,1\n")
    (folder / "own.parquet").write_bytes(b"PAR1 precious PAR1")
    (folder / "a.toml").write_text("steps = 5\n")
    (folder / "empty").touch()
    (folder / "binary").write_bytes(random.Random(1).randbytes(10_000))
    (folder / "utf16.csv").write_text("score,inserted\n1,1\n", encoding="utf-16")
    (folder / "line.csv").write_bytes(b"score,inserted," + b"x" * 3_000_000)
    (folder / "nul.csv").write_bytes(b"score,inserted\n" + b"\0" * 3_000_000)
    (folder / "quotes.csv").write_text('score,inserted\n"' + "1,1\n" * 100_000)
    (folder / "deep.json").write_text("[" * 100_000)
    (folder / "deep.toml").write_text("a = " + "[" * 100_000)
    (folder / "deep.py").write_text("train = " + "(" * 5_000 + ")" * 5_000)
    (folder / "bytes.py").write_bytes(b"train = '\xff'")
    with (folder / "sparse.csv").open("wb") as stream:
        stream.truncate(1 << 40)
    for ending in ("sqlite", "parquet", "toml", "py", "json"):
        (folder / f"sparse.{ending}").symlink_to("sparse.csv")
        os.mkfifo(folder / f"pipe.{ending}")
    os.mkfifo(folder / "pipe")
    (folder / "loop").symlink_to("loop")
    (folder / "loop.py").symlink_to("loop.py")
    (folder / "to-store").symlink_to("audits.sqlite")
    (folder / "to-training").symlink_to("mine.py")
    (folder / "hard").hardlink_to(folder / "mine.py")
    (folder / "folder").mkdir()
    (folder / "folder.py").mkdir()


AUDIT = [
    "audit", "mine.py:train", "--claimed-epsilon=8", "--runs=4", "--anyway", "--no-check",
    "--store=new.sqlite", "--canary=canary.py:value",
]  # fmt: skip
PAIR = [
    "audit", "mine.py:pipeline", "--neighbours=pair.py:pair", "--claimed-epsilon=8", "--runs=20",
    "--anyway", "--store=new.sqlite",
]  # fmt: skip
CHECK = ["check", "mine.py:step", "--step", "--noise-multiplier=1", "--clip-norm=1"]

TARGETS = (
    "mine.py", "canary.py", "audits.sqlite", "new.sqlite", "new.sqlite-journal", "own.xml",
    "own.csv", "own.parquet", "scores.csv", "to-store", "to-training", "hard", "loop", "folder",
    "no/such/folder/file", "", ".", "..", "/", "/dev/full", "/dev/null", "/dev/zero", "pipe",
    "/proc/self/mem", "/proc/version", "/sys/file", "a" * 300, "empty", "mine.py/file",
    "./mine.py", "folder/../mine.py", "binary", "pair.py", "/dev/stdin", "/dev/fd/77",
    "/dev/fd/99999999999999999999", "/proc/1/fd/1",
)  # fmt: skip


def outputs() -> dict[str, Any]:
    """Write to what must not be lost: it is refused before anything is trained."""
    folder, counts, bad = _start(), Counter[str](), _Bad()
    _furnish(folder)
    precious = _precious(folder)
    writers = [
        (AUDIT, "--junit"), (AUDIT, "--sarif"), (AUDIT, "--scores-out"), (AUDIT, "--receipt"),
        (CHECK, "--junit"), (CHECK, "--sarif"),
        (["report", "--store=audits.sqlite"], "--out"),
        (["show", "--store=audits.sqlite"], "--receipt"),
        (["plan", "--runs=4"], "--register"),
        (["plan", "mine.py:train", "--claimed-epsilon=8"], "--register"),
        (PAIR, "--junit"), (PAIR, "--scores-out"), (["check", "--pipeline", *PAIR[1:3]], "--sarif"),
    ]  # fmt: skip
    for command, option in writers:
        for target in TARGETS:
            for more in ([], ["--overwrite"]):
                words = {part for word in command for part in word.replace("=", ":").split(":")}
                real = "mine.py" if target in ("to-training", "hard") else Path(target).name
                own = real in ("binary", "scores.csv") or real in precious
                if more and own and real not in words:
                    continue  # this is what --overwrite is for
                arguments = [*command, f"{option}={target}", *more]
                code, printed, errors = _child(arguments)
                counts["commands"] += 1
                counts[f"exit code {code}"] += 1
                bad += _judged(code, arguments, printed, errors)
                if _precious(folder) != precious:
                    bad.append(["a file was lost", arguments])
                    precious = _precious(folder)
                if not _is_store(folder / "audits.sqlite"):
                    bad.append(["the store was lost", arguments])
                (folder / "new.sqlite").unlink(missing_ok=True)
    return {"counts": dict(counts), "bad": bad}


def _is_store(path: Path) -> bool:
    from dpaudit.scores import Store

    with Store.open(path, create=False) as store:
        return len(store.audits()) == 1


SOURCES = (
    "pipe", "loop", "folder", "sparse.csv", "binary", "empty", "utf16.csv", "line.csv", "nul.csv",
    "quotes.csv", "deep.json", "own.parquet", "own.xml", "audits.sqlite", "mine.py", "/dev/zero",
    "/dev/random", "/dev/null", "/dev/full", "/proc/self/mem", "/proc/self/environ", "no/such/file",
    "", "/",
)  # fmt: skip


def files() -> dict[str, Any]:
    """Read what never ends, or is something else."""
    folder, counts, bad = _start(), Counter[str](), _Bad()
    _furnish(folder)
    readers: list[Callable[[str], list[str]]] = [
        lambda f: ["estimate", f, "--delta=1e-5"],
        lambda f: ["list", f"--store={f}"],
        lambda f: ["show", f"--store={f}"],
        lambda f: ["report", f"--store={f}", "--out=page.html"],
        lambda f: ["report", f, "--out=page.html"],
        lambda f: ["verify", f],
        lambda f: ["collect", f, "--store=audits.sqlite"],
        lambda f: ["audit", f"{f}:train", "--claimed-epsilon=8", "--runs=4", "--store=:memory:"],
        lambda f: ["check", f"{f}:train", "--noise-multiplier=1"],
        lambda f: [*AUDIT[:-2], f"--store={f}"] if f not in ("", "empty") else ["list"],
        lambda f: [*AUDIT[:-1], f"--canary={f}:value"],
        lambda f: ["landscape", "--noise-multiplier=4", "--batch-size=8", "--steps=5",
                   f"--shape={f}"],
    ]  # fmt: skip
    endings = {"toml": ["audit"], "py": ["audit", "check"], "json": ["verify"]}
    cases_ = [make(source) for make in readers for source in SOURCES]
    for ending, names in endings.items():
        for stem in ("pipe", "sparse", "deep", "loop", "folder", "bytes", "none"):
            for name in names:
                place = f"{stem}.{ending}" + (":train" if ending == "py" else "")
                more = ["--noise-multiplier=1"] if name == "check" else []
                cases_.append([name, place, *more])
    for arguments in cases_:
        code, printed, errors = _child(arguments, before=_little_memory)
        counts["commands"] += 1
        counts[f"exit code {code}"] += 1
        bad += _judged(code, arguments, printed, errors)
    return {"counts": dict(counts), "bad": bad}


def _little_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30))


def places() -> dict[str, Any]:
    """Environments that are unusual: the same commands end as usual, or say what is missing."""
    folder, counts, bad = _start(), Counter[str](), _Bad()
    _furnish(folder)
    usual = [
        ["estimate", "scores.csv", "--delta=1e-5"],
        ["account", "--noise-multiplier=1", "--steps=10", "--delta=1e-5"],
        ["list", "--store=audits.sqlite"],
        [*AUDIT],
        ["--help"],
        ["audit", "--help"],
    ]

    def environment(**values: str) -> Callable[[], None]:
        return lambda: os.environ.update(values)

    def limit(kind: int, value: int) -> Callable[[], None]:
        return lambda: resource.setrlimit(kind, (value, value))

    def gone() -> None:
        where = Path(tempfile.mkdtemp())
        os.chdir(where)
        where.rmdir()

    before: dict[str, Callable[[], None]] = {
        **{f"encoding {e}": environment(PYTHONIOENCODING=e) for e in
           ("ascii", "latin-1", "cp437", "utf-16", "utf-7", "ascii:strict", "cp1252", "shift_jis")},
        **{f"columns {c}": environment(COLUMNS=c) for c in ("0", "1", "-1", "x", "99999", "")},
        **{f"lines {c}": environment(LINES=c) for c in ("0", "-1", "x")},
        **{f"terminal {t}": environment(TERM=t) for t in ("dumb", "", "none", "vt100")},
        **{f"colours {n}": environment(**{n: "1"}) for n in ("NO_COLOR", "FORCE_COLOR")},
        **{f"language {v}": environment(LC_ALL=v, LANG=v) for v in ("C", "tr_TR.UTF-8", "none")},
        **{f"{n} {v}": environment(**{n: v}) for n in
           ("HOME", "TMPDIR", "XDG_CACHE_HOME", "DPAUDIT_STORE", "DPAUDIT_DATA", "OMP_NUM_THREADS")
           for v in ("", "/no/such", "/dev/null", "loop", "/proc")},
        **{f"files {n}": limit(resource.RLIMIT_NOFILE, n) for n in (12, 20, 40)},
        **{f"size {n}": limit(resource.RLIMIT_FSIZE, n) for n in (0, 1_000, 100_000)},
        "standard input closed": lambda: os.close(0),
        "standard output closed": lambda: os.close(1),
        "standard error closed": lambda: os.close(2),
        "all streams closed": lambda: os.closerange(0, 3),
        "standard output full": lambda: os.dup2(os.open("/dev/full", os.O_WRONLY), 1),
        "standard error full": lambda: os.dup2(os.open("/dev/full", os.O_WRONLY), 2),
        "working directory deleted": gone,
        "no permissions for new files": lambda: os.umask(0o777) and None,
        "hangup ignored": lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN) and None,
        "children ignored": lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN) and None,
    }  # fmt: skip
    for name, prepare in before.items():
        for arguments in usual:
            code, printed, errors = _child(arguments, before=prepare)
            counts["commands"] += 1
            counts[f"exit code {code}"] += 1
            shown = "closed" in name or "full" in name or "size" in name
            for fault in _judged(code, arguments, printed, errors):
                if not (shown and fault[0] == "no verdict"):
                    bad.append([name, *fault])
            (folder / "new.sqlite").unlink(missing_ok=True)
    return {"counts": dict(counts), "bad": bad}


HOSTILE_TRAININGS = {
    "exit at import": "import os; os._exit(0)",
    "sys.exit at import": "import sys; sys.exit(0)",
    "kill at import": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "abort at import": "import os; os.abort()",
    "keyboard interrupt at import": "raise KeyboardInterrupt",
    "error without text": (
        "class E(Exception):\n    def __str__(self): raise ValueError\n    __repr__ = __str__\n"
        "raise E"
    ),
    "generator exit": "raise GeneratorExit",
    "recursion": "def f(): return f()\nf()",
    "raises": "def train(c, i, s):\n    class E(Exception):\n        def __str__(self): 1 / 0\n"
              "    raise E",
    "exits": "import os\ndef train(c, i, s): os._exit(0)",
    "sys.exits": "import sys\ndef train(c, i, s): sys.exit(0)",
    "kills": "import os\ndef train(c, i, s): os.kill(os.getpid(), 9)",
    "closes all": "import os\ndef train(c, i, s):\n    os.closerange(0, 100)\n    return 1.0 * i",
    "prints": "def train(c, i, s):\n    print('CONSISTENT' * 1000)\n    return 1.0 * i + s",
    "prints bytes": "import os\ndef train(c, i, s):\n    os.write(1, bytes(range(256)))\n"
                    "    return 1.0 * i",
    "itself": "a = []\na.append(a)\ndef train(c, i, s):\n    a\n    return 1.0 * i + s % 7",
    "loud": "class L:\n    def __getattribute__(self, n): raise RuntimeError(n)\n"
            "    def __repr__(self): raise RuntimeError\nl = L()\n"
            "def train(c, i, s):\n    l\n    return 1.0 * i + s % 7",
    "loud module": "import sys, types\nclass M(types.ModuleType):\n"
                   "    def __getattr__(self, n): raise RuntimeError(n)\n"
                   "sys.modules['loud'] = m = M('loud')\n"
                   "def train(c, i, s):\n    m\n    return 1.0 * i + s % 7",
    "deletes its folder": "import os, shutil\ndef train(c, i, s):\n    return 1.0 * i + s % 7\n",
    "daemon": "import subprocess\ndef train(c, i, s):\n"
              "    subprocess.Popen(['sleep', '30'], start_new_session=True)\n"
              "    return 1.0 * i + s % 7",
    "threads": "import threading, time\ndef train(c, i, s):\n"
               "    threading.Thread(target=time.sleep, args=(30,), daemon=True).start()\n"
               "    return 1.0 * i + s % 7",
    "exits later": "import os, threading, time\n"
                   "threading.Timer(1, lambda: os._exit(0)).start()\n"
                   "def train(c, i, s):\n    time.sleep(0.3)\n    return 1.0 * i + s % 7",
    "exits at the end": "import atexit, os\natexit.register(os._exit, 0)\n"
                        "def train(c, i, s): return 1.0 * i + s % 7",
    "prints elsewhere": "import os, sys\nsys.stdout = open('log', 'w')\n"
                        "os.dup2(sys.stdout.fileno(), 1)\n"
                        "def train(c, i, s): return 1.0 * i + s % 7",
    "alarm": "import signal\ndef train(c, i, s):\n    signal.alarm(1)\n    return 1.0 * i",
    **{f"returns {text}": f"import numpy as np\ndef train(c, i, s): return {text}" for text in (
        "None", "'x'", "b'x'", "object()", "[]", "{}", "[[1], [1, 2]]", "float('nan')",
        "float('inf') * (1 if i else -1)", "10**400", "complex(1, 1)", "lambda: 0",
        "(x for x in [1])",
        "np.array([])", "np.array(['a'])", "np.full((3, 3), np.nan)", "np.datetime64('2020')",
        "type('A', (), {'__array__': lambda s, *a, **k: 1 / 0})()",
        "type('F', (), {'__float__': lambda s: 1 / 0})()",
        "type('S', (), {'shape': (1,), 'dtype': 'x'})()", "True", "i", "s",
        "np.ma.masked_array([1.0], [True])", "np.float16(1)", "range(3)", "memoryview(b'abc')",
    )},
}  # fmt: skip


IN_THE_PARENT = """
from dpaudit.adversaries import SimulatedDimension as Mine

def neighbours():
    return [1.0, 2.0, 3.0], [1.0, 2.0]
"""
"""What a module has that is imported in the process of the command."""

NEVER_TRAIN = (
    "kill at import", "exit at import", "sys.exit at import", "keyboard interrupt at import",
    "error without text", "generator exit", "recursion", "exits later", "exits at the end",
    "prints elsewhere",
)  # fmt: skip


def trainings() -> dict[str, Any]:
    """Trainings that do everything but train, and modules beside them that do the same."""
    folder, counts, bad = _start(), Counter[str](), _Bad()
    _furnish(folder)
    for number, (name, source) in enumerate(HOSTILE_TRAININGS.items()):
        file = f"hostile{number}.py"
        (folder / file).write_text(f"{source}\n{IN_THE_PARENT}")
        tried = [
            ["audit", f"{file}:train", "--claimed-epsilon=8", "--runs=4", "--anyway",
             "--store=:memory:", "--workers=2"],
            ["check", f"{file}:train", "--noise-multiplier=1", "--clip-norm=1", "--parameters=3"],
            ["plan", f"{file}:train", "--claimed-epsilon=8"],
        ]  # fmt: skip
        if name in NEVER_TRAIN:
            preset = [f"--adversary={file}:Mine", "--runs=400", "--steps=20"]
            tried += [
                ["audit", "housing", *preset, "--store=:memory:"],
                ["plan", *preset],
                ["audit", "mine.py:pipeline", f"--neighbours={file}:neighbours", "--runs=200",
                 "--claimed-epsilon=8", "--store=:memory:"],
                ["check", "--pipeline", "mine.py:pipeline", f"--neighbours={file}:neighbours"],
            ]  # fmt: skip
        for arguments in tried:
            code, printed, errors = _child(arguments)
            counts["commands"] += 1
            counts[f"exit code {code}"] += 1
            # What happens at import happens to the command: a signal ends it.
            own = "at import" in name and code in (-6, -9, 130)
            if not own:
                bad += [[name, *fault] for fault in _judged(code, arguments, printed, errors)]
    return {"counts": dict(counts), "bad": bad}


VALUES = (
    None, True, -1, 0, 1e308, -1e308, 10**30, "", "x", "\x1b[2J\n::error::x", [], {}, [[[]]],
    "9" * 400, "💥", {"epsilon": "x"}, {"a": {"a": {}}}, 0.5, "inf", "nan", "\ud800",
)  # fmt: skip


def resealed(wanted: int = 400) -> dict[str, Any]:
    """Stores whose content is wrong and whose seals are right, as another program may write."""
    import numpy as np

    import dpaudit

    folder, counts, bad = _start(), Counter[str](), _Bad()

    def train(canary: Any, inserted: Any, seed: int) -> float:
        return 3.0 * inserted + float(np.random.default_rng(seed).normal())

    dpaudit.audit(
        train, claim=dpaudit.Claim.from_mu(1.0), runs=20, anyway=True, store="good.sqlite",
        name="good", progress=dpaudit.audits.Silent(),
    )  # fmt: skip
    content, pick = (folder / "good.sqlite").read_bytes(), random.Random(11)
    for number in range(wanted):
        (folder / "bad.sqlite").write_bytes(content)
        changed = _reseal(folder / "bad.sqlite", pick)
        counts["stores"] += 1
        others = ["show"] if number % 2 else ["report", "--out=page.html"]
        for arguments in (["list"], others):
            code, printed, errors = _child([*arguments, "--store=bad.sqlite"])
            counts["commands"] += 1
            counts[f"exit code {code}"] += 1
            bad += [[number, changed, *fault] for fault in
                    _judged(code, arguments, printed, errors)]  # fmt: skip
    return {"counts": dict(counts), "bad": bad}


def _reseal(path: Path, pick: random.Random) -> str:
    """Change one value of one row, and seal the row again; says what was changed."""
    from dpaudit.scores import store as stores

    connection = sqlite3.connect(path)
    table = pick.choice(["audits"] * 6 + ["sessions", "tiles"])
    rows = connection.execute(f"SELECT rowid, * FROM {table}").fetchall()
    names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    rowid, *row = pick.choice(rows)
    column = pick.randrange(len(row) - 1)
    value = row[column]
    where = f"{table}.{names[column]}"
    if isinstance(value, str) and value.startswith("{"):
        plain = json.loads(value)
        where += _change(plain, pick)
        row[column] = json.dumps(plain)
    else:
        row[column] = pick.choice([None, -1, 10**12, 0.5, "", "x", "1" * 50, b"", b"x", b"dpf1{}"])
        where += f" = {row[column]!r}"
    row[-1] = stores._seal(row[:-1])
    places = ", ".join(f"{name} = ?" for name in names)
    with contextlib.suppress(sqlite3.Error):
        connection.execute(f"UPDATE {table} SET {places} WHERE rowid = ?", (*row, rowid))
        connection.commit()
    connection.close()
    return where


def _change(plain: Any, pick: random.Random) -> str:
    """Change one place inside plain data; says which."""
    where = ""
    while True:
        keys = list(plain) if isinstance(plain, dict) else list(range(len(plain)))
        key = pick.choice(keys)
        where += f".{key}"
        inner = plain[key]
        if isinstance(inner, dict | list) and inner and pick.random() < 0.75:
            plain = inner
            continue
        if pick.random() < 0.2:
            del plain[key]
            return where + " deleted"
        plain[key] = pick.choice(VALUES)
        return f"{where} = {plain[key]!r}"


def _of_tests(name: str) -> Any:
    """A module of the tests, whose cases are used here, too."""
    where = Path(__file__).parents[1] / "tests" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(where.stem, where)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[where.stem] = module
    spec.loader.exec_module(module)
    return module


def corruptions() -> dict[str, Any]:
    """Damage a store 300 times: an error or the same numbers."""
    from dpaudit.errors import StoreError

    damage = _of_tests("scores/test_damage")
    folder, counts, bad = Path(tempfile.mkdtemp()), Counter[str](), _Bad()
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

    folder, counts, bad = Path(tempfile.mkdtemp()), Counter[str](), _Bad()
    (folder / "killed.py").write_text(KILLED)
    pick, round_ = random.Random(seed), 0
    reference = None
    while counts["kills"] < wanted or reference is None:
        store, stored = folder / f"{round_}.sqlite", dict[str, frozenset[int]]()
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
                            now = {audit.id: audit.finished_tiles() for audit in opened.audits()}
                        # If it had just finished, the same command begins another audit.
                        if not all(
                            tiles <= now.get(audit, set()) for audit, tiles in stored.items()
                        ):
                            bad.append([round_, attempt, "stored runs were lost"])
                        stored = now
                    continue
            if process.wait() not in (0, 1, 3):
                bad.append([round_, attempt, f"exit code {process.returncode}"])
            break
        with Store.open(store) as opened:
            scores, failures = opened.audits()[0].scores(), opened.audits()[0].failures()
        scored = dict(zip(scores.run.tolist(), scores.score.tolist(), strict=True))
        reference = reference or scored
        # A run whose worker is killed twice is recorded as failed.
        counts["failed runs"] += len(failures)
        if len(scored) + len(failures) != 400 or not scored.items() <= reference.items():
            bad.append([round_, "other scores"])
        counts["audits"] += 1
        round_ += 1
    return {"counts": dict(counts), "bad": bad}


def _children(process: int) -> list[int]:
    """The processes that a process has started and that have not ended."""
    try:
        return [
            int(child)
            for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()
        ]
    except OSError:
        return []


def _victim(audit: int, pick: random.Random) -> int:
    """The audit itself, or one of its worker processes."""
    return pick.choice([audit, *_children(audit)])


PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "calls": api,
    "outputs": outputs,
    "files": files,
    "places": places,
    "trainings": trainings,
    "resealed": resealed,
    "commands": commands,
    "corruptions": corruptions,
    "kills": kills,
}


class _Bad(list[Any]):
    """What went wrong; printed at once, because a part takes minutes."""

    def __iadd__(self, others: Any) -> Any:
        for other in others:
            self.append(other)
        return self

    def append(self, one: Any) -> None:
        print("BAD", one, flush=True)
        super().append(one)


def main(parts: list[str]) -> int:
    """Run some parts, store their counts, and fail if anything was bad."""
    worst = 0
    for part in parts or list(PARTS):
        began = time.monotonic()
        result = PARTS[part]()
        stored = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        counts = {**result["counts"], "bad": len(result["bad"])}
        RESULTS.write_text(json.dumps({**stored, part: counts}, indent=1) + "\n")
        print(part, json.dumps(counts, indent=1), f"{time.monotonic() - began:.0f} s")
        worst = worst or len(result["bad"])
    return int(bool(worst))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
