"""The contract of layer rules."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from dpaudit.engine.clipped_sums import ClippedSums, Taps
from dpaudit.engine.layer_rules import LayerRule, Notes
from dpaudit.engine.reference import clipped_sum, example_gradients
from dpaudit.engine.starting_points import flat_parameters, trainable
from dpaudit.testing._requiring import requiring

_CLOSE = 1e-8

_require = requiring("layer rule")


def check_layer_rule(rule: LayerRule, layer: torch.nn.Module, *inputs: Tensor) -> None:
    """Raise `AssertionError` if ``rule`` breaks the contract on ``layer``.

    The rule must handle the layer, compute its output, and give the clipped sums of per-example
    gradients, for one model and for several models with different parameters at once. It must not
    change the layer. Everything is computed in float64 and compared with one backward pass per
    example.

    Arguments:
        rule: The layer rule.
        layer: A layer that the rule should handle.
        inputs: The layer's arguments for a batch, each of shape (examples, …), with at least two
            examples.

    Example:
        >>> from dpaudit.engine.layer_rules import LINEAR
        >>> check_layer_rule(LINEAR, torch.nn.Linear(3, 2), torch.randn(4, 5, 3))
    """
    _require(rule.handles(layer), f"does not handle {layer}")
    layer = copy.deepcopy(layer).double()
    inputs = tuple(given.double() if given.is_floating_point() else given for given in inputs)
    before = copy.deepcopy(layer.state_dict())
    with torch.no_grad():
        outputs = _first(rule.forward(layer, _no_tap, *inputs))
        own = _first(layer(*inputs))
        _require(_close(outputs, own), "forward differs from the layer's own output")
    models = [_Packed(layer, inputs), _Packed(_moved(layer), inputs)]
    packed = torch.cat([given.flatten(1).double() for given in inputs], dim=1)
    targets = torch.zeros(len(packed), dtype=torch.int64)
    parameters = torch.stack([flat_parameters(model, torch.float64) for model in models])

    def rule_of(other: torch.nn.Module) -> LayerRule | None:
        return rule if rule.handles(other) else None

    for taps in (Taps(), Taps(per_example=True)):
        sums = ClippedSums(models[0], _loss, packed, taps, rule_for=rule_of)
        gradients = [
            g for model in models for g in example_gradients(model, _loss, packed, targets)
        ]
        for clip_norm in (float(torch.stack(gradients).norm(dim=1).median()), float("inf")):
            norm = torch.tensor(clip_norm, dtype=torch.float64)
            computed = sums(parameters, packed, targets, parameters.new_ones(2, len(packed)), norm)
            for model, total in zip(models, computed, strict=True):
                expected = clipped_sum(model, _loss, packed, targets, clip_norm=clip_norm)
                problem = f"clipped sums are wrong at clip norm {clip_norm:g} with {taps}"
                _require(_close(total, expected), problem)
    unchanged = all(torch.equal(before[name], now) for name, now in layer.state_dict().items())
    _require(unchanged, "changes the layer")


class _Packed(torch.nn.Module):
    """A layer that takes all its arguments in one tensor, as a model does."""

    def __init__(self, layer: torch.nn.Module, inputs: Sequence[Tensor]) -> None:
        super().__init__()
        self.layer = layer
        self._shapes = [given.shape[1:] for given in inputs]
        self._types = [given.dtype for given in inputs]

    def forward(self, packed: Tensor) -> Tensor:
        pieces = torch.split(packed, [shape.numel() for shape in self._shapes], dim=1)
        return _first(
            self.layer(
                *(
                    piece.reshape(len(packed), *shape).to(kind)
                    for piece, shape, kind in zip(pieces, self._shapes, self._types, strict=True)
                )
            )
        )


def _first(outputs: Any) -> Tensor:
    """The first tensor of a layer's outputs."""
    while not isinstance(outputs, Tensor):
        outputs = outputs[0]
    return outputs


def _no_tap(values: Tensor, notes: Notes, part: str = "") -> Tensor:
    return values


def _moved(layer: torch.nn.Module) -> torch.nn.Module:
    other = copy.deepcopy(layer)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in trainable(other):
            noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            parameter.add_(0.1 * noise)
    return other


def _loss(outputs: Tensor, targets: Tensor) -> Tensor:
    flat = outputs.flatten(1)
    weights = torch.linspace(0.5, 1.5, flat.shape[1], dtype=flat.dtype, device=flat.device)
    return (weights * torch.tanh(flat)).sum(1)


def _close(computed: Tensor, expected: Tensor) -> bool:
    return bool((computed - expected).norm() <= _CLOSE * expected.norm().clamp(min=1e-12))
