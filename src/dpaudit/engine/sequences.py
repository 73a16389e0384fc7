"""Layer rules of sequence models: attention and recurrent layers."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from dpaudit.engine.gradients import Explicit, OuterProducts
from dpaudit.engine.layer_rules import Gradients, LayerRule, Notes, Tap
from dpaudit.engine.products import linear

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
