"""Embedding tables: the gradient is zero except in the rows that an example looked up."""

from __future__ import annotations

from typing import cast, final

import torch
from torch import Tensor

from dpaudit.engine.gradients import EmbeddedRows, ParameterGradients
from dpaudit.engine.rules.base import LayerRule, Notes, Tap, is_plain


@final
class EmbeddingRule(LayerRule):
    """`torch.nn.Embedding` on indices (examples, …).

    Not with ``max_norm``, which changes the table during the forward pass, and not with
    ``scale_grad_by_freq``, which counts across examples; `check_mechanism` refuses both.
    """

    def handles(self, layer: torch.nn.Module) -> bool:
        return (
            is_plain(layer, torch.nn.Embedding)
            and getattr(layer, "max_norm", None) is None
            and not getattr(layer, "scale_grad_by_freq", False)
        )

    def forward(self, layer: torch.nn.Module, tap: Tap, inputs: Tensor) -> Tensor:
        layer = cast(torch.nn.Embedding, layer)
        return tap(torch.nn.functional.embedding(inputs, layer.weight), (inputs,))

    def gradients(
        self, layer: torch.nn.Module, part: str, notes: Notes, outputs: Tensor
    ) -> dict[str, ParameterGradients]:
        layer = cast(torch.nn.Embedding, layer)
        (indices,) = notes
        outputs = outputs.flatten(1, -2) if outputs.ndim > 2 else outputs.unsqueeze(1)
        rows = indices.reshape(len(indices), -1)
        if layer.padding_idx is not None:
            outputs = outputs * (rows != layer.padding_idx).unsqueeze(-1)
        return {"weight": EmbeddedRows(outputs, rows, layer.weight.shape)}
