r"""Clipped sums of per-example gradients, for many parameter sets at once.

.. math::
    S_r = \sum_b w_{rb} \, \min\Big(1, \frac{C}{\|g_{rb}\|}\Big) \, g_{rb},
    \qquad g_{rb} = \nabla_\theta \ell(\theta_r; x_b)

One forward and one backward pass give both norms and sums (see `dpaudit.engine.gradients`). The
slow twin is `dpaudit.engine.reference.clipped_sum`.

A *tap* is a zero that is added to a layer's output. The derivative of the losses with respect to
the tap is the gradient of that output, one for each example. Together with the layer's notes this
is all a rule needs. Parameters without a rule are *loose*: every example has a tap of the
parameter's own shape, whose derivative is the gradient itself.

The model runs on the whole batch, or on every example separately by `torch.func.vmap`. The latter
is needed for loose parameters and for layers that are called once for all examples, such as
``embedding(arange(length))``.
"""

from __future__ import annotations

import copy
import functools
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, final

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from dpaudit.engine import products
from dpaudit.engine.gradients import Explicit, ParameterGradients
from dpaudit.engine.layer_rules import LayerRule, Notes, rule_for
from dpaudit.engine.starting_points import trainable
from dpaudit.mechanisms.clipping import Clipping, FlatClipping

Loss = Callable[[Tensor, Tensor], Tensor]
RuleFor = Callable[[torch.nn.Module], LayerRule | None]
_Derivatives = tuple[list[Tensor], dict[int, Tensor]]
"""Derivatives of the losses by the taps of calls, and by those of loose parameters."""


@final
@dataclass(frozen=True, kw_only=True)
class Taps:
    """How a model is tapped; `dpaudit.engine.check_mechanism` finds out what a model needs."""

    per_example: bool = False  # whether the model runs on every example separately
    loose: frozenset[int] = field(default_factory=frozenset)  # tapped in spite of a rule


@final
@dataclass(frozen=True, kw_only=True)
class Unit:
    """A layer with a rule."""

    layer: torch.nn.Module
    rule: LayerRule
    parameters: dict[str, int]  # trainable ones: name inside the layer -> place in the model


@final
@dataclass(frozen=True, kw_only=True)
class Call:
    """One tapped value of the forward pass.

    ``axes`` are those of the example in the value and in each note, `None` if there is none. They
    are empty if the model runs on the whole batch, where the example is the first axis.
    """

    unit: int  # its number
    part: str  # of the layer, for rules with several taps
    shape: torch.Size
    axes: tuple[int | None, ...] = ()


