"""The engine beside its peers, in one run.

    python benchmarks/engine.py housing      5,000 trainings of the FCNN, compilation included
    python benchmarks/engine.py convnet      microseconds a model-step, in several variants
    python benchmarks/engine.py resnet18     milliseconds a step of one model
    python benchmarks/engine.py precision    what TF32 and bfloat16 do to the bound
    python benchmarks/engine.py linear       cost against runs and steps

Peers are measured for a few steps and extrapolated, and the output says so. CIFAR-10 is read from
``--data-dir`` or DPAUDIT_DATA; without it the images are noise, which takes the same time.
``--out FOLDER`` writes one JSON file for each command.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import engine_peers as peers
import numpy as np
import torch

from dpaudit.adversaries import RandomDimension
from dpaudit.data import Examples
from dpaudit.engine import Speed
from dpaudit.engine.compiling import numerics
from dpaudit.engine.starting_points import initial_parameters
from dpaudit.engine.training import Engine
from dpaudit.errors import DpauditError
from dpaudit.games import Game, play, prepare
from dpaudit.lower_bounds import estimate
from dpaudit.mechanisms.batches import FixedBatches
from dpaudit.mechanisms.dpsgd import DPSGD, Insertion
from dpaudit.mechanisms.losses import cross_entropy
from dpaudit.models import convnet, resnet18
from dpaudit.presets import preset
from dpaudit.scores import Scores
from dpaudit.threat_models import CraftedDimensions

Rows = list[dict[str, Any]]

VARIANTS = {
    "float32": Speed(precision="float32"),
    "tf32": Speed(precision="tf32"),
    "bfloat16": Speed(precision="bfloat16"),
    "float32, library convolutions": Speed(precision="float32", convolutions="library"),
    "tf32, library convolutions": Speed(precision="tf32", convolutions="library"),
}


def main() -> None:
    commands = {f.__name__: f for f in (housing, convnet_steps, resnet18_steps, precision, linear)}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=[name.removesuffix("_steps") for name in commands])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, help="folder for the JSON")
    parser.add_argument("--data-dir", default=os.environ.get("DPAUDIT_DATA"))
    parser.add_argument("--runs", type=int, help="runs together (convnet), or in all (housing)")
    parser.add_argument("--steps", type=int, default=10, help="measured steps")
    parser.add_argument("--only", nargs="*", help="variants to measure", choices=list(VARIANTS))
    options = parser.parse_args()
    command = commands.get(options.command) or commands[f"{options.command}_steps"]
    device = Speed(device=options.device).torch_device()
    print(f"# {options.command} on {_name(device)}, torch {torch.__version__}", flush=True)
    rows = command(options, device)
    _table(rows)
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        path = options.out / f"engine-{options.command}-{device.type}.json"
        result = {"device": _name(device), "torch": torch.__version__, "rows": rows}
        path.write_text(json.dumps(result, indent=1) + "\n")


def housing(options: argparse.Namespace, device: torch.device) -> Rows:
    """The paper's Housing audit from a cold start, and again with what was compiled."""
    mechanism, runs = preset("housing").training(), options.runs or 5000
    peer = peers.opacus(mechanism, device, steps=200)
    recipe = peers.opacus_as_documented(mechanism, device, steps=100)
    game = _game(mechanism, runs=runs, canaries=1)
    rows = []
    with tempfile.TemporaryDirectory() as fresh:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = fresh
        for start in ("cold", "compiled before"):
            begin = time.perf_counter()
            prepared = prepare(game, Speed(device=options.device))
            times = [time.perf_counter() for _ in play(prepared, notify=print)]
            total = times[-1] - begin
            steps = runs * mechanism.steps
            rows.append(
                {
                    "what": f"{runs} x {mechanism.steps} steps, {start}",
                    "seconds": total,
                    "after the first tile": times[-1] - times[0],
                    "us a model-step": total / steps * 1e6,
                    "lean Opacus loop (extrapolated), s": peer and peer * steps,
                    "x lean": peer and peer * steps / total,
                    "x lean after the first tile": peer and peer * steps / (times[-1] - times[0]),
                    "Opacus's recipe (extrapolated), s": recipe and recipe * steps,
                    "x recipe": recipe and recipe * steps / total,
                    "tile": prepared.tile_size,
                    "workers": prepared.speed.workers,
                }
            )
    return rows


