"""The one rule for every file that dpaudit writes for its user.

- A file appears whole or not at all: a draft in the same folder is renamed.
- An existing file is replaced only if dpaudit wrote it, which a marker inside shows, or if the user
  asks for it with ``--overwrite``. A file that is read, and a store, is never replaced.
- Everything that can be known before is checked before: the folder, the existing file, the space
  on the disk.

Drafts have names that nobody can predict, and are opened so that no link is followed: in a folder
that several users share, another user cannot make dpaudit write elsewhere.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from dpaudit import _validate
from dpaudit._validate import shown
from dpaudit.errors import InvalidInput

MARKER = "written by dpaudit, which may replace this file"
"""Stands near the start or the end of every file that dpaudit writes, but for CSV and receipts."""

_FORMAT = b'"format":"dpaudit-'
"""The marker of receipts and plans, whose text is fixed by their digest."""

CSV_HEADER = '"score",inserted,run,canary\n'
"""The marker of a CSV file is its first name in quotes: programs quote either all names or none."""

_MARKED_CSV = re.compile(rb'"[^",\n]+",[^"\n]+\n')

ROOM = 1_000_000
"""Bytes that must be free for an output, unless more are asked for."""

_OPENED = re.compile(r"/dev/(stdin|stdout|stderr|fd/\d+)|/proc/self/fd/\d+")
_STREAMS = {"stdin": 0, "stdout": 1, "stderr": 2}
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def check_outputs(
    outputs: Mapping[str, str | os.PathLike[str] | None],
    *,
    inputs: Mapping[str, str | os.PathLike[str] | None] | None = None,
    overwrite: bool = False,
    room: int = ROOM,
) -> None:
    """Raise `InvalidInput` for outputs that could not be written, or that would destroy a file."""
    taken: dict[str, Path] = {}
    for name, given in (inputs or {}).items():
        if given is not None and str(given) != ":memory:":
            taken[name] = Path(given)
            for ending in ("-journal", "-wal", "-shm"):  # files of SQLite beside a store
                taken[f"the {ending[1:]} file of {name}"] = Path(f"{given}{ending}")
    for name, given in outputs.items():
        if given is None:
            continue
        path = Path(given)
        check_output(name, path, overwrite=overwrite, room=room)
        for other, used in taken.items():
            if _same(path, used):
                raise InvalidInput(
                    f"{name} must be a file of its own, got {shown(str(path))}, which is also "
                    f"{other}; choose another file"
                )
        if _descriptor(path) is None and not _is_special(path):
            taken[name] = path


def check_output(name: str, path: Path, *, overwrite: bool = False, room: int = ROOM) -> None:
    """Raise `InvalidInput` if a file cannot be written, or if it would destroy another's file."""
    place = f"{name} must be a file that can be written, got {shown(str(path))}"
    try:
        opened = _descriptor(path)
        target = Path(os.path.realpath(path))
        if opened is not None:
            os.write(opened, b"")  # raises where it is closed, or open for reading only
        mode = target.stat().st_mode if opened is None and target.exists() else None
        loops = target.is_symlink()
    except (OSError, OverflowError, ValueError) as error:  # a name that is too long, a null byte
        raise InvalidInput(f"{place}: {error}") from None
    if opened is not None:
        if _is_database(target):
            raise InvalidInput(f"{place}, which is a store or another database")
        return
    if loops:
        raise InvalidInput(f"{place}: it is a link to itself")
    if not target.parent.is_dir():
        raise InvalidInput(
            f"{name} must be in a folder that is there, got {shown(str(path))}; make the folder "
            "first"
        )
    if mode is not None and not os.access(target, os.W_OK):
        raise InvalidInput(f"{place}; change its permissions, or choose another file")
    if mode is not None and not stat.S_ISREG(mode):
        if stat.S_ISDIR(mode) or stat.S_ISBLK(mode):
            raise InvalidInput(f"{place}, which is a folder or a disk; choose another file")
        return
    if mode is not None and _is_database(target):
        raise InvalidInput(f"{place}, which is a store or another database; choose another file")
    if mode is not None and not overwrite and not is_ours(target):
        raise InvalidInput(
            f"{name}: {shown(str(path))} exists and was not written by dpaudit; choose another "
            "file, or replace it with --overwrite (overwrite=True)"
        )
    try:
        with _draft(target) as (_, stream):
            _reserve(stream.fileno(), room)
    except OSError as error:
        problem = "is full" if error.errno in _FULL else f"refuses files ({error.strerror})"
        raise InvalidInput(f"{place}: its folder {problem}; choose another folder") from None


