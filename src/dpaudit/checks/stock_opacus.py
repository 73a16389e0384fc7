"""Opacus as it is published: its own clipping, and what that does with infinite gradients."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, final


@final
class _StockOpacus:
    infinite_gradients = (
        "Stock Opacus turns parameters into NaN if an example has an infinite or NaN gradient, "
        "which reveals that example. This is no bug of the training. Keep the loss finite, or call "
        "torch.nan_to_num(p.grad_sample, 0.0, 0.0, 0.0) for every parameter before the step."
    )

    @contextmanager
    def watching(self) -> Iterator[list[str]]:
        """Collect calls of the summation of Opacus' own optimizers."""
        from opacus import optimizers

        calls: list[str] = []
        replaced: list[tuple[Any, Any]] = []
        for kind in {value for value in vars(optimizers).values() if isinstance(value, type)}:
            own = vars(kind).get("clip_and_accumulate")
            if own is None:
                continue

            def counted(self: Any, *arguments: Any, _own: Any = own, **named: Any) -> Any:
                calls.append(type(self).__name__)
                return _own(self, *arguments, **named)

            replaced.append((kind, own))
            kind.clip_and_accumulate = counted  # type: ignore[attr-defined]
        try:
            yield calls
        finally:
            for kind, own in replaced:
                kind.clip_and_accumulate = own


STOCK = _StockOpacus()
