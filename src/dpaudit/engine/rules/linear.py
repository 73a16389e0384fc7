"""Linear layers: the gradient of the weight is a sum of outer products."""

from __future__ import annotations

from typing import cast, final

import torch
from torch import Tensor

from dpaudit.engine.gradients import Explicit, OuterProducts, ParameterGradients
from dpaudit.engine.products import linear
from dpaudit.engine.rules.base import LayerRule, Notes, Tap, is_plain


@final
class LinearRule(LayerRule):
    """`torch.nn.Linear` on inputs of any shape (examples, …, features)."""

    def handles(self, layer: torch.nn.Module) -> bool:
        return is_plain(layer, torch.nn.Linear)

    def forward(self, layer: torch.nn.Module, tap: Tap, inputs: Tensor) -> Tensor:
        layer = cast(torch.nn.Linear, layer)
        return tap(linear(inputs, layer.weight, layer.bias), (inputs,))

    def gradients(
        self, layer: torch.nn.Module, part: str, notes: Notes, outputs: Tensor
    ) -> dict[str, ParameterGradients]:
        layer = cast(torch.nn.Linear, layer)
        (inputs,) = notes
        if outputs.ndim == 2:
            outputs, inputs = outputs.unsqueeze(1), inputs.unsqueeze(1)
        outputs, inputs = outputs.flatten(1, -2), inputs.flatten(1, -2)
        return {
            "weight": OuterProducts(outputs, inputs, layer.weight.shape),
            "bias": Explicit(outputs.sum(1)),
        }
