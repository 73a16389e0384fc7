"""GroupNorm, LayerNorm and RMSNorm: a scale and a shift of the normalised input."""

from __future__ import annotations

from typing import cast, final

import torch
from torch import Tensor
from torch.nn import functional

from dpaudit.engine.gradients import Explicit, ParameterGradients
from dpaudit.engine.rules.base import LayerRule, Notes, Tap, is_plain


@final
class GroupNormRule(LayerRule):
    """`torch.nn.GroupNorm` on inputs (examples, channels, …)."""

    def handles(self, layer: torch.nn.Module) -> bool:
        return is_plain(layer, torch.nn.GroupNorm)

    def forward(self, layer: torch.nn.Module, tap: Tap, inputs: Tensor) -> Tensor:
        layer = cast(torch.nn.GroupNorm, layer)
        normalised = functional.group_norm(inputs, layer.num_groups, eps=layer.eps)
        ones = (1,) * (inputs.ndim - 2)
        outputs = normalised * layer.weight.view(-1, *ones) + layer.bias.view(-1, *ones)
        return tap(outputs, (normalised,))

    def gradients(
        self, layer: torch.nn.Module, part: str, notes: Notes, outputs: Tensor
    ) -> dict[str, ParameterGradients]:
        (normalised,) = notes
        shift, scale = outputs.flatten(2), (outputs * normalised).flatten(2)
        return {"weight": Explicit(scale.sum(2)), "bias": Explicit(shift.sum(2))}


@final
class LayerNormRule(LayerRule):
    """`torch.nn.LayerNorm` on inputs (examples, …, normalised shape)."""

    def handles(self, layer: torch.nn.Module) -> bool:
        return is_plain(layer, torch.nn.LayerNorm)

    def forward(self, layer: torch.nn.Module, tap: Tap, inputs: Tensor) -> Tensor:
        layer = cast(torch.nn.LayerNorm, layer)
        normalised = functional.layer_norm(inputs, layer.normalized_shape, eps=layer.eps)
        outputs = normalised * layer.weight
        return tap(outputs if layer.bias is None else outputs + layer.bias, (normalised,))

    def gradients(
        self, layer: torch.nn.Module, part: str, notes: Notes, outputs: Tensor
    ) -> dict[str, ParameterGradients]:
        layer = cast(torch.nn.LayerNorm, layer)
        return _scale_and_shift(notes[0], outputs, len(layer.normalized_shape))


@final
class RMSNormRule(LayerRule):
    """`torch.nn.RMSNorm` on inputs (examples, …, normalised shape)."""

    def handles(self, layer: torch.nn.Module) -> bool:
        return is_plain(layer, torch.nn.RMSNorm)

    def forward(self, layer: torch.nn.Module, tap: Tap, inputs: Tensor) -> Tensor:
        layer = cast(torch.nn.RMSNorm, layer)
        normalised = functional.rms_norm(inputs, layer.normalized_shape, eps=layer.eps)
        return tap(normalised * layer.weight, (normalised,))

    def gradients(
        self, layer: torch.nn.Module, part: str, notes: Notes, outputs: Tensor
    ) -> dict[str, ParameterGradients]:
        layer = cast(torch.nn.RMSNorm, layer)
        return _scale_and_shift(notes[0], outputs, len(layer.normalized_shape))


def _scale_and_shift(
    normalised: Tensor, outputs: Tensor, dimensions: int
) -> dict[str, ParameterGradients]:
    places = tuple(range(1, outputs.ndim - dimensions))
    scale, shift = outputs * normalised, outputs
    if places:
        scale, shift = scale.sum(places), shift.sum(places)
    return {"weight": Explicit(scale), "bias": Explicit(shift)}
