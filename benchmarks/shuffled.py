"""Poisson claims against shuffled trainings: what the shuffled steps show of one record.

python benchmarks/shuffled.py [--save]

The adversary sees every noisy gradient of one epoch and knows all other records, as the accountant
assumes. The record is in one batch of ``steps``, at a random place: with it, that step's sum is 1
further on, in units of the clip norm. Two neighbours are looked at:

- ``others zero``: the other gradients vanish, so that the place of the record is hidden;
- ``others against``: every other record has the opposite gradient, so that a batch without the
  record (a place left empty) differs from the others, too, and the place shows (Chua et al. 2024).

No training is needed: the noisy gradients are Gaussian with known means, and the privacy loss L is
the exact log ratio of the two mixtures over the place. For every t, delta(epsilon) is at least
P(L > t) (1 - exp(epsilon - t)); t is chosen on half of the runs, and the other half bounds P(L > t)
by Clopper-Pearson. So `shown` is a lower bound on epsilon at 95 % confidence. Claimed is what an
accountant says that was told Poisson sampling with rate 1 / steps.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path

import numpy as np
from scipy.special import logsumexp
from scipy.stats import beta
from tables import put_table

import dpaudit

DELTA, RUNS, BLOCK = 1e-5, 100_000, 1_000
CELLS = [(sigma, steps) for sigma in (0.3, 0.4, 0.5, 0.7, 1.0) for steps in (10, 100, 1000)]


def observed(mean: float, sigma: float, steps: int, runs: int, rng: np.random.Generator):
    """Noisy gradients of one epoch, the record's step (without loss of generality the first)."""
    sums = rng.normal(0, sigma, (runs, steps))
    sums[:, 0] += mean
    return sums


def log_mixture(seen, mean: float, sigma: float):
    """Log density of a bump of this height at a random place, over that of no bump."""
    return logsumexp((seen * mean - mean**2 / 2) / sigma**2, axis=1) - np.log(seen.shape[1])


def losses(with_it: float, without: float, sigma: float, steps: int, rng: np.random.Generator):
    """The privacy loss of runs with the record."""
    scores = []
    for _ in range(RUNS // BLOCK):
        sums = observed(with_it, sigma, steps, BLOCK, rng)
        scores.append(log_mixture(sums, with_it, sigma) - log_mixture(sums, without, sigma))
    return np.concatenate(scores)


def epsilon_beyond(threshold, loss):
    """The epsilon that exceeding this threshold so often proves."""
    beyond = int((loss > threshold).sum())
    rate = beta.ppf(0.05, beyond, len(loss) - beyond + 1) if beyond else 0.0
    return threshold + math.log1p(-DELTA / rate) if rate > DELTA else 0.0


def shown(loss):
    """A lower bound on epsilon: the threshold is chosen on one half, the bound is of the other."""
    pilot, rest = loss[::2], loss[1::2]
    thresholds = np.quantile(pilot, 1 - np.geomspace(10 / len(pilot), 0.5, 60))
    best = max(thresholds, key=lambda threshold: epsilon_beyond(threshold, pilot))
    return max(0.0, epsilon_beyond(best, rest))


def cell(sigma: float, steps: int) -> dict[str, float]:
    rng = np.random.default_rng([int(sigma * 1000), steps])
    row = {
        "sigma": sigma,
        "steps": steps,
        "poisson": dpaudit.upper_bound(
            noise_multiplier=sigma, steps=steps, sampling_rate=1 / steps, delta=DELTA
        ).value,
        "proven": dpaudit.Claim.from_shuffled(noise_multiplier=sigma, epochs=1).epsilon(DELTA),
    }
    for name, with_it, without in (("others zero", 1.0, 0.0), ("others against", 2.0, 1.0)):
        row[name] = shown(losses(with_it, without, sigma, steps, rng))
    return row


def write_page(cells) -> None:
    """The table of docs/pipeline.md; shown values above the Poisson claim are bold."""

    def of(row, name):
        return f"**{row[name]:.2f}**" if row[name] > row["poisson"] else f"{row[name]:.2f}"

    lines = [
        "| sigma | steps | claimed, as if Poisson | shown, others zero | shown, others against | "
        "proven for shuffling |",
        "|---|---|---|---|---|---|",
    ]
    for row in cells:
        shown_here = f"{of(row, 'others zero')} | {of(row, 'others against')}"
        settings = f"{row['sigma']:g} | {row['steps']:,}"
        lines.append(f"| {settings} | {row['poisson']:.2f} | {shown_here} | {row['proven']:.2f} |")
    put_table("pipeline.md", "shuffled.py", lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--save", action="store_true")
    arguments = parser.parse_args()
    rows = []
    print(f"{'sigma':>6} {'steps':>6} {'Poisson':>8} {'zero':>8} {'against':>8} {'proven':>8}")
    for sigma, steps in CELLS:
        row = cell(sigma, steps)
        rows.append(row)
        print(
            f"{sigma:6g} {steps:6d} {row['poisson']:8.2f} {row['others zero']:8.2f} "
            f"{row['others against']:8.2f} {row['proven']:8.2f}",
            flush=True,
        )
    if arguments.save:
        stored = {"delta": DELTA, "runs": RUNS, "cells": rows}
        Path(__file__).with_suffix(".json").write_text(json.dumps(stored, indent=1) + "\n")
        write_page(rows)


if __name__ == "__main__":
    main()
