"""Models under seeds of their own, their parameters as flat vectors, arrays as tensors."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dpaudit.engine.noise import Stream
from dpaudit.mechanisms.dpsgd import DPSGD, FixedInitialisation


def build_model(mechanism: DPSGD, *, seed: int) -> torch.nn.Module:
    """The model built under ``seed``, as a copy; torch's global generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return copy.deepcopy(mechanism.build_model())


def known_model(mechanism: DPSGD) -> torch.nn.Module:
    """The starting model where it is fixed; otherwise one of those that might be drawn."""
    start = mechanism.initialisation
    return build_model(mechanism, seed=start.seed if isinstance(start, FixedInitialisation) else 0)


def trainable(model: torch.nn.Module) -> list[torch.nn.Parameter]:
    """The parameters that are trained, in the order of ``model.parameters()``."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def flat_parameters(model: torch.nn.Module, dtype: torch.dtype = torch.float32) -> Tensor:
    """The trained parameters as one vector."""
    return torch.cat([parameter.detach().flatten().to(dtype) for parameter in trainable(model)])


def initial_parameters(
    mechanism: DPSGD, *, seed: int, runs: Tensor, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Where each of ``runs`` begins, shape (runs, parameters): one point for all, or one each."""
    if isinstance(mechanism.initialisation, FixedInitialisation):
        start = flat_parameters(known_model(mechanism), dtype)
        return start.expand(len(runs), -1).contiguous()
    return torch.stack(
        [
            flat_parameters(build_model(mechanism, seed=run_seed(seed, run)), dtype)
            for run in runs.tolist()
        ]
    )


def as_tensor(array: NDArray[Any]) -> Tensor:
    """The array as a tensor; a copy only where it is read-only, which torch cannot promise."""
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def run_seed(seed: int, run: int) -> int:
    """The seed under which run number ``run`` builds its own model."""
    words = np.random.SeedSequence((seed, int(Stream.INITIALISATION), run)).generate_state(2)
    return int(words[0]) << 32 | int(words[1])
