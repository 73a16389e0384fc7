"""A run that gave no score, and the reason."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, final

_LONGEST_ERROR, _LONGEST_TRACEBACK = 1_000, 20_000


@final
@dataclass(frozen=True, kw_only=True)
class Failure:
    """One training that failed: it raised, ended its process, or its score was not finite.

    Arguments:
        run: Number of the run in the audit.
        inserted: Number of its canaries that were inserted.
        canaries: Number of canaries of the run.
        error: The exception; long ones are cut in the middle.
        traceback: Where it was raised; long ones are cut in the middle.
    """

    run: int
    inserted: int
    canaries: int
    error: str
    traceback: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "error", _cut(self.error, _LONGEST_ERROR))
        object.__setattr__(self, "traceback", _cut(self.traceback, _LONGEST_TRACEBACK))

    def to_dict(self) -> dict[str, Any]:
        """The failure as plain data."""
        return asdict(self)


def _cut(text: str, longest: int) -> str:
    """The text as it can be stored: at most ``longest`` characters, and valid Unicode."""
    text = text.encode("utf8", "backslashreplace").decode("utf8")
    if len(text) <= longest:
        return text
    half = longest // 2 - 20
    return f"{text[:half]} … {len(text) - 2 * half} characters … {text[-half:]}"
