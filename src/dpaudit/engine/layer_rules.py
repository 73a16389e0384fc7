"""Layer rules: cheap per-example gradients, by a table from kinds of layers to two functions.

``forward`` computes the layer's output and *taps* a value: it adds a zero whose derivative is the
value's gradient for each example, and keeps *notes*. ``gradients`` computes the gradients of the
layer's parameters from notes and derivative. Both are written for one run and called inside
`torch.func.vmap`: the first axis of their tensors is the example.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol, cast, final

import torch
from torch import Tensor, nn
from torch.nn import functional

from dpaudit._registry import Registry
from dpaudit.engine.gradients import EmbeddedRows, Explicit, OuterProducts, ParameterGradients
from dpaudit.engine.products import (
    Window,
    aligned,
    linear,
    patches,
    per_example_product,
    weight_product,
)

Notes = tuple[Tensor, ...]
Gradients = dict[str, ParameterGradients]
Convolution = nn.Conv1d | nn.Conv2d | nn.Conv3d


class Tap(Protocol):
    """Adds a zero to a value and keeps notes; the rule later gets the value's gradient."""

    def __call__(self, values: Tensor, notes: Notes, part: str = "") -> Tensor:
        """The values, unchanged.

        Arguments:
            values: The value to differentiate; its first axis is the example.
            notes: Tensors that ``gradients`` needs; their first axis is the example.
            part: Distinguishes the taps of a rule that has several.
        """


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


def _is_transposed_linear(layer: nn.Module) -> bool:
    library = sys.modules.get("transformers.pytorch_utils")  # imported if there is such a layer
    return library is not None and is_plain(layer, library.Conv1D)


def _transposed_forward(layer: Any, tap: Tap, inputs: Tensor) -> Tensor:
    return tap(linear(inputs, layer.weight.transpose(0, 1), layer.bias), (inputs,))


def _transposed_gradients(layer: Any, part: str, notes: Notes, outputs: Tensor) -> Gradients:
    outputs, inputs = _places(outputs), _places(notes[0])
    weight = OuterProducts(inputs, outputs, layer.weight.shape)
    return {"weight": weight, "bias": Explicit(outputs.sum(1))}


TRANSPOSED_LINEAR = LayerRule(
    handles=_is_transposed_linear, forward=_transposed_forward, gradients=_transposed_gradients
)


# Convolutions: a matrix product with patches of the input. For many small convolutions, computing
# the forward pass as a product too is faster, because those of all runs become one batched
# product. Large convolutions are faster in the vendor's library.


def _is_convolution(layer: nn.Module) -> bool:
    return is_plain(layer, nn.Conv1d, nn.Conv2d, nn.Conv3d)


def _convolution_forward(layer: Convolution, tap: Tap, inputs: Tensor) -> Tensor:
    return tap(layer._conv_forward(inputs, layer.weight, layer.bias), (inputs,))


def _convolution_gradients(
    layer: Convolution, part: str, notes: Notes, outputs: Tensor
) -> Gradients:
    return _product_gradients(layer, part, (_patches(layer, notes[0]),), outputs)


def _product_forward(layer: Convolution, tap: Tap, inputs: Tensor) -> Tensor:
    columns = _patches(layer, inputs)
    flat = weight_product(aligned(layer.weight.flatten(1)), columns.flatten(0, 1))
    outputs = torch.unflatten(flat, 1, (len(columns), *_lengths(layer, inputs))).movedim(0, 1)
    if layer.bias is not None:
        outputs = outputs + layer.bias.view(-1, *(1,) * (outputs.ndim - 2))
    return tap(outputs, (columns,))


def _product_gradients(layer: Convolution, part: str, notes: Notes, outputs: Tensor) -> Gradients:
    (columns,), outputs = notes, outputs.flatten(2)  # (examples, channels, places)
    weight: ParameterGradients
    if layer.groups == 1:
        weight = OuterProducts(outputs.transpose(1, 2), columns, layer.weight.shape)
    else:  # each group is a separate convolution; the groups become further examples
        columns = columns[..., : layer.groups * layer.weight[0].numel()]
        left = torch.unflatten(outputs, 1, (layer.groups, -1)).flatten(0, 1)
        right = torch.unflatten(columns, 2, (layer.groups, -1)).movedim(2, 1).flatten(0, 1)
        products = per_example_product(left, right)
        weight = Explicit(products.reshape(len(outputs), *layer.weight.shape))
    return {"weight": weight, "bias": Explicit(outputs.sum(2))}


