r"""How the threshold is chosen, so that the bound accounts for the choice.

**Fixed.** The threshold was chosen before the scores were seen.

**Pilot.** A random share of the scores chooses the threshold, and the bound is read on the rest.
The two parts are independent, so for the rest the threshold is as good as fixed, however it was
chosen. What the pilot predicts about the rest matters for tightness only: where its scores look
normal, a normal fit extends into tails that a pilot hardly sees.

**Simultaneous.** The bound holds at all thresholds together, see `simultaneous`.

`dpaudit.comparisons.rules` has two more rules, which have no theorem.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, final

import numpy as np
from scipy.special import bdtrik, ndtr

from dpaudit import _validate
from dpaudit._arrays import Array
from dpaudit._registry import Registry
from dpaudit.errors import InvalidInput, InvalidScores
from dpaudit.lower_bounds.counts import ErrorCounts, middle_of_best
from dpaudit.lower_bounds.diagnostics import FEWEST_TO_CHECK, normal_p_values, unit_of

Merit = Callable[[ErrorCounts], Array]
"""One number per threshold, larger where the bound is expected to be larger; never NaN."""

# Of the tests of normality and of equal variances. A fit that is nearly normal still predicts well.
_SIGNIFICANCE = 0.01
_CUTS = 100
# Quantiles of the two counts, combined like a Latin square: five equally likely outcomes.
_QUANTILES = np.array([(0.1, 0.5), (0.3, 0.9), (0.5, 0.3), (0.7, 0.7), (0.9, 0.1)])


@final
@dataclass(frozen=True, kw_only=True)
class Pilot:
    """A random share of the scores chooses the threshold; the bound is read on the rest.

    Arguments:
        share: Share of the scores that choose the threshold.
        seed: Random seed that draws them.
        evenly: Take them at equal distances instead; for predictions from ordered scores only.
    """

    share: float = 0.1
    seed: int = 0
    evenly: bool = field(default=False, repr=False)
    name: ClassVar[str] = "pilot"
    assumptions: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        _validate.between("share", self.share, 0, 1, remedy="0.1 keeps 90 % for the bound")
        _validate.integer("seed", self.seed)

    def choose(
        self, inserted: Array, others: Array, merit: Merit, foreseen_merit: Merit | None = None
    ) -> ErrorCounts:
        """The errors of the rest at the threshold that the pilot chooses.

        Arguments:
            inserted: Scores with the canary.
            others: Scores without it.
            merit: Ranks the thresholds by the pilot's errors.
            foreseen_merit: Ranks them by the errors on the rest that a normal pilot predicts.
        """
        pilot_in, rest_in, pilot_out, rest_out = self.split(inserted, others)
        outcomes = None
        if foreseen_merit is not None:
            outcomes = foreseen(pilot_in, pilot_out, len(rest_in), len(rest_out))
        if foreseen_merit is not None and outcomes is not None:
            cuts = outcomes[0].thresholds
            merits = np.mean([foreseen_merit(outcome) for outcome in outcomes], axis=0)
        else:
            pilot = ErrorCounts.sweep(pilot_in, pilot_out)
            if len(pilot) == 0:
                # Their single value is still a threshold that was chosen without the rest.
                return ErrorCounts.at(rest_in, rest_out, pilot_in[:1])
            cuts, merits = pilot.thresholds, merit(pilot)
        return ErrorCounts.at(rest_in, rest_out, cuts[middle_of_best(merits)])

    def split(self, inserted: Array, others: Array) -> tuple[Array, Array, Array, Array]:
        """Pilot and rest of the inserted scores, then pilot and rest of the others."""
        random = np.random.default_rng(self.seed)
        parts: list[Array] = []
        for kind, scores in (("inserted", inserted), ("not inserted", others)):
            size = len(scores)
            if size < 2:
                raise InvalidScores(
                    f"the pilot rule needs at least 2 {kind} scores, got {size}; use more runs, "
                    "threshold 'simultaneous', or 'fixed=VALUE' chosen before the scores were seen"
                )
            if self.evenly:
                every = round(1 / self.share)
                chosen = np.arange(size) % every == min(every // 2, size // 2)
                parts += [scores[chosen], scores[~chosen]]
            else:
                order = random.permutation(size)
                piloting = min(max(1, round(self.share * size)), size - 1)
                parts += [scores[order[:piloting]], scores[order[piloting:]]]
        return parts[0], parts[1], parts[2], parts[3]


@final
@dataclass(frozen=True, kw_only=True)
class Fixed:
    """A threshold that was chosen before the scores were seen."""

    value: float
    name: ClassVar[str] = "fixed"
    assumptions: ClassVar[tuple[str, ...]] = (
        "the threshold was fixed before the scores were seen",
    )

    def __post_init__(self) -> None:
        _validate.real("threshold value", self.value)

    def choose(
        self, inserted: Array, others: Array, merit: Merit, foreseen_merit: Merit | None = None
    ) -> ErrorCounts:
        """The errors at the threshold; both merits are unused."""
        return ErrorCounts.at(inserted, others, self.value)


@final
@dataclass(frozen=True, kw_only=True)
class Simultaneous:
    """All thresholds at once, from simultaneous bands of both distribution functions."""

    name: ClassVar[str] = "simultaneous"
    assumptions: ClassVar[tuple[str, ...]] = ()


class OnSameScores(abc.ABC):
    """The best threshold on the same scores that the bound is read on; without a theorem."""

    name: ClassVar[str]
    assumptions: ClassVar[tuple[str, ...]]

    @abc.abstractmethod
    def tried(self, counts: ErrorCounts, significance: float) -> tuple[ErrorCounts, float]:
        """The thresholds among which the best is taken, and the significance at each of them."""


ThresholdRule = Pilot | Fixed | Simultaneous | OnSameScores

RULES = ("pilot", "simultaneous", "bonferroni", "best", "fixed=VALUE")

COMPARED: Registry[OnSameScores] = Registry("threshold", "dpaudit.threshold_rules", {})
"""Rules without a theorem; `dpaudit.comparisons` and other packages add theirs by entry points."""


def threshold_rule(rule: str | ThresholdRule, *, seed: int = 0) -> ThresholdRule:
    """The rule named by one of the words in `RULES`, or by ``pilot=SHARE``.

    Example:
        >>> threshold_rule("fixed=0.5")
        Fixed(value=0.5)
        >>> threshold_rule("pilot=0.2", seed=3)
        Pilot(share=0.2, seed=3)
    """
    _validate.integer("seed", seed)
    if isinstance(rule, ThresholdRule):
        return rule
    word, _, argument = str(rule).strip().replace(" ", "=", 1).partition("=")
    try:
        number = float(argument or "nan")
    except ValueError:
        raise InvalidInput(f"threshold needs a number after '=', got {argument!r}") from None
    if word == "pilot":
        return Pilot(share=number, seed=seed) if argument else Pilot(seed=seed)
    if word == "fixed" and argument:
        return Fixed(value=number)
    if word == "simultaneous" and not argument:
        return Simultaneous()
    if not argument and word in COMPARED:
        return COMPARED[word]
    raise InvalidInput(f"threshold must be one of {', '.join(RULES)}, got {rule!r}")


def foreseen(
    inserted: Array, not_inserted: Array, positives: int, negatives: int
) -> list[ErrorCounts] | None:
    """Equally likely errors on the rest at some thresholds; `None` if the pilot is not normal."""
    if min(len(np.unique(inserted)), len(np.unique(not_inserted))) < FEWEST_TO_CHECK:
        return None  # few distinct values, such as randomised responses, are not normal
    unit = unit_of(inserted, not_inserted)
    inserted, not_inserted = inserted / unit, not_inserted / unit
    p_values = normal_p_values(inserted, not_inserted)
    if p_values is None or p_values[0] < _SIGNIFICANCE:
        return None
    # Standard deviations; their common value where a test does not tell them apart.
    variances = float(inserted.var(ddof=1)), float(not_inserted.var(ddof=1))
    if min(variances) == 0:  # below the smallest number
        return None
    if p_values[1] > _SIGNIFICANCE:
        degrees = len(inserted) - 1, len(not_inserted) - 1
        variances = (float(np.average(variances, weights=degrees)),) * 2
    spread_in, spread_out = np.sqrt(variances).tolist()
    mean_in, mean_out = float(inserted.mean()), float(not_inserted.mean())
    lowest = min(mean_in - 5 * spread_in, mean_out)
    cuts = np.linspace(lowest, max(mean_out + 5 * spread_out, mean_in), _CUTS)
    rates = np.stack([ndtr((mean_out - cuts) / spread_out), ndtr((cuts - mean_in) / spread_in)])
    trials = np.array([[negatives], [positives]])
    quantiles = np.nan_to_num(bdtrik(_QUANTILES[..., None], trials, rates))  # NaN at a rate of 0
    errors = np.clip(np.ceil(quantiles), 0, trials).astype(np.int64)
    return [
        ErrorCounts(
            false_positives=false_positives,
            false_negatives=false_negatives,
            negatives=negatives,
            positives=positives,
            thresholds=cuts * unit,
        )
        for false_positives, false_negatives in errors
    ]
