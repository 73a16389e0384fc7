"""Error counts of a thresholded score, at one threshold or at all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betainccinv

from dpaudit import _validate
from dpaudit._arrays import Array, Integers
from dpaudit.errors import InvalidScores

# Neighbours among more thresholds than this differ by less than the noise.
MOST_THRESHOLDS = 20_000
# Sums of counts up to here are exact as floats.
MOST_COUNTED = 10**15


@final
@dataclass(frozen=True, kw_only=True)
class ErrorCounts:
    """False positives and false negatives at some thresholds; above means "inserted".

    Arguments:
        false_positives: Scores without the canary above each threshold.
        false_negatives: Scores with the canary not above each threshold.
        negatives: Number of scores without the canary.
        positives: Number of scores with the canary.
        thresholds: The thresholds, ascending; NaN where the counts were given without one.
    """

    false_positives: Integers
    false_negatives: Integers
    negatives: int
    positives: int
    thresholds: Array

    @classmethod
    def given(
        cls, *, true_positives: int, false_negatives: int, false_positives: int, true_negatives: int
    ) -> ErrorCounts:
        """The four counts of an audit that was thresholded elsewhere."""
        tp, fn, fp, tn = (
            _validate.integer(
                name, value, at_most=MOST_COUNTED, remedy="a count is a number of scores"
            )
            for name, value in (
                ("true_positives", true_positives),
                ("false_negatives", false_negatives),
                ("false_positives", false_positives),
                ("true_negatives", true_negatives),
            )
        )
        for name, total in (("inserted", tp + fn), ("not inserted", fp + tn)):
            if total == 0:
                raise InvalidScores(
                    f"the counts hold no {name} score; a bound needs at least one of each kind"
                )
        return cls(
            false_positives=np.array([fp]),
            false_negatives=np.array([fn]),
            negatives=fp + tn,
            positives=tp + fn,
            thresholds=np.array([np.nan]),
        )

    @classmethod
    def at(cls, inserted: Array, not_inserted: Array, thresholds: ArrayLike) -> ErrorCounts:
        """The errors at the given thresholds."""
        cuts = np.atleast_1d(np.asarray(thresholds, dtype=float))
        above: list[Integers] = []
        for scores in (inserted, not_inserted):
            if len(cuts) == 1:  # needs no sorting: ten times faster for millions of scores
                above.append(np.array([np.count_nonzero(scores > cuts[0])], dtype=np.int64))
            else:
                below = np.searchsorted(np.sort(scores), cuts, side="right")
                above.append((len(scores) - below).astype(np.int64))
        return cls(
            false_positives=above[1],
            false_negatives=len(inserted) - above[0],
            negatives=len(not_inserted),
            positives=len(inserted),
            thresholds=cuts,
        )

    @classmethod
    def sweep(cls, inserted: Array, not_inserted: Array) -> ErrorCounts:
        """The errors at every threshold that separates two distinct scores.

        More than `MOST_THRESHOLDS` are thinned to evenly spaced ranks and all ranks near both ends.
        """
        ordered = np.concatenate([inserted, not_inserted])
        ordered.sort()  # numpy's unique builds a hash table, which is larger and slower
        distinct = ordered[np.append(True, ordered[1:] != ordered[:-1])]
        del ordered
        gaps = _thinned(len(distinct) - 1)
        return cls.at(inserted, not_inserted, _between(distinct[gaps], distinct[gaps + 1]))

    @property
    def sample_size(self) -> int:
        """How many scores were counted."""
        return self.negatives + self.positives

    def upper_rates(self, significance: float) -> tuple[Array, Array]:
        """Upper confidence limits on both error rates, at each threshold by itself.

        Each of the two is false with probability at most half of ``significance``.
        """
        return (
            upper_rate(self.false_positives, self.negatives, significance / 2),
            upper_rate(self.false_negatives, self.positives, significance / 2),
        )

    def __len__(self) -> int:
        return len(self.thresholds)

    def __getitem__(self, which: ArrayLike) -> ErrorCounts:
        """The counts at some of the thresholds."""
        index = np.atleast_1d(np.asarray(which))
        return ErrorCounts(
            false_positives=self.false_positives[index],
            false_negatives=self.false_negatives[index],
            negatives=self.negatives,
            positives=self.positives,
            thresholds=self.thresholds[index],
        )


def upper_rate(errors: ArrayLike, trials: int, tail: float) -> Array:
    """Clopper-Pearson upper limit on an error rate, false with probability at most ``tail``.

    Example:
        >>> float(upper_rate(0, 500, 0.005).round(6))
        0.010541
    """
    errors = np.asarray(errors, dtype=float)
    inside = np.minimum(errors, trials - 1)
    return np.where(errors >= trials, 1.0, betainccinv(inside + 1, trials - inside, tail))


def middle_of_best(merit: Array) -> int:
    """The middle one of several equally good thresholds."""
    best = np.flatnonzero(merit == merit.max())
    return int(best[len(best) // 2])


def midpoints(distinct: Array) -> Array:
    """One threshold between each two neighbours of an ascending array without repeats."""
    return _between(distinct[:-1], distinct[1:])


def _between(low: Array, high: Array) -> Array:
    """A threshold from ``low`` to below ``high``: their mid-point, if it can be represented.

    Where the mid-point is infinite or rounds up to the larger neighbour, the smaller neighbour is
    the threshold, since "inserted" means strictly above.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        middle = low / 2 + high / 2
    return np.asarray(np.where((middle >= low) & (middle < high), middle, low))


def _thinned(count: int) -> Integers:
    """Which of so many thresholds are kept: all, or some of them and all near both ends."""
    if count <= MOST_THRESHOLDS:
        return np.arange(count)
    ends = np.arange(MOST_THRESHOLDS // 8)
    even = np.linspace(0, count - 1, MOST_THRESHOLDS * 3 // 4).round().astype(np.int64)
    return np.unique(np.concatenate([ends, even, count - 1 - ends]))
