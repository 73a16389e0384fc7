"""Files that are written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Write a draft in the same folder, and rename it: a kill never leaves half a file.

    A pipe or a device, such as ``/dev/stdout``, is written directly.

    Arguments:
        path: The file.
        write: Writes the content to the path that it is given.
    """
    if path.exists() and not path.is_file():
        write(path)
        return
    target = path.resolve()  # a link stays a link
    draft = target.with_name(f".{target.stem}.{os.getpid()}.part{target.suffix}")
    try:
        write(draft)
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write text as UTF-8, whole or not at all."""
    write_whole(path, lambda draft: draft.write_text(text, encoding="utf-8"))
