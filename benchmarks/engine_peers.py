"""What the engine is measured against: a loop around Opacus, and `vmap(vmap(grad))`.

Both train like the engine does: clip, add noise, update. Neither inserts canaries.
"""

from __future__ import annotations

import importlib.util
import itertools
import time
import warnings
from typing import Literal

import torch
from torch import Tensor

from dpaudit.engine.compiling import numerics
from dpaudit.engine.speed import Precision, Speed
from dpaudit.engine.starting_points import (
    as_tensor,
    flat_parameters,
    initial_parameters,
    known_model,
    trainable,
)
from dpaudit.engine.training import Engine
from dpaudit.mechanisms.dpsgd import DPSGD


def seconds_per_step(step: object, *, device: torch.device, warm_up: int, steps: int) -> float:
    """The mean time of ``step()``, the device's queue emptied before and after."""
    for _ in range(warm_up):
        step()  # type: ignore[operator]
    _wait(device)
    begin = time.perf_counter()
    for _ in range(steps):
        step()  # type: ignore[operator]
    _wait(device)
    return (time.perf_counter() - begin) / steps


def opacus(mechanism: DPSGD, device: torch.device, *, steps: int) -> float | None:
    """Seconds a step of one model in Opacus, the batch in place; `None` if not installed.

    The leanest loop there is: no loader, no accountant, one batch for ever.
    """
    if importlib.util.find_spec("opacus") is None:
        return None
    from opacus.grad_sample import GradSampleModule
    from opacus.optimizers import DPOptimizer

    features, targets = _batch(mechanism, device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = GradSampleModule(known_model(mechanism).to(device))
        optimizer = DPOptimizer(
            torch.optim.SGD(model.parameters(), lr=mechanism.learning_rate),
            noise_multiplier=mechanism.noise_multiplier,
            max_grad_norm=mechanism.clip_norm,
            expected_batch_size=len(targets),
        )

        def step() -> None:
            optimizer.zero_grad()
            mechanism.loss(model(features), targets).mean().backward()
            optimizer.step()

        return _best_of_threads(step, device, steps)


def opacus_as_documented(mechanism: DPSGD, device: torch.device, *, steps: int) -> float | None:
    """Seconds a step of Opacus's own recipe: `PrivacyEngine` and a `DataLoader`."""
    if importlib.util.find_spec("opacus") is None:
        return None
    from opacus import PrivacyEngine
    from torch.utils.data import DataLoader, TensorDataset

    data = mechanism.data
    rows = TensorDataset(as_tensor(data.features), as_tensor(data.targets))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = known_model(mechanism).to(device)
        model, optimizer, loader = PrivacyEngine().make_private(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=mechanism.learning_rate),
            data_loader=DataLoader(
                rows, batch_size=round(mechanism.batches.expected_size(len(data)))
            ),
            noise_multiplier=mechanism.noise_multiplier,
            max_grad_norm=mechanism.clip_norm,
            poisson_sampling=False,
        )
        batches = itertools.chain.from_iterable(itertools.repeat(loader))

        def step() -> None:
            features, targets = (part.to(device) for part in next(batches))
            optimizer.zero_grad()
            mechanism.loss(model(features), targets).mean().backward()
            optimizer.step()

        return _best_of_threads(step, device, steps)


def _best_of_threads(step: object, device: torch.device, steps: int) -> float:
    """A small model is often faster on one core: the peer may choose."""
    threads = torch.get_num_threads()
    seconds = []
    try:
        for count in {1, threads} if device.type == "cpu" else {threads}:
            torch.set_num_threads(count)
            seconds.append(seconds_per_step(step, device=device, warm_up=5, steps=steps))
    finally:
        torch.set_num_threads(threads)
    return min(seconds)


