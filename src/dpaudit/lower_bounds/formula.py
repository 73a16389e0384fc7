"""Estimators that are a formula of the four counts, made to fit the threshold rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import numpy as np
from numpy.typing import NDArray

from dpaudit.errors import InvalidInput
from dpaudit.lower_bounds import bayesian, ratio
from dpaudit.lower_bounds.contract import (
    Answer,
    AtDelta,
    CountEstimator,
    Levels,
    OneThreshold,
    Pointwise,
    Question,
)
from dpaudit.lower_bounds.counts import ErrorCounts

Array = NDArray[np.float64]
Formula = Callable[..., Array]


@final
class CountFormula(CountEstimator):
    """A lower bound that a formula gives for each threshold's counts at one significance."""

    def __init__(
        self,
        name: str,
        paper: str,
        assumption: str,
        epsilon_formula: Formula,
        delta_formula: Formula | None = None,
    ) -> None:
        self.name = name  # type: ignore[misc]  # one class serves several methods
        self.paper = paper  # type: ignore[misc]
        self.assumptions = (assumption,)  # type: ignore[misc]
        self._epsilon_formula = epsilon_formula
        self._delta_formula = delta_formula

    @property
    def simultaneous(self) -> bool:
        return False

    def merit(self, counts: ErrorCounts, question: Question, levels: Levels) -> Array:
        if not isinstance(levels, Pointwise | OneThreshold):
            raise InvalidInput(f"method {self.name!r} has no simultaneous bands; use 'pilot'")
        columns = (
            counts.false_positives,
            counts.false_negatives,
            counts.negatives,
            counts.positives,
        )
        if isinstance(question, AtDelta):
            return self._epsilon_formula(
                *columns, delta=question.delta, significance=levels.significance
            )
        if self._delta_formula is None:
            raise InvalidInput(
                f"method {self.name!r} bounds the ratio of two rates, which has no delta at a "
                "given epsilon; use clopper-pearson, jeffreys or joint-beta"
            )
        return self._delta_formula(
            *columns, epsilon=question.epsilon, significance=levels.significance
        )

    def answer(self, merit: float, question: Question) -> Answer:
        return Answer(value=merit)


_PRIOR = "credible, not confidence: Jeffreys priors on both error rates"
_ASYMPTOTIC = "counts are large enough for an asymptotic interval of a ratio of rates"

JEFFREYS = CountFormula(
    "jeffreys",
    "Zanella-Béguelin et al. 2023",
    _PRIOR,
    bayesian.jeffreys_epsilon,
    bayesian.jeffreys_delta,
)
JOINT_BETA = CountFormula(
    "joint-beta",
    "Zanella-Béguelin et al. 2023",
    _PRIOR,
    bayesian.joint_beta_epsilon,
    bayesian.joint_beta_delta,
)
KATZ_LOG = CountFormula("katz-log", "Lu et al. 2022", _ASYMPTOTIC, ratio.katz_log_epsilon)
ADJUSTED_LOG = CountFormula(
    "adjusted-log", "Lu et al. 2022", _ASYMPTOTIC, ratio.adjusted_log_epsilon
)
BAILEY = CountFormula("bailey", "Lu et al. 2022", _ASYMPTOTIC, ratio.bailey_epsilon)
INVERSE_SINH = CountFormula(
    "inverse-sinh", "Lu et al. 2022", _ASYMPTOTIC, ratio.inverse_sinh_epsilon
)
