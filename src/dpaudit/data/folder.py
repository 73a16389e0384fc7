"""The folder with data sets that do not ship with dpaudit."""

from __future__ import annotations

import os
from pathlib import Path

DataDir = str | os.PathLike[str] | None
"""A folder with data; `None` for the one that the environment variable ``DPAUDIT_DATA`` names."""


def data_folder(given: DataDir) -> Path | None:
    """The folder given, or that of the environment; `None` if there is neither."""
    chosen = os.environ.get("DPAUDIT_DATA") if given is None else given
    return Path(chosen).expanduser() if chosen else None
