"""Methods that are a formula of the four counts: Bayesian bounds and intervals of a ratio."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, final

from dpaudit._arrays import Array, Integers
from dpaudit.errors import InvalidInput
from dpaudit.lower_bounds import bayesian, ratio
from dpaudit.lower_bounds.base import CountMethod
from dpaudit.lower_bounds.counts import ErrorCounts
from dpaudit.lower_bounds.levels import Levels, Pointwise
from dpaudit.lower_bounds.questions import Answer, AtDelta, Question

Counts = tuple[Integers, Integers, int, int]


class CountFormula(CountMethod):
    """A lower bound that a formula gives for the counts at one significance."""

    bands: ClassVar[bool] = False

    @abstractmethod
    def formula(self, counts: Counts, question: Question, significance: float) -> Array:
        """The bound at each threshold."""

    @final
    def merit(self, counts: ErrorCounts, question: Question, levels: Levels) -> Array:
        assert isinstance(levels, Pointwise)  # rules refuse bands for a method without them
        columns = counts.false_positives, counts.false_negatives, counts.negatives, counts.positives
        return self.formula(columns, question, levels.significance)

    @final
    def answer(self, merit: float, question: Question) -> Answer:
        return Answer(value=merit)


class _Bayesian(CountFormula):
    guarantee = "credible"
    paper = "Zanella-Béguelin et al. 2023"
    assumptions = (
        "error rates have Jeffreys priors; the level is a posterior probability, not a confidence",
    )


@final
class Jeffreys(_Bayesian):
    """A Jeffreys upper limit on each error rate, then the definition of (epsilon, delta)-DP."""

    name = "jeffreys"

    def formula(self, counts: Counts, question: Question, significance: float) -> Array:
        return bayesian.jeffreys(*counts, question=question, significance=significance)


@final
class JointBeta(_Bayesian):
    """A lower quantile of the posterior of epsilon itself."""

    name = "joint-beta"

    def formula(self, counts: Counts, question: Question, significance: float) -> Array:
        return bayesian.joint_beta(*counts, question=question, significance=significance)


class _Ratio(CountFormula):
    guarantee = "none"
    paper = "Lu et al. 2022"
    assumptions = ("counts are large enough for an asymptotic interval of a ratio of rates",)
    limit: ClassVar[ratio.Limit]

    @final
    def formula(self, counts: Counts, question: Question, significance: float) -> Array:
        if not isinstance(question, AtDelta):
            raise InvalidInput(
                f"method {self.name!r} bounds the ratio of two rates, which has no delta at a "
                "given epsilon; use clopper-pearson, jeffreys or joint-beta"
            )
        limit = type(self).limit
        return ratio.ratio_epsilon(limit, *counts, delta=question.delta, significance=significance)


@final
class KatzLog(_Ratio):
    """The log of the ratio is taken as normal."""

    name, limit = "katz-log", staticmethod(ratio.katz_log_ratio)


@final
class AdjustedLog(_Ratio):
    """The log of the ratio, after adding 1/2 to the counts, is taken as normal."""

    name, limit = "adjusted-log", staticmethod(ratio.adjusted_log_ratio)


@final
class Bailey(_Ratio):
    """Cube roots of the rates are taken as normal."""

    name, limit = "bailey", staticmethod(ratio.bailey_ratio)


@final
class InverseSinh(_Ratio):
    """The interval by the inverse hyperbolic sine."""

    name, limit = "inverse-sinh", staticmethod(ratio.inverse_sinh_ratio)
