"""Rules that choose a threshold on the scores that the bound is read on, without a theorem.

Evaluating a bound at the threshold where it is largest on the same scores selects the luckiest of
thousands of bounds. Papers and other packages do this; bounds by these rules are for comparison
and guarantee nothing. `dpaudit.lower_bounds.selection` has the rules with a theorem.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

import numpy as np

from dpaudit._arrays import Integers
from dpaudit.curves import lower_hull

_ASSUMED = {
    "best": "the threshold was fixed before the scores were seen (it was not: selection is not "
    "accounted for)",
    "bonferroni": "the thresholds that the union bound runs over, the hull of the error counts, "
    "are as good as fixed beforehand",
}


@final
@dataclass(frozen=True)
class OnSameScores:
    """The best threshold on the same scores.

    Arguments:
        name: ``best``, uncorrected, is the paper's rule. ``bonferroni`` is that of jax-privacy 2.0:
            a union bound over the thresholds on the convex hull of the error counts. The hull is
            found on the same scores, so the number of thresholds it corrects for depends on them.
            The rule ``simultaneous`` has no such dependence and is as tight.
    """

    name: Literal["best", "bonferroni"]

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What would have to be true for the bound to hold."""
        return (_ASSUMED[self.name],)


def hull_of(
    false_positives: Integers, false_negatives: Integers, negatives: int, positives: int
) -> Integers:
    """Indices of the thresholds that no mixture of two others beats in both kinds of error."""
    points = list(zip(false_negatives.tolist(), false_positives.tolist(), strict=True))
    hull = set(lower_hull([(0, negatives), (positives, 0), *points]))
    inner = [place for place, point in enumerate(points) if point in hull]
    # Without a hull every threshold is as good as a coin.
    return np.array(inner or [len(points) // 2])
