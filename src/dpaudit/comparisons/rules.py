"""Rules that choose a threshold on the scores that the bound is read on, without a theorem.

Evaluating a bound at the threshold where it is largest on the same scores selects the luckiest of
thousands of bounds. Papers and other packages do this; bounds by these rules are for comparison
and guarantee nothing. `dpaudit.lower_bounds.selection` has the rules with a theorem.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from dpaudit._arrays import Array, Integers


@final
@dataclass(frozen=True)
class Best:
    """The best threshold on the same scores, uncorrected: the paper's rule."""

    name: ClassVar[str] = "best"
    assumptions: ClassVar[tuple[str, ...]] = (
        "the threshold was fixed before the scores were seen (it was not: selection is not "
        "accounted for)",
    )


@final
@dataclass(frozen=True)
class Bonferroni:
    """A union bound over the thresholds on the convex hull of the error counts.

    This is the rule of jax-privacy 2.0. The hull is found on the same scores, so the number of
    thresholds it corrects for depends on them. `dpaudit.lower_bounds.Simultaneous` has no such
    dependence and is as tight.
    """

    name: ClassVar[str] = "bonferroni"
    assumptions: ClassVar[tuple[str, ...]] = (
        "the thresholds that the union bound runs over, the hull of the error counts, "
        "are as good as fixed beforehand",
    )


def hull_of(
    false_positives: Integers, false_negatives: Integers, negatives: int, positives: int
) -> Integers:
    """Indices of the thresholds that no mixture of two others beats in both kinds of error."""
    x = np.concatenate([[0], false_negatives, [positives]]).astype(float)
    y = np.concatenate([[0], negatives - false_positives, [negatives]]).astype(float)
    hull: list[int] = []
    for i in range(len(x)):
        while len(hull) >= 2 and _turns_left(x, y, hull[-2], hull[-1], i):
            hull.pop()
        hull.append(i)
    inner = np.array(hull[1:-1], dtype=np.int64) - 1
    # Without a hull every threshold is as good as a coin.
    return inner if len(inner) else np.array([len(false_positives) // 2])


def _turns_left(x: Array, y: Array, first: int, middle: int, last: int) -> bool:
    return bool(
        (y[middle] - y[first]) * (x[last] - x[middle])
        <= (y[last] - y[middle]) * (x[middle] - x[first])
    )
