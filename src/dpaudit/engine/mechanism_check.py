"""The check of a mechanism before any training.

What the types of layers do not show is tested on a few examples: whether examples are mixed,
whether the model is deterministic, and whether the fast clipped sums are correct.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, nn

from dpaudit.engine import reference
from dpaudit.engine.clipping import ClippedSums
from dpaudit.engine.fused_step import is_plain_network
from dpaudit.engine.refusals import refuse_layers, refuse_types
from dpaudit.engine.rules import rules
from dpaudit.engine.starting_points import (
    as_tensor,
    build_model,
    flat_parameters,
    known_model,
    trainable,
)
from dpaudit.engine.tapping import TappedModel, Taps
from dpaudit.errors import InvalidInput, UnsupportedModel
from dpaudit.mechanisms.dpsgd import DPSGD, FreshInitialisation

_PROBE = 4  # examples
_CLOSE = 1e-6  # in float64: rounding is far smaller and the error of a wrong rule far larger
_CLOSE_IN_FLOAT32 = 1e-2  # rounding alone changes a deep network with ReLUs by 1e-3


@final
@dataclass(frozen=True, kw_only=True)
class Checked:
    """The result of checking a mechanism.

    Arguments:
        parameters: Number of trained parameters.
        taps: How the model must be tapped.
        notices: Notices for the user.
    """

    parameters: int
    taps: Taps
    notices: tuple[str, ...]


def check_mechanism(mechanism: DPSGD) -> Checked:
    """Raise `UnsupportedModel` or `InvalidInput` if the training cannot be clipped per example."""
    model = known_model(mechanism)
    if not isinstance(model, nn.Module):
        raise InvalidInput(f"build_model must return a torch.nn.Module, got {type(model).__name__}")
    refuse_types(model)
    refuse_layers(model)
    if isinstance(mechanism.initialisation, FreshInitialisation):
        _check_constants(mechanism, model)
    features = as_tensor(mechanism.data.features[: _PROBE + 1])
    targets = as_tensor(mechanism.data.targets[: _PROBE + 1])
    if features.is_floating_point():
        features = features.to(trainable(model)[0].dtype)
    _check_losses(mechanism, model, features, targets)
    examples = features[:_PROBE], targets[:_PROBE]
    taps, notices = _choose_taps(mechanism, *_in_float64(mechanism, model, *examples))
    return Checked(parameters=sum(p.numel() for p in trainable(model)), taps=taps, notices=notices)


def _check_constants(mechanism: DPSGD, model: nn.Module) -> None:
    other = build_model(mechanism, seed=1)
    here = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    there = {**dict(other.named_parameters()), **dict(other.named_buffers())}
    for name, value in here.items():
        if not value.requires_grad and not torch.equal(value, there[name]):
            raise UnsupportedModel(
                f"{name!r} is not trained but differs between two builds of the model; with "
                "FreshInitialisation only trained parameters may be random"
            )


def _check_losses(mechanism: DPSGD, model: nn.Module, features: Tensor, targets: Tensor) -> None:
    losses = _losses(mechanism, model, features[:-1], targets[:-1])
    examples = len(targets) - 1
    if losses.shape != (examples,):
        raise InvalidInput(
            f"loss must give one number per example, shape ({examples},) for {examples} examples, "
            f"got shape {tuple(losses.shape)}; a torch loss does with reduction='none'"
        )
    if not torch.isfinite(losses).all():
        raise InvalidInput(
            f"loss must be finite on the data at the start of training, got {losses.tolist()}"
        )
    buffers = {name: value.clone() for name, value in model.named_buffers()}
    again = _losses(mechanism, model, features[:-1], targets[:-1])
    changed = [
        name for name, value in model.named_buffers() if not torch.equal(value, buffers[name])
    ]
    if changed:
        raise UnsupportedModel(
            f"the forward pass changes the buffer {changed[0]!r}, so examples affect each other; "
            "remove it, or call .eval() on its layer in build_model"
        )
    if not torch.allclose(losses, again, rtol=1e-6, atol=1e-9):
        raise UnsupportedModel(
            "the model gives different losses for the same examples: it draws random numbers, so "
            "the training could not be repeated; remove them"
        )
    # Replace the last example: the losses of the others must not change.
    others = [*range(examples - 1), examples]
    swapped = _losses(mechanism, model, features[others], targets[others])
    if examples > 1 and not torch.allclose(losses[:-1], swapped[:-1], rtol=1e-4, atol=1e-6):
        raise UnsupportedModel(
            "the model or the loss mixes the examples of a batch: an example's loss changed when "
            "another example was replaced; look for statistics over the first axis, and use "
            "torch.nn.GroupNorm or LayerNorm to normalise"
        )


def _losses(mechanism: DPSGD, model: nn.Module, features: Tensor, targets: Tensor) -> Tensor:
    try:
        with torch.no_grad():
            losses = mechanism.loss(model(features), targets)
    except Exception as error:
        raise InvalidInput(
            f"the model or the loss fails on the first {len(targets)} examples of the data "
            f"(features of shape {tuple(features.shape)}): {error}"
        ) from error
    if not isinstance(losses, Tensor):
        raise InvalidInput(f"loss must return a tensor, got {type(losses).__name__}")
    return losses


def _in_float64(
    mechanism: DPSGD, model: nn.Module, features: Tensor, targets: Tensor
) -> tuple[nn.Module, Tensor, Tensor]:
    """Model and examples in float64; unchanged if model or loss require another type."""
    precise = copy.deepcopy(model).double()
    numbers = features.double() if features.is_floating_point() else features
    try:
        if _losses(mechanism, precise, numbers, targets).dtype == torch.float64:
            return precise, numbers, targets
    except InvalidInput:
        pass
    return model, features, targets


def _choose_taps(
    mechanism: DPSGD, model: nn.Module, features: Tensor, targets: Tensor
) -> tuple[Taps, tuple[str, ...]]:
    """The cheapest way to tap the model that gives the sums of the slow twin."""
    problem = "they differ from those of one example at a time"
    everything = frozenset(range(len(trainable(model))))
    for taps in _candidates(model, everything):
        tapped = TappedModel(model, rules(convolutions="library"), taps)
        if tapped.loose and not taps.per_example:
            continue
        try:
            if _sums_are_right(mechanism, model, tapped, features, targets):
                return taps, tapped.notices
            wrong = _wrong_places(mechanism, model, tapped, features, targets)
            if wrong and taps.per_example and wrong != everything:
                # A parameter is also used outside its layer: tap it at its value.
                taps = Taps(per_example=True, loose=wrong)
                tapped = TappedModel(model, rules(convolutions="library"), taps)
                if _sums_are_right(mechanism, model, tapped, features, targets):
                    return taps, tapped.notices
        except Exception as error:  # torch.func raises many types for unsupported models
            problem = (str(error).strip() or repr(error)).splitlines()[0]
    raise UnsupportedModel(
        f"per-example gradients of this model could not be computed with torch.func: {problem}; "
        "the forward pass must treat examples separately and not branch on their values. Models of "
        "Hugging Face need attn_implementation='eager' and an attention_mask for this"
    )


def _candidates(model: nn.Module, everything: frozenset[int]) -> Iterator[Taps]:
    """Ways to tap the model, cheapest first; then without one rule, and without any."""
    yield Taps()
    yield Taps(per_example=True)
    places: dict[str, frozenset[int]] = {}
    for unit in TappedModel(model, rules(convolutions="library")).units:
        kind = type(unit.rule).__name__
        places[kind] = places.get(kind, frozenset()) | frozenset(unit.parameters.values())
    for loose in places.values():
        if loose != everything:
            yield Taps(per_example=True, loose=loose)
    yield Taps(per_example=True, loose=everything)


def _wrong_places(
    mechanism: DPSGD, model: nn.Module, tapped: TappedModel, features: Tensor, targets: Tensor
) -> frozenset[int]:
    """The parameters whose unclipped gradients differ from those of the slow twin."""
    sums = _sums(mechanism, model, tapped, features)
    found, expected = _both_sums(mechanism, model, sums, features, targets, float("inf"))
    sizes = list(tapped.sizes)
    pairs = zip(torch.split(found, sizes), torch.split(expected, sizes), strict=True)
    limit = _tolerance(found) * expected.norm().clamp(min=1e-12)
    return frozenset(
        place for place, (one, two) in enumerate(pairs) if not (one - two).norm() <= limit
    )


def _sums_are_right(
    mechanism: DPSGD, model: nn.Module, tapped: TappedModel, features: Tensor, targets: Tensor
) -> bool:
    """Compare fast and slow sums, at a clip norm that clips about half of the examples."""
    start = flat_parameters(model, trainable(model)[0].dtype)
    sums = _sums(mechanism, model, tapped, features)
    norms = sums.norms(start.unsqueeze(0), features, targets)
    clip_norm = float(norms[0].median()) or 1.0
    found, expected = _both_sums(mechanism, model, sums, features, targets, clip_norm)
    limit = _tolerance(found) * expected.norm().clamp(min=1e-12)
    return bool((found - expected).norm() <= limit)


def _both_sums(
    mechanism: DPSGD,
    model: nn.Module,
    sums: ClippedSums,
    features: Tensor,
    targets: Tensor,
    clip_norm: float,
) -> tuple[Tensor, Tensor]:
    """The clipped sums of the engine and of the slow twin."""
    start = flat_parameters(model, trainable(model)[0].dtype)
    weights = torch.ones(1, len(targets), dtype=start.dtype)
    norm = torch.tensor(clip_norm, dtype=start.dtype)
    with torch.no_grad():
        found = sums(start.unsqueeze(0), features, targets, weights, norm)[0]
    expected = reference.clipped_sum(
        copy.deepcopy(model),
        mechanism.loss,
        features,
        targets,
        clip_norm=clip_norm,
        dtype=start.dtype,
    )
    return found, expected


def _sums(mechanism: DPSGD, model: nn.Module, tapped: TappedModel, features: Tensor) -> ClippedSums:
    calls = tapped.measure([p.detach() for p in trainable(model)], features)
    if not tapped.taps.per_example and any(call.shape[:1] != features.shape[:1] for call in calls):
        raise ValueError("a layer is called once for the whole batch, or the batch is reshaped")
    plain = is_plain_network(model, mechanism.loss)
    return ClippedSums(tapped, mechanism.loss, calls, plain=plain)


def _tolerance(values: Tensor) -> float:
    return _CLOSE if values.dtype == torch.float64 else _CLOSE_IN_FLOAT32
