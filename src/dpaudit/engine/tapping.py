"""A private copy of the user's model whose layers record what per-example gradients need.

A *tap* is a zero that is added to a layer's output. The derivative of the losses with respect to
the tap is the gradient of that output, one for each example. Together with the layer's notes this
is all a rule needs. Parameters without a rule are *loose*: every example has a tap of the
parameter's own shape, whose derivative is the gradient itself.

The model runs on the whole batch, or on every example separately by `torch.func.vmap`. The latter
is needed for loose parameters and for layers that are called once for all examples, such as
``embedding(arange(length))``.

The user's own module is never changed: the taps are in a deep copy.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, final

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from dpaudit.engine.gradients import Explicit, ParameterGradients, add
from dpaudit.engine.rules import LayerRule
from dpaudit.engine.rules.base import Notes


@final
@dataclass(frozen=True, kw_only=True)
class Taps:
    """How a model is tapped; `dpaudit.engine.mechanism_check` finds out what a model needs.

    Arguments:
        per_example: Whether the model runs on every example separately.
        loose: Places of parameters that are tapped at their values in spite of a rule.
    """

    per_example: bool = False
    loose: frozenset[int] = field(default_factory=frozenset)


@final
@dataclass(frozen=True, kw_only=True)
class Unit:
    """A layer with a rule."""

    name: str
    layer: torch.nn.Module
    rule: LayerRule
    parameters: dict[str, int]  # trainable ones: name inside the layer -> place in the model


@final
@dataclass(frozen=True, kw_only=True)
class Call:
    """One tapped value of the forward pass, seen when the model was measured.

    Arguments:
        unit: The number of the unit.
        part: The part of the layer, for rules with several taps.
        shape: The shape of the value.
        axes: The axes of the example in the value and in each note; `None` if there is none.
    """

    unit: int
    part: str
    shape: torch.Size
    axes: tuple[int | None, ...] = ()


@final
class Recording:
    """The taps that one forward pass adds, and the notes that it records."""

    def __init__(self, outputs: Sequence[Tensor] | None, *, contiguous: bool) -> None:
        self.calls: list[Call] = []
        self._contiguous = contiguous  # models may use `Tensor.view` on what a rule returns
        self.notes: list[Notes] = []
        self._outputs = outputs  # one tap for each call, in order; None: record shapes only

    def tap(self, unit: int, values: Tensor, notes: Notes, part: str = "") -> Tensor:
        """Record a call and add its tap."""
        self.calls.append(Call(unit=unit, part=part, shape=values.shape))
        self.notes.append(notes)
        values = values.contiguous() if self._contiguous else values
        return values if self._outputs is None else values + self._outputs[len(self.calls) - 1]


@final
class TappedModel:
    """A model that runs with given parameters while its layers record notes.

    Arguments:
        module: The user's model, with its final device and type. It is copied.
        rules: The layer rules; the first that handles a layer is used.
        taps: How the model is tapped.
    """

    def __init__(
        self, module: torch.nn.Module, rules: Sequence[LayerRule], taps: Taps | None = None
    ) -> None:
        self._model = copy.deepcopy(module)
        self.taps = Taps() if taps is None else taps
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
        self._cut(self._model, "", rules, seen=set())
        ruled = {place for unit in self.units for place in unit.parameters.values()}
        self.loose = tuple(place for place in range(len(self.sizes)) if place not in ruled)
        for number, unit in enumerate(self.units):
            # This is our own copy. A wrapper in place of the layer would rename its parameters
            # and hide its attributes from the model.
            unit.layer.__dict__["forward"] = functools.partial(self._forward, number)

    @property
    def notices(self) -> tuple[str, ...]:
        """One sentence for each layer with loose parameters: the layer, the reason and the cost."""
        found: dict[str, list[int]] = {}
        for place in self.loose:
            found.setdefault(self.names[place].rpartition(".")[0], []).append(place)
        return tuple(self._notice(name, places) for name, places in found.items())

    def _notice(self, name: str, places: list[int]) -> str:
        layer = self._model.get_submodule(name)
        numbers = sum(self.sizes[place] for place in places)
        ruled = any(place in self.taps.loose for place in places)
        reason = (
            "is used in a way that its clipping rule does not cover"
            if ruled
            else "has no clipping rule"
        )
        return (
            f"{describe(name, layer)} {reason}: gradients of its {numbers:,} parameters are stored "
            f"for every example, {numbers * 4 / 2**20:.2g} MiB for each example and run, which is "
            "slower than a rule"
        )

    def measure(self, parameters: Sequence[Tensor], inputs: Tensor) -> tuple[Call, ...]:
        """Run without taps to record the calls of layers and their output shapes."""
        if not self.taps.per_example:
            return tuple(self._measured(parameters, inputs).calls)

        def shapes(notes: Notes) -> list[torch.Size]:
            return [note.shape for note in notes]

        one = self._measured(parameters, inputs[:1])
        two = self._measured(parameters, torch.cat([inputs[:1], inputs[:1]]))
        pairs = zip(one.calls, one.notes, two.calls, two.notes, strict=True)
        return tuple(
            replace(call, axes=_axes((call.shape, *shapes(notes)), (other.shape, *shapes(others))))
            for call, notes, other, others in pairs
        )

    def _measured(self, parameters: Sequence[Tensor], inputs: Tensor) -> Recording:
        recording = Recording(None, contiguous=self.taps.per_example)
        with torch.no_grad():
            self.run(parameters, inputs, recording)
        return recording

    def run(self, parameters: Sequence[Tensor], inputs: Tensor, recording: Recording) -> Tensor:
        """The model's output with ``parameters``, in the order of `names`."""
        self._recording = recording
        fast_path = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)  # it would bypass the layers inside
        try:
            given = dict(zip(self.names, parameters, strict=True))
            # Fused attention has no batched backward pass: `vmap` would call it once for each
            # example and run, and on a GPU it then reads memory that is not its own.
            with sdpa_kernel(SDPBackend.MATH):
                outputs: Tensor = torch.func.functional_call(self._model, given, (inputs,))
        finally:
            self._recording = None
            torch.backends.mha.set_fastpath_enabled(fast_path)
        return outputs

    def loose_taps(self, examples: int, like: Tensor) -> dict[int, Tensor]:
        """For each loose parameter a zero of its shape for each example."""
        return {place: like.new_zeros((examples, *self.shapes[place])) for place in self.loose}

    def gradients(
        self,
        calls: Sequence[Call],
        notes: Sequence[Notes],
        outputs: Sequence[Tensor],
        loose: dict[int, Tensor],
    ) -> dict[int, ParameterGradients]:
        """Gradients by place of the parameter, without parameters that were never used.

        Arguments:
            calls: The calls of layers with rules.
            notes: The notes of the rules, one for each call.
            outputs: The derivatives with respect to the taps, one for each call.
            loose: The derivatives with respect to `loose_taps`.
        """
        parts: dict[int, list[ParameterGradients]] = {}
        for call, note, output in zip(calls, notes, outputs, strict=True):
            unit, values = self.units[call.unit], _examples_first(call, output, note)
            found = unit.rule.gradients(unit.layer, call.part, tuple(values[1:]), values[0])
            for name, part in found.items():
                if name in unit.parameters:
                    parts.setdefault(unit.parameters[name], []).append(part)
        ruled = {place: add(some) for place, some in parts.items()}
        return {**ruled, **{place: Explicit(tap) for place, tap in loose.items()}}

    def _cut(
        self, module: torch.nn.Module, name: str, rules: Sequence[LayerRule], seen: set[int]
    ) -> None:
        """Find the units: the outermost layers with a rule."""
        if id(module) in seen or not any(p.requires_grad for p in module.parameters()):
            return
        seen.add(id(module))
        rule = next((rule for rule in rules if rule.handles(module)), None)
        places = {
            inner: self._places[id(parameter)]
            for inner, parameter in module.named_parameters()
            if parameter.requires_grad
        }
        if rule is not None and not self.taps.loose & set(places.values()):
            self.units.append(Unit(name=name, layer=module, rule=rule, parameters=places))
            return
        for child_name, child in module.named_children():
            self._cut(child, f"{name}.{child_name}".lstrip("."), rules, seen)

    def _forward(self, number: int, *args: Any, **kwargs: Any) -> Any:
        unit, recording = self.units[number], self._recording
        if recording is None:  # pragma: no cover - the copy is private
            raise RuntimeError("a tapped layer was called outside of TappedModel.run")
        tap = functools.partial(recording.tap, number)
        return unit.rule.forward(unit.layer, tap, *args, **kwargs)


def _axes(one: Sequence[torch.Size], two: Sequence[torch.Size]) -> tuple[int | None, ...]:
    """The axis of each shape that grows with the batch."""
    return tuple(
        next((axis for axis in range(len(short)) if short[axis] != long[axis]), None)
        for short, long in zip(one, two, strict=True)
    )


def _examples_first(call: Call, output: Tensor, notes: Notes) -> list[Tensor]:
    """Values and notes with the example as first axis; those per example had a batch of one."""
    values = [output, *notes]
    if not call.axes:
        return values
    return [
        value if axis is None else value.squeeze(axis + 1)
        for value, axis in zip(values, call.axes, strict=True)
    ]


def describe(name: str, layer: torch.nn.Module) -> str:
    """A layer in messages: its qualified name and its type."""
    kind = type(layer).__name__
    return f"layer {name!r} ({kind})" if name else f"the model itself ({kind})"
