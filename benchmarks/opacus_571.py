"""What one more record changes in Opacus (opacus#571): by the check of the pipeline, by the audit.

    OMP_NUM_THREADS=1 python benchmarks/opacus_571.py [--save] [--seeds 10] [--processes 2]

The check runs every pair of a number of records and a batch size twice. The audits use the score
"length", how far the parameters moved, and the added record is one of zeros. `verdict` is that of
an audit with so many trainings, which twice as many fresh ones confirm after a suspicion.
`p_value_without_fresh` is that of the first trainings alone.
"""

from __future__ import annotations

import argparse
import json
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch
from opacus import PrivacyEngine
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import dpaudit
from dpaudit.pipelines import with_and_without

BATCHES = (4, 7, 8, 16, 32, 64)

# Records, batch size, inputs of a linear model with two outputs, epochs, noise multiplier, runs.
AUDITS: tuple[tuple[int, int, int, int, float, tuple[int, ...]], ...] = (
    (64, 64, 8, 5, 4.0, (20, 100)),
    (160, 16, 40, 2, 4.0, (100,)),
)


def records(count: int, inputs: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Random records; the last one is zeros."""
    random = torch.Generator().manual_seed(3)
    rows = torch.randn(count, inputs, generator=random)
    labels = torch.randint(2, (count,), generator=random)
    rows[-1] = 0
    return rows, labels


def start(inputs: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(inputs, 2)


def pipeline(batch: int, inputs: int, epochs: int = 1, noise_multiplier: float = 1.0) -> Any:
    """The pipeline of the Opacus tutorials."""

    def train(data: Any, seed: int) -> nn.Module:
        model = start(inputs)
        torch.manual_seed(seed)
        model, optimizer, loader = PrivacyEngine(accountant="rdp").make_private(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
            data_loader=DataLoader(TensorDataset(*data), batch_size=batch, shuffle=True),
            noise_multiplier=noise_multiplier,
            max_grad_norm=1.0,
        )
        for _ in range(epochs):
            for rows, labels in loader:
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(rows), labels).backward()
                optimizer.step()
        return model

    return train


def bites(count: int, batch: int) -> bool:
    """Whether one more record changes the number of batches or the divisor of Opacus 1.6."""

    def settings(records: int) -> tuple[int, int]:
        batches = -(-records // batch)
        return batches, int(records * (1 / batches))

    return settings(count) != settings(count + 1)


def check(pair: tuple[int, int]) -> dict[str, Any]:
    """The check of one pair of a number of records and a batch size."""
    warnings.simplefilter("ignore")
    count, batch = pair
    result = dpaudit.check_pipeline(pipeline(batch, 4), with_and_without(records(count + 1, 4)))
    return {
        "records": count,
        "batch": batch,
        "bites": bites(count, batch),
        "broken": [finding.rule.name for finding in result.broken],
        "runs": result.calls,
    }


def audit(job: tuple[int, int]) -> list[dict[str, Any]]:
    """The audits of one setting with one seed."""
    warnings.simplefilter("ignore")
    setting, seed = job
    count, batch, inputs, epochs, noise, sizes = AUDITS[setting]
    data = records(count + 1, inputs)
    claim = dpaudit.Claim.from_dpsgd(
        noise_multiplier=noise,
        steps=epochs * -(-count // batch),
        sampling_rate=1 / -(-count // batch),
    )
    rows = []
    for runs in sizes:
        result = dpaudit.audit(
            pipeline(batch, inputs, epochs, noise),
            "length",
            neighbours=(tuple(part[:-1] for part in data), data),
            claim=claim,
            runs=runs,
            seed=seed,
            initial=start(inputs),
        )
        rows.append(
            {
                "records": count,
                "batch": batch,
                "parameters": 2 * inputs + 2,
                "epochs": epochs,
                "noise_multiplier": noise,
                "claimed": claim.epsilon(1e-5),
                "seed": seed,
                "trainings": runs,
                "fresh": result.fresh_runs,
                "verdict": str(result.verdict),
                "p_value_without_fresh": dpaudit.test_claim(result.scores, claim).p_value,
                "p_value": None if result.test is None else result.test.p_value,
                "shown": max(bound.epsilon for bound in result.final.lower),
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--save", action="store_true", help="write opacus_571.json")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    pairs = [(n, batch) for batch in BATCHES for n in range(batch, min(3 * batch, 130) + 1)]
    jobs = [(setting, seed) for setting in range(len(AUDITS)) for seed in range(options.seeds)]
    with ProcessPoolExecutor(options.processes) as pool:
        checks = list(pool.map(check, pairs, chunksize=8))
        right = sum(bool(row["broken"]) == row["bites"] and row["runs"] == 2 for row in checks)
        biting = sum(row["bites"] for row in checks)
        print(f"check: right for {right} of {len(checks)} pairs; {biting} bite", flush=True)
        audits = []
        for rows in pool.map(audit, jobs):
            audits += rows
            for row in rows:
                print(*row.values(), flush=True)
    if options.save:
        stored = {"checks": checks, "audits": audits}
        text = json.dumps(stored).replace("{", "\n{") + "\n"
        Path(__file__).with_suffix(".json").write_text(text)


if __name__ == "__main__":
    main()
