"""What every estimator that reads error counts is, so that every threshold rule can drive it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from numpy.typing import NDArray

from dpaudit import _validate
from dpaudit.lower_bounds.bands import Band, upper_rate
from dpaudit.lower_bounds.counts import ErrorCounts

Array = NDArray[np.float64]


@final
@dataclass(frozen=True)
class AtDelta:
    """The question "how large is epsilon at this delta?"."""

    delta: float

    def __post_init__(self) -> None:
        _validate.delta(self.delta)


@final
@dataclass(frozen=True)
class AtEpsilon:
    """The question "how large is delta at this epsilon?"."""

    epsilon: float

    def __post_init__(self) -> None:
        _validate.non_negative("epsilon", self.epsilon)


Question = AtDelta | AtEpsilon


class Levels(ABC):
    """How the error probability of a bound is spent on the two error rates."""

    @abstractmethod
    def upper_false_positive_rate(self, counts: ErrorCounts) -> Array:
        """Upper bounds on the false-positive rate, one a threshold."""

    @abstractmethod
    def upper_false_negative_rate(self, counts: ErrorCounts) -> Array:
        """Upper bounds on the false-negative rate, one a threshold."""


@final
@dataclass(frozen=True)
class Pointwise(Levels):
    """Each threshold on its own: half of ``significance`` for each of the two rates."""

    significance: float

    def upper_false_positive_rate(self, counts: ErrorCounts) -> Array:
        return upper_rate(counts.false_positives, counts.negatives, self.significance / 2)

    def upper_false_negative_rate(self, counts: ErrorCounts) -> Array:
        return upper_rate(counts.false_negatives, counts.positives, self.significance / 2)


@final
@dataclass(frozen=True)
class OneThreshold(Levels):
    """A single threshold that was fixed without these scores: both rates may be tested together.

    Methods that need a limit for each rate by itself read half of ``significance`` for each; those
    that can test the two together spend it on the pair.
    """

    significance: float

    def upper_false_positive_rate(self, counts: ErrorCounts) -> Array:
        return Pointwise(self.significance).upper_false_positive_rate(counts)

    def upper_false_negative_rate(self, counts: ErrorCounts) -> Array:
        return Pointwise(self.significance).upper_false_negative_rate(counts)


@final
@dataclass(frozen=True)
class Everywhere(Levels):
    """All thresholds at once, by one simultaneous band for each of the two rates."""

    false_positive_band: Band
    false_negative_band: Band

    def upper_false_positive_rate(self, counts: ErrorCounts) -> Array:
        return self.false_positive_band.upper(counts.false_positives)

    def upper_false_negative_rate(self, counts: ErrorCounts) -> Array:
        return self.false_negative_band.upper(counts.false_negatives)


@final
@dataclass(frozen=True, kw_only=True)
class Answer:
    """The value of a bound at its threshold, and the mu it went through, if any."""

    value: float
    mu: float | None = None


class CountEstimator(ABC):
    """A lower bound from the errors at a threshold.

    An estimator ranks thresholds by a *merit*, and turns the merit of the chosen one into the
    answer; the two are apart because the merit is needed at every threshold and the answer at one.
    """

    name: ClassVar[str]
    paper: ClassVar[str]
    assumptions: ClassVar[tuple[str, ...]]
    # By how much stricter a pilot reads the merit than the final bound is read. Where many
    # thresholds are equally good (Gaussian scores), caution keeps a lucky tail from winning.
    pilot_caution: ClassVar[float] = 1.0

    @abstractmethod
    def merit(self, counts: ErrorCounts, question: Question, levels: Levels) -> Array:
        """One number a threshold, larger where the bound is larger, never NaN."""

    @abstractmethod
    def answer(self, merit: float, question: Question) -> Answer:
        """The bound that a merit stands for: an epsilon or a delta, at least 0."""

    @property
    def simultaneous(self) -> bool:
        """Whether the method is built on bounds of both error rates, as bands need."""
        return True
