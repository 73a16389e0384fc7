"""Descriptions of games that dpaudit plays: digests of models, data and canaries. Needs torch."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

import torch

from dpaudit.audits.description import (
    DescribedAdversary,
    DescribedData,
    DescribedMechanism,
    DescribedModel,
    DescribedSpeed,
    Description,
)
from dpaudit.engine.speed import Speed
from dpaudit.engine.starting_points import as_tensor, known_model, trainable
from dpaudit.errors import InvalidInput
from dpaudit.executors import Capacity
from dpaudit.games import Prepared
from dpaudit.mechanisms.dpsgd import DPSGD
from dpaudit.threat_models import Adversary, Canaries

_LOSS_EXAMPLES = 32


def describe_game(prepared: Prepared) -> Description:
    """The description of a game that is ready to play."""
    game, speed = prepared.game, prepared.speed
    return Description(
        mechanism=_mechanism(game.mechanism),
        adversary=_adversary(game.adversary, game.canaries),
        insertion=game.insertion,
        runs=game.runs,
        canaries=game.canaries.count,
        coin=game.coin,
        seed=game.seed,
        horizons=game.horizons,
        speed=DescribedSpeed(
            precision=speed.precision,
            tile_size=prepared.tile_size,
            compile=speed.compiled,
            convolutions=speed.convolutions,
        ),
    )


def device_name(speed: Speed, capacity: Capacity | None = None) -> str:
    """``cpu``, or the name of the GPU; of other machines only their kind of device is known."""
    if capacity is not None and capacity.device is not None:
        return f"{speed.device} of a cluster"
    device = speed.torch_device()
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def _mechanism(mechanism: DPSGD) -> DescribedMechanism:
    data = mechanism.data
    return DescribedMechanism(
        name=mechanism.name,
        model=_model(mechanism),
        loss=_function(mechanism.loss),
        data=DescribedData(name=data.name, examples=len(data), fingerprint=data.fingerprint),
        batches=_parts(mechanism.batches),
        sampling_rate=mechanism.sampling_rate,
        steps=mechanism.steps,
        learning_rate=float(mechanism.learning_rate),
        clip_norm=float(mechanism.clip_norm),
        noise_multiplier=float(mechanism.noise_multiplier),
        initialisation=_parts(mechanism.initialisation),
        further={
            name: _parts(value) if dataclasses.is_dataclass(value) else value
            for name, value in mechanism.further_settings().items()
        }
        | ({} if (known := _step_lipschitz(mechanism)) is None else {"step_lipschitz": known}),
    )


def _step_lipschitz(mechanism: DPSGD) -> dict[str, Any] | None:
    """The Lipschitz constant of the updates and its reason; `None` if none is known."""
    if mechanism.smoothness is None:
        return None
    try:
        constant = mechanism.smoothness.step_lipschitz(mechanism)
    except InvalidInput:  # the settings do not meet the assumption: no such bound
        return None
    return {"constant": constant, "assumption": mechanism.smoothness.assumption}


def _model(mechanism: DPSGD) -> DescribedModel:
    model = known_model(mechanism)
    start = hashlib.blake2b(digest_size=8)
    for name, value in [*model.named_parameters(), *model.named_buffers()]:
        start.update(f"{name}{tuple(value.shape)}{value.dtype}{value.requires_grad}".encode())
        start.update(value.detach().cpu().contiguous().numpy().tobytes())
    features = as_tensor(mechanism.data.features[:_LOSS_EXAMPLES])
    if features.is_floating_point():
        features = features.to(trainable(model)[0].dtype)
    with torch.no_grad():
        targets = as_tensor(mechanism.data.targets[:_LOSS_EXAMPLES])
        losses = mechanism.loss(model(features), targets)
    return DescribedModel(
        class_name=type(model).__qualname__,
        parameters=sum(parameter.numel() for parameter in trainable(model)),
        layers=hashlib.blake2b(str(model).encode(), digest_size=8).hexdigest(),
        start=start.hexdigest(),
        loss_at_start=float(f"{float(losses.double().mean()):.4g}"),
    )


def _adversary(adversary: Adversary, canaries: Canaries) -> DescribedAdversary:
    crafted = hashlib.blake2b(digest_size=8)
    for name, value in sorted(vars(canaries).items()):
        crafted.update(name.encode())
        if isinstance(value, torch.Tensor):
            crafted.update(value.detach().cpu().contiguous().numpy().tobytes())
        else:
            crafted.update(repr(value).encode())
    return DescribedAdversary(
        name=adversary.name,
        threat_model=adversary.threat_model.value,
        settings=_parts(adversary),
        crafted=crafted.hexdigest(),
    )


def _parts(owner: object) -> dict[str, Any]:
    """An object as its class and its fields; a field that is not plain is written as text."""
    if dataclasses.is_dataclass(owner):
        names = [one.name for one in dataclasses.fields(owner) if one.init]
    else:
        names = [name for name in vars(owner) if not name.startswith("_")]
    values = {name: getattr(owner, name) for name in names}
    plain = (bool, int, float, str, type(None))
    texts = {name: v if isinstance(v, plain) else repr(v) for name, v in values.items()}
    return {"class": type(owner).__qualname__, **texts}


def _function(function: object) -> str:
    """A function, a `functools.partial` of one, or a callable object, by name."""
    inner = getattr(function, "func", None)
    if inner is not None:
        given = getattr(function, "args", ()), getattr(function, "keywords", {})
        return f"{_function(inner)}{given}"
    name = getattr(function, "__qualname__", None)
    return f"{function.__module__}.{name}" if name else repr(function)
