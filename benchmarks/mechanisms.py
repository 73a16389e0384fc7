"""Mechanisms of the papers of DP-Sniper and StatDP, attacked with our learned score.

python benchmarks/mechanisms.py [--save] [--runs 60000000]

Every mechanism runs on the neighbouring inputs that DP-Sniper's own search found. A million further
runs train the score, the others give a lower bound on epsilon at delta 0 with 95 % confidence. The
other columns are what the reference results of DP-Sniper's evaluation say (eth-sri/dp-sniper,
eval_sp2021/reference-results, regression and the first run of StatDP; confidence 90 %, with 10.7
million runs each for training and search and 200 million for the final estimate).
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
from tables import put_table

import dpaudit
from dpaudit.pipelines.scores import LearnedScore, Released

RUNS, PILOT, BLOCK, CLAIM = 60_000_000, 1_000_000, 50_000, 0.1
Mechanism = Callable[[np.ndarray, int, np.random.Generator], np.ndarray]


def laplace(scale: float) -> Mechanism:
    """Every query with Laplace noise of this scale."""
    return lambda queries, runs, random: queries + random.laplace(0, scale, (runs, len(queries)))


def prefix_sums(queries, runs, random):
    """Sums of the first noisy queries: a sum has no more noise than its parts."""
    return np.cumsum(laplace(1 / CLAIM)(queries, runs, random), axis=1)


def noisy_max(*, draw: str, index: bool) -> Mechanism:
    """The place of the largest noisy query, or (wrong) its noisy value."""

    def run(queries, runs, random):
        shape = (runs, len(queries))
        noise = random.laplace(size=shape) if draw == "laplace" else random.exponential(size=shape)
        noisy = queries + 2 / CLAIM * noise
        chosen = noisy.argmax(axis=1) if index else noisy.max(axis=1)
        return chosen[:, None].astype(float)

    return run


def above_threshold(
    *, first: float, query_scale: float, values: bool = False, stops: bool = True
) -> Mechanism:
    """Sparse vector: which queries are above a noisy threshold; variants of Lyu et al. (2017).

    ``first`` is the share of epsilon for the threshold and ``query_scale`` the noise of a query
    times the rest of epsilon: 2 where that is right, 1 or 0 in the broken variants.
    """

    def run(queries, runs, random):
        threshold = 1 + random.laplace(0, 1 / (first * CLAIM), (runs, 1))
        noisy = np.broadcast_to(queries, (runs, len(queries))).astype(float)
        if query_scale:
            scale = query_scale / ((1 - first) * CLAIM)
            noisy = noisy + random.laplace(0, scale, noisy.shape)
        above = noisy >= threshold
        shown = np.where(above, noisy, -1000.0) if values else above.astype(float)
        if stops:
            earlier = np.cumsum(above, axis=1) - above
            shown = np.where(earlier > 0, -2000.0 if values else -1.0, shown)
        return shown

    return run


ONES, MIXED = np.ones(10), np.repeat([2.0, 0.0], 5)
FIRST, LAST = np.repeat([0.0, 1.0], 5), np.repeat([1.0, 0.0], 5)

CASES: dict[str, tuple[Mechanism, tuple[np.ndarray, np.ndarray], float, float, float]] = {
    # Mechanism, inputs, its epsilon, DP-Sniper (regression), StatDP.
    "Laplace": (laplace(1 / CLAIM), (np.array([1.0]), np.array([2.0])), 0.1, 0.097, 0.100),
    "histogram": (
        laplace(1 / CLAIM),
        (np.array([0.0, 1, 1, 1, 1]), np.ones(5)),
        0.1,
        0.098,
        0.083,
    ),
    "histogram, scale epsilon": (
        laplace(CLAIM),
        (np.array([0.0, 1, 1, 1, 1]), np.ones(5)),
        10.0,
        4.602,
        9.717,
    ),
    "noisy maximum, index": (
        noisy_max(draw="laplace", index=True),
        (np.ones(5), np.array([0.0, 2, 2, 2, 2])),
        0.1,
        0.092,
        0.092,
    ),
    "noisy maximum, value": (
        noisy_max(draw="laplace", index=False),
        (np.zeros(5), np.ones(5)),
        0.25,
        0.248,
        0.199,
    ),
    "noisy maximum, exponential, value": (
        noisy_max(draw="exponential", index=False),
        (np.ones(5), 2 * np.ones(5)),
        math.inf,
        0.346,
        0.196,
    ),
    "sparse vector 3 (shows the values)": (
        above_threshold(first=0.5, query_scale=1, values=True),
        (ONES, MIXED),
        math.inf,
        0.172,
        0.023,
    ),
    "sparse vector 4": (
        above_threshold(first=0.25, query_scale=1),
        (ONES, MIXED),
        0.18,
        0.169,
        0.171,
    ),
    "sparse vector 5 (no noise of the queries)": (
        above_threshold(first=0.5, query_scale=0, stops=False),
        (MIXED, ONES),
        math.inf,
        1.761,
        14.314,
    ),
    "sparse vector 6 (never stops)": (
        above_threshold(first=0.5, query_scale=1, stops=False),
        (LAST, FIRST),
        math.inf,
        0.272,
        0.322,
    ),
    "prefix sums": (prefix_sums, (ONES, np.zeros(10)), 1.0, 0.504, 0.352),
}


def scores(name: str, runs: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores of the runs that did not train the score: of the second input, and of the first."""
    mechanism, inputs, *_ = CASES[name]
    random = np.random.default_rng(seed)
    pilot = [mechanism(queries, PILOT // 2, random) for queries in inputs]
    results = [Released.of(pilot[run % 2][run // 2]) for run in range(PILOT)]
    score = LearnedScore.learn(results, [run % 2 == 1 for run in range(PILOT)])
    first, second = (
        np.concatenate([scored(score, mechanism(queries, BLOCK, random)) for _ in range(blocks)])
        for queries, blocks in zip(inputs, [-(-runs // 2 // BLOCK)] * 2, strict=True)
    )
    return second, first


def scored(score: LearnedScore, rows: np.ndarray) -> np.ndarray:
    """The scores of many outputs, each of which is one array."""
    return score.of_rows(rows, np.linalg.norm(rows, axis=1)[:, None])


def shown(name: str, runs: int, seed: int = 0) -> float:
    """The lower bound on epsilon: the better one of both directions, at 97.5 % each."""
    return float(dpaudit.lower_bound(*scores(name, runs, seed), delta=0.0).epsilon)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--runs", type=int, default=RUNS)
    arguments = parser.parse_args()
    rows = []
    print(f"{'mechanism':45}{'has':>6}{'shown':>8}{'DP-Sniper':>11}{'StatDP':>8}")
    for name, (_, _, has, sniper, statdp) in CASES.items():
        row = {"mechanism": name, "has": has if math.isfinite(has) else None}
        row["shown"] = shown(name, arguments.runs)
        rows.append(row | {"DP-Sniper": sniper, "StatDP": statdp})
        print(f"{name:45}{has:6.2f}{row['shown']:8.3f}{sniper:11.3f}{statdp:8.3f}", flush=True)
    if arguments.save:
        stored = {"runs": arguments.runs, "pilot": PILOT, "claimed_epsilon": CLAIM, "rows": rows}
        Path(__file__).with_suffix(".json").write_text(json.dumps(stored, indent=1) + "\n")
        write_page(stored)


def write_page(stored) -> None:
    """The table of docs/pipeline.md; the largest of the three lower bounds is bold."""
    lines = [
        "| mechanism | true epsilon | dpaudit | DP-Sniper | StatDP |",
        "|---|---|---|---|---|",
    ]
    for row in stored["rows"]:
        values = [row[name] for name in ("shown", "DP-Sniper", "StatDP")]
        has = "infinite" if row["has"] is None else f"{row['has']:g}"
        shown = [f"**{own:.3f}**" if own == max(values) else f"{own:.3f}" for own in values]
        lines.append(f"| {row['mechanism']} | {has} | {' | '.join(shown)} |")
    put_table("pipeline.md", "mechanisms.py", lines)


if __name__ == "__main__":
    main()
