"""A run that gave no score, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final


@final
@dataclass(frozen=True, kw_only=True)
class Failure:
    """One training that failed: it raised, or its score was not a finite number.

    Arguments:
        run: The run, numbered over the whole audit.
        inserted: How many of its canaries were inserted.
        canaries: How many canaries it had a coin for.
        error: The exception, in one line.
        traceback: Where it was raised.
    """

    run: int
    inserted: int
    canaries: int
    error: str
    traceback: str

    def to_dict(self) -> dict[str, Any]:
        """The failure as plain data."""
        return {
            "run": self.run,
            "inserted": self.inserted,
            "canaries": self.canaries,
            "error": self.error,
            "traceback": self.traceback,
        }
