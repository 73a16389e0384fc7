"""A private copy of the user's model whose layers record what per-example gradients need.

A *tap* is a zero that is added to a layer's output. The derivative of the losses with respect to
the tap is the gradient of that output, one for each example. Together with the layer's notes this
is all a rule needs. Layers without a rule are tapped at their parameters instead.

The user's own module is never changed: the taps are in a deep copy.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

from dpaudit.engine.gradients import Explicit, ParameterGradients, add
from dpaudit.engine.rules import LayerRule
from dpaudit.engine.rules.any_layer import call_with_own_parameters
from dpaudit.engine.rules.base import Notes


@final
@dataclass(frozen=True, kw_only=True)
class Unit:
    """A layer that is tapped as a whole."""

    name: str
    layer: torch.nn.Module
    rule: LayerRule | None
    parameters: dict[str, int]  # trainable ones: name inside the layer -> place in the model


@final
@dataclass(frozen=True, kw_only=True)
class Call:
    """One use of a ruled layer in the forward pass, seen when the model was measured."""

    unit: int
    shape: torch.Size


@final
class Recording:
    """The taps that one forward pass adds, and the notes that it records."""

    def __init__(self, outputs: Sequence[Tensor] | None, own: Sequence[dict[str, Tensor]]) -> None:
        self.calls: list[Call] = []
        self.notes: list[Notes] = []
        self.outputs = outputs  # one tap for each call, in order; None: record shapes only
        self.own = own  # for each unit without a rule: a tap for each parameter

    def tap(self, unit: int, values: Tensor, notes: Notes) -> Tensor:
        """Record a call and add its tap."""
        self.calls.append(Call(unit=unit, shape=values.shape))
        self.notes.append(notes)
        return values if self.outputs is None else values + self.outputs[len(self.calls) - 1]


@final
class TappedModel:
    """A model that runs with given parameters while its layers record notes.

    Arguments:
        module: The user's model, with its final device and type. It is copied.
        rules: The layer rules; the first that handles a layer is used.
        whole: Treat the whole model as one layer without a rule.
    """

    def __init__(
        self, module: torch.nn.Module, rules: Sequence[LayerRule], *, whole: bool = False
    ) -> None:
        self._model = copy.deepcopy(module)
        trainable = [
            (name, parameter)
            for name, parameter in self._model.named_parameters()
            if parameter.requires_grad
        ]
        self.names = tuple(name for name, _ in trainable)
        self.shapes = tuple(parameter.shape for _, parameter in trainable)
        self.sizes = tuple(parameter.numel() for _, parameter in trainable)
        self.parameters = sum(self.sizes)
        self._places = {id(parameter): place for place, (_, parameter) in enumerate(trainable)}
        self._recording: Recording | None = None
        self.units: list[Unit] = []
        self._twins: dict[int, torch.nn.Module] = {}
        self._cut(self._model, "", rules, whole, seen=set())
        for number, unit in enumerate(self.units):
            if unit.rule is None:
                self._twins[number] = copy.deepcopy(unit.layer)
            # This is our own copy. A wrapper in place of the layer would rename its parameters
            # and hide its attributes from the model.
            unit.layer.__dict__["forward"] = functools.partial(self._forward, number)

    @property
    def notices(self) -> tuple[str, ...]:
        """One sentence for each slow layer."""
        return tuple(
            f"{describe(unit.name, unit.layer)} has no clipping rule: its gradients are computed "
            "for every example on its own, which is slower and takes more memory"
            for unit in self.units
            if unit.rule is None
        )

    def measure(self, parameters: Sequence[Tensor], inputs: Tensor) -> tuple[Call, ...]:
        """Run once without taps to record the calls of layers and their output shapes."""
        recording = Recording(None, [{} for _ in self.units])
        with torch.no_grad():
            self.run(parameters, inputs, recording)
        return tuple(recording.calls)

    def run(self, parameters: Sequence[Tensor], inputs: Tensor, recording: Recording) -> Tensor:
        """The model's output with ``parameters``, in the order of `names`."""
        self._recording = recording
        try:
            given = dict(zip(self.names, parameters, strict=True))
            outputs: Tensor = torch.func.functional_call(self._model, given, (inputs,))
        finally:
            self._recording = None
        return outputs

    def own_taps(self, examples: int, like: Tensor) -> list[dict[str, Tensor]]:
        """For each unit without a rule, a zero for each example and parameter."""
        return [
            {
                name: like.new_zeros((examples, *self.shapes[place]))
                for name, place in unit.parameters.items()
                if unit.rule is None
            }
            for unit in self.units
        ]

    def gradients(
        self,
        calls: Sequence[Call],
        notes: Sequence[Notes],
        outputs: Sequence[Tensor],
        own: Sequence[dict[str, Tensor]],
    ) -> dict[int, ParameterGradients]:
        """Gradients by place of the parameter, without parameters that were never used.

        Arguments:
            calls: The calls of ruled layers.
            notes: The notes of the rules, one for each call.
            outputs: The derivatives with respect to the taps, one for each call.
            own: The derivatives with respect to `own_taps`.
        """
        parts: dict[int, list[ParameterGradients]] = {}
        for call, note, output in zip(calls, notes, outputs, strict=True):
            unit = self.units[call.unit]
            if unit.rule is None:  # pragma: no cover - such units make no calls
                continue
            for name, part in unit.rule.gradients(unit.layer, note, output).items():
                if name in unit.parameters:
                    parts.setdefault(unit.parameters[name], []).append(part)
        for unit, taps in zip(self.units, own, strict=True):
            for name, tap in taps.items():
                parts.setdefault(unit.parameters[name], []).append(Explicit(tap))
        return {place: add(some) for place, some in parts.items()}

    def _cut(
        self,
        module: torch.nn.Module,
        name: str,
        rules: Sequence[LayerRule],
        whole: bool,
        seen: set[int],
    ) -> None:
        """Find the units: layers with a rule, and the smallest modules with other parameters."""
        if id(module) in seen or not any(p.requires_grad for p in module.parameters()):
            return
        seen.add(id(module))
        rule = next((rule for rule in rules if rule.handles(module)), None)
        owns = any(p.requires_grad for p in module.parameters(recurse=False))
        if rule is None and not owns and not whole and not hasattr(module, "parametrizations"):
            for child_name, child in module.named_children():
                self._cut(child, f"{name}.{child_name}".lstrip("."), rules, whole, seen)
            return
        places = {
            inner: self._places[id(parameter)]
            for inner, parameter in module.named_parameters()
            if parameter.requires_grad
        }
        self.units.append(
            Unit(name=name, layer=module, rule=None if whole else rule, parameters=places)
        )

    def _forward(self, number: int, *args: Any, **kwargs: Any) -> Any:
        unit, recording = self.units[number], self._recording
        if recording is None:  # pragma: no cover - the copy is private
            raise RuntimeError("a tapped layer was called outside of TappedModel.run")
        if unit.rule is not None:
            outputs, notes = unit.rule.forward(unit.layer, *args, **kwargs)
            return recording.tap(number, outputs, notes)
        twin, taps = self._twins[number], recording.own[number]
        values = dict(unit.layer.named_parameters())
        if not taps:
            given: dict[str, Tensor] = {name: values[name] for name in unit.parameters}
            return torch.func.functional_call(twin, given, args, kwargs)
        expanded = {name: values[name] + tap for name, tap in taps.items()}
        return call_with_own_parameters(twin, expanded, args, kwargs)


def describe(name: str, layer: torch.nn.Module) -> str:
    """A layer in messages: its qualified name and its type."""
    return f"layer {name!r} ({type(layer).__name__})" if name else f"{type(layer).__name__} (whole)"
