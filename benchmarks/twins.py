"""The engine beside its slow twin, in the paper's own settings: how far apart are they?

    python benchmarks/twins.py --data-dir DIR [--presets housing,convnet,...]

The twin trains one model with plain autograd in float64, an example at a time; the engine trains
two together, compiled, in float32. Both have the noise, coins and batches of one seed.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from pathlib import Path

import torch

from dpaudit.adversaries import ADVERSARIES
from dpaudit.engine import Speed
from dpaudit.games import Game, TilePlayer, prepare
from dpaudit.mechanisms.dpsgd import Insertion
from dpaudit.presets import preset

sys.path.append(str(Path(__file__).parents[1] / "tests" / "shared"))

import slow_training

SEED = 5
# preset, steps (of 250), adversary, canaries
CASES = (
    ("housing", 250, "simulated-dimension", 2),
    ("housing", 250, "flipped-label", 2),
    ("convnet", 25, "random-dimension", 50),
    ("convnet", 25, "flipped-label", 1),
    ("alexnet-head", 25, "random-dimension", 50),
    ("resnet18", 2, "random-dimension", 50),
)


def compare(name: str, steps: int, adversary: str, canaries: int, data_dir: str | None) -> str:
    """The largest distance after any step, as a share of the way from the start, as a row."""
    mechanism = dataclasses.replace(preset(name).training(data_dir=data_dir), steps=steps)
    attacker = ADVERSARIES[adversary]
    crafted = attacker.craft(mechanism, Insertion(), canaries=canaries, seed=SEED)
    game = Game(mechanism=mechanism, adversary=attacker, canaries=crafted, runs=2, seed=SEED)
    prepared = prepare(game, Speed(device="cpu", compile=True, tile_size=2, workers=1))
    began = time.perf_counter()
    played = TilePlayer(prepared).train(torch.arange(2))
    fast = torch.stack([current[1].double() for _, current in played])
    between = time.perf_counter()
    slow = slow_training.play(game, 1).double()
    done = time.perf_counter()
    apart, moved = (fast - slow)[1:].norm(dim=1), (slow - slow[0])[1:].norm(dim=1)
    return (
        f"| {name} | {adversary} | {steps} | {float((apart / moved).max()):.1e} | "
        f"{between - began:.0f} | {done - between:.0f} |"
    )


def main() -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--data-dir")
    parser.add_argument("--presets", default="housing,convnet,alexnet-head,resnet18")
    chosen = parser.parse_args()
    print("| preset | adversary | steps | apart, at most | engine, s | twin, s |")
    print("|---|---|---:|---:|---:|---:|")
    for name, steps, adversary, canaries in CASES:
        if name in chosen.presets.split(","):
            print(compare(name, steps, adversary, canaries, chosen.data_dir), flush=True)


if __name__ == "__main__":
    main()
