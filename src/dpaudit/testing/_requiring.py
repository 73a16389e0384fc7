"""How a contract test reports the rule that a plug-in breaks."""

from __future__ import annotations

from collections.abc import Callable


def requiring(kind: str) -> Callable[..., None]:
    """A function of a condition and its evidence that raises `AssertionError` unless it holds."""

    def require(holds: object, *evidence: object) -> None:
        if not holds:
            text = " ".join(part if isinstance(part, str) else repr(part) for part in evidence)
            raise AssertionError(f"{kind} breaks the contract: {text}")

    return require
