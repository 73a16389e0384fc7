"""A training that is a program in any language, started once for each run."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, final

import numpy as np

from dpaudit import _validate
from dpaudit.errors import InvalidInput
from dpaudit.executors import _ending
from dpaudit.trainings.scoring import Predictions

_PLACES = ("{inserted}", "{seed}", "{out}")
_SHOWN = 2000  # characters of a failed program's errors that are stored
_MOST_BYTES = 64 << 30  # of what it writes: the parameters of a large model
_KEPT = 65_536  # bytes of its output that are read


class ProgramFailed(RuntimeError):
    """A training program ended with an error, or printed no score."""


def command(arguments: Sequence[str], *, timeout: float | None = None) -> CommandTraining:
    """A training function out of a shell command.

    In the arguments ``{inserted}`` becomes 1 or 0 (for several canaries, a line of them),
    ``{seed}`` the seed and ``{out}`` the path of a file that the program may write: ``.npy`` (the
    parameters or scores) or ``.npz`` (several arrays, in the order they were saved). A ``.npz`` of
    the arrays ``target`` and ``probabilities`` or ``logits`` is read as `Predictions`. If it writes
    none, the last line it prints is its score. A program that ends with an error is a failed run.
    Its standard input is empty. It is killed together with the processes that it started: at the
    end of its time, and when the audit ends.

    Arguments:
        arguments: The program and its arguments; no shell interprets them.
        timeout: Seconds after which a run has failed; none by default.

    Example:
        >>> train = command(["echo", "{inserted}"])
        >>> train(None, True, 7)
        1.0
    """
    if isinstance(arguments, str) or not all(isinstance(word, str) for word in arguments):
        raise InvalidInput(
            f"arguments must be a list of words, got {arguments!r}; a shell line is "
            "['sh', '-c', '…']"
        )
    words = tuple(arguments)
    if not any("{inserted}" in word for word in words):
        raise InvalidInput(
            f"arguments must contain {{inserted}}, got {list(words)!r}: without it the runs with "
            "and without the canary are the same"
        )
    limit = None if timeout is None else _validate.positive("timeout", timeout)
    return CommandTraining(arguments=words, timeout=limit)


@final
@dataclass(frozen=True, kw_only=True)
class CommandTraining:
    """A training that starts a program. Made by `command`."""

    arguments: tuple[str, ...]
    timeout: float | None = None

    def __call__(self, canary: Any, inserted: Any, seed: int) -> Any:
        """Start the program once, and return what it wrote or printed."""
        with tempfile.TemporaryDirectory(prefix="dpaudit-") as folder:
            out = Path(folder) / "out.npy"
            flags = " ".join(str(int(flag)) for flag in np.atleast_1d(inserted))
            values = dict(zip(_PLACES, (flags, str(seed), str(out)), strict=True))
            printed = self._run([_filled(word, values) for word in self.arguments])
            written = sorted(Path(folder).iterdir())
            if written:
                return _read(written[0])
            return _last_line(printed, self.arguments[0])

    def _run(self, words: list[str]) -> str:
        """Run the program to its end; the last part of what it printed."""
        if shutil.which(words[0]) is None:
            raise ProgramFailed(f"there is no program {words[0]!r} that can be run")
        held, ours = os.pipe()
        with (
            tempfile.TemporaryFile() as printed,
            tempfile.TemporaryFile() as errors,
            os.fdopen(held, "rb"),
            os.fdopen(ours, "wb"),
            subprocess.Popen(
                [sys.executable, "-I", "-S", _ending.__file__, str(held), *words],
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=errors,
                pass_fds=[held],
                start_new_session=True,
            ) as process,
        ):
            try:
                code = process.wait(timeout=self.timeout)
            except subprocess.TimeoutExpired:
                raise ProgramFailed(
                    f"{self.arguments[0]} was killed after its time limit of {self.timeout:g} s"
                ) from None
            finally:
                _ending.kill_descendants(process.pid)
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            if code:
                raise ProgramFailed(
                    f"{self.arguments[0]} ended with exit code {code}: "
                    f"{_end_of(errors).strip()[-_SHOWN:]}"
                )
            return _end_of(printed)


def _end_of(stream: IO[bytes]) -> str:
    """The last part of a file as text."""
    stream.seek(0, os.SEEK_END)
    stream.seek(max(0, stream.tell() - _KEPT))
    return stream.read().decode("utf8", "replace")


def _filled(word: str, values: dict[str, str]) -> str:
    for place, value in values.items():
        word = word.replace(place, value)
    return word


def _read(path: Path) -> Any:
    facts = path.lstat()  # a pipe would block, and /dev/zero has no end
    if not stat.S_ISREG(facts.st_mode):
        raise ProgramFailed("{out} must be a file, and is a link, a folder, a pipe or a device")
    if facts.st_size > _MOST_BYTES:
        raise ProgramFailed(
            f"{{out}} must have at most {_MOST_BYTES:,} bytes, got {facts.st_size:,}; write a score"
        )
    # numpy appends .npz to a name that does not end in it: the name does not tell the format.
    loaded = np.load(path, allow_pickle=False)
    if isinstance(loaded, np.lib.npyio.NpzFile):
        with loaded:
            arrays = {name: loaded[name] for name in loaded.files}
        named = set(arrays)
        if "target" in named and len(named) == 2 and named & {"probabilities", "logits"}:
            return Predictions(**arrays)
        return list(arrays.values())
    return loaded


def _last_line(printed: str, program: str) -> float:
    lines = [line for line in printed.splitlines() if line.strip()]
    try:
        score = float(lines[-1])
    except (IndexError, ValueError):
        shown = repr(lines[-1][:80]) if lines else "nothing"
        raise ProgramFailed(
            f"{program} wrote no file to {{out}}, and the last line it printed is no number: "
            f"{shown}"
        ) from None
    if not math.isfinite(score):
        raise ProgramFailed(f"{program} printed the score {score}")
    return score
