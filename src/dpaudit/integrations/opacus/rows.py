"""The canaries' gradients as further rows of ``grad_sample``, clipped by the training itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dpaudit.integrations.opacus.layout import Entries, latest_rows

Mask = NDArray[np.bool_]


@final
class CanaryRows:
    """Rows of ``grad_sample`` for the canaries, tensor by tensor.

    Arguments:
        entries: The canaries' entries in every trained tensor.
        count: Number of rows, one for each inserted canary.
    """

    def __init__(self, entries: Sequence[Entries], count: int) -> None:
        self._entries, self._count = entries, count
        self._rows: dict[int, Tensor] = {}
        self._appended: dict[int, tuple[Tensor, int]] = {}

    def append(self, latest: Sequence[Tensor | None], mask: Mask | None) -> None:
        """Append the rows of the canaries in ``mask`` to the last batch of every tensor."""
        count = self._count if mask is None else int(mask.sum())
        for entries, rows in zip(self._entries, latest, strict=True):
            if rows is None:
                continue
            parameter: Any = entries.slot.parameter
            longer = torch.cat([rows, self._of(entries, rows, mask)])
            _replace_latest(parameter, longer)
            self._appended[id(parameter)] = (longer, count)

    def clip_apart(self, clip: Callable[[], Any], mask: Mask | None) -> None:
        """Call ``clip`` on the canaries alone, as a physical batch of their own."""
        if self._count == 0 or (mask is not None and not mask.any()):
            return
        genuine = []
        for entries in self._entries:
            parameter: Any = entries.slot.parameter
            genuine.append(parameter.grad_sample)
            like = latest_rows(parameter)
            if like is not None:
                # A copy: the optimizer may mark the rows as used, or write to them.
                parameter.grad_sample = self._of(entries, like, mask).clone()
        try:
            clip()
        finally:
            for entries, rows in zip(self._entries, genuine, strict=True):
                entries.slot.parameter.grad_sample = rows  # type: ignore[attr-defined]

    def remove(self) -> None:
        """Remove the appended rows where they are still the latest ones."""
        for entries in self._entries:
            parameter: Any = entries.slot.parameter
            longer, count = self._appended.get(id(parameter), (None, 0))
            if longer is None or latest_rows(parameter) is not longer:
                continue
            genuine: Any = longer[:-count]
            if hasattr(longer, "_processed"):
                genuine._processed = longer._processed
            _replace_latest(parameter, genuine)
        self._appended.clear()
        self._rows.clear()

    def _of(self, entries: Entries, like: Tensor, mask: Mask | None) -> Tensor:
        key = id(entries.slot.parameter)
        if key not in self._rows:
            crafted = like.new_zeros(self._count, entries.slot.parameter.numel())
            places = torch.as_tensor(entries.rows, device=like.device)
            crafted[places, entries.where.to(like.device)] = entries.values.to(like)
            self._rows[key] = crafted.view(self._count, *entries.slot.parameter.shape)
        rows = self._rows[key]
        return rows if mask is None else rows[torch.as_tensor(mask, device=rows.device)]


def _replace_latest(parameter: Any, rows: Tensor) -> None:
    if isinstance(parameter.grad_sample, list):
        parameter.grad_sample = [*parameter.grad_sample[:-1], rows]
    else:
        parameter.grad_sample = rows
