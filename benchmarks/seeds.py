"""Do bounds exceed the accountant's only by chance? The same audit with other seeds.

    python benchmarks/seeds.py --data-dir DIR --device cuda --seeds 1-10 --out benchmarks/seeds.json

F1b has one seed. At 95 % confidence the bound of a tight audit is above the accountant's with up to
one seed in twenty; with a bug it would be above with most seeds. Every seed draws its own batches,
start, canaries, coins and noise. The file is written after each seed.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import torch

from dpaudit_paper import Setting
from dpaudit_paper.trainings import one_training, readings


def measure(setting: Setting, model: str, seed: int) -> dict[str, Any]:
    """Mu and the bounds after the last step, under one seed."""
    began = time.perf_counter()
    trainings = dataclasses.replace(one_training(setting, model), seed=seed, shares=(1.0,))
    result = trainings.play(setting)
    last = result.horizons[-1]
    found = readings(last.scores, seed=seed)
    return {
        "seed": seed,
        "canaries": result.canaries,
        "examples": result.configuration["mechanism"]["data"]["examples"],
        **{name: found[name] for name in ("mu", "gaussian_dp", "gaussian_fit")},
        "accountant": last.least_upper.epsilon,
        "seconds": round(time.perf_counter() - began, 1),
    }


def main() -> None:
    """Print a line for each seed, and keep all in one file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--data-dir")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--model", default="resnet18", choices=("convnet", "resnet18"))
    parser.add_argument("--seeds", default="1-10", help="first-last")
    parser.add_argument("--out", type=Path, required=True)
    chosen = parser.parse_args()
    first, last = (int(part) for part in chosen.seeds.split("-"))
    setting = Setting(scale="full", device=chosen.device, data_dir=chosen.data_dir)
    made: dict[str, Any] = {"model": chosen.model, "torch": torch.__version__, "seeds": []}
    made["device"] = torch.cuda.get_device_name() if chosen.device == "cuda" else chosen.device
    for seed in range(first, last + 1):
        made["seeds"].append(measure(setting, chosen.model, seed))
        chosen.out.write_text(json.dumps(made, indent=1) + "\n")
        print(made["seeds"][-1], flush=True)


if __name__ == "__main__":
    main()
