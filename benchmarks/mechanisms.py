"""Mechanisms of the papers of DP-Sniper and StatDP, attacked with our learned score.

    OMP_NUM_THREADS=1 python benchmarks/mechanisms.py [--save] [--only NAME ...] [--final 200]
    python benchmarks/mechanisms.py --page

Some runs train the score, others choose the threshold, and the last ones, the most, give a lower
bound on epsilon at delta 0 with 90 % confidence, the level of DP-Sniper's evaluation. By default
there are as many as in that evaluation (`mechanism_cases`), which takes an hour on a core.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from mechanism_cases import CASES, CLAIM
from tables import put_table

from dpaudit.lower_bounds.counts import ErrorCounts
from dpaudit.lower_bounds.estimating import estimate
from dpaudit.pipelines.scores import LearnedScore, Released

CONFIDENCE, MILLION = 0.9, 1_000_000
BLOCK = 2_000  # runs that are scored together
GRID = np.concatenate([np.geomspace(1e-7, 1e-3, 80), np.linspace(0.001, 0.999, 999)])
STORED = Path(__file__).with_suffix(".json")


def outputs(name: str, place: int, runs: int, *key: int) -> Iterator[np.ndarray]:
    """The outputs of so many runs on one of the inputs, in blocks."""
    case, random = CASES[name], np.random.default_rng((*key, place))
    for start in range(0, runs, BLOCK):
        yield case.run(case.inputs[place], min(BLOCK, runs - start), random)


def learned(name: str, runs: int) -> LearnedScore:
    """A score that was trained by so many runs on each input."""
    both = [np.concatenate(list(outputs(name, place, runs, 0))) for place in (0, 1)]
    # In turns, because the halves of a pilot are taken in turns.
    results = [Released.of(both[run % 2][run // 2]) for run in range(2 * runs)]
    return LearnedScore.learn(results, [run % 2 == 1 for run in range(2 * runs)])


def norms_of(rows: np.ndarray) -> np.ndarray:
    """The norm of the only array in each output."""
    return np.linalg.norm(rows, axis=1)[:, None]


def scores(score: LearnedScore, name: str, place: int, runs: int, *key: int) -> np.ndarray:
    """The scores of fresh runs on one of the inputs."""
    parts = []
    for rows in outputs(name, place, runs, *key):
        parts.append(score.of_rows(rows, norms_of(rows)))
    return np.concatenate(parts)


def threshold(score: LearnedScore, name: str, runs: int) -> float:
    """The threshold at which so many runs on each input show most."""
    first, second = (scores(score, name, place, runs, 1) for place in (0, 1))
    cuts = np.unique(np.quantile(np.concatenate([first, second]), GRID))
    counts = ErrorCounts.at(second, first, cuts)
    fp, fn = counts.upper_rates(0.02)  # below the final level: rare events look better by luck
    with np.errstate(divide="ignore"):
        merits = np.maximum(np.log1p(-fn) - np.log(fp), np.log1p(-fp) - np.log(fn))
    return float(cuts[np.argmax(merits)])


def played(name: str, train: int, search: int, final: int) -> dict[str, Any]:
    """What fresh runs on both inputs show."""
    case, score = CASES[name], learned(name, train)
    cut = threshold(score, name, search)
    first, second = (
        sum(
            int(np.count_nonzero(score.of_rows(rows, norms_of(rows)) > cut))
            for rows in outputs(name, place, final, 2)
        )
        for place in (0, 1)
    )
    counts = ErrorCounts.given(
        true_positives=second,
        false_negatives=final - second,
        false_positives=first,
        true_negatives=final - first,
    )
    shown = float(estimate(counts, delta=0.0, confidence=CONFIDENCE).epsilon)
    print(
        f"{name:45}{case.epsilon:6.2f}{shown:9.4f}{case.sniper:9.4f}{case.statdp:9.4f}", flush=True
    )
    return {
        "mechanism": name,
        "shown": shown,
        "above": [first, second],
        "train": train,
        "search": search,
        "final": final,
        "confidence": CONFIDENCE,
    }


def write_page() -> None:
    """The table of docs/pipeline.md; the largest of the lower bounds is bold."""
    stored = json.loads(STORED.read_text())
    auditorium = json.loads(STORED.with_name("mechanisms_auditorium.json").read_text())
    theirs = {own["mechanism"]: max(own["refuted"].values()) for own in auditorium["rows"]}
    lines = [
        "| mechanism | true epsilon | runs | dpaudit | DP-Sniper | StatDP | DP-Auditorium |",
        "|---|---|---|---|---|---|---|",
    ]
    for own in stored["rows"]:
        case = CASES[own["mechanism"]]
        values = [own["shown"], case.sniper, case.statdp, theirs[own["mechanism"]]]
        has = f"{case.epsilon:g}" if math.isfinite(case.epsilon) else "infinite"
        words = [f"{value:.3f}" for value in values]
        best = max(words, key=float)
        shown = [f"**{word}**" if word == best else word for word in words]
        runs = f"{own['final'] // MILLION} million"
        lines.append(f"| {own['mechanism']} | {has} | {runs} | {' | '.join(shown)} |")
    put_table("pipeline.md", "mechanisms.py", lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--save", action="store_true", help="put the rows into mechanisms.json")
    parser.add_argument("--only", nargs="*", default=list(CASES))
    parser.add_argument("--train", type=float, default=0.25, help="million runs on each input")
    parser.add_argument("--search", type=float, default=10.7, help="as many choose the threshold")
    parser.add_argument("--final", type=float, default=200, help="as many give the bound")
    parser.add_argument("--page", action="store_true", help="only write the table of the page")
    options = parser.parse_args()
    if options.page:
        write_page()
        return
    for name in options.only:
        sizes = (options.train, options.search, options.final)
        row = played(name, *(round(millions * MILLION) for millions in sizes))
        if options.save:
            stored = json.loads(STORED.read_text()) if STORED.exists() else {"rows": []}
            rows = {own["mechanism"]: own for own in stored["rows"]} | {name: row}
            stored = {
                "claimed_epsilon": CLAIM,
                "rows": [rows[own] for own in CASES if own in rows],
            }
            STORED.write_text(json.dumps(stored, indent=1) + "\n")


if __name__ == "__main__":
    main()
