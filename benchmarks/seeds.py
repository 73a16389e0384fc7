"""The same audits with other seeds, or with more trainings than the figures of the paper have.

    python benchmarks/seeds.py PLAN --data-dir DIR [--device cuda] [--part 530] [--out FOLDER]

Plans: ``resnet18`` (F1b at C = 1 with 10 seeds: do bounds exceed the accountant's only by chance?),
``canaries`` (P1 and A10 with 20 seeds: does one training with many canaries agree with many
trainings of one canary?) and ``flipped`` (A_L on ``--runs`` ResNet18s at C = 2 and 4).

Every seed draws its own batches, start, canaries, coins and noise. Rows are added to seeds.json
after each audit. After ``--part`` seconds the command ends with exit code 3; the same command
resumes its trainings, which are in the store of benchmarks/paper.py. With ``--out`` rows and store
are in that folder.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from dpaudit.adversaries import FlippedLabel, RandomDimension
from dpaudit_paper import Setting
from dpaudit_paper.making import STORE
from dpaudit_paper.trainings import Trainings, one_training, readings

RESULTS = Path(__file__).with_suffix(".json")
MORE_IS_LEFT = 3


def plan_of(name: str, setting: Setting, *, seeds: range, runs: int) -> Iterator[Trainings]:
    """The trainings of a plan."""
    if name == "resnet18":
        for seed in seeds:
            training = one_training(setting, "resnet18")
            yield dataclasses.replace(training, seed=seed, shares=(1.0,))
    elif name == "canaries":
        for model in ("convnet", "alexnet-head"):
            for seed in seeds:
                many = Trainings(preset=model, adversary=RandomDimension(), runs=5000, seed=seed)
                yield dataclasses.replace(many, runs=1, canaries=20_000, shares=(1.0,))
                yield dataclasses.replace(many, shares=(1.0,))
    else:
        for clip_norm in (2.0, 4.0):  # with the horizons of F1b, which reads them from the store
            yield Trainings(
                preset="resnet18", adversary=FlippedLabel(), runs=runs, clip_norm=clip_norm
            )


def row_of(trainings: Trainings, setting: Setting) -> dict[str, Any]:
    """Mu and the bounds after the last step."""
    result = trainings.play(setting)
    last = result.horizons[-1]
    mu_and_bounds = readings(last.scores, seed=trainings.seed)
    columns = ("mu", "paper_rule", "gaussian_dp", "gaussian_fit")
    return {
        "model": trainings.preset,
        "adversary": trainings.adversary.name,
        "clip_norm": trainings.clip_norm,
        "seed": trainings.seed,
        "runs": result.runs,
        "canaries": result.canaries,
        "examples": result.configuration["mechanism"]["data"]["examples"],
        **{name: mu_and_bounds[name] for name in columns},
        "accountant": last.least_upper.epsilon,
        "device": result.device,
        "torch": torch.__version__,
    }


def main() -> None:
    """Print a line for each audit, and keep all in one file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("plan", choices=("resnet18", "canaries", "flipped"))
    parser.add_argument("--data-dir")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, help="folder of seeds.json and the store")
    parser.add_argument("--part", type=int, default=530, help="seconds after which to stop")
    parser.add_argument("--seeds", type=int, help="number of seeds, from 1")
    parser.add_argument("--runs", type=int, default=500, help="trainings of the plan flipped")
    chosen = parser.parse_args()
    store = (Path("build/paper") if chosen.out is None else chosen.out) / STORE
    out = RESULTS if chosen.out is None else chosen.out / RESULTS.name
    store.parent.mkdir(parents=True, exist_ok=True)
    setting = Setting(scale="full", device=chosen.device, data_dir=chosen.data_dir, store=store)
    seeds = range(1, 1 + (chosen.seeds or {"resnet18": 10}.get(chosen.plan, 20)))

    def stop(*_: object) -> None:
        print("more is left: repeat the command", flush=True)
        os._exit(MORE_IS_LEFT)

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(chosen.part)
    rows: list[dict[str, Any]] = json.loads(out.read_text()) if out.exists() else []
    for trainings in plan_of(chosen.plan, setting, seeds=seeds, runs=chosen.runs):
        row = row_of(trainings, setting)
        print(row, flush=True)
        identity = ("model", "adversary", "clip_norm", "seed", "runs", "canaries")
        rows = [old for old in rows if any(old[name] != row[name] for name in identity)]
        rows.append(row)
        out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
