"""Layer rules: cheap per-example gradients, by a table from kinds of layers to two functions.

``forward`` computes the layer's output and *taps* a value: it adds a zero whose derivative is the
value's gradient for each example, and keeps *notes*. ``gradients`` computes the gradients of the
layer's parameters from notes and derivative. Both are written for one run and called inside
`torch.func.vmap`: the first axis of their tensors is the example.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

from torch import Tensor, nn
from torch.nn import functional

from dpaudit._registry import Registry
from dpaudit.engine.gradients import Explicit, OuterProducts, ParameterGradients
from dpaudit.engine.products import linear

Notes = tuple[Tensor, ...]
Gradients = dict[str, ParameterGradients]

Tap = Callable[..., Tensor]
"""``tap(values, notes, part="")`` returns the values, whose gradient the rule gets later, and keeps
the notes. The first axis of all is the example; ``part`` distinguishes several taps of a rule."""


@final
@dataclass(frozen=True, kw_only=True)
class LayerRule:
    """Norms and sums of one kind of layer's per-example gradients, without storing each gradient.

    A rule never changes the layer. Check yours with `dpaudit.testing.check_layer_rule`.

    Arguments:
        handles: Whether the rule is correct for a layer with its options and its exact class.
        forward: ``forward(layer, tap, *inputs)`` is the layer's output, computed with taps.
        gradients: ``gradients(layer, part, notes, outputs)`` are the gradients by parameter name,
            from the notes and the gradient of a tapped value.
    """

    handles: Callable[[nn.Module], bool]
    forward: Callable[..., Any]
    gradients: Callable[[Any, str, Notes, Tensor], Gradients]


def is_plain(layer: nn.Module, *kinds: type[nn.Module]) -> bool:
    """Whether ``layer`` computes exactly what one of ``kinds`` does, with its own parameters.

    False for a subclass with another ``forward``, and for a layer whose weight is computed from
    other parameters (`torch.nn.utils.parametrize`).
    """
    return (
        any(isinstance(layer, kind) and type(layer).forward is kind.forward for kind in kinds)
        and not any(layer.children())
        and (getattr(layer, "weight", None) is None or "weight" in layer._parameters)
    )


def _places(values: Tensor) -> Tensor:
    """(examples, …, features) as (examples, places, features)."""
    return values.unsqueeze(1) if values.ndim == 2 else values.flatten(1, -2)


# Linear layers: the gradient of the weight is a sum of outer products.


def _linear_forward(layer: nn.Linear, tap: Tap, inputs: Tensor) -> Tensor:
    return tap(linear(inputs, layer.weight, layer.bias), (inputs,))


def _linear_gradients(layer: nn.Linear, part: str, notes: Notes, outputs: Tensor) -> Gradients:
    outputs, inputs = _places(outputs), _places(notes[0])
    weight = OuterProducts(outputs, inputs, layer.weight.shape)
    return {"weight": weight, "bias": Explicit(outputs.sum(1))}


LINEAR = LayerRule(
    handles=lambda layer: is_plain(layer, nn.Linear),
    forward=_linear_forward,
    gradients=_linear_gradients,
)


# `Conv1D` of transformers, as in GPT-2: a linear layer with a weight of shape (inputs, outputs).


def _transposed_forward(layer: Any, tap: Tap, inputs: Tensor) -> Tensor:
    return tap(linear(inputs, layer.weight.transpose(0, 1), layer.bias), (inputs,))


def _transposed_gradients(layer: Any, part: str, notes: Notes, outputs: Tensor) -> Gradients:
    outputs, inputs = _places(outputs), _places(notes[0])
    weight = OuterProducts(inputs, outputs, layer.weight.shape)
    return {"weight": weight, "bias": Explicit(outputs.sum(1))}


TRANSPOSED_LINEAR = LayerRule(
    handles=lambda layer: type(layer).__name__ == "Conv1D" and is_plain(layer, type(layer)),
    forward=_transposed_forward,
    gradients=_transposed_gradients,
)


# Normalisations: a scale and a shift of the normalised input.


def _group_norm_forward(layer: nn.GroupNorm, tap: Tap, inputs: Tensor) -> Tensor:
    normalised = functional.group_norm(inputs, layer.num_groups, eps=layer.eps)
    ones = (1,) * (inputs.ndim - 2)
    outputs = normalised * layer.weight.view(-1, *ones) + layer.bias.view(-1, *ones)
    return tap(outputs, (normalised,))


def _group_norm_gradients(
    layer: nn.GroupNorm, part: str, notes: Notes, outputs: Tensor
) -> Gradients:
    shift, scale = outputs.flatten(2), (outputs * notes[0]).flatten(2)
    return {"weight": Explicit(scale.sum(2)), "bias": Explicit(shift.sum(2))}


def _layer_norm_forward(layer: nn.LayerNorm, tap: Tap, inputs: Tensor) -> Tensor:
    normalised = functional.layer_norm(inputs, layer.normalized_shape, eps=layer.eps)
    outputs = normalised * layer.weight
    return tap(outputs if layer.bias is None else outputs + layer.bias, (normalised,))


def _rms_norm_forward(layer: nn.RMSNorm, tap: Tap, inputs: Tensor) -> Tensor:
    normalised = functional.rms_norm(inputs, layer.normalized_shape, eps=layer.eps)
    return tap(normalised * layer.weight, (normalised,))


def _layer_norm_gradients(
    layer: nn.LayerNorm | nn.RMSNorm, part: str, notes: Notes, outputs: Tensor
) -> Gradients:
    places = tuple(range(1, outputs.ndim - len(layer.normalized_shape)))
    scale, shift = outputs * notes[0], outputs
    if places:
        scale, shift = scale.sum(places), shift.sum(places)
    return {"weight": Explicit(scale), "bias": Explicit(shift)}


GROUP_NORM = LayerRule(
    handles=lambda layer: is_plain(layer, nn.GroupNorm),
    forward=_group_norm_forward,
    gradients=_group_norm_gradients,
)
LAYER_NORM = LayerRule(
    handles=lambda layer: is_plain(layer, nn.LayerNorm),
    forward=_layer_norm_forward,
    gradients=_layer_norm_gradients,
)
RMS_NORM = LayerRule(
    handles=lambda layer: is_plain(layer, nn.RMSNorm),
    forward=_rms_norm_forward,
    gradients=_layer_norm_gradients,
)


_HERE = "dpaudit.engine"
LAYER_RULES: Registry[LayerRule] = Registry(
    "layer rule",
    "dpaudit.layer_rules",
    {
        "torch.Linear": f"{_HERE}.layer_rules:LINEAR",
        "transformers.Conv1D": f"{_HERE}.layer_rules:TRANSPOSED_LINEAR",
        "torch.Conv1d": f"{_HERE}.convolutions:CONVOLUTION",
        "torch.Conv2d": f"{_HERE}.convolutions:CONVOLUTION",
        "torch.Conv3d": f"{_HERE}.convolutions:CONVOLUTION",
        "torch.Conv1d as product": f"{_HERE}.convolutions:PRODUCT",
        "torch.Conv2d as product": f"{_HERE}.convolutions:PRODUCT",
        "torch.Conv3d as product": f"{_HERE}.convolutions:PRODUCT",
        "dpaudit.ConvolutionBlock": f"{_HERE}.kernels.rule:BLOCK",
        "torch.GroupNorm": f"{_HERE}.layer_rules:GROUP_NORM",
        "torch.LayerNorm": f"{_HERE}.layer_rules:LAYER_NORM",
        "torch.RMSNorm": f"{_HERE}.layer_rules:RMS_NORM",
        "torch.Embedding": f"{_HERE}.embeddings:EMBEDDING",
        "torch.MultiheadAttention": f"{_HERE}.sequences:ATTENTION",
        "torch.RNN": f"{_HERE}.sequences:RECURRENT",
        "torch.LSTM": f"{_HERE}.sequences:RECURRENT",
        "torch.GRU": f"{_HERE}.sequences:RECURRENT",
    },
)
"""The rule for each type of layer, by the package and the name of its class; a rule also serves
subclasses that it ``handles``. An entry point of that name adds a `LayerRule`."""


def rule_for(layer: nn.Module, *, products: bool = False) -> LayerRule | None:
    """The rule of ``layer``, if there is one; ``products`` prefers convolutions as products."""
    for kind in type(layer).__mro__:
        name = f"{kind.__module__.partition('.')[0]}.{kind.__name__}"
        for entry in (f"{name} as product", name) if products else (name,):
            if entry in LAYER_RULES and LAYER_RULES[entry].handles(layer):
                return LAYER_RULES[entry]
    return None
