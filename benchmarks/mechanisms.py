"""Mechanisms of the papers of DP-Sniper and StatDP, attacked with our learned score.

    OMP_NUM_THREADS=1 python benchmarks/mechanisms.py [--save] [--only NAME ...] [--processes 6]
    python benchmarks/mechanisms.py --page

Some runs train the score, others choose the threshold, and the last ones, the most, give a lower
bound on epsilon at delta 0 with 90 % confidence, the level of DP-Sniper's evaluation. No part has
more runs than in that evaluation (`mechanism_cases`). All numbers of runs are fixed beforehand.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from mechanism_cases import CASES, CLAIM
from tables import put_table

from dpaudit.lower_bounds.counts import ErrorCounts
from dpaudit.lower_bounds.estimating import estimate
from dpaudit.pipelines.scores import LearnedScore

CONFIDENCE, MILLION = 0.9, 1_000_000
BLOCK = 2_000  # runs that are scored together
PART = 5 * MILLION  # runs that one process plays at a time
RARE = np.geomspace(1e-7, 1e-3, 80)
GRID = np.concatenate([RARE, np.linspace(0.001, 0.999, 999), 1 - RARE])
STORED = Path(__file__).with_suffix(".json")
OUTCOMES = [name for name in CASES if name.startswith(("sparse vector 4", "sparse vector 5"))]
OUTCOMES += ["sparse vector 6 (never stops)", "noisy maximum, index"]


def outputs(name: str, place: int, runs: int, *key: int) -> Iterator[np.ndarray]:
    """The outputs of so many runs on one of the inputs, in blocks."""
    case, random = CASES[name], np.random.default_rng((*key, place))
    for start in range(0, runs, BLOCK):
        yield case.run(case.inputs[place], min(BLOCK, runs - start), random)


def norms_of(rows: np.ndarray) -> np.ndarray:
    """The norm of the only array in each output."""
    return np.linalg.norm(rows, axis=1)[:, None]


def learned(name: str, runs: int) -> LearnedScore:
    """A score that was trained by so many runs on each input."""
    # In turns, because the halves of a pilot are taken in turns.
    both = [np.concatenate(list(outputs(name, place, runs, 0))) for place in (0, 1)]
    rows = np.stack(both, axis=1).reshape(2 * runs, -1)
    return LearnedScore.of_pilot(rows, norms_of(rows), np.arange(2 * runs) % 2 == 1)


def scores(score: LearnedScore, name: str, place: int, runs: int, *key: int) -> np.ndarray:
    """The scores of fresh runs on one of the inputs."""
    parts = []
    for rows in outputs(name, place, runs, *key):
        parts.append(score.of_rows(rows, norms_of(rows)))
    return np.concatenate(parts)


def threshold(score: LearnedScore, name: str, runs: int) -> float:
    """The threshold at which so many runs on each input show most."""
    first, second = (scores(score, name, place, runs, 1) for place in (0, 1))
    both = np.concatenate([first, second])
    cuts = np.unique(np.quantile(both, GRID))
    if len(np.unique(both[:100_000])) < len(GRID):  # of outcomes, every score is a threshold
        cuts = np.unique(both)
    counts = ErrorCounts.at(second, first, cuts)
    fp, fn = counts.upper_rates(0.02)  # below the final level: rare events look better by luck
    with np.errstate(divide="ignore"):
        merits = np.maximum(np.log1p(-fn) - np.log(fp), np.log1p(-fp) - np.log(fn))
    return float(cuts[np.argmax(merits)])


def event(name: str, train: int, search: int) -> tuple[LearnedScore, float]:
    """A score and its threshold."""
    score = learned(name, train)
    return score, threshold(score, name, search)


def above(score: LearnedScore, cut: float, name: str, place: int, runs: int, part: int) -> int:
    """How many of the runs of one part are above the threshold."""
    return sum(
        int(np.count_nonzero(score.of_rows(rows, norms_of(rows)) > cut))
        for rows in outputs(name, place, runs, 2, part)
    )


def row_of(name: str, counts: list[int], runs: dict[str, int]) -> dict[str, Any]:
    """What the final runs on both inputs show."""
    case, (first, second), final = CASES[name], counts, runs["final"]
    errors = ErrorCounts.given(
        true_positives=second,
        false_negatives=final - second,
        false_positives=first,
        true_negatives=final - first,
    )
    shown = float(estimate(errors, delta=0.0, confidence=CONFIDENCE).epsilon)
    print(
        f"{name:45}{case.epsilon:6.2f}{shown:9.4f}{case.sniper:9.4f}{case.statdp:9.4f}", flush=True
    )
    row = {"mechanism": name, "shown": shown, "above": [first, second]}
    return row | runs | {"confidence": CONFIDENCE}


def rows_of(names: list[str], asked: dict[str, int], processes: int) -> Iterator[dict[str, Any]]:
    """The rows of the table, each as soon as all of its runs are played."""
    counts = {name: [0, 0] for name in names}
    runs = {
        name: asked | ({"train": asked["outcomes"]} if name in OUTCOMES else {}) for name in names
    }
    for own in runs.values():
        del own["outcomes"]
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        events = {
            pool.submit(event, name, runs[name]["train"], runs[name]["search"]): name
            for name in names
        }
        parts: dict[Future[int], tuple[str, int]] = {}
        for future in as_completed(events):
            name = events[future]
            final = runs[name]["final"]
            for place in (0, 1):
                for part, start in enumerate(range(0, final, PART)):
                    arguments = name, place, min(PART, final - start), part
                    parts[pool.submit(above, *future.result(), *arguments)] = name, place
        left = {name: sum(own == name for own, _ in parts.values()) for name in names}
        for future in as_completed(parts):
            name, place = parts[future]
            counts[name][place] += future.result()
            left[name] -= 1
            if not left[name]:
                yield row_of(name, counts[name], runs[name])


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
        words = [f"{value:.4f}" for value in values]
        best = max(words, key=float)
        shown = [f"**{word}**" if word == best else word for word in words]
        runs = f"{own['final'] // MILLION} million"
        lines.append(f"| {own['mechanism']} | {has} | {runs} | {' | '.join(shown)} |")
    put_table("pipeline.md", "mechanisms.py", lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--save", action="store_true", help="put the rows into mechanisms.json")
    parser.add_argument("--only", nargs="*", default=list(CASES))
    parser.add_argument("--train", type=float, default=0.1, help="million runs on each input")
    parser.add_argument(
        "--outcomes", type=float, default=10.7, help="the same where outputs repeat"
    )
    parser.add_argument("--search", type=float, default=10.7, help="as many choose the threshold")
    parser.add_argument("--final", type=float, default=200, help="as many give the bound")
    parser.add_argument("--processes", type=int, default=6)
    parser.add_argument("--stored", type=Path, default=STORED, help="the file of the rows")
    parser.add_argument("--page", action="store_true", help="only write the table of the page")
    options = parser.parse_args()
    if options.page:
        write_page()
        return
    asked = {
        part: round(getattr(options, part) * MILLION)
        for part in ("train", "outcomes", "search", "final")
    }
    for row in rows_of(options.only, asked, options.processes):
        if options.save:
            stored = json.loads(options.stored.read_text()) if options.stored.exists() else {}
            rows = {own["mechanism"]: own for own in stored.get("rows", [])}
            rows[row["mechanism"]] = row
            stored = {"claimed_epsilon": CLAIM, "rows": [rows[own] for own in CASES if own in rows]}
            options.stored.write_text(json.dumps(stored, indent=1) + "\n")


if __name__ == "__main__":
    main()
