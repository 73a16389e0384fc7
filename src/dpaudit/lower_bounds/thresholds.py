"""How the threshold is chosen, and how the bound accounts for the choice.

Evaluating a bound at the threshold where it is largest on the same scores selects the luckiest of
thousands of bounds. `Pilot` and `Simultaneous` account for the choice; `Best` does not and says so;
`Bonferroni` is kept for comparison.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from dpaudit import _validate
from dpaudit._arrays import Array, Integers
from dpaudit.errors import InvalidInput, InvalidScores
from dpaudit.lower_bounds.counts import ErrorCounts
from dpaudit.lower_bounds.foresight import foreseen
from dpaudit.lower_bounds.levels import Everywhere, Levels, Pointwise
from dpaudit.lower_bounds.questions import Question


class Ranking(ABC):
    """Ranks thresholds by a merit, so that a rule can choose one."""

    name: ClassVar[str]
    # Factor by which a pilot lowers the significance when it ranks thresholds. Where many
    # thresholds are equally good (Gaussian scores) this keeps a lucky tail from winning.
    pilot_caution: ClassVar[float] = 1.0
    # Whether a pilot that looks normal predicts the merit on the rest from a normal fit.
    foresees: ClassVar[bool] = False
    # Whether the merit is built on upper limits of both error rates, as simultaneous bands need.
    bands: ClassVar[bool] = True

    @abstractmethod
    def merit(self, counts: ErrorCounts, question: Question, levels: Levels) -> Array:
        """One number per threshold, larger where the bound is larger, never NaN."""

    def foreseen_merit(self, counts: ErrorCounts, question: Question, significance: float) -> Array:
        """About the merit that the joint test of the rest will find, fast; at least 0."""
        # The joint test spends nearly all of the significance on the rate that limits the bound.
        return np.maximum(self.merit(counts, question, Pointwise(2 * significance)), 0)


@final
@dataclass(frozen=True, kw_only=True)
class Chosen:
    """One threshold, the error counts there, and the levels at which to read them."""

    counts: ErrorCounts
    levels: Levels
    notes: tuple[str, ...] = ()

    @property
    def threshold(self) -> float:
        """The threshold itself; NaN where only counts were given."""
        return float(self.counts.thresholds[0])


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Sample:
    """The scores on which a threshold is chosen, and what is to be bounded.

    Arguments:
        inserted: Scores with the canary.
        not_inserted: Scores without it.
        question: What is bounded.
        significance: Error probability of the bound.
    """

    inserted: Array
    not_inserted: Array
    question: Question
    significance: float

    @property
    def counts(self) -> ErrorCounts:
        """The error counts at every threshold."""
        return ErrorCounts.sweep(self.inserted, self.not_inserted)


class ThresholdRule(ABC):
    """Chooses the threshold at which a method reads the scores."""

    name: ClassVar[str]
    assumptions: ClassVar[tuple[str, ...]] = ()
    # Whether a theorem says that the bound accounts for the choice.
    has_theorem: ClassVar[bool] = True

    @abstractmethod
    def choose(self, ranking: Ranking, sample: Sample) -> Chosen | None:
        """The chosen threshold; `None` if all scores are equal."""


@final
@dataclass(frozen=True, kw_only=True)
class Pilot(ThresholdRule):
    """A random share of the scores chooses the threshold; the bound is read on the rest.

    The two parts are independent, so for the rest the threshold is as good as fixed.

    Arguments:
        share: Share of the scores that choose the threshold.
        seed: Random seed that draws them.
    """

    share: float = 0.1
    seed: int = 0
    name: ClassVar[str] = "pilot"

    def __post_init__(self) -> None:
        _validate.between("share", self.share, 0, 1, remedy="0.1 keeps 90 % for the bound")
        _validate.integer("seed", self.seed)

    def choose(self, ranking: Ranking, sample: Sample) -> Chosen | None:
        random = np.random.default_rng(self.seed)
        pilot_in, rest_in = self.split(sample.inserted, "inserted", random)
        pilot_out, rest_out = self.split(sample.not_inserted, "not inserted", random)
        return chosen_by_pilot(ranking, (pilot_in, pilot_out), (rest_in, rest_out), sample)

    def split(self, scores: Array, kind: str, random: np.random.Generator) -> tuple[Array, Array]:
        """Split into pilot and rest, at least one score each."""
        if len(scores) < 2:
            raise InvalidScores(
                f"the pilot rule needs at least 2 {kind} scores, got {len(scores)}; use more runs, "
                "threshold 'simultaneous', or 'fixed=VALUE' chosen before the scores were seen"
            )
        order = random.permutation(len(scores))
        size = min(max(1, round(self.share * len(scores))), len(scores) - 1)
        return scores[order[:size]], scores[order[size:]]


@final
@dataclass(frozen=True, kw_only=True)
class Simultaneous(ThresholdRule):
    """All thresholds at once, from simultaneous bands of both distribution functions."""

    name: ClassVar[str] = "simultaneous"

    def choose(self, ranking: Ranking, sample: Sample) -> Chosen | None:
        if not ranking.bands:
            raise InvalidInput(
                f"threshold 'simultaneous' needs a method built on bounds of both error rates, "
                f"got method {ranking.name!r}; use 'pilot', or clopper-pearson or gaussian-dp"
            )
        levels = Everywhere(sample.significance)
        return _best_of_sweep(ranking, sample.counts, sample.question, levels)


@final
@dataclass(frozen=True, kw_only=True)
class Bonferroni(ThresholdRule):
    """A union bound over the thresholds on the convex hull of the error counts.

    This is the rule of jax-privacy 2.0, kept for comparison. The hull is found on the same scores,
    so the number of thresholds it corrects for depends on them. `Simultaneous` has no such
    dependence and is as tight.
    """

    name: ClassVar[str] = "bonferroni"
    has_theorem: ClassVar[bool] = False
    assumptions: ClassVar[tuple[str, ...]] = (
        "the thresholds that the union bound runs over, the hull of the error counts, "
        "are as good as fixed beforehand",
    )

    def choose(self, ranking: Ranking, sample: Sample) -> Chosen | None:
        counts = sample.counts
        if len(counts) == 0:
            return None
        hull = _convex_hull(counts)
        corners = 2  # "all inserted" and "none inserted" are thresholds of the union bound too
        levels = Pointwise(sample.significance / (len(hull) + corners))
        return _best_of_sweep(ranking, counts[hull], sample.question, levels)


@final
@dataclass(frozen=True, kw_only=True)
class Best(ThresholdRule):
    """The best threshold on the same scores, uncorrected: the paper's rule."""

    name: ClassVar[str] = "best"
    has_theorem: ClassVar[bool] = False
    assumptions: ClassVar[tuple[str, ...]] = (
        "the threshold was fixed before the scores were seen (it was not: selection is not "
        "accounted for)",
    )

    def choose(self, ranking: Ranking, sample: Sample) -> Chosen | None:
        levels = Pointwise(sample.significance)
        return _best_of_sweep(ranking, sample.counts, sample.question, levels)


