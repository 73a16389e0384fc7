"""What several adapters need: rows as a model, seeds, and the settings that all of them share."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from dpaudit.checks import CheckResult
from dpaudit.checks import check_step as _check_step

Array = npt.NDArray[np.float64]

SHAPES = {"weight": (20, 30), "bias": (20,)}
PARAMETERS = 620
SIGMA, CLIP, BATCH = 1.0, 1.0, 16


def check_step(step: Callable[[Array, int], Any], **options: Any) -> CheckResult:
    """`dpaudit.checks.check_step` with the settings that all adapters share."""
    settings = {"clip_norm": CLIP, "noise_multiplier": SIGMA, "parameters": PARAMETERS}
    return _check_step(step, **(settings | {"batch_size": BATCH} | options))


def seed_everything(seed: int) -> None:
    """Seed every global generator that a library may draw its noise from."""
    import torch

    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def flat(parameters: Any) -> Array:
    """Tensors or arrays, in order, as one vector."""
    pieces = [np.asarray(getattr(p, "detach", lambda p=p: p)(), dtype=float) for p in parameters]
    return np.concatenate([piece.ravel() for piece in pieces])


def split(vector: Array, shapes: dict[str, tuple[int, ...]] = SHAPES) -> list[Array]:
    """One vector as arrays of these shapes, in order."""
    pieces, start = [], 0
    for shape in shapes.values():
        size = int(np.prod(shape))
        pieces.append(np.asarray(vector[start : start + size], dtype=np.float32).reshape(shape))
        start += size
    return pieces


def linear_model(bias: bool = False) -> Any:
    """A linear layer with one output: the gradient of its output is the example itself."""
    import torch

    model = torch.nn.Linear(PARAMETERS, 1, bias=bias)
    torch.nn.init.zeros_(model.weight)
    return model
