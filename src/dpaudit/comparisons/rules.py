"""Rules that choose a threshold on the scores that the bound is read on, without a theorem.

Evaluating a bound at the threshold where it is largest on the same scores selects the luckiest of
thousands of bounds. Papers and other packages do this; bounds by these rules are for comparison
and guarantee nothing. `dpaudit.lower_bounds.selection` has the rules with a theorem.
"""

from __future__ import annotations

from typing import ClassVar, final

import numpy as np

from dpaudit._arrays import Integers
from dpaudit.curves import lower_hull
from dpaudit.lower_bounds.counts import ErrorCounts
from dpaudit.lower_bounds.selection import OnSameScores


@final
class Best(OnSameScores):
    """The paper's rule: the best of all thresholds, uncorrected."""

    name: ClassVar[str] = "best"
    assumptions: ClassVar[tuple[str, ...]] = (
        "the threshold was fixed before the scores were seen (it was not: selection is not "
        "accounted for)",
    )

    def tried(self, counts: ErrorCounts, significance: float) -> tuple[ErrorCounts, float]:
        """All thresholds, each at the full significance."""
        return counts, significance


@final
class Bonferroni(OnSameScores):
    """The rule of jax-privacy 2.0: a union bound over the convex hull of the error counts.

    The hull is found on the same scores, so that the number of thresholds it corrects for depends
    on them. The rule ``simultaneous`` has no such dependence and is as tight.
    """

    name: ClassVar[str] = "bonferroni"
    assumptions: ClassVar[tuple[str, ...]] = (
        "the thresholds that the union bound runs over, the hull of the error counts, are as good "
        "as fixed beforehand",
    )

    def tried(self, counts: ErrorCounts, significance: float) -> tuple[ErrorCounts, float]:
        """The thresholds on the hull, which share the significance."""
        counts = counts[_hull_of(counts)]
        return counts, significance / (len(counts) + 2)  # and "all" and "none inserted"


BEST, BONFERRONI = Best(), Bonferroni()


def _hull_of(counts: ErrorCounts) -> Integers:
    """Indices of the thresholds that no mixture of two others beats in both kinds of error."""
    errors = counts.false_negatives.tolist(), counts.false_positives.tolist()
    points = list(zip(*errors, strict=True))
    hull = set(lower_hull([(0, counts.negatives), (counts.positives, 0), *points]))
    inner = [place for place, point in enumerate(points) if point in hull]
    # Without a hull every threshold is as good as a coin.
    return np.array(inner or [len(points) // 2])