@final
@dataclass(frozen=True, kw_only=True)
class Fixed(ThresholdRule):
    """A threshold that was chosen before the scores were seen."""

    value: float
    name: ClassVar[str] = "fixed"
    assumptions: ClassVar[tuple[str, ...]] = (
        "the threshold was fixed before the scores were seen",
    )

    def __post_init__(self) -> None:
        _validate.real("threshold value", self.value)

    def choose(self, ranking: Ranking, sample: Sample) -> Chosen | None:
        counts = ErrorCounts.at(sample.inserted, sample.not_inserted, self.value)
        return Chosen(counts=counts, levels=Pointwise(sample.significance, joint=True))


RULES = ("pilot", "simultaneous", "bonferroni", "best", "fixed=VALUE")


def threshold_rule(rule: str | ThresholdRule, *, seed: int = 0) -> ThresholdRule:
    """The rule named by one of the words in `RULES`, or by ``pilot=SHARE``.

    Example:
        >>> threshold_rule("fixed=0.5")
        Fixed(value=0.5)
        >>> threshold_rule("pilot=0.2", seed=3)
        Pilot(share=0.2, seed=3)
    """
    if isinstance(rule, ThresholdRule):
        return rule
    word, _, argument = str(rule).strip().replace(" ", "=", 1).partition("=")
    plain: dict[str, ThresholdRule] = {
        "simultaneous": Simultaneous(),
        "bonferroni": Bonferroni(),
        "best": Best(),
    }
    if word in plain and not argument:
        return plain[word]
    if word == "pilot":
        return Pilot(share=_number(argument), seed=seed) if argument else Pilot(seed=seed)
    if word == "fixed" and argument:
        return Fixed(value=_number(argument))
    raise InvalidInput(f"threshold must be one of {', '.join(RULES)}, got {rule!r}")


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidInput(f"threshold needs a number after '=', got {text!r}") from None