def _is_database(path: Path) -> bool:
    """Whether a file is of SQLite; scores that took days are in it, so it is never replaced."""
    try:
        with path.open("rb") as stream:
            return stream.read(16) == b"SQLite format 3\0"
    except OSError:
        return False


def _reserve(descriptor: int, size: int) -> None:
    """Raise `OSError` where so many bytes have no room; not every file system can tell."""
    if not hasattr(os, "posix_fallocate") or not size:
        return
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError as error:
        if error.errno in _FULL:
            raise


def is_ours(path: Path) -> bool:
    """Whether dpaudit wrote a file, or nobody has written anything to it yet."""
    try:
        with path.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            start = stream.read(262_144)
            stream.seek(max(0, size - 65_536))
            end = stream.read(65_536)
    except OSError:  # it cannot be read
        return False
    marks = (MARKER.encode(), _FORMAT)
    return (
        not size
        or _MARKED_CSV.match(start) is not None
        or any(mark in start or mark in end for mark in marks)
    )


def write_whole(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a draft in the same folder, and rename it: a kill never leaves half a file.

    A pipe or a device, such as ``/dev/stdout``, is written directly.
    """
    opened = _descriptor(path)
    if opened is not None or _is_special(path):
        with os.fdopen(_of_device(path) if opened is None else os.dup(opened), "wb") as stream:
            write(stream)
        return
    target = Path(os.path.realpath(path))  # a link stays a link
    with _draft(target) as (draft, stream):
        write(stream)
        stream.flush()
        os.fsync(stream.fileno())
        with contextlib.suppress(OSError):
            draft.chmod(stat.S_IMODE(target.stat().st_mode))
        draft.replace(target)


def write_text(path: Path, text: str) -> None:
    """Write text as UTF-8, whole or not at all."""
    content = text.encode("utf-8", "backslashreplace")
    write_whole(path, lambda stream: stream.write(content))


def write_output(
    path: str | os.PathLike[str], content: str | bytes, *, name: str = "path", overwrite: bool
) -> Path:
    """Write an output of the user's by the rule above; give its path."""
    target = Path(_validate.path(name, path))
    data = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
    check_output(name, target, overwrite=overwrite, room=len(data))
    write_whole(target, lambda stream: stream.write(data))
    return target


@contextlib.contextmanager
def _draft(target: Path) -> Iterator[tuple[Path, BinaryIO]]:
    """A new file beside the target, open for writing; it is removed if it is not renamed."""
    draft = target.with_name(f".dpaudit-{secrets.token_hex(8)}.part")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    stream = os.fdopen(os.open(draft, flags, 0o666), "wb")
    try:
        with stream:
            yield draft, stream
    finally:
        draft.unlink(missing_ok=True)


def _descriptor(path: Path) -> int | None:
    """The number of an open stream that a path such as ``/dev/stdout`` names."""
    match = _OPENED.fullmatch(str(path))
    if match is None:
        return None
    last = path.name
    return _STREAMS[last] if last in _STREAMS else int(last)


def _is_special(path: Path) -> bool:
    """Whether this is a pipe or a device."""
    return os.path.exists(path) and not path.is_file()  # noqa: PTH110 - of a forbidden folder, too


def _of_device(path: Path) -> int:
    """Open a pipe or a device; a pipe that nobody reads would otherwise block for ever."""
    descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    os.set_blocking(descriptor, True)
    return descriptor


def _same(one: Path, other: Path) -> bool:
    """Whether two paths name one file, which may not exist yet."""
    if os.path.realpath(one) == os.path.realpath(other):
        return True
    try:
        return one.samefile(other)
    except (OSError, ValueError):
        return False
