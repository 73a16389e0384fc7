"""RNN, LSTM and GRU: the gates of all steps are tapped together."""

from __future__ import annotations

from typing import Any, cast, final

import torch
from torch import Tensor

from dpaudit.engine.gradients import Explicit, OuterProducts, ParameterGradients
from dpaudit.engine.products import linear
from dpaudit.engine.rules.base import LayerRule, Notes, Tap


@final
class RecurrentRule(LayerRule):
    """`torch.nn.RNN`, `LSTM` and `GRU` with any number of layers, in one or both directions.

    The part of the gates that comes from the inputs is tapped. The part that comes from the hidden
    state is added to it, so it has the same gradient, except for the new gate of a GRU: there the
    reset gate multiplies it.
    """

    def handles(self, layer: torch.nn.Module) -> bool:
        return (
            type(layer) in (torch.nn.RNN, torch.nn.LSTM, torch.nn.GRU)
            and getattr(layer, "proj_size", 0) == 0
            and (not layer.training or getattr(layer, "dropout", 0) == 0)
            and "weight_ih_l0" in layer._parameters
        )

    def forward(
        self, layer: torch.nn.Module, tap: Tap, inputs: Tensor, hx: Any = None
    ) -> tuple[Tensor, Any]:
        layer = cast(torch.nn.RNNBase, layer)
        if inputs.ndim != 3:
            raise ValueError("a recurrent layer needs inputs with an axis of examples")
        values = inputs if layer.batch_first else inputs.transpose(0, 1)
        starts = _starts(layer, values, hx)
        ends: list[tuple[Tensor, ...]] = []
        for number in range(layer.num_layers):
            found = []
            for suffix in _directions(layer, number):
                backward = suffix.endswith("_reverse")
                given = values.flip(1) if backward else values
                outputs, end = self._run(layer, tap, given, suffix, starts[len(ends)])
                found.append(outputs.flip(1) if backward else outputs)
                ends.append(end)
            values = torch.cat(found, dim=2)
        last = tuple(torch.stack(states) for states in zip(*ends, strict=True))
        outputs = values if layer.batch_first else values.transpose(0, 1)
        return outputs, last if isinstance(layer, torch.nn.LSTM) else last[0]

    def _run(
        self,
        layer: torch.nn.RNNBase,
        tap: Tap,
        inputs: Tensor,
        suffix: str,
        start: tuple[Tensor, ...],
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """One layer in one direction: twice, first to learn the notes, then with the tap."""
        gates = _gates(layer, inputs, "ih", suffix)
        state, before, resets = start, [], []
        with torch.no_grad():
            for place in range(inputs.shape[1]):
                before.append(state[0])
                state, reset = _step(layer, gates[:, place], state, suffix)
                resets.append(reset)
        notes = (inputs, torch.stack(before, dim=1), torch.stack(resets, dim=1))
        gates, state, outputs = tap(gates, notes, suffix), start, []
        for place in range(inputs.shape[1]):
            state, _ = _step(layer, gates[:, place], state, suffix)
            outputs.append(state[0])
        return torch.stack(outputs, dim=1), state

    def gradients(
        self, layer: torch.nn.Module, part: str, notes: Notes, outputs: Tensor
    ) -> dict[str, ParameterGradients]:
        inputs, before, resets = notes
        hidden = outputs
        if isinstance(layer, torch.nn.GRU):
            gates, new = torch.split(outputs, [2 * layer.hidden_size, layer.hidden_size], dim=2)
            hidden = torch.cat([gates, new * resets], dim=2)
        parameters = layer._parameters
        weight_ih = cast(Tensor, parameters[f"weight_ih_{part}"])
        weight_hh = cast(Tensor, parameters[f"weight_hh_{part}"])
        return {
            f"weight_ih_{part}": OuterProducts(outputs, inputs, weight_ih.shape),
            f"weight_hh_{part}": OuterProducts(hidden, before, weight_hh.shape),
            f"bias_ih_{part}": Explicit(outputs.sum(1)),
            f"bias_hh_{part}": Explicit(hidden.sum(1)),
        }


def _directions(layer: torch.nn.RNNBase, number: int) -> tuple[str, ...]:
    return (f"l{number}", f"l{number}_reverse") if layer.bidirectional else (f"l{number}",)


def _starts(layer: torch.nn.RNNBase, values: Tensor, given: Any) -> list[tuple[Tensor, ...]]:
    """The initial states of every layer and direction."""
    count = layer.num_layers * (2 if layer.bidirectional else 1)
    if given is None:
        zeros = values.new_zeros(len(values), layer.hidden_size)
        return [(zeros, zeros) if isinstance(layer, torch.nn.LSTM) else (zeros,)] * count
    states = given if isinstance(given, tuple) else (given,)
    return [tuple(state[number] for state in states) for number in range(count)]


def _gates(layer: torch.nn.RNNBase, inputs: Tensor, kind: str, suffix: str) -> Tensor:
    """The linear part of the gates, shape (*inputs, gates)."""
    weight = cast(Tensor, getattr(layer, f"weight_{kind}_{suffix}"))
    return linear(inputs, weight, getattr(layer, f"bias_{kind}_{suffix}") if layer.bias else None)


def _step(
    layer: torch.nn.RNNBase, gates: Tensor, state: tuple[Tensor, ...], suffix: str
) -> tuple[tuple[Tensor, ...], Tensor]:
    """The next state, and the reset gate of a GRU (otherwise the hidden state)."""
    hidden = _gates(layer, state[0], "hh", suffix)
    if isinstance(layer, torch.nn.LSTM):
        into, forget, cell, out = (gates + hidden).chunk(4, dim=1)
        memory = torch.sigmoid(forget) * state[1] + torch.sigmoid(into) * torch.tanh(cell)
        return (torch.sigmoid(out) * torch.tanh(memory), memory), state[0]
    if isinstance(layer, torch.nn.GRU):
        (reset, update, new), (reset_h, update_h, new_h) = gates.chunk(3, 1), hidden.chunk(3, 1)
        reset, update = torch.sigmoid(reset + reset_h), torch.sigmoid(update + update_h)
        candidate = torch.tanh(new + reset * new_h)
        return ((1 - update) * candidate + update * state[0],), reset
    total = gates + hidden
    return (torch.tanh(total) if layer.nonlinearity == "tanh" else torch.relu(total),), state[0]
