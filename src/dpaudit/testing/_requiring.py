"""How a contract test reports the rule that a plug-in breaks."""

from __future__ import annotations

from collections.abc import Callable


def requiring(kind: str) -> Callable[..., None]:
    """A function of a condition and its evidence that raises `AssertionError` unless it holds.

    Arguments:
        kind: Kind of plug-in, for the message.
    """

    def require(holds: object, *evidence: object) -> None:
        if not holds:
            said = " ".join(one if isinstance(one, str) else repr(one) for one in evidence)
            raise AssertionError(f"{kind} breaks the contract: {said}")

    return require
