"""What a black-box adversary shows of DP-SGD, in the setting of Annamalai and De Cristofaro.

    python benchmarks/black_box.py --data-dir FOLDER --out FOLDER [--only NAME ...] [--minutes M]

999 records of CIFAR-10, their network with tanh (550,570 parameters), 200 steps of gradient descent
with all records, clip norm 1, learning rate 4e-5 for the sum of gradients, and noise for epsilon 10
at delta 1e-5. They prove 6.95 on average with 200 trainings, from a start that is trained on
CIFAR-100 and on the other half of CIFAR-10 (NeurIPS 2024, section 5). Needs a GPU.

With *sharp* outputs genuine gradients vanish, so that one record gives the same scores as 999, in a
thousandth of the time.

Each audit plays runs for M minutes after its first tile, whatever the scores are, and writes them
to a CSV file after every tile; a table of bounds is printed and kept as JSON. The same command in
the same folder adds runs to the files. ``--published-start`` names their file
``cnn_cifar100_cifar10_half.pt``.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from dpaudit.adversaries import (
    AdversarialSample,
    Adversary,
    SimulatedDimension,
    WorstCaseStart,
)
from dpaudit.adversaries.crafting import audited_mechanism
from dpaudit.data import Examples, cifar10
from dpaudit.engine import Speed
from dpaudit.engine.starting_points import flat_parameters, known_model
from dpaudit.games import Game, play, prepare
from dpaudit.lower_bounds import estimate
from dpaudit.mechanisms import DPSGD, FullBatch, Insertion
from dpaudit.mechanisms.losses import cross_entropy
from dpaudit.models import drawn_by
from dpaudit.scores import Scores, read_scores, write_scores
from dpaudit.upper_bounds import noise_multiplier_for
from dpaudit_paper.trainings import mu_by_moments

EPSILON, DELTA = 10.0, 1e-5
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)  # theirs


def network() -> nn.Module:
    """Their network for CIFAR-10, from Dörmann et al. (2021)."""
    layers: list[nn.Module] = []
    channels = 3
    for width in (32, 64, 128):
        for _ in range(2):
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.Tanh()]
            channels = width
        layers.append(nn.MaxPool2d(2))
    head = [nn.Flatten(), nn.Linear(2048, 128), nn.Tanh(), nn.Linear(128, 10)]
    return nn.Sequential(*layers, *head)


def published(path: str) -> nn.Module:
    """The network with the weights of their file, whose layers have other names."""
    model = network()
    weights = torch.load(path, map_location="cpu", weights_only=True).values()
    with torch.no_grad():
        for parameter, value in zip(model.parameters(), weights, strict=True):
            parameter.copy_(value)
    return model


def training(data: Examples, steps: int, build_model: Callable[[], nn.Module]) -> DPSGD:
    """Their training; each run has the canary beside the data or not."""
    return DPSGD(
        name="black box",
        build_model=build_model,
        loss=cross_entropy,
        data=data,
        batches=FullBatch(),
        steps=steps,
        learning_rate=4e-5 * len(data),
        clip_norm=1.0,
        noise_multiplier=noise_multiplier_for(epsilon=EPSILON, delta=DELTA, steps=steps),
    )


def audits(given: argparse.Namespace) -> dict[str, Callable[[], tuple[DPSGD, Adversary]]]:
    """The training and the adversary of each audit; made when it is their turn."""
    pixels = cifar10(given.data_dir, normalise=False)
    mean, std = (np.array(values, dtype=np.float32)[:, None, None] for values in (MEAN, STD))
    images = dataclasses.replace(pixels, features=(pixels.features - mean) / std)
    data = images.take(range(len(images) - given.records, len(images)))
    others = images.take(range(min(len(images) - given.records, given.others)))
    fresh = functools.partial(drawn_by, "xavier", network)
    crafted = WorstCaseStart(epochs=given.epochs)
    sharp = dataclasses.replace(crafted, sharpness=5.0)

    def start_of(adversary: WorstCaseStart) -> DPSGD:
        return audited_mechanism(adversary, training(data, given.steps, fresh))

    def one_record(adversary: WorstCaseStart) -> DPSGD:
        """From the same start with one of the records, at the same learning rate for a sum."""
        started = start_of(adversary)
        alone = started.data.take(range(1))
        return dataclasses.replace(started, data=alone, learning_rate=4e-5)

    chosen: dict[str, Callable[[], tuple[DPSGD, Adversary]]] = {
        "worst-case-start, sharp": lambda: (start_of(sharp), sharp),
        "worst-case-start, sharp, one record": lambda: (one_record(sharp), sharp),
        "simulated-dimension, sharp, one record": lambda: (one_record(sharp), SimulatedDimension()),
        "worst-case-start": lambda: (start_of(crafted), crafted),
        "worst-case-start, other examples": lambda: (
            start_of(WorstCaseStart(epochs=given.epochs, examples=others)),
            crafted,
        ),
        "worst-case-start, drawn start": lambda: (training(data, given.steps, fresh), crafted),
        "simulated-dimension": lambda: (training(data, given.steps, fresh), SimulatedDimension()),
        "adversarial-sample": lambda: (training(data, given.steps, fresh), AdversarialSample()),
    }
    if given.published_start is not None:
        theirs = functools.partial(published, given.published_start)
        chosen["worst-case-start, published start"] = lambda: (
            training(data, given.steps, theirs),
            crafted,
        )
    return chosen


def one(
    name: str, mechanism: DPSGD, adversary: Adversary, given: argparse.Namespace
) -> dict[str, Any]:
    """Play for the minutes that were given, after what was played before, and bound epsilon."""
    began = time.perf_counter()
    game = Game(
        mechanism=mechanism,
        adversary=adversary,
        canaries=adversary.craft(mechanism, Insertion(), canaries=1, seed=given.seed),
        runs=given.most_runs,
        seed=given.seed,
        coin="fair",
    )
    prepared = prepare(game, Speed(precision=given.precision, tile_size=given.tile_size, workers=1))
    # Runs from another start, of another machine perhaps, are a file of their own.
    start = flat_parameters(known_model(mechanism)).cpu().numpy().tobytes()
    digest = hashlib.sha256(start).hexdigest()[:8]
    file = given.out / f"{name.replace(', ', '-').replace(' ', '-')}-{given.seed}-{digest}.csv"
    parts = [read_scores(file)] if file.exists() else []
    done = {int(run) // given.tile_size for part in parts for run in part.run}
    first, played = 0.0, 0
    crafting = time.perf_counter() - began
    for _, block in play(prepared, done=done):
        parts.append(block.scores(mechanism.steps))
        write_scores(Scores.concat(parts), file, overwrite=True)
        now = time.perf_counter()
        if first:
            played += len(parts[-1])
        first = first or now
        if now - first > 60 * given.minutes:
            break
    return {
        "audit": name,
        **bounds(Scores.concat(parts)),
        "upper": EPSILON,
        "seed": given.seed,
        "start": digest,
        "records": len(mechanism.data),
        "steps": given.steps,
        "seconds before the first tile": round(crafting, 1),
        "seconds per run": round((now - first) / played, 4) if played else None,
        "tile": prepared.tile_size,
        "precision": prepared.speed.precision,
    }


def bounds(scores: Scores) -> dict[str, Any]:
    """Mu and the lower bounds of the table."""
    bound = functools.partial(estimate, scores, delta=DELTA)
    return {
        "runs": len(scores),
        "mu": mu_by_moments(scores),
        "gaussian-dp": bound(method="gaussian-dp").epsilon,
        "gaussian-fit": bound(method="gaussian-fit").epsilon,
        "clopper-pearson": bound(method="clopper-pearson", threshold="simultaneous").epsilon,
        "their rule": bound(method="gaussian-dp", threshold="best", confidence=0.9).epsilon,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--data-dir")
    parser.add_argument("--out", type=Path, default=Path())
    parser.add_argument("--only", nargs="*", default=None)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--most-runs", type=int, default=10_000)
    parser.add_argument("--published-start")
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--tile-size", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--records", type=int, default=999)
    parser.add_argument("--others", type=int, default=25_000)
    parser.add_argument("--steps", type=int, default=200)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    results = given.out / f"black_box-{given.seed}.json"
    rows: list[dict[str, Any]] = json.loads(results.read_text()) if results.exists() else []
    made = audits(given)
    for name in given.only or made:
        row = one(name, *made[name](), given)
        print(json.dumps(row), flush=True)
        rows = [old for old in rows if (old["audit"], old["start"]) != (name, row["start"])]
        rows.append(row)
        results.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