@final
class ClippedSums:
    """Clips and sums the per-example gradients of a model, all runs at once.

    Arguments:
        module: The user's model, with its final device and type. It is copied, and the copy runs
            with given parameters while its layers record notes.
        loss: One loss per example.
        features: A batch of the size that will be used, to see the shapes of all taps.
        taps: How the model is tapped.
        rule_for: Gives the rule of a layer, or `None`.
        clipping: The kind of clipping; flat by default.
        views: Number of consecutive features that are views of one example; their gradients are
            averaged before clipping.
        dtype: Type of the products and of the returned sums; by default that of the parameters.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        loss: Loss,
        features: Tensor,
        taps: Taps | None = None,
        *,
        rule_for: RuleFor = rule_for,
        clipping: Clipping | None = None,
        views: int = 1,
        dtype: torch.dtype | None = None,
    ) -> None:
        self._model, self._loss = copy.deepcopy(module), loss
        self._clipping = FlatClipping() if clipping is None else clipping
        self._views, self._dtype = views, dtype
        self.taps = Taps() if taps is None else taps
        named = [(n, p) for n, p in self._model.named_parameters() if p.requires_grad]
        self._names = tuple(name for name, _ in named)
        self._shapes = tuple(parameter.shape for _, parameter in named)
        self.sizes = tuple(parameter.numel() for _, parameter in named)
        self._taps: Sequence[Tensor] | None = None  # one for each call; None: record only
        self._records: list[tuple[Call, Notes]] = []
        self.units = ruled_units(self._model, self.taps, rule_for)
        ruled = {place for unit in self.units for place in unit.parameters.values()}
        self.loose = tuple(place for place in range(len(self.sizes)) if place not in ruled)
        for number, unit in enumerate(self.units):
            # This is our own copy. A wrapper in place of the layer would rename its parameters
            # and hide its attributes from the model.
            unit.layer.__dict__["forward"] = functools.partial(self._layer_forward, number)
        self.calls = self._measure(features)

    def __call__(
        self, flat: Tensor, features: Tensor, targets: Tensor, weights: Tensor, clip_norm: Tensor
    ) -> Tensor:
        """The clipped sums, shape (runs, parameters).

        Arguments:
            flat: The parameters of every run, shape (runs, parameters).
            features: The examples or all their views, shared by all runs, shape (examples, …).
            targets: Their targets, shape (examples, …).
            weights: :math:`w`, shape (runs, examples): 0 for padding and for absent canaries,
                otherwise 1.
            clip_norm: :math:`C`, a scalar tensor; infinity clips nothing in flat clipping.
        """
        alone, on_gpu = len(flat) == 1, products.on_gpu(flat)

        def one_run(own: Tensor, own_weights: Tensor) -> Tensor:
            gradients = self._gradients(own, features, targets, alone=alone)
            if on_gpu:
                squares = torch.cat([part.squares() for part in gradients.values()], dim=1).sum(1)
            else:
                squares = torch.stack([g.squared_norms() for g in gradients.values()]).sum(0)
            factors = own_weights * self._clipping.factor(squares.sqrt(), clip_norm)
            return torch.cat(
                [
                    gradients[place].weighted_sum(factors).flatten()
                    if place in gradients
                    else own.new_zeros(size, dtype=self._dtype)
                    for place, size in enumerate(self.sizes)
                ]
            )

        with warnings.catch_warnings():
            # About operations without a batched form: a notice reports them.
            warnings.filterwarnings("ignore", message="There is a performance drop")
            # A single row without `vmap`, which makes a longer graph and imports torch's compiler.
            # Examples that run separately need it anyway, and round differently without runs.
            if alone and (on_gpu or not self.taps.per_example):
                return one_run(flat[0], weights[0]).unsqueeze(0)
            return torch.func.vmap(one_run)(flat, weights)

    @property
    def notices(self) -> tuple[str, ...]:
        """One sentence for each layer with loose parameters: the layer, the reason and the cost."""
        layers: dict[str, list[int]] = {}
        for place in self.loose:
            layers.setdefault(self._names[place].rpartition(".")[0], []).append(place)
        return tuple(self._notice(name, places) for name, places in layers.items())

    def _notice(self, name: str, places: list[int]) -> str:
        numbers = sum(self.sizes[place] for place in places)
        ruled = any(place in self.taps.loose for place in places)
        reason = (
            "is used in a way that its clipping rule does not cover"
            if ruled
            else "has no clipping rule"
        )
        return (
            f"{describe(name, self._model.get_submodule(name))} {reason}: gradients of its "
            f"{numbers:,} parameters are stored for every example, {numbers * 4 / 2**20:.2g} MiB "
            "for each example and run, which is slower than a rule"
        )

    def _measure(self, features: Tensor) -> tuple[Call, ...]:
        """Run without taps to record the calls of layers and their shapes."""
        parameters = [parameter.detach() for parameter in trainable(self._model)]
        with torch.no_grad():
            if not self.taps.per_example:
                return tuple(call for call, _ in self._run(parameters, features)[1])
            once, twice = (self._run(parameters, features[[0] * count])[1] for count in (1, 2))
        return tuple(
            replace(
                call,
                axes=tuple(
                    next((a for a in range(len(short)) if short[a] != long[a]), None)
                    for short, long in zip(
                        [call.shape, *(note.shape for note in notes)],
                        [longer.shape, *(note.shape for note in others)],
                        strict=True,
                    )
                ),
            )
            for (call, notes), (longer, others) in zip(once, twice, strict=True)
        )

    def _run(
        self, parameters: Sequence[Tensor], inputs: Tensor, taps: Sequence[Tensor] | None = None
    ) -> tuple[Tensor, list[tuple[Call, Notes]]]:
        """The model's output with ``parameters``, and the calls of layers with their notes."""
        self._taps, self._records = taps, []
        fast_path = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)  # it would bypass the layers inside
        try:
            given = dict(zip(self._names, parameters, strict=True))
            # Fused attention has no batched backward pass: `vmap` would call it once for each
            # example and run, and on a GPU it then reads memory that is not its own.
            with sdpa_kernel(SDPBackend.MATH):
                outputs: Tensor = torch.func.functional_call(self._model, given, (inputs,))
        finally:
            torch.backends.mha.set_fastpath_enabled(fast_path)
        return outputs, self._records

    def _layer_forward(self, number: int, *args: Any, **kwargs: Any) -> Any:
        """The output of a layer by its rule, with the taps of this run."""

        def tap(values: Tensor, notes: Notes, part: str = "") -> Tensor:
            self._records.append((Call(unit=number, part=part, shape=values.shape), notes))
            # Models may use `Tensor.view` on what a rule returns.
            values = values.contiguous() if self.taps.per_example else values
            return values if self._taps is None else values + self._taps[len(self._records) - 1]

        unit = self.units[number]
        return unit.rule.forward(unit.layer, tap, *args, **kwargs)

    def _gradients(
        self, own: Tensor, features: Tensor, targets: Tensor, *, alone: bool
    ) -> dict[int, ParameterGradients]:
        """Gradients of one run by place of the parameter, without parameters never used."""
        pieces = torch.split(own, list(self.sizes))
        # Copies, so that each parameter is aligned in memory; slices of a row are not. They are
        # converted one by one, so that the slices can be arguments of the compiled graph.
        dtype = self._dtype or own.dtype
        parameters = [
            (piece.clone() if dtype == own.dtype else piece.to(dtype)).view(shape)
            for piece, shape in zip(pieces, self._shapes, strict=True)
        ]
        # Zeros that take no memory and are shared by all runs.
        zero = torch.zeros((), dtype=dtype, device=own.device)
        batch = (len(features),) if self.taps.per_example else ()
        taps = [zero.expand(*batch, *call.shape) for call in self.calls]
        loose = {place: zero.new_zeros(len(features), *self._shapes[place]) for place in self.loose}
        if self._views > 1:
            targets = targets.repeat_interleave(self._views, dim=0)

        def total_loss(taps: list[Tensor], loose: dict[int, Tensor]) -> tuple[Tensor, list[Notes]]:
            if self.taps.per_example:
                losses, notes = self._each_example(parameters, features, targets, taps, loose)
            else:
                outputs, records = self._run(parameters, features, taps)
                losses, notes = self._loss(outputs, targets), [notes for _, notes in records]
            return (losses.sum() if self._views == 1 else losses.sum() / self._views), notes

        if alone and not self.taps.per_example and not products.on_gpu(own):
            # The same by `torch.autograd`, without `torch.func`, which imports torch's compiler.
            with torch.enable_grad():
                variables = [tap.detach().requires_grad_() for tap in taps]
                total, notes = total_loss(variables, {})
                slopes = torch.autograd.grad(total, variables, allow_unused=True)
            notes = [tuple(note.detach() for note in some) for some in notes]
            pairs = zip(taps, slopes, strict=True)
            derivatives: _Derivatives = (
                [torch.zeros_like(tap) if slope is None else slope for tap, slope in pairs],
                {},
            )
        else:
            derivatives, notes = torch.func.grad(total_loss, argnums=(0, 1), has_aux=True)(
                taps, loose
            )
        gradients = self._by_place(notes, derivatives)
        if self._views == 1:
            return gradients
        return {place: part.grouped(self._views) for place, part in gradients.items()}

    def _each_example(
        self,
        parameters: Sequence[Tensor],
        features: Tensor,
        targets: Tensor,
        taps: Sequence[Tensor],
        loose: dict[int, Tensor],
    ) -> tuple[Tensor, list[Notes]]:
        """The model on every example separately, each with its own loose parameters."""

        def one_example(
            point: Tensor, target: Tensor, taps: Sequence[Tensor], own: dict[int, Tensor]
        ) -> tuple[Tensor, list[Notes]]:
            given = [
                value + own[place] if place in own else value
                for place, value in enumerate(parameters)
            ]
            outputs, records = self._run(given, point.unsqueeze(0), taps)
            loss = self._loss(outputs, target.unsqueeze(0)).sum()
            return loss, [notes for _, notes in records]

        losses, notes = torch.func.vmap(one_example)(features, targets, list(taps), loose)
        return losses, notes

    def _by_place(
        self, notes: Sequence[Notes], derivatives: _Derivatives
    ) -> dict[int, ParameterGradients]:
        places: dict[int, ParameterGradients] = {}
        for call, note, derivative in zip(self.calls, notes, derivatives[0], strict=True):
            unit, values = self.units[call.unit], [derivative, *note]
            if call.axes:  # the example's axis first; each example ran as a batch of one
                values = [
                    value if axis is None else value.squeeze(axis + 1)
                    for value, axis in zip(values, call.axes, strict=True)
                ]
            ruled = unit.rule.gradients(unit.layer, call.part, tuple(values[1:]), values[0])
            for name, part in ruled.items():
                if (place := unit.parameters.get(name)) is not None:
                    places[place] = places[place].plus(part) if place in places else part
        explicit = {place: Explicit(derivative) for place, derivative in derivatives[1].items()}
        return {**places, **explicit}


def ruled_units(module: torch.nn.Module, taps: Taps, rule_for: RuleFor = rule_for) -> list[Unit]:
    """The outermost layers with a rule, in the order of the module's children."""
    places = {id(parameter): place for place, parameter in enumerate(trainable(module))}
    units: list[Unit] = []
    visited: set[int] = set()
    waiting = [module]
    while waiting:
        layer = waiting.pop()
        own = {n: places[id(p)] for n, p in layer.named_parameters() if p.requires_grad}
        if id(layer) in visited or not own:
            continue
        visited.add(id(layer))
        rule = None if taps.loose & set(own.values()) else rule_for(layer)
        if rule is not None:
            units.append(Unit(layer=layer, rule=rule, parameters=own))
        else:
            waiting.extend(reversed(list(layer.children())))
    return units


def describe(name: str, layer: torch.nn.Module) -> str:
    """A layer in messages: its qualified name and its type."""
    kind = type(layer).__name__
    return f"layer {name!r} ({kind})" if name else f"the model itself ({kind})"