def chosen_by_pilot(
    ranking: Ranking,
    pilot: tuple[Array, Array],
    rest: tuple[Array, Array],
    sample: Sample,
) -> Chosen:
    """The threshold that a pilot chooses, and the errors of the rest there.

    Arguments:
        ranking: The merit by which the pilot chooses.
        pilot: Scores of the pilot with and without the canary.
        rest: The other scores with and without the canary.
        sample: All scores, and what is bounded.
    """
    (pilot_in, pilot_out), (rest_in, rest_out) = pilot, rest
    question, significance = sample.question, sample.significance
    seen = ErrorCounts.sweep(pilot_in, pilot_out)
    if len(seen) == 0:
        # Their single value is still a threshold that was chosen without the rest.
        return Chosen(
            counts=ErrorCounts.at(rest_in, rest_out, pilot_in[:1]),
            levels=Pointwise(significance, joint=True),
            notes=("the pilot scores are all equal; cut just above them",),
        )
    outcomes = None
    if ranking.foresees:
        outcomes = foreseen(pilot_in, pilot_out, len(rest_in), len(rest_out))
    if outcomes is None:
        cautious = Pointwise(significance / ranking.pilot_caution)
        cuts, merit = seen.thresholds, ranking.merit(seen, question, cautious)
    else:
        merits = [ranking.foreseen_merit(one, question, significance) for one in outcomes]
        cuts, merit = outcomes[0].thresholds, np.mean(merits, axis=0)
    return Chosen(
        counts=ErrorCounts.at(rest_in, rest_out, cuts[_middle_of_best(merit)]),
        levels=Pointwise(significance, joint=True),
    )


def _best_of_sweep(
    ranking: Ranking, counts: ErrorCounts, question: Question, levels: Levels
) -> Chosen | None:
    if len(counts) == 0:
        return None
    merit = ranking.merit(counts, question, levels)
    return Chosen(counts=counts[_middle_of_best(merit)], levels=levels)


def _middle_of_best(merit: Array) -> int:
    """The middle one of several equally good thresholds."""
    best = np.flatnonzero(merit == merit.max())
    return int(best[len(best) // 2])


def _convex_hull(counts: ErrorCounts) -> Integers:
    """Indices of the thresholds that no mixture of two others beats in both kinds of error."""
    x = counts.false_negatives.astype(float)
    y = counts.negatives - counts.false_positives.astype(float)
    x = np.concatenate([[0.0], x, [float(counts.positives)]])
    y = np.concatenate([[0.0], y, [float(counts.negatives)]])
    hull: list[int] = []
    for i in range(len(x)):
        while len(hull) >= 2 and _turns_left(x, y, hull[-2], hull[-1], i):
            hull.pop()
        hull.append(i)
    inner = np.array(hull[1:-1], dtype=np.int64) - 1
    # Without a hull every threshold is as good as a coin.
    return inner if len(inner) else np.array([len(counts) // 2])


def _turns_left(x: Array, y: Array, first: int, middle: int, last: int) -> bool:
    return bool(
        (y[middle] - y[first]) * (x[last] - x[middle])
        <= (y[last] - y[middle]) * (x[middle] - x[first])
    )
