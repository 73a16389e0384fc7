"""Everything that decides the scores of an audit, as plain data: what the store keeps and compares.

Delta and confidence are not here: they decide what is read from the scores, so the same scores can
be asked again. Device and versions are not here either: they may change scores by rounding only,
and are kept for each session instead.
"""

from __future__ import annotations

import dataclasses
import hashlib
import platform
from typing import TYPE_CHECKING, Any

from dpaudit.mechanisms.dpsgd import DPSGD
from dpaudit.threat_models import Adversary, Canaries

if TYPE_CHECKING:
    import torch

    from dpaudit.engine import Speed
    from dpaudit.games import Game

_LOOKED_AT = 32  # examples whose loss at the start stands for what the loss computes


def describe(game: Game, speed: Speed) -> dict[str, Any]:
    """The configuration of an audit: equal for equal audits, in any process and on any device.

    Arguments:
        game: What is played.
        speed: How, settled; of it only what touches the scores is kept.
    """
    return {
        "mechanism": _mechanism(game.mechanism),
        "adversary": _adversary(game.adversary, game.canaries),
        "insertion": {"period": game.insertion.period, "offset": game.insertion.offset},
        "runs": game.runs,
        "canaries": game.canaries.count,
        "coin": game.coin,
        "seed": game.seed,
        "horizons": list(game.horizons),
        "speed": {
            "precision": speed.precision,
            "tile_size": speed.tile_size,
            "compile": speed.compile,
            "convolutions": speed.convolutions,
        },
    }


def versions(device: torch.device) -> dict[str, str]:
    """Software and device of this session."""
    import numpy
    import torch

    from dpaudit._version import __version__

    return {
        "dpaudit": __version__,
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        "torch": torch.__version__,
        "device": device_name(device),
    }


def device_name(device: torch.device) -> str:
    """The device in words: ``cpu``, or the name of the GPU."""
    import torch

    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def _mechanism(mechanism: DPSGD) -> dict[str, Any]:
    return {
        "name": mechanism.name,
        "model": _model(mechanism),
        "loss": _function(mechanism.loss),
        "data": {
            "name": mechanism.data.name,
            "examples": len(mechanism.data),
            "fingerprint": mechanism.data.fingerprint,
        },
        "batches": _parts(mechanism.batches),
        "sampling_rate": mechanism.sampling_rate,
        "steps": mechanism.steps,
        "learning_rate": mechanism.learning_rate,
        "clip_norm": mechanism.clip_norm,
        "noise_multiplier": mechanism.noise_multiplier,
        "initialisation": _parts(mechanism.initialisation),
        **{
            name: _parts(value) if dataclasses.is_dataclass(value) else value
            for name, value in mechanism.further_settings().items()
        },
    }


def _model(mechanism: DPSGD) -> dict[str, Any]:
    """The model by its layers and its starting point, and by what the loss makes of it.

    A function is only known by its name. Its value at the start, rounded beyond what devices
    disagree on, changes when somebody rewrites the function under the same name.
    """
    import torch

    from dpaudit.engine.starting_points import as_tensor, known_model, trainable

    model = known_model(mechanism)
    values = [*model.named_parameters(), *model.named_buffers()]
    start = hashlib.blake2b(digest_size=8)
    for name, value in values:
        start.update(f"{name}{tuple(value.shape)}{value.dtype}{value.requires_grad}".encode())
        start.update(value.detach().cpu().contiguous().numpy().tobytes())
    features = as_tensor(mechanism.data.features[:_LOOKED_AT])
    if features.is_floating_point():
        features = features.to(trainable(model)[0].dtype)
    with torch.no_grad():
        losses = mechanism.loss(model(features), as_tensor(mechanism.data.targets[:_LOOKED_AT]))
    return {
        "class": type(model).__qualname__,
        "parameters": sum(parameter.numel() for parameter in trainable(model)),
        "layers": hashlib.blake2b(str(model).encode(), digest_size=8).hexdigest(),
        "start": start.hexdigest(),
        "loss_at_start": float(f"{float(losses.double().mean()):.4g}"),
    }


def _adversary(adversary: Adversary, canaries: Canaries) -> dict[str, Any]:
    import torch

    crafted = hashlib.blake2b(digest_size=8)
    for name, value in sorted(vars(canaries).items()):
        crafted.update(name.encode())
        if isinstance(value, torch.Tensor):
            crafted.update(value.detach().cpu().contiguous().numpy().tobytes())
        else:
            crafted.update(repr(value).encode())
    return {
        "name": adversary.name,
        "threat_model": adversary.threat_model.value,
        "settings": _parts(adversary),
        "crafted": crafted.hexdigest(),
    }


def _parts(owner: object) -> dict[str, Any]:
    """A frozen object as its class and its fields; fields that are not plain as their text."""
    if dataclasses.is_dataclass(owner):
        values = {
            field.name: getattr(owner, field.name)
            for field in dataclasses.fields(owner)
            if field.init
        }
    else:
        values = {name: value for name, value in vars(owner).items() if not name.startswith("_")}
    plain = (bool, int, float, str, type(None))
    return {
        "class": type(owner).__qualname__,
        **{
            name: value if isinstance(value, plain) else repr(value)
            for name, value in values.items()
        },
    }


def _function(function: object) -> str:
    """A function, a `functools.partial` of one, or a callable object, by name."""
    inner = getattr(function, "func", None)
    if inner is not None:
        given = getattr(function, "args", ()), getattr(function, "keywords", {})
        return f"{_function(inner)}{given}"
    name = getattr(function, "__qualname__", None)
    return f"{function.__module__}.{name}" if name else repr(function)
