"""Linear layers: the gradient of the weight is a sum of outer products."""

from __future__ import annotations

import sys
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
        outputs, inputs = _places(outputs), _places(notes[0])
        return {
            "weight": OuterProducts(outputs, inputs, layer.weight.shape),
            "bias": Explicit(outputs.sum(1)),
        }


@final
class TransposedLinearRule(LayerRule):
    """`Conv1D` of transformers, as in GPT-2: a weight of shape (inputs, outputs)."""

    def handles(self, layer: torch.nn.Module) -> bool:
        library = sys.modules.get("transformers.pytorch_utils")  # imported if there is such a layer
        return library is not None and is_plain(layer, library.Conv1D)

    def forward(self, layer: torch.nn.Module, tap: Tap, inputs: Tensor) -> Tensor:
        weight, bias = cast(Tensor, layer.weight), cast(Tensor, layer.bias)
        return tap(linear(inputs, weight.transpose(0, 1), bias), (inputs,))

    def gradients(
        self, layer: torch.nn.Module, part: str, notes: Notes, outputs: Tensor
    ) -> dict[str, ParameterGradients]:
        outputs, inputs = _places(outputs), _places(notes[0])
        return {
            "weight": OuterProducts(inputs, outputs, cast(Tensor, layer.weight).shape),
            "bias": Explicit(outputs.sum(1)),
        }


def _places(values: Tensor) -> Tensor:
    """(examples, …, features) as (examples, places, features)."""
    return values.unsqueeze(1) if values.ndim == 2 else values.flatten(1, -2)
