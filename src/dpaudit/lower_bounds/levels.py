"""How the error probability of a bound is divided between the two error rates."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

from dpaudit._arrays import Array
from dpaudit.lower_bounds.bands import Band, simultaneous_band, upper_rate
from dpaudit.lower_bounds.counts import ErrorCounts


class Levels(ABC):
    """Upper confidence limits on both error rates, at each threshold."""

    @abstractmethod
    def upper_false_positive_rate(self, counts: ErrorCounts) -> Array:
        """Upper limits on the false-positive rate, one per threshold."""

    @abstractmethod
    def upper_false_negative_rate(self, counts: ErrorCounts) -> Array:
        """Upper limits on the false-negative rate, one per threshold."""


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

    def upper_false_positive_rate(self, counts: ErrorCounts) -> Array:
        return upper_rate(counts.false_positives, counts.negatives, self.significance / 2)

    def upper_false_negative_rate(self, counts: ErrorCounts) -> Array:
        return upper_rate(counts.false_negatives, counts.positives, self.significance / 2)


@final
@dataclass(frozen=True)
class Everywhere(Levels):
    """Limits that hold at all thresholds together: one simultaneous band per error rate."""

    false_positive_band: Band
    false_negative_band: Band

    @classmethod
    def bands(cls, negatives: int, positives: int, significance: float) -> Everywhere:
        """Bands for so many scores; each band gets half of the error probability."""
        return cls(
            simultaneous_band(negatives, significance / 2),
            simultaneous_band(positives, significance / 2),
        )

    def upper_false_positive_rate(self, counts: ErrorCounts) -> Array:
        return self.false_positive_band.upper(counts.false_positives)

    def upper_false_negative_rate(self, counts: ErrorCounts) -> Array:
        return self.false_negative_band.upper(counts.false_negatives)
