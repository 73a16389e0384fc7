"""torch, imported when it is first used.

It takes seconds to import and is an optional dependency, while commands list and check adversaries
without training anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpaudit.errors import MissingExtra


def require_torch() -> None:
    """Raise `MissingExtra` if torch is not installed."""
    try:
        import torch  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingExtra("training models", "train") from None


if TYPE_CHECKING:
    import torch as torch
else:

    class _Torch:
        def __getattr__(self, name: str) -> Any:
            require_torch()
            import torch

            return getattr(torch, name)

    torch = _Torch()
