"""Milliseconds of a private step against a step without privacy, for transformers and WRN-16-4.

One run of each model on one device: the engine, compiled and eager, beside SGD without privacy in
torch, compiled on a GPU. Opacus is in `benchmarks/engine.py`. Prints a table in Markdown and keeps
the figures with device and versions.

    python benchmarks/modern_models.py --device cuda --out benchmarks/modern_models.json
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from dpaudit.data import Examples
from dpaudit.engine import Speed
from dpaudit.engine.compiling import CHECKED_CALLS, numerics
from dpaudit.engine.starting_points import as_tensor, initial_parameters, known_model
from dpaudit.engine.training import Engine
from dpaudit.mechanisms import DPSGD, FixedBatches
from dpaudit.mechanisms.losses import cross_entropy
from dpaudit.models import gpt, resnet18, vit_tiny, wide_resnet

STEPS = 30


def tokens(length: int, vocabulary: int, count: int) -> Examples:
    """Random tokens with the next token as target."""
    row = np.random.default_rng(0).integers(0, vocabulary, (count, length + 1))
    return Examples(features=row[:, :-1].copy(), targets=row[:, 1:], classes=vocabulary)


def images(count: int) -> Examples:
    """Random images of the size of CIFAR-10's."""
    random = np.random.default_rng(0)
    features = random.normal(size=(count, 3, 32, 32)).astype(np.float32)
    return Examples(features=features, targets=random.integers(0, 10, count), classes=10)


CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[int], Examples], int]] = {
    "gpt2 small, B=32, L=128": (
        partial(gpt, vocabulary=50257, length=1024, width=768, layers=12, heads=12),
        partial(tokens, 128, 50257),
        32,
    ),
    "resnet18, B=128": (resnet18, images, 128),
    "wrn-16-4, B=128": (wide_resnet, images, 128),
    "gpt 10.8M, B=64, L=128": (gpt, partial(tokens, 128, 256), 64),
    "vit-tiny, B=128": (vit_tiny, images, 128),
}


def training(build: Callable[[], nn.Module], data: Examples, batch_size: int) -> DPSGD:
    """A long training; only its first steps are timed."""
    return DPSGD(
        build_model=build,
        loss=cross_entropy,
        data=data,
        batches=FixedBatches(batch_size=batch_size),
        steps=10 * STEPS,
        learning_rate=0.01,
        clip_norm=1.0,
        noise_multiplier=1.0,
    )


def private(mechanism: DPSGD, speed: Speed, *, compiled: bool) -> dict[str, float]:
    """Seconds of a step, seconds until the first step, and GiB of memory."""
    device, began = speed.torch_device(), time.perf_counter()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    runs = torch.arange(1)
    start = initial_parameters(mechanism, seed=0, runs=runs)
    with numerics(speed.precision, device):
        engine = Engine(mechanism, runs=1, speed=speed, compiled=compiled)
        steps = engine.states(start, runs, torch.zeros(1, 0))
        next(steps)
        _wait(device)
        first = time.perf_counter() - began
        for _ in range(CHECKED_CALLS):
            next(steps)
        seconds = _timed(lambda: next(steps), device)
    return {"ms": 1e3 * seconds, "until the first step, s": first, "GiB": _memory(device)}


def plain(mechanism: DPSGD, speed: Speed, *, compiled: bool) -> dict[str, float]:
    """The same for SGD without privacy."""
    device, began = speed.torch_device(), time.perf_counter()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    model = known_model(mechanism).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    count = int(mechanism.batches.expected_size(len(mechanism.data)))
    features = as_tensor(mechanism.data.features[:count]).to(device)
    targets = as_tensor(mechanism.data.targets[:count]).to(device)

    def total(features: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return cross_entropy(model(features), targets).mean()

    loss = torch.compile(total) if compiled else total

    def step() -> None:
        optimizer.zero_grad()
        loss(features, targets).backward()
        optimizer.step()

    with numerics(speed.precision, device):
        step()
        _wait(device)
        first = time.perf_counter() - began
        seconds = _timed(step, device)
    return {"ms": 1e3 * seconds, "until the first step, s": first, "GiB": _memory(device)}


def _timed(step: Callable[[], object], device: torch.device) -> float:
    """The median over five blocks of steps, after steps in which torch may compile again."""
    blocks, steps = (5, STEPS // 5) if device.type == "cuda" else (1, 2)
    for _ in range(steps):
        step()
    seconds = []
    for _ in range(blocks):
        _wait(device)
        began = time.perf_counter()
        for _ in range(steps):
            step()
        _wait(device)
        seconds.append((time.perf_counter() - began) / steps)
    return statistics.median(seconds)


def _memory(device: torch.device) -> float:
    return torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else float("nan")


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="auto", help="Device used.")
    parser.add_argument("--only", nargs="*", default=[""], help="Parts of the names of cases.")
    parser.add_argument("--precision", nargs="*", help="Precisions; all that suit the device.")
    parser.add_argument("--virtual-batch", type=int, help="Examples per virtual batch.")
    parser.add_argument("--eager", action="store_true", help="Also measure without compilation.")
    parser.add_argument("--out", type=Path, help="JSON file for the figures.")
    options = parser.parse_args()
    gpu = Speed(device=options.device).torch_device().type == "cuda"
    found: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if gpu else platform.processor(),
        "torch": torch.__version__,
        "rows": [],
    }
    print("| case | what | ms a step | x not private | until the first step, s | GiB |")
    print("|---|---|---|---|---|---|")
    for precision in options.precision or (("tf32", "bfloat16") if gpu else ("float32",)):
        for name, (build, data, batch_size) in CASES.items():
            if not any(part in name for part in options.only):
                continue
            mechanism = training(build, data(2 * batch_size), batch_size)
            speed = Speed(
                device=options.device, precision=precision, virtual_batch=options.virtual_batch
            )
            rows = {"not private": plain(mechanism, speed, compiled=gpu)}
            rows["engine, compiled"] = private(mechanism, speed, compiled=True)
            if options.eager:
                rows["engine, eager"] = private(mechanism, speed, compiled=False)
            for what, row in rows.items():
                ratio = row["ms"] / rows["not private"]["ms"]
                print(
                    f"| {name} | {what}, {precision} | {row['ms']:.1f} | {ratio:.2f} | "
                    f"{row['until the first step, s']:.0f} | {row['GiB']:.1f} |",
                    flush=True,
                )
                found["rows"].append(
                    {"case": name, "what": what, "precision": precision, "ratio": ratio, **row}
                )
            if options.out is not None:
                options.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
