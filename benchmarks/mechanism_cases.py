"""The mechanisms of DP-Sniper's evaluation, on which auditors are compared, and what it reports.

The lower bounds are those of its reference results (eth-sri/dp-sniper, eval_sp2021), and the better
one of two: with a regression or a network for DP-Sniper, of two searches for StatDP. Both have 90 %
confidence, with 10.7 million runs on each input for training and for the search, and 200 million
for the final estimate. Every mechanism runs on the inputs that DP-Sniper's own search found.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

CLAIM = 0.1
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
    *, first: float, query_scale: float, values: bool = False, answers: int = 1
) -> Mechanism:
    """Sparse vector: which queries are above a noisy threshold; variants of Lyu et al. (2017).

    ``first`` is the share of epsilon for the threshold and ``query_scale`` the noise of a query
    times the rest of epsilon: 2 where that is right, 1 or 0 in the broken variants. After so many
    ``answers`` above the threshold nothing more is shown.
    """

    def run(queries, runs, random):
        threshold = 1 + random.laplace(0, 1 / (first * CLAIM), (runs, 1))
        noisy = np.broadcast_to(queries, (runs, len(queries))).astype(float)
        if query_scale:
            scale = query_scale / ((1 - first) * CLAIM)
            noisy = noisy + random.laplace(0, scale, noisy.shape)
        above = noisy >= threshold
        shown = np.where(above, noisy, -1000.0) if values else above.astype(float)
        earlier = np.cumsum(above, axis=1) - above
        return np.where(earlier >= answers, -2000.0 if values else -1.0, shown)

    return run


@dataclass(frozen=True)
class Case:
    """A mechanism, two neighbouring inputs, its true epsilon, and the reported lower bounds."""

    run: Mechanism
    inputs: tuple[np.ndarray, np.ndarray]
    epsilon: float
    sniper: float
    statdp: float


ZEROS, ONES, MIXED = np.zeros(10), np.ones(10), np.repeat([2.0, 0.0], 5)
FIRST, LAST = np.repeat([0.0, 1.0], 5), np.repeat([1.0, 0.0], 5)
COUNTS = np.array([0.0, 1, 1, 1, 1]), np.ones(5)
SINGLE = np.array([1.0]), np.array([2.0])
MORE = np.ones(5), 2 * np.ones(5)

INDEX = noisy_max(draw="laplace", index=True)
VALUE = noisy_max(draw="laplace", index=False)
EXPONENTIAL = noisy_max(draw="exponential", index=False)
SPARSE_3 = above_threshold(first=0.5, query_scale=1, values=True)
SPARSE_4 = above_threshold(first=0.25, query_scale=1)
SPARSE_5 = above_threshold(first=0.5, query_scale=0, answers=10)
SPARSE_6 = above_threshold(first=0.5, query_scale=1, answers=10)

CASES: dict[str, Case] = {
    "Laplace": Case(laplace(1 / CLAIM), SINGLE, 0.1, 0.0976, 0.0998),
    "histogram": Case(laplace(1 / CLAIM), COUNTS, 0.1, 0.0978, 0.0994),
    "histogram, scale epsilon": Case(laplace(CLAIM), COUNTS, 10.0, 4.602, 10.002),
    "noisy maximum, index": Case(
        INDEX, (np.ones(5), np.array([0.0, 2, 2, 2, 2])), 0.1, 0.0925, 0.0921
    ),
    "noisy maximum, value": Case(VALUE, (np.zeros(5), np.ones(5)), 0.25, 0.2488, 0.1991),
    "noisy maximum, exponential, value": Case(EXPONENTIAL, MORE, math.inf, 0.3534, 0.1988),
    "sparse vector 3 (shows the values)": Case(SPARSE_3, (ONES, MIXED), math.inf, 0.1822, 0.1793),
    "sparse vector 4": Case(SPARSE_4, (ONES, MIXED), 0.18, 0.1696, 0.1719),
    "sparse vector 5 (no noise of the queries)": Case(
        SPARSE_5, (MIXED, ONES), math.inf, 1.7612, 14.3143
    ),
    "sparse vector 6 (never stops)": Case(SPARSE_6, (LAST, FIRST), math.inf, 0.2720, 0.3220),
    "prefix sums": Case(prefix_sums, (ONES, ZEROS), 1.0, 0.5774, 0.3516),
}
