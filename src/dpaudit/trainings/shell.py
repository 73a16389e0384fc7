"""A training that is a program: any language, started once for each run."""

from __future__ import annotations

import math
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from dpaudit.errors import InvalidInput

_PLACES = ("{inserted}", "{seed}", "{out}")
_SHOWN = 2000  # characters of a failed program's errors that are worth keeping


class ProgramFailed(RuntimeError):
    """A training program ended with an error, or printed no score."""


def command(arguments: Sequence[str], *, timeout: float | None = None) -> CommandTraining:
    """A training function out of a shell command.

    In the arguments ``{inserted}`` becomes 1 or 0 (for several canaries, a line of them),
    ``{seed}`` the seed and ``{out}`` the path of a file that the program may write: ``.npy`` (the
    parameters or scores) or ``.npz`` (several arrays, in the order they were saved). If it writes
    none, the last line it prints is its score. A program that ends with an error is a failed run.

    Arguments:
        arguments: The program and its arguments; no shell reads them.
        timeout: Seconds after which a run has failed.

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
            f"arguments must say where {{inserted}} goes, got {list(words)!r}: without it both "
            "worlds are the same"
        )
    return CommandTraining(arguments=words, timeout=timeout)


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
            ended = subprocess.run(
                [_filled(word, values) for word in self.arguments],
                capture_output=True,
                text=True,
                timeout=self.timeout,
                check=False,
            )
            if ended.returncode:
                raise ProgramFailed(
                    f"{self.arguments[0]} ended with exit code {ended.returncode}: "
                    f"{ended.stderr.strip()[-_SHOWN:]}"
                )
            written = sorted(Path(folder).iterdir())
            if written:
                return _read(written[0])
            return _last_line(ended.stdout, self.arguments[0])


def _filled(word: str, values: dict[str, str]) -> str:
    for place, value in values.items():
        word = word.replace(place, value)
    return word


def _read(path: Path) -> Any:
    # numpy appends .npz to a name that does not end in it, so the extension does not decide.
    loaded = np.load(path, allow_pickle=False)
    if isinstance(loaded, np.lib.npyio.NpzFile):
        with loaded:
            return [loaded[name] for name in loaded.files]
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
