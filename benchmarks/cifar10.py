"""The two ways to audit a network on CIFAR-10: many trainings, or many canaries in one training.

    python benchmarks/cifar10.py --data-dir FOLDER [--out FOLDER] [--only NAME ...]

Each audit is A_GC-R at k = 1 and 250 steps, sigma = 4, C = 1, delta = 1e-5: the accountant says
23.995. Needs a GPU; prints a table in Markdown and writes the numbers as JSON.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from dpaudit.adversaries import RandomDimension
from dpaudit.audits import audit
from dpaudit.engine import Speed
from dpaudit.presets import preset

# name: preset, runs, canaries, precision
AUDITS = {
    "convnet, one training": ("convnet", 1, 20_000, "float32"),
    "resnet18, one training": ("resnet18", 1, 100_000, "tf32"),
    "convnet, 5,000 trainings, bfloat16": ("convnet", 5000, 1, "bfloat16"),
    "convnet, 5,000 trainings, tf32": ("convnet", 5000, 1, "tf32"),
    "convnet, 5,000 trainings, float32": ("convnet", 5000, 1, "float32"),
}


def one(name: str, data_dir: str | None, seed: int) -> dict[str, Any]:
    """Play one audit and keep its bounds."""
    which, runs, canaries, precision = AUDITS[name]
    training = preset(which).training(data_dir=data_dir, seed=seed)
    began = time.perf_counter()
    result = audit(
        training,
        RandomDimension(),
        runs=runs,
        canaries=canaries,
        seed=seed,
        speed=Speed(precision=precision),
    )
    return {
        "audit": name,
        "data": training.data.name,
        "runs": runs,
        "canaries": canaries,
        "precision": precision,
        "upper": result.final.least_upper.epsilon,
        "bounds": [bound.to_dict() for bound in result.lower],
        "verdict": result.verdict,
        "sentence": result.sentence,
        "seconds": round(time.perf_counter() - began, 1),
        "device": result.device,
        "notices": result.notices,
        "seed": seed,
    }


def table(rows: list[dict[str, Any]]) -> str:
    """The bounds of every audit, in Markdown."""
    methods = list(dict.fromkeys(bound["method"] for row in rows for bound in row["bounds"]))
    lines = [
        f"| audit | {' | '.join(methods)} | mu by moments | seconds |",
        f"|---|{'---:|' * (len(methods) + 2)}",
    ]
    for row in rows:
        bounds = {bound["method"]: bound for bound in reversed(row["bounds"])}
        cells = [f"{bounds[m]['epsilon']:.2f}" if m in bounds else "" for m in methods]
        mu = bounds.get("gaussian-fit", {}).get("mu_estimate")
        cells.append("" if mu is None else f"{mu:.3f}")
        lines.append(f"| {row['audit']} | {' | '.join(cells)} | {row['seconds']} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--data-dir")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", nargs="*", choices=list(AUDITS), default=list(AUDITS))
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for name in chosen.only:
        rows.append(one(name, chosen.data_dir, chosen.seed))
        print(f"{name}: {rows[-1]['sentence']} ({rows[-1]['seconds']} s)", flush=True)
        if chosen.out is not None:
            (chosen.out / "cifar10.json").write_text(json.dumps(rows, indent=1) + "\n")
    print(table(rows))


if __name__ == "__main__":
    main()
