"""The check of a mechanism before any training.

Some layers are refused by their type. If a layer mixes examples, one example's gradient depends on
the others, and clipping does not bound an example's influence. If a layer draws random numbers or
keeps state between batches, the training cannot be repeated. Some layers have no per-example
gradients in torch.

What the types of layers do not show is tested on a few examples: whether examples are mixed,
whether the model is deterministic, and whether the fast clipped sums are correct.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import final
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from dpaudit.data import Examples
from dpaudit.engine import reference
from dpaudit.engine.clipped_sums import ClippedSums, Taps, describe, ruled_units
from dpaudit.engine.compiling import numerics
from dpaudit.engine.starting_points import (
    as_tensor,
    build_model,
    flat_parameters,
    known_model,
    trainable,
)
from dpaudit.errors import InvalidInput, UnsupportedModel
from dpaudit.mechanisms.dpsgd import DPSGD, FreshInitialisation

_PROBE = 4  # examples
_CLOSE = 1e-6  # in float64: rounding is far smaller and the error of a wrong rule far larger
_CLOSE_IN_FLOAT32 = 1e-2  # rounding alone changes a deep network with ReLUs by 1e-3


@final
@dataclass(frozen=True, kw_only=True)
class Checked:
    """The result of checking a mechanism."""

    parameters: int  # number of trained ones
    taps: Taps  # how the model must be tapped
    notices: tuple[str, ...]  # for the user


def check_mechanism(mechanism: DPSGD) -> Checked:
    """Raise `UnsupportedModel` or `InvalidInput` if the training cannot be clipped per example.

    Model, loss, start and data decide the result, which is kept as long as the data.
    """
    decisive = (mechanism.build_model, mechanism.loss, mechanism.initialisation)
    with numerics("float32", torch.device("cpu")):  # many threads take longer for four examples
        if not all(isinstance(part, Hashable) for part in decisive):
            return _check(mechanism)
        results = _results.setdefault(mechanism.data, {})
        if decisive not in results:
            results[decisive] = _check(mechanism)
        return results[decisive]


_results: WeakKeyDictionary[Examples, dict[tuple[object, ...], Checked]] = WeakKeyDictionary()


def _check(mechanism: DPSGD) -> Checked:
    model = known_model(mechanism)
    if not isinstance(model, nn.Module):
        raise InvalidInput(f"build_model must return a torch.nn.Module, got {type(model).__name__}")
    refuse_types(model)
    for name, layer in model.named_modules():
        reason = _refusal(layer)
        if reason is not None:
            raise UnsupportedModel(f"{describe(name, layer)} {reason}")
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


def refuse_types(model: nn.Module) -> None:
    """Raise `UnsupportedModel` unless the trained parameters are float32 or float64 numbers."""
    trained = 0
    for name, parameter in model.named_parameters():
        if isinstance(parameter, nn.parameter.UninitializedParameter):
            raise UnsupportedModel(
                f"parameter {name!r} has no shape yet; call the lazy model once in build_model"
            )
        if parameter.dtype not in (torch.float32, torch.float64):
            raise UnsupportedModel(
                f"parameter {name!r} is {str(parameter.dtype).removeprefix('torch.')}; build the "
                "model in float32, and choose Speed(precision='bfloat16') to compute faster"
            )
        trained += parameter.requires_grad
    if not trained:
        raise UnsupportedModel(
            "the model has no parameter to train; set requires_grad on those to be trained"
        )


def _refusal(layer: nn.Module) -> str | None:
    """Why a layer cannot be trained with per-example clipping, if it cannot."""
    match layer:
        case nn.modules.batchnorm._BatchNorm() if layer.training or layer.running_mean is None:
            return (
                "mixes the examples of a batch, so one example's gradient depends on the others; "
                f"use torch.nn.GroupNorm(groups, {layer.num_features}) instead"
            )
        case nn.modules.instancenorm._InstanceNorm() if (
            layer.training and layer.track_running_stats
        ):
            return (
                "keeps running statistics over all examples; set track_running_stats=False, or "
                f"use torch.nn.GroupNorm(groups, {layer.num_features})"
            )
        case nn.Embedding() | nn.EmbeddingBag() if layer.max_norm is not None:
            return "rewrites its table during the forward pass; set max_norm=None"
        case nn.Embedding() | nn.EmbeddingBag() if layer.scale_grad_by_freq:
            return "counts indices across examples; set scale_grad_by_freq=False"
        case nn.LSTMCell() | nn.LSTM() if getattr(layer, "proj_size", 1) > 0 and any(
            parameter.requires_grad for parameter in layer.parameters()
        ):
            return (
                "has no per-example gradients in torch.func; use torch.nn.LSTM without proj_size, "
                "and torch.nn.Linear for a projection"
            )
    draws = isinstance(layer, nn.RReLU)
    if isinstance(layer, nn.modules.dropout._DropoutNd):
        draws = layer.p > 0
    elif isinstance(layer, (nn.MultiheadAttention, nn.RNNBase)):
        draws = float(layer.dropout) > 0
    if layer.training and draws:
        return (
            "draws random numbers during training, so the training could not be repeated; remove "
            "it, set its probability to 0, or call .eval() on it in build_model"
        )
    return None


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
    untried, tried = list(_candidates(model, everything)), set[Taps]()
    while untried:
        taps = untried.pop(0)
        if taps in tried:
            continue
        tried.add(taps)
        try:
            sums = ClippedSums(model, mechanism.loss, features, taps)
            rows = all(call.shape[:1] == features.shape[:1] for call in sums.calls)
            if not taps.per_example and (sums.loose or not rows):
                continue  # a parameter has no rule, or a layer does not see an example as a row
            wrong = _wrong_places(mechanism, model, sums, features, targets)
        except Exception as error:  # torch.func raises many types for unsupported models
            problem = (str(error).strip() or repr(error)).splitlines()[0]
            continue
        if not wrong:
            return taps, sums.notices
        if taps.per_example and wrong != everything:
            # A parameter is also used outside its layer: tap it at its value.
            untried.insert(0, Taps(per_example=True, loose=wrong))
    raise UnsupportedModel(
        f"per-example gradients of this model could not be computed with torch.func: {problem}; "
        "the forward pass must treat examples separately and not branch on their values. Models of "
        "Hugging Face need attn_implementation='eager' and an attention_mask for this"
    )


def _candidates(model: nn.Module, everything: frozenset[int]) -> Iterator[Taps]:
    """Ways to tap the model, cheapest first; then without one rule, and without any."""
    yield Taps()
    yield Taps(per_example=True)
    places: dict[int, frozenset[int]] = {}
    for unit in ruled_units(model, Taps()):
        rule = id(unit.rule)
        places[rule] = places.get(rule, frozenset()) | frozenset(unit.parameters.values())
    for loose in places.values():
        if loose != everything:
            yield Taps(per_example=True, loose=loose)
    yield Taps(per_example=True, loose=everything)


def _wrong_places(
    mechanism: DPSGD, model: nn.Module, sums: ClippedSums, features: Tensor, targets: Tensor
) -> frozenset[int]:
    """The parameters whose sums differ from those of the slow twin: none, if all sums are right.

    The sums are compared at a clip norm that clips about half of the examples. If they differ, the
    unclipped ones show which parameters are wrong; all of them, if only the clipping is.
    """
    dtype = trainable(model)[0].dtype
    start, weights = flat_parameters(model, dtype), torch.ones(1, len(targets), dtype=dtype)
    given = model, mechanism.loss, features, targets
    norms = [gradient.norm() for gradient in reference.example_gradients(*given, dtype=dtype)]
    close = _CLOSE if dtype == torch.float64 else _CLOSE_IN_FLOAT32
    for clip_norm in (float(torch.stack(norms).median()) or 1.0, math.inf):
        with torch.no_grad():
            norm = torch.tensor(clip_norm, dtype=dtype)
            fast = sums(start.unsqueeze(0), features, targets, weights, norm)[0]
        slow = reference.clipped_sum(*given, clip_norm=clip_norm, dtype=dtype)
        apart, limit = fast - slow, close * slow.norm().clamp(min=1e-12)
        if clip_norm < math.inf and apart.norm() <= limit:
            return frozenset()
    pieces = enumerate(torch.split(apart, list(sums.sizes)))
    wrong = frozenset(place for place, piece in pieces if not piece.norm() <= limit)
    return wrong or frozenset(range(len(sums.sizes)))
