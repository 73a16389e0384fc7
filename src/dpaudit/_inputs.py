"""Opening files that a user names: what would never end, or fill the memory, is refused."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO, BinaryIO

from dpaudit.errors import InvalidInput

LONGEST_LINE = 1_000_000
"""Characters of a line of text; a longer one is no line of a table or a file of settings."""

MOST_TEXT = 16_000_000
"""Bytes of a file that is read as a whole."""


def open_input(path: Path, *, pipes: bool = False) -> BinaryIO:
    """Open a file for reading; `InvalidInput` where it is a device or a pipe with a name.

    Arguments:
        path: The file.
        pipes: Whether a pipe that is open already is read, such as ``/dev/stdin`` or ``<(...)``.
    """
    # Opening a pipe without a writer would block for ever, and reading /dev/zero never ends.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        mode = os.fstat(descriptor).st_mode
        pipe = os.path.realpath(path).partition("/fd/")[2].startswith(("pipe:", "socket:"))
        open_already = pipes and (pipe or os.isatty(descriptor))
        if stat.S_ISDIR(mode):
            raise InvalidInput(f"{path} must be a file, got a folder")
        if not (stat.S_ISREG(mode) or open_already or _is_null(descriptor)):
            raise InvalidInput(
                f"{path} must be a file, got a device or a named pipe; write its content to a "
                "file, and give that"
            )
        os.set_blocking(descriptor, True)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_text(path: Path) -> str:
    """The text of a small file in UTF-8."""
    with open_input(path) as stream:
        content = stream.read(MOST_TEXT + 1)
    if len(content) > MOST_TEXT:
        raise InvalidInput(f"{path} must have at most {MOST_TEXT:,} bytes, got more")
    return content.decode("utf-8")


def lines_of(stream: IO[str], name: str) -> Iterator[str]:
    """The lines of a text; `InvalidInput` where one is too long to be a line."""
    while line := stream.readline(LONGEST_LINE):
        if len(line) == LONGEST_LINE and not line.endswith("\n"):
            raise InvalidInput(
                f"{name} has a line of more than {LONGEST_LINE:,} characters; is it the right file?"
            )
        yield line


def _is_null(descriptor: int) -> bool:
    return os.fstat(descriptor).st_rdev == Path(os.devnull).stat().st_rdev
