"""Models built under given seeds, their parameters as flat vectors, arrays as tensors."""

from __future__ import annotations

import copy
import functools
import threading
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dpaudit.engine.noise import Stream
from dpaudit.mechanisms.dpsgd import DPSGD, FixedInitialisation

_building = threading.Lock()
"""Held while torch's global generator has the seed of a model."""


def build_model(mechanism: DPSGD, *, seed: int) -> torch.nn.Module:
    """A copy of the model built under ``seed``; torch's global generator is not changed."""
    return _built(mechanism.build_model, seed)


def known_model(mechanism: DPSGD) -> torch.nn.Module:
    """The starting model if it is fixed; otherwise one of the possible starting models.

    A copy each time; the models of the last few trainings are built once.
    """
    start, build = mechanism.initialisation, mechanism.build_model
    seed = start.seed if isinstance(start, FixedInitialisation) else 0
    return copy.deepcopy((_remembered if isinstance(build, Hashable) else _built)(build, seed))


def _built(build: Callable[[], torch.nn.Module], seed: int) -> torch.nn.Module:
    with _building, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return copy.deepcopy(build())


_remembered = functools.lru_cache(maxsize=2)(_built)


def trainable(model: torch.nn.Module) -> list[torch.nn.Parameter]:
    """The trained parameters, in the order of ``model.parameters()``."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def flat_parameters(model: torch.nn.Module, dtype: torch.dtype = torch.float32) -> Tensor:
    """The trained parameters as one vector."""
    return torch.cat([parameter.detach().flatten().to(dtype) for parameter in trainable(model)])


def initial_parameters(
    mechanism: DPSGD, *, seed: int, runs: Tensor, dtype: torch.dtype = torch.float32
) -> Tensor:
    """The initial parameters of ``runs``, shape (runs, parameters)."""
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
    """The array as a tensor; copied only if it is read-only, which torch does not support."""
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def run_seed(seed: int, run: int) -> int:
    """The seed under which run number ``run`` builds its model."""
    words = np.random.SeedSequence((seed, int(Stream.INITIALISATION), run)).generate_state(2)
    return int(words[0]) << 32 | int(words[1])
