"""How the error probability of a bound is divided between the two error rates."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

from dpaudit._arrays import Array
from dpaudit.lower_bounds.bands import simultaneous_band, upper_rate
from dpaudit.lower_bounds.counts import ErrorCounts


class Levels(ABC):
    """Upper confidence limits on both error rates, at each threshold."""

    @abstractmethod
    def upper_rates(self, counts: ErrorCounts) -> tuple[Array, Array]:
        """Upper limits on the false-positive and the false-negative rate, one per threshold."""


@final
@dataclass(frozen=True)
class Pointwise(Levels):
    """Limits that hold at each threshold separately.

    Arguments:
        significance: Error probability; each of the two limits gets half of it.
        joint: The counts hold one threshold that was fixed without these scores, so that a method
            may spend the whole significance on a joint test of both rates.
    """

    significance: float
    joint: bool = False

    def upper_rates(self, counts: ErrorCounts) -> tuple[Array, Array]:
        tail = self.significance / 2
        return (
            upper_rate(counts.false_positives, counts.negatives, tail),
            upper_rate(counts.false_negatives, counts.positives, tail),
        )


@final
@dataclass(frozen=True)
class Everywhere(Levels):
    """Limits that hold at all thresholds together: one simultaneous band per error rate.

    Arguments:
        significance: Error probability; each of the two bands gets half of it.
    """

    significance: float

    def upper_rates(self, counts: ErrorCounts) -> tuple[Array, Array]:
        tail = self.significance / 2
        return (
            simultaneous_band(counts.negatives, tail).upper(counts.false_positives),
            simultaneous_band(counts.positives, tail).upper(counts.false_negatives),
        )
