r"""The family "DP-SGD with this sampling rate and these steps, unknown noise".

An engineer who audits DP-SGD with Poisson sampling rate :math:`q` and :math:`T` steps knows both;
what an audit must find out is whether the noise is there. So the trade-off functions of interest
have one parameter, :math:`1/\sigma`, and a bound on it is far tighter than one that allows every
mechanism: at small delta a pair of error rates says little about epsilon, but it says much about
the noise of a *known* mechanism.

**Theorem.** If the scores are independent and the mechanism is at least as private, for a record
that is added, as DP-SGD with :math:`(q, T, \sigma^*)`, then the bound on :math:`1/\sigma` exceeds
:math:`1/\sigma^*` with probability at most the significance.

*Proof.* `joint_test` refutes the curves of all :math:`1/\sigma` below its bound, with error
probability at most the significance for each true curve, and the curves fall as :math:`1/\sigma`
grows. So do the curves used here, each of which lies nowhere above the true one. ∎

**Rounding** is on the safe side twice. The test's curves come from a pessimistic privacy-loss
distribution (Doroshenko et al. 2022), with the allowances for round-off of
`dpaudit.upper_bounds.pld`, and are the upper envelope of finitely many of their tangents: they
leak more than the truth, so that fewer of them are refuted. The epsilon that is returned is the
lower end of the accountant's interval at the bounded noise.

**Assumed, and printed:** the mechanism is of this family. A mechanism of another kind may satisfy
the same error rates with a smaller epsilon.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, final

import numpy as np
from scipy.special import ndtr

from dpaudit import _validate
from dpaudit._arrays import Array
from dpaudit._roots import sign_change
from dpaudit.curves import Curve, Family
from dpaudit.errors import InvalidInput
from dpaudit.lower_bounds.counts import ErrorCounts
from dpaudit.lower_bounds.diagnostics import (
    INDEPENDENT_SCORES,
    Evidence,
    dependence_of,
    wrong_way,
)
from dpaudit.lower_bounds.joint_test import at_one_threshold, distances
from dpaudit.lower_bounds.methods import Method, Reading, Request
from dpaudit.lower_bounds.selection import Fixed, Pilot
from dpaudit.privacy import Question
from dpaudit.scores.table import Scores
from dpaudit.upper_bounds.pld import PldAccountant
from dpaudit.upper_bounds.steps import NoisySteps

_TANGENTS, _SMALLEST, _MOST_EPSILON = 400, 1e-9, 60.0
_POINTS = 2**13
_LEAST_NOISE, _LITTLE_LESS = 0.2, 0.87


@final
@dataclass(frozen=True)
class DpsgdCurves(Family):
    """DP-SGD with Poisson sampling, for a record that is added; the parameter is 1 / sigma.

    Arguments:
        rate: Sampling rate, in (0, 1].
        steps: Number of steps.

    Example:
        >>> family = DpsgdCurves(rate=0.1, steps=100)
        >>> float(family.curve(1.0).tradeoff(np.array(0.05)).round(3))
        0.662
    """

    rate: float
    steps: int
    highest: ClassVar[float] = 1 / _LEAST_NOISE

    def __post_init__(self) -> None:
        _validate.between("sampling_rate", self.rate, 0, 1, closed_high=True)
        _validate.integer("steps", self.steps, at_least=1)

    def curve(self, parameter: float) -> Curve:
        return _curve(self.rate, self.steps, parameter)

    def through(self, alpha: Array, beta: Array) -> Array:
        def smallest(alpha: float, beta: float) -> float:
            def excess(parameter: float) -> float:
                return beta - float(self.curve(parameter).tradeoff(np.array(alpha)))

            return 0.0 if excess(0.0) >= 0 else sign_change(excess, 0.0, 1.0, tolerance=1e-6)[0]

        pairs = zip(np.atleast_1d(alpha), np.atleast_1d(beta), strict=True)
        return np.array([smallest(float(rate), float(other)) for rate, other in pairs])

    def answer(self, parameter: float, question: Question) -> float:
        if parameter <= 0:
            return 0.0
        steps = NoisySteps(
            noise_multiplier=1 / parameter,
            steps=self.steps,
            sampling_rate=None if self.rate == 1 else self.rate,
        )
        accountant = PldAccountant(interval=1e-3, points=2**16)
        if question.delta is not None:
            bound = accountant.epsilon(steps, delta=question.delta)
        else:
            bound = accountant.delta(steps, epsilon=question.epsilon or 0.0)
        return max(0.0, bound.value - (bound.numerical_error or 0.0))


@lru_cache(maxsize=256)
def _curve(rate: float, steps: int, parameter: float) -> Curve:
    """The pessimistic trade-off function: the upper envelope of tangents, a polygon."""
    if parameter <= 0:
        return Curve(tradeoff=lambda alpha: np.asarray(1 - np.asarray(alpha, dtype=float)))
    if parameter >= DpsgdCurves.highest:  # allows everything, so that no bound is larger
        return Curve(tradeoff=lambda alpha: np.zeros_like(np.asarray(alpha, dtype=float)))
    epsilons, deltas = _profile(rate, steps, 1 / parameter)
    alpha, beta = _envelope(np.exp(epsilons), 1 - deltas)
    return Curve(
        tradeoff=lambda rates: np.interp(rates, alpha, beta),
        inverse=lambda rates: np.interp(rates, beta[::-1], alpha[::-1]),
    )


def _envelope(growth: Array, height: Array) -> tuple[Array, Array]:
    """Corners of the largest of 0 and the lines ``height - growth * alpha``, alpha ascending."""
    lines: list[tuple[float, float]] = []  # from the steepest to the flattest
    corners: list[float] = []
    for slope, top in zip([*growth[::-1], 0.0], [*height[::-1], 0.0], strict=True):
        while lines:
            meeting = (lines[-1][1] - top) / (lines[-1][0] - slope)
            if not corners or meeting > corners[-1]:
                corners.append(meeting)
                break
            corners.pop()
            lines.pop()
        lines.append((slope, top))
    alpha = np.array([0.0, *(corner for corner in corners if 0 < corner < 1), 1.0])
    beta = (height - growth * alpha[:, None]).max(axis=1)
    return alpha, np.maximum(beta, 0.0)


def _profile(rate: float, steps: int, sigma: float) -> tuple[Array, Array]:
    """Epsilons of either sign, and at each a delta that is nowhere below the true one."""
    from dp_accounting.pld import privacy_loss_distribution

    if rate == 1:  # together one Gaussian step
        sigma, steps = sigma / math.sqrt(steps), 1
    # Roundings of all steps add up like the root of their number; more points cost time.
    interval = max(min(1e-3, 0.1 / math.sqrt(steps)), (1 / sigma**2 + 24 / sigma) / _POINTS)
    losses = privacy_loss_distribution.from_gaussian_mechanism(
        sigma, sampling_prob=rate, value_discretization_interval=interval
    )
    if steps > 1:
        losses = losses.self_compose(steps)
    # Error rates beyond are below _SMALLEST; the tangents at the ends continue the curve.
    reach = min(losses.get_epsilon_for_delta(_SMALLEST), _MOST_EPSILON)
    epsilons = np.linspace(-reach, reach, _TANGENTS)
    # One direction: the losses of a record that is added, at epsilons of either sign.
    deltas = np.asarray(losses._pmf_remove.get_delta_for_epsilon(epsilons))
    deltas = deltas * (1 + sys.float_info.epsilon / interval) + steps * sys.float_info.epsilon
    return epsilons, np.clip(deltas, np.maximum(-np.expm1(epsilons), 0.0), 1.0)


def threshold_by_pilot(
    inserted: Array, not_inserted: Array, family: DpsgdCurves, *, rest: tuple[int, int]
) -> float:
    """The threshold that the pilot's scores recommend for the rest.

    The pilot only says how much noise there seems to be: the member of the family with the area
    under the curve that the pilot has. That member's best error rates are those that lie farthest
    from the curve of a little more noise; the pilot's quantile with this share of all scores
    above it is the threshold.

    Arguments:
        inserted: The pilot's scores with the canary.
        not_inserted: The pilot's scores without it.
        family: The family.
        rest: Number of scores of both kinds on which the bound is read.
    """
    below = np.sort(not_inserted)
    places = np.searchsorted(below, inserted, "left") + np.searchsorted(below, inserted, "right")
    area = float(places.mean()) / (2 * len(below))
    alpha = ndtr(np.linspace(-4.5, 4.5, 400))

    def excess(parameter: float) -> float:
        return float(np.trapezoid(1 - family.curve(parameter).tradeoff(alpha), alpha)) - area

    largest = 1 / _LEAST_NOISE
    seen = 0.0
    if excess(0.0) < 0:
        seen = largest if excess(largest) < 0 else sign_change(excess, 0.0, 1.0, tolerance=1e-3)[0]
    seen = max(seen, 0.05)
    beta = family.curve(seen).tradeoff(alpha)
    positives, negatives = rest
    expected = ErrorCounts(
        thresholds=np.full(len(alpha), np.nan),
        false_positives=np.rint(negatives * alpha).astype(np.int64),
        false_negatives=np.rint(positives * beta).astype(np.int64),
        positives=positives,
        negatives=negatives,
    )
    far = distances(expected, family.curve(_LITTLE_LESS * seen))
    good = np.flatnonzero(far >= 0.97 * far.max())
    best = int(good[len(good) // 2])  # many are about as good
    share = (negatives * alpha[best] + positives * (1 - beta[best])) / (negatives + positives)
    return float(np.quantile(np.concatenate([inserted, not_inserted]), 1 - share))


def dpsgd(rate: float, steps: int) -> Method:
    """The method of this family: one threshold, chosen by a pilot, and the joint test.

    Arguments:
        rate: Sampling rate.
        steps: Number of steps.
    """
    family = DpsgdCurves(rate, steps)

    def test(evidence: Evidence, _: Family, request: Request) -> Reading:
        notes: tuple[str, ...] = ()
        if isinstance(evidence, ErrorCounts):
            counts = evidence
        elif isinstance(request.rule, Pilot):
            pilot_in, rest_in, pilot_out, rest_out = request.rule.split(
                evidence.inserted_scores, evidence.other_scores
            )
            sizes = len(rest_in), len(rest_out)
            threshold = threshold_by_pilot(pilot_in, pilot_out, family, rest=sizes)
            counts = ErrorCounts.at(rest_in, rest_out, threshold)
        elif isinstance(request.rule, Fixed):
            counts = ErrorCounts.at(
                evidence.inserted_scores, evidence.other_scores, request.rule.value
            )
        else:
            raise InvalidInput(
                f"threshold of method dpsgd must be 'pilot' or 'fixed=VALUE', got "
                f"{request.rule.name!r}"
            )
        if isinstance(evidence, Scores):
            notes = (*dependence_of(evidence)[1], *wrong_way(evidence))
        parameter = at_one_threshold(counts, family, request.significance)
        return Reading(
            parameter=parameter,
            sample_size=counts.sample_size,
            notes=notes,
            details={
                "noise_multiplier": 1 / parameter if parameter > 0 else None,
                **counts.four(0),
            },
        )

    assumed = f"the mechanism is DP-SGD with sampling rate {rate:g} and {steps:,} steps"
    return Method(
        name="dpsgd",
        test=test,
        family=lambda question: family,
        assumptions=(assumed, INDEPENDENT_SCORES),
        reads_counts=True,
    )