def _patches(layer: Convolution, inputs: Tensor) -> Tensor:
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    amounts = layer._reversed_padding_repeated_twice
    padded = functional.pad(inputs, amounts, mode=mode) if any(amounts) else inputs
    return patches(padded, _window(layer))


def _window(layer: Convolution) -> Window:
    return Window(size=layer.kernel_size, stride=layer.stride, dilation=layer.dilation)


def _lengths(layer: Convolution, inputs: Tensor) -> tuple[int, ...]:
    """The lengths of the outputs."""
    amounts = layer._reversed_padding_repeated_twice  # the last dimension first
    padded = tuple(
        length + sum(amounts[2 * back : 2 * back + 2])
        for back, length in zip(range(inputs.ndim - 3, -1, -1), inputs.shape[2:], strict=True)
    )
    return _window(layer).places(padded)


CONVOLUTION = LayerRule(
    handles=_is_convolution, forward=_convolution_forward, gradients=_convolution_gradients
)
CONVOLUTION_PRODUCT = LayerRule(
    handles=lambda layer: _is_convolution(layer) and getattr(layer, "groups", 0) == 1,
    forward=_product_forward,
    gradients=_product_gradients,
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


# Embedding tables: the gradient is zero except in the rows that an example looked up. Not with
# ``max_norm``, which changes the table during the forward pass, and not with
# ``scale_grad_by_freq``, which counts across examples; `check_mechanism` refuses both.


def _embedding_forward(layer: nn.Embedding, tap: Tap, inputs: Tensor) -> Tensor:
    return tap(functional.embedding(inputs, layer.weight), (inputs,))


def _embedding_gradients(
    layer: nn.Embedding, part: str, notes: Notes, outputs: Tensor
) -> Gradients:
    outputs = outputs.flatten(1, -2) if outputs.ndim > 2 else outputs.unsqueeze(1)
    rows = notes[0].reshape(len(notes[0]), -1)
    if layer.padding_idx is not None:
        outputs = outputs * (rows != layer.padding_idx).unsqueeze(-1)
    return {"weight": EmbeddedRows(outputs, rows, layer.weight.shape)}


EMBEDDING = LayerRule(
    handles=lambda layer: (
        is_plain(layer, nn.Embedding)
        and getattr(layer, "max_norm", None) is None
        and not getattr(layer, "scale_grad_by_freq", False)
    ),
    forward=_embedding_forward,
    gradients=_embedding_gradients,
)


# `torch.nn.MultiheadAttention` with inputs of one size and without additional keys: self-attention
# and cross-attention, masks, and both orders of the batch axis. The projections are linear layers.
# Attention weights are returned as `None`; a model that uses them is tapped without this rule.


def _is_attention(layer: nn.Module) -> bool:
    return (
        type(layer) is nn.MultiheadAttention
        and layer._qkv_same_embed_dim
        and layer.bias_k is None
        and not layer.add_zero_attn
        and (not layer.training or layer.dropout == 0)
        and "in_proj_weight" in layer._parameters
    )


def _attention_forward(
    layer: nn.MultiheadAttention,
    tap: Tap,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,  # torch uses it only as a hint that the mask is causal
) -> tuple[Tensor, None]:
    if query.ndim != 3:
        raise ValueError("attention needs inputs with an axis of examples")
    weights = cast(Tensor, layer.in_proj_weight).chunk(3)
    biases = (None,) * 3 if layer.in_proj_bias is None else layer.in_proj_bias.chunk(3)
    heads = []
    for number, values in enumerate((query, key, value)):
        inputs = values if layer.batch_first else values.transpose(0, 1)
        projected = linear(inputs, weights[number], biases[number])
        projected = tap(projected, (inputs,), f"in{number}")
        each_head = torch.unflatten(projected, 2, (layer.num_heads, layer.head_dim))
        heads.append(each_head.transpose(1, 2))
    mask = _mask(layer.num_heads, key_padding_mask, attn_mask, heads[0])
    mixed = functional.scaled_dot_product_attention(heads[0], heads[1], heads[2], mask)
    mixed = mixed.transpose(1, 2).flatten(2)
    outputs = tap(linear(mixed, layer.out_proj.weight, layer.out_proj.bias), (mixed,), "out")
    return (outputs if layer.batch_first else outputs.transpose(0, 1)), None


def _attention_gradients(
    layer: nn.MultiheadAttention, part: str, notes: Notes, outputs: Tensor
) -> Gradients:
    if part == "out":
        weight = OuterProducts(outputs, notes[0], layer.out_proj.weight.shape)
        return {"out_proj.weight": weight, "out_proj.bias": Explicit(outputs.sum(1))}
    # The rows of the other two projections have no gradient from this one.
    before = int(part.removeprefix("in")) * layer.embed_dim
    rows = functional.pad(outputs, (before, 2 * layer.embed_dim - before))
    weight = OuterProducts(rows, notes[0], cast(Tensor, layer.in_proj_weight).shape)
    return {"in_proj_weight": weight, "in_proj_bias": Explicit(rows.sum(1))}


def _mask(heads: int, padding: Tensor | None, mask: Tensor | None, like: Tensor) -> Tensor | None:
    """Both masks as numbers that are added to the attention logits."""
    total: Tensor | None = None
    if mask is not None:
        total = _added(mask, like)
        if total.ndim == 3:
            total = torch.unflatten(total, 0, (-1, heads))
    if padding is not None:
        ignored = _added(padding, like)[:, None, None, :]
        total = ignored if total is None else total + ignored
    return total


def _added(mask: Tensor, like: Tensor) -> Tensor:
    if mask.dtype != torch.bool:
        return mask.to(like.dtype)
    zeros = torch.zeros(mask.shape, dtype=like.dtype, device=like.device)
    return zeros.masked_fill(mask, float("-inf"))


ATTENTION = LayerRule(
    handles=_is_attention, forward=_attention_forward, gradients=_attention_gradients
)


# `torch.nn.RNN`, `LSTM` and `GRU` with any number of layers, in one or both directions. The part of
# the gates that comes from the inputs is tapped, for all places together. The part that comes from
# the hidden state is added to it, so it has the same gradient, except for the new gate of a GRU:
# there the reset gate multiplies it.


def _is_recurrent(layer: nn.Module) -> bool:
    return (
        type(layer) in (nn.RNN, nn.LSTM, nn.GRU)
        and getattr(layer, "proj_size", 0) == 0
        and (not layer.training or getattr(layer, "dropout", 0) == 0)
        and "weight_ih_l0" in layer._parameters
    )


def _recurrent_forward(
    layer: nn.RNNBase, tap: Tap, inputs: Tensor, hx: Any = None
) -> tuple[Tensor, Any]:
    if inputs.ndim != 3:
        raise ValueError("a recurrent layer needs inputs with an axis of examples")
    values = inputs if layer.batch_first else inputs.transpose(0, 1)
    suffixes = ["", "_reverse"] if layer.bidirectional else [""]
    starts = _starts(layer, values, hx, layer.num_layers * len(suffixes))
    ends: list[tuple[Tensor, ...]] = []
    for number in range(layer.num_layers):
        directions = []
        for suffix in suffixes:
            given = values.flip(1) if suffix else values
            outputs, end = _run(layer, tap, given, f"l{number}{suffix}", starts[len(ends)])
            directions.append(outputs.flip(1) if suffix else outputs)
            ends.append(end)
        values = torch.cat(directions, dim=2)
    last = tuple(torch.stack(states) for states in zip(*ends, strict=True))
    outputs = values if layer.batch_first else values.transpose(0, 1)
    return outputs, last if isinstance(layer, nn.LSTM) else last[0]


def _run(
    layer: nn.RNNBase, tap: Tap, inputs: Tensor, suffix: str, start: tuple[Tensor, ...]
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """One layer in one direction: twice, first to learn the notes, then with the tap."""
    gates = _gates(layer, inputs, "ih", suffix)
    state, before, resets = start, [], []
    with torch.no_grad():
        for place in range(inputs.shape[1]):
            before.append(state[0])
            state, reset = _next_hidden(layer, gates[:, place], state, suffix)
            resets.append(reset)
    notes = (inputs, torch.stack(before, dim=1), torch.stack(resets, dim=1))
    gates, state, outputs = tap(gates, notes, suffix), start, []
    for place in range(inputs.shape[1]):
        state, _ = _next_hidden(layer, gates[:, place], state, suffix)
        outputs.append(state[0])
    return torch.stack(outputs, dim=1), state


def _recurrent_gradients(layer: nn.RNNBase, part: str, notes: Notes, outputs: Tensor) -> Gradients:
    inputs, before, resets = notes
    hidden = outputs
    if isinstance(layer, nn.GRU):
        gates, new = torch.split(outputs, [2 * layer.hidden_size, layer.hidden_size], dim=2)
        hidden = torch.cat([gates, new * resets], dim=2)
    weight_ih = cast(Tensor, layer._parameters[f"weight_ih_{part}"])
    weight_hh = cast(Tensor, layer._parameters[f"weight_hh_{part}"])
    return {
        f"weight_ih_{part}": OuterProducts(outputs, inputs, weight_ih.shape),
        f"weight_hh_{part}": OuterProducts(hidden, before, weight_hh.shape),
        f"bias_ih_{part}": Explicit(outputs.sum(1)),
        f"bias_hh_{part}": Explicit(hidden.sum(1)),
    }


def _starts(layer: nn.RNNBase, values: Tensor, given: Any, count: int) -> list[tuple[Tensor, ...]]:
    """The initial states of every layer and direction."""
    if given is None:
        zeros = values.new_zeros(len(values), layer.hidden_size)
        return [(zeros, zeros) if isinstance(layer, nn.LSTM) else (zeros,)] * count
    states = given if isinstance(given, tuple) else (given,)
    return [tuple(state[number] for state in states) for number in range(count)]


def _gates(layer: nn.RNNBase, inputs: Tensor, kind: str, suffix: str) -> Tensor:
    """The linear part of the gates, shape (*inputs, gates)."""
    weight = cast(Tensor, getattr(layer, f"weight_{kind}_{suffix}"))
    return linear(inputs, weight, getattr(layer, f"bias_{kind}_{suffix}") if layer.bias else None)


def _next_hidden(
    layer: nn.RNNBase, gates: Tensor, state: tuple[Tensor, ...], suffix: str
) -> tuple[tuple[Tensor, ...], Tensor]:
    """The next state, and the reset gate of a GRU (otherwise the hidden state)."""
    hidden = _gates(layer, state[0], "hh", suffix)
    if isinstance(layer, nn.LSTM):
        into, forget, cell, out = (gates + hidden).chunk(4, dim=1)
        memory = torch.sigmoid(forget) * state[1] + torch.sigmoid(into) * torch.tanh(cell)
        return (torch.sigmoid(out) * torch.tanh(memory), memory), state[0]
    if isinstance(layer, nn.GRU):
        (reset, update, new), (reset_h, update_h, new_h) = gates.chunk(3, 1), hidden.chunk(3, 1)
        reset, update = torch.sigmoid(reset + reset_h), torch.sigmoid(update + update_h)
        candidate = torch.tanh(new + reset * new_h)
        return ((1 - update) * candidate + update * state[0],), reset
    total = gates + hidden
    return (torch.tanh(total) if layer.nonlinearity == "tanh" else torch.relu(total),), state[0]


RECURRENT = LayerRule(
    handles=_is_recurrent, forward=_recurrent_forward, gradients=_recurrent_gradients
)


LAYER_RULES: Registry[LayerRule] = Registry(
    "layer rule",
    "dpaudit.layer_rules",
    {
        "linear": f"{__name__}:LINEAR",
        "transposed-linear": f"{__name__}:TRANSPOSED_LINEAR",
        "convolution-block": "dpaudit.engine.kernels.rule:BLOCK",
        "convolution-product": f"{__name__}:CONVOLUTION_PRODUCT",
        "convolution": f"{__name__}:CONVOLUTION",
        "group-norm": f"{__name__}:GROUP_NORM",
        "layer-norm": f"{__name__}:LAYER_NORM",
        "rms-norm": f"{__name__}:RMS_NORM",
        "embedding": f"{__name__}:EMBEDDING",
        "attention": f"{__name__}:ATTENTION",
        "recurrent": f"{__name__}:RECURRENT",
    },
)
"""Every registered rule. An entry point names a `LayerRule`."""

_UNUSED = {
    "library": {"convolution-block", "convolution-product"},
    "product": {"convolution-block"},
    "kernels": set[str](),
}


def rules(*, convolutions: Literal["library", "product", "kernels"]) -> tuple[LayerRule, ...]:
    """The rules in the order in which they are tried; the first that handles a layer is used.

    Arguments:
        convolutions: How convolutions are computed, as in `dpaudit.engine.Speed`.
    """
    unused = _UNUSED[convolutions]
    return tuple(LAYER_RULES[name] for name in LAYER_RULES if name not in unused)
