"""Attack the conjecture that a moving threshold is the best landscape after one insertion.

Alternating maximisation over all landscapes of T - 1 clean steps and all test sets, on a grid, from
random starts. Forwards: propagate p_1 - e^epsilon p_0 and take the best test set. Backwards: from
the last step to the first, move every cell to the best place within reach: the largest acceptance
probability where the measure is positive, the smallest where it is negative. Each pass can only
increase delta. A local maximum above the moving threshold's delta would refute the conjecture.

    python benchmarks/landscape_attack.py --out benchmarks/landscape_attack.json
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft

CELL = 0.05
X = np.arange(-14.0, 22.0, CELL)
CASES = (  # steps, epsilon, reach B; sigma = 1
    (3, 3.9918, 1.0),
    (4, 3.96, 1.0),
    (5, 3.9438, 1.0),
    (3, 1.0, 1.0),
    (4, 0.3, 1.0),
    (5, 2.0, 1.0),
    (3, 3.3, 0.5),
    (5, 2.9, 0.5),
    (4, 4.35, 2.0),
)

_SPREAD = math.ceil(7 / CELL)
_KERNEL = np.exp(-0.5 * (CELL * np.arange(-_SPREAD, _SPREAD + 1)) ** 2)
_KERNEL /= _KERNEL.sum()
_LENGTH = next_fast_len(X.size + 2 * _SPREAD, real=True)
_TRANSFORM = rfft(_KERNEL, _LENGTH)


def smooth(rows):
    """Convolve each row with the noise."""
    spread = irfft(rfft(rows, _LENGTH, axis=-1) * _TRANSFORM, _LENGTH, axis=-1)
    return spread[..., _SPREAD : _SPREAD + X.size]


def targets(moves):
    """The cell that each cell is moved to."""
    return np.clip(np.arange(X.size) + moves, 0, X.size - 1)


def forward(measure, moves):
    """The measures before each clean step and after the last; moves has shape (steps, runs, n)."""
    runs = moves.shape[1]
    path = [np.broadcast_to(measure, (runs, X.size))]
    offsets = (np.arange(runs) * X.size)[:, None]
    for move in moves:
        flat = (targets(move) + offsets).ravel()
        pushed = np.bincount(flat, path[-1].ravel(), runs * X.size).reshape(runs, X.size)
        path.append(smooth(pushed))
    return path


def extremes(accepted, reach):
    """The moves within reach to the largest and to the smallest acceptance probability."""
    best = np.zeros(accepted.shape, dtype=int)
    worst = np.zeros(accepted.shape, dtype=int)
    largest, smallest = np.full(accepted.shape, -np.inf), np.full(accepted.shape, np.inf)
    cells = np.arange(X.size)
    for move in range(-reach, reach + 1):
        value = accepted[:, np.clip(cells + move, 0, X.size - 1)]
        larger, smaller = value > largest, value < smallest
        largest[larger], best[larger] = value[larger], move
        smallest[smaller], worst[smaller] = value[smaller], move
    return best, worst


def climb(measure, moves, reach, *, passes=60):
    """Alternate until no run improves; returns delta of each run."""
    values = np.zeros(moves.shape[1])
    for _ in range(passes):
        path = forward(measure, moves)
        now = np.maximum(path[-1], 0).sum(axis=1) * CELL
        if (now <= values * (1 + 1e-9)).all():
            break
        values = np.maximum(values, now)
        future = (path[-1] > 0).astype(float)
        for step in range(len(moves) - 1, -1, -1):
            accepted = smooth(future)
            best, worst = extremes(accepted, reach)
            moves[step] = np.where(path[step] > 0, best, worst)
            future = np.take_along_axis(accepted, targets(moves[step]), axis=1)
    return values


def random_moves(random, steps, runs, reach):
    """Noise, waves of one sign, fixed thresholds at random places, and random step functions."""
    moves = np.empty((steps, runs, X.size), dtype=int)
    for step in range(steps):
        for run in range(runs):
            kind = run % 4
            if kind == 0:
                move = random.integers(-reach, reach + 1, X.size)
            elif kind == 1:
                wave = np.sin(X * random.uniform(0.2, 4) + random.uniform(0, 7))
                move = np.where(wave > random.uniform(-0.9, 0.9), reach, -reach)
            elif kind == 2:
                move = np.where(random.uniform(-3, 9) < X, reach, -reach)
            else:
                cuts = np.sort(random.uniform(-8, 14, random.integers(2, 9)))
                heights = random.integers(-reach, reach + 1, cuts.size + 1)
                move = heights[np.searchsorted(cuts, X)]
            moves[step, run] = move
    return moves


def moving_threshold(measure, steps, reach):
    """Delta of the moving threshold on the same grid."""
    moves = np.empty((steps, 1, X.size), dtype=int)
    for step in range(steps):
        change = int(np.argmin(np.cumsum(forward(measure, moves[:step])[-1][0]))) + 1
        moves[step, 0] = np.where(np.arange(X.size) >= change, reach, -reach)
    return float(np.maximum(forward(measure, moves)[-1], 0).sum() * CELL)


def attack(steps, epsilon, length, *, starts, seed=0, tile=50):
    """The largest delta that ``starts`` climbs reach, beside the moving threshold's."""
    density = np.exp(-0.5 * np.stack([X - 1, X]) ** 2) / math.sqrt(2 * math.pi)
    measure = density[0] - math.exp(epsilon) * density[1]
    random, reach = np.random.default_rng([seed, steps]), round(length / CELL)
    tiles = [
        climb(measure, random_moves(random, steps - 1, tile, reach), reach)
        for _ in range(starts // tile)
    ]
    values = np.concatenate(tiles)
    reference = moving_threshold(measure, steps - 1, reach)
    return {
        "steps": steps,
        "epsilon": epsilon,
        "batch_size": length,
        "starts": int(values.size),
        "moving_threshold_delta": reference,
        "best_delta": float(values.max()),
        "largest_ratio": float(values.max() / reference),
        "within_0.1_percent": int((values > reference * 0.999).sum()),
        "median_ratio": float(np.median(values) / reference),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("benchmarks/landscape_attack.json"))
    parser.add_argument("--starts", type=int, default=1000)
    arguments = parser.parse_args()
    cases = []
    for steps, epsilon, length in CASES:
        begin = time.perf_counter()
        case = attack(steps, epsilon, length, starts=arguments.starts)
        cases.append(case)
        print(f"{case} {time.perf_counter() - begin:.0f} s", flush=True)
    arguments.out.write_text(json.dumps({"cell": CELL, "cases": cases}, indent=1) + "\n")


if __name__ == "__main__":
    main()
