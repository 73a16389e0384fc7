"""Audit mechanisms that are no trainings: Laplace, a histogram, a noisy maximum, a synthetic table.

python examples/mechanisms.py

Every mechanism is a function of (data, seed), and each has a broken variant: its noise is too
small, or it also releases a number without noise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import dpaudit

EPSILON = 1.0
CATEGORIES = 5


def records(count: int = 20) -> np.ndarray:
    return np.random.default_rng(0).integers(0, CATEGORIES, count)


def neighbours() -> tuple[np.ndarray, np.ndarray]:
    """Data without and with a record of the last category."""
    data = records()
    return data, np.append(data, CATEGORIES - 1)


def counts(data: np.ndarray) -> np.ndarray:
    return np.bincount(data, minlength=CATEGORIES).astype(float)


def laplace(data: np.ndarray, seed: int, *, scale: float = 1 / EPSILON) -> float:
    """The number of records."""
    return len(data) + np.random.default_rng(seed).laplace(0, scale)


def histogram(data: np.ndarray, seed: int, *, scale: float = 1 / EPSILON) -> np.ndarray:
    """One count for each category: a record changes one of them by one."""
    return counts(data) + np.random.default_rng(seed).laplace(0, scale, CATEGORIES)


def noisy_max(data: np.ndarray, seed: int) -> int:
    """The category with the largest noisy count."""
    noisy = counts(data) + np.random.default_rng(seed).laplace(0, 2 / EPSILON, CATEGORIES)
    return int(noisy.argmax())


def noisy_max_exact_count(data: np.ndarray, seed: int) -> np.ndarray:
    """A broken variant: the chosen category has noise, and its count has none."""
    chosen = noisy_max(data, seed)
    return np.array([chosen, counts(data)[chosen]])


def synthetic_table(
    data: np.ndarray, seed: int, *, rows: int | None = 20, scale: float = 1 / EPSILON
) -> np.ndarray:
    """Rows drawn from a noisy histogram, as counts; broken if ``rows`` follows the data."""
    random = np.random.default_rng(seed)
    weights = np.maximum(counts(data) + random.laplace(0, scale, CATEGORIES), 1e-9)
    rows = len(data) if rows is None else rows
    return random.multinomial(rows, weights / weights.sum()).astype(float)


def scaled(mechanism: Callable[..., Any], **broken: Any) -> Callable[[Any, int], Any]:
    return lambda data, seed: mechanism(data, seed, **broken)


MECHANISMS: dict[str, tuple[Callable[[Any, int], Any], bool]] = {
    "Laplace": (laplace, True),
    "Laplace, noise halved": (scaled(laplace, scale=0.5 / EPSILON), False),
    "histogram": (histogram, True),
    "histogram, a third of the noise": (
        scaled(histogram, scale=1 / (3 * EPSILON)),
        False,
    ),
    "noisy maximum": (noisy_max, True),
    "noisy maximum with its exact count": (noisy_max_exact_count, False),
    "synthetic table": (synthetic_table, True),
    "synthetic table with as many rows as records": (scaled(synthetic_table, rows=None), False),
}
"""Mechanisms with the claim of `EPSILON`, and whether they keep it."""


def audit(name: str, *, runs: int = 2000, seed: int = 0) -> dpaudit.AuditResult:
    return dpaudit.audit(
        MECHANISMS[name][0],
        neighbours=neighbours,
        claim=dpaudit.Claim.from_points([(EPSILON, 0.0)]),
        delta=0.0,
        runs=runs,
        seed=seed,
        name=name,
    )


def main(runs: int = 2000) -> None:
    for name, (_, correct) in MECHANISMS.items():
        result = audit(name, runs=runs)
        shown = max(bound.epsilon for bound in result.final.lower)
        claim = "keeps" if correct else "breaks"
        print(f"{name} ({claim} its claim): {result.verdict}, epsilon >= {shown:.2f}")


if __name__ == "__main__":
    main()