def convnet_steps(options: argparse.Namespace, device: torch.device) -> Rows:
    """Microseconds a model-step of the ConvNet at B = 128, in every variant."""
    mechanism = _images(convnet, options)
    gpu = device.type == "cuda"
    runs = options.runs or (512 if gpu else 4)
    peer = peers.opacus(mechanism, device, steps=50 if gpu else 3)
    nested = peers.nested_vmap(
        mechanism, device, runs=32 if gpu else 1, steps=5 if gpu else 2, dtype=torch.float32
    )
    rows: Rows = [
        {"what": "Opacus, one model", "us a model-step": peer and peer * 1e6},
        {"what": "vmap(vmap(grad)), float32", "us a model-step": nested * 1e6},
    ]
    for name, speed in _variants(options):
        row = _measure(mechanism, speed, runs=runs, options=options, device=device, compiled=True)
        each = row.pop("seconds") / runs
        rows.append(
            {
                "what": f"engine, {name}, R={runs}",
                "us a model-step": each * 1e6,
                "x Opacus": peer and peer / each,
                "x vmap": nested / each,
                **row,
            }
        )
    return rows


def resnet18_steps(options: argparse.Namespace, device: torch.device) -> Rows:
    """Milliseconds a step of one ResNet18 at B = 128."""
    gpu = device.type == "cuda"
    mechanism = _images(resnet18, options, batch_size=128 if gpu else 8)
    peer = peers.opacus(mechanism, device, steps=10 if gpu else 1)
    rows: Rows = [{"what": "Opacus", "ms a step": peer and peer * 1e3}]
    if gpu:
        nested = peers.nested_vmap(mechanism, device, runs=1, steps=3, dtype=torch.bfloat16)
        rows.append({"what": "vmap(grad), bfloat16", "ms a step": nested * 1e3})
    for (name, speed), compiled in itertools.product(_variants(options), (False, True)):
        if "library" in name or (compiled and not gpu):
            continue
        row = _measure(mechanism, speed, runs=1, options=options, device=device, compiled=compiled)
        what = f"engine, {name}, {'compiled' if compiled else 'eager'}"
        rows.append({"what": what, "ms a step": row.pop("seconds") * 1e3, **row})
    return rows


def precision(options: argparse.Namespace, device: torch.device) -> Rows:
    """One ConvNet training with many canaries in each precision: same noise, same coins."""
    mechanism = _images(convnet, options, steps=250 if device.type == "cuda" else 20)
    game = _game(mechanism, runs=1, canaries=20_000)
    rows: Rows = []
    exact: np.ndarray | None = None
    for kind in ("float64", "float32", "tf32", "bfloat16"):
        speed = Speed(device=options.device, precision=kind, compile=False)  # type: ignore[arg-type]
        begin = time.perf_counter()
        ((_, block),) = play(prepare(game, speed))
        seconds = time.perf_counter() - begin
        scores: Scores = block.scores(mechanism.steps)
        ones, zeros = scores.inserted_scores, scores.other_scores
        spread = np.sqrt((ones.var(ddof=1) + zeros.var(ddof=1)) / 2)
        exact = scores.score if exact is None else exact
        rows.append(
            {
                "what": kind,
                "mu by moments": (ones.mean() - zeros.mean()) / spread,
                "epsilon (gaussian-dp)": estimate(scores, delta=1e-5, method="gaussian-dp").epsilon,
                "largest change of a score, sd": np.abs(scores.score - exact).max() / spread,
                "seconds": seconds,
            }
        )
    return rows