def nested_vmap(
    mechanism: DPSGD, device: torch.device, *, runs: int, steps: int, dtype: torch.dtype
) -> float:
    """Seconds a model-step of `vmap` over runs of `vmap` over examples of `grad`."""
    template = known_model(mechanism).to(device, dtype)
    names = [name for name, p in template.named_parameters() if p.requires_grad]
    shapes = [p.shape for p in trainable(template)]
    sizes = [p.numel() for p in trainable(template)]
    features, targets = _batch(mechanism, device)
    features = features.to(dtype)
    rate = mechanism.learning_rate / len(targets)
    spread = mechanism.noise_multiplier * mechanism.clip_norm

    def loss(flat: Tensor, feature: Tensor, target: Tensor) -> Tensor:
        pieces = zip(torch.split(flat, sizes), shapes, strict=True)
        given = dict(zip(names, (piece.view(shape) for piece, shape in pieces), strict=True))
        outputs = torch.func.functional_call(template, given, (feature.unsqueeze(0),))
        return mechanism.loss(outputs, target.unsqueeze(0)).sum()

    def one_run(flat: Tensor) -> Tensor:
        each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))
        gradients = each(flat, features, targets)
        factors = torch.clamp(mechanism.clip_norm / gradients.float().norm(dim=1), max=1.0)
        return factors.to(dtype) @ gradients

    current = flat_parameters(template, dtype).to(device).expand(runs, -1).contiguous()

    def step() -> None:
        nonlocal current
        with torch.no_grad():
            sums = torch.func.vmap(one_run)(current)
            current = current - rate * (sums + spread * torch.randn_like(sums))

    return seconds_per_step(step, device=device, warm_up=2, steps=steps) / runs


def _batch(mechanism: DPSGD, device: torch.device) -> tuple[Tensor, Tensor]:
    chosen = mechanism.batches.indices(0, len(mechanism.data))
    features = as_tensor(mechanism.data.features[chosen]).to(device)
    return features, as_tensor(mechanism.data.targets[chosen]).to(device)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def not_private(mechanism: DPSGD, device: torch.device, *, runs: int, steps: int) -> float:
    """Seconds a model-step of SGD without clipping and noise, ``runs`` models by `vmap`."""
    template = known_model(mechanism).to(device)
    names = [name for name, p in template.named_parameters() if p.requires_grad]
    shapes = [p.shape for p in trainable(template)]
    sizes = [p.numel() for p in trainable(template)]
    features, targets = _batch(mechanism, device)

    def loss(flat: Tensor) -> Tensor:
        pieces = zip(torch.split(flat, sizes), shapes, strict=True)
        given = dict(zip(names, (piece.view(shape) for piece, shape in pieces), strict=True))
        outputs = torch.func.functional_call(template, given, (features,))
        return mechanism.loss(outputs, targets).mean()

    current = flat_parameters(template).to(device).expand(runs, -1).contiguous()

    def step() -> None:
        nonlocal current
        current = current - mechanism.learning_rate * torch.func.vmap(torch.func.grad(loss))(
            current
        )

    return seconds_per_step(step, device=device, warm_up=2, steps=steps) / runs


def arithmetic_floor(mechanism: DPSGD, device: torch.device) -> float:
    """Seconds a model-step of the products alone, at the speed of a large matrix product.

    One core of a CPU; linear layers only: six operations a weight and example.
    """
    size = 1024 if device.type == "cpu" else 8192
    square = torch.ones(size, size, device=device)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        seconds = seconds_per_step(lambda: square @ square, device=device, warm_up=2, steps=5)
    finally:
        torch.set_num_threads(threads)
    weights = sum(p.numel() for p in trainable(known_model(mechanism)))
    examples = mechanism.batches.expected_size(len(mechanism.data))
    return 6 * weights * examples * seconds / (2 * size**3)


def engine(
    mechanism: DPSGD,
    device: torch.device,
    *,
    runs: int,
    steps: int,
    compiled: bool | Literal["fused"],
    precision: Precision = "float32",
) -> float:
    """Seconds a model-step of dpaudit's engine, in one thread on a CPU."""
    speed = Speed(device=str(device), precision=precision)
    with numerics(precision, device):
        engine = Engine(mechanism, runs=runs, speed=speed, compiled=compiled)
        numbers = torch.arange(runs)
        start = initial_parameters(mechanism, seed=0, runs=numbers)
        played = engine.states(start, numbers, torch.zeros(runs, 0), after=(5, 5 + steps))
        next(played)  # compiles, and compares with the uncompiled step
        return seconds_per_step(lambda: next(played), device=device, warm_up=0, steps=1) / (
            steps * runs
        )
