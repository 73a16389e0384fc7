"""The contract of layer rules."""

from __future__ import annotations

import copy

import torch
from torch import Tensor

from dpaudit.engine.clipping import ClippedSums
from dpaudit.engine.reference import clipped_sum
from dpaudit.engine.rules.base import LayerRule
from dpaudit.engine.starting_points import flat_parameters, trainable
from dpaudit.engine.tapping import TappedModel

_CLOSE = 1e-8


def check_layer_rule(rule: LayerRule, layer: torch.nn.Module, inputs: Tensor) -> None:
    """Raise `AssertionError` if ``rule`` breaks the contract on ``layer``.

    The rule must handle the layer, compute its output, and give the clipped sums of per-example
    gradients, for one model and for several models with different parameters at once. It must not
    change the layer. Everything is computed in float64 and compared with one backward pass per
    example.

    Arguments:
        rule: The layer rule.
        layer: A layer that the rule should handle.
        inputs: A batch of inputs, shape (examples, …), with at least two examples.

    Example:
        >>> from dpaudit.engine.rules.linear import LinearRule
        >>> check_layer_rule(LinearRule(), torch.nn.Linear(3, 2), torch.randn(4, 5, 3))
    """
    _require(rule.handles(layer), f"does not handle {layer}")
    layer = copy.deepcopy(layer).double()
    inputs = inputs.double() if inputs.is_floating_point() else inputs
    before = copy.deepcopy(layer.state_dict())
    with torch.no_grad():
        outputs, _ = rule.forward(layer, inputs)
        _require(_close(outputs, layer(inputs)), "forward differs from the layer's own output")
    models = [layer, _moved(layer)]
    targets = torch.zeros(len(inputs), dtype=torch.int64)
    tapped = TappedModel(layer, [rule])
    calls = tapped.measure([p.detach() for p in trainable(layer)], inputs)
    sums = ClippedSums(tapped, _loss, calls)
    parameters = torch.stack([flat_parameters(model, torch.float64) for model in models])
    norms = sums.norms(parameters, inputs, targets)
    for clip_norm in (float(norms.median()), float("inf")):
        found = sums(
            parameters,
            inputs,
            targets,
            torch.ones_like(norms),
            torch.tensor(clip_norm, dtype=torch.float64),
        )
        for model, own in zip(models, found, strict=True):
            expected = clipped_sum(model, _loss, inputs, targets, clip_norm=clip_norm)
            _require(_close(own, expected), f"clipped sums are wrong at clip norm {clip_norm:g}")
    unchanged = all(torch.equal(before[name], now) for name, now in layer.state_dict().items())
    _require(unchanged, "changes the layer")


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


def _close(found: Tensor, expected: Tensor) -> bool:
    return bool((found - expected).norm() <= _CLOSE * expected.norm().clamp(min=1e-12))


def _require(kept: object, problem: str) -> None:
    if not kept:
        raise AssertionError(f"layer rule breaks the contract: {problem}")