def linear(options: argparse.Namespace, device: torch.device) -> Rows:
    """Seconds against runs and steps; the last column should stay where it is."""
    rows: Rows = []
    base = preset("housing").training()
    together = 64 if device.type == "cpu" else 512
    for steps, runs in ((50, 8), (100, 8), (200, 8), (100, 4), (100, 16)):
        mechanism = dataclasses.replace(base, steps=steps)
        game = _game(mechanism, runs=runs * together, canaries=1)
        speed = Speed(device=options.device, tile_size=together, workers=1, compile=True)
        times = [time.perf_counter() for _ in play(prepare(game, speed), notify=print)]
        seconds = (times[-1] - times[0]) / (runs - 1) * runs  # the first tile compiles
        rows.append(
            {
                "runs": runs * together,
                "steps": steps,
                "seconds": seconds,
                "us a model-step": seconds / (runs * together * steps) * 1e6,
            }
        )
    return rows


def _measure(
    mechanism: DPSGD,
    speed: Speed,
    *,
    runs: int,
    options: argparse.Namespace,
    device: torch.device,
    compiled: bool,
) -> dict[str, Any]:
    """Seconds a step of all runs together, after compilation and three steps."""
    torch._dynamo.reset()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    speed = dataclasses.replace(speed, device=str(device))
    canaries = CraftedDimensions(dimensions=torch.tensor([7]), norm=mechanism.clip_norm)
    begin = time.perf_counter()
    try:
        with numerics(speed.precision, device):
            engine = Engine(
                mechanism,
                canaries=canaries,
                runs=runs,
                speed=speed,
                compiled=compiled,
            )
            numbers = torch.arange(runs)
            start = initial_parameters(mechanism, seed=0, runs=numbers)
            played = engine.states(start, numbers, torch.ones(runs, 1))
            first = next(played)
            float(first.sum())
            ready = time.perf_counter() - begin
            seconds = peers.seconds_per_step(
                lambda: next(played), device=device, warm_up=2, steps=options.steps
            )
    except (RuntimeError, DpauditError) as error:
        return {"seconds": float("nan"), "failed": str(error).splitlines()[0][:80]}
    memory = torch.cuda.max_memory_allocated(device) / 2**30 if device.type == "cuda" else 0.0
    notes = "; ".join(engine.notices)[:120]
    return {"seconds": seconds, "ready after, s": ready, "GiB": memory, "notes": notes}


def _game(mechanism: DPSGD, *, runs: int, canaries: int) -> Game:
    adversary = RandomDimension()
    crafted = adversary.craft(mechanism, Insertion(), canaries=canaries, seed=0)
    coin = "half" if canaries == 1 else "fair"
    return Game(mechanism=mechanism, adversary=adversary, canaries=crafted, runs=runs, coin=coin)  # type: ignore[arg-type]


def _images(
    model: Any, options: argparse.Namespace, *, batch_size: int = 128, steps: int = 250
) -> DPSGD:
    return DPSGD(
        build_model=model,
        loss=cross_entropy,
        data=_image_data(options),
        batches=FixedBatches(batch_size=batch_size),
        steps=steps,
        learning_rate=0.01,
        clip_norm=1.0,
        noise_multiplier=4.0,
    )


def _image_data(options: argparse.Namespace) -> Examples:
    if options.data_dir:
        from dpaudit.data import cifar10

        return cifar10(options.data_dir)
    generator = np.random.default_rng(0)
    features = generator.standard_normal((2000, 3, 32, 32)).astype(np.float32)
    labels = generator.integers(0, 10, 2000)
    return Examples(features=features, targets=labels, classes=10, name="noise")


def _variants(options: argparse.Namespace) -> list[tuple[str, Speed]]:
    return [(name, speed) for name, speed in VARIANTS.items() if name in (options.only or VARIANTS)]


def _name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{len(os.sched_getaffinity(0))} CPU cores"


def _table(rows: Rows) -> None:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    cells = [[_cell(row.get(name)) for name in columns] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    for line in [columns, ["-" * width for width in widths], *cells]:
        print(" | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)))


def _cell(value: object) -> str:
    if value is None or value == "":
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
