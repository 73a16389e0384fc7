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
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache, partial

import numpy as np
from scipy.fft import next_fast_len
from scipy.special import ndtr

from dpaudit import _validate
from dpaudit._arrays import Array
from dpaudit._roots import sign_change
from dpaudit.curves import Curve, Family, approximate_curve, corners_of, gaussian_delta
from dpaudit.errors import InvalidInput
from dpaudit.lower_bounds.counts import ErrorCounts
from dpaudit.lower_bounds.diagnostics import INDEPENDENT_SCORES, Evidence
from dpaudit.lower_bounds.joint_test import at_one_threshold, distances_of
from dpaudit.lower_bounds.methods import Method, Reading, Request, counted
from dpaudit.lower_bounds.selection import Fixed, Pilot
from dpaudit.privacy import Question
from dpaudit.upper_bounds.pld import coarse_profile
from dpaudit.upper_bounds.steps import NoisySteps

_TANGENTS, _SMALLEST, _MOST_EPSILON = 400, 1e-9, 60.0
_POINTS = 2**13
_TAIL, _EPS = 1e-15, sys.float_info.epsilon
_LEAST_NOISE, _MOST_NOISE = 0.2, 1e6
_HIGHEST = 1 / _LEAST_NOISE
# The pilot chooses among these parameters, 2 % apart; one with 13 % less is `_FEWER` places before.
_MEMBERS = np.geomspace(0.05, _HIGHEST, 234).tolist()
_FEWER = 7
_ALPHA = ndtr(np.linspace(-4.5, 4.5, 400))


Group = tuple[float, float, int]
"""Noise, sampling rate and number of equal steps."""


def dpsgd_family(history: Sequence[Group]) -> Family:
    """DP-SGD with Poisson sampling, for a record that is added, with one unknown scale of noise.

    The parameter is 1 over the noise multiplier of the steps with the least noise.

    Arguments:
        history: Groups of equal steps: noise up to a common factor, sampling rate (1 without
            sampling) and number of steps.

    Example:
        >>> family = dpsgd_family(((1.0, 0.1, 100),))
        >>> float(family.curve(1.0).tradeoff(np.array(0.05)).round(3))
        0.662
    """
    if not history:
        raise InvalidInput("history must have at least one group of steps, got none")
    for noise, rate, steps in history:
        _validate.positive("noise of a history", noise)
        _validate.between("sampling_rate", rate, 0, 1, closed_high=True)
        _validate.integer("steps", steps, at_least=1)
    least = min(noise for noise, _, _ in history)
    relative = tuple((noise / least, rate, steps) for noise, rate, steps in history)

    def through(alpha: Array, beta: Array) -> Array:
        def smallest(alpha: float, beta: float) -> float:
            def excess(parameter: float) -> float:
                return beta - float(_curve(relative, parameter).tradeoff(np.array(alpha)))

            return 0.0 if excess(0.0) >= 0 else sign_change(excess, 0.0, 1.0, tolerance=1e-6)[0]

        pairs = zip(np.atleast_1d(alpha), np.atleast_1d(beta), strict=True)
        return np.array([smallest(float(rate), float(other)) for rate, other in pairs])

    def answer(parameter: float, question: Question) -> float:
        if parameter <= 1 / _MOST_NOISE:
            return 0.0
        parts = [
            NoisySteps(noise_multiplier=noise / parameter, steps=steps, sampling_rate=rate)
            for noise, rate, steps in relative
        ]
        curve = coarse_profile(parts)
        if question.delta is not None:
            return curve.epsilon_from_below(question.delta)
        return curve.delta_from_below(question.epsilon or 0.0)

    return Family(curve=partial(_curve, relative), through=through, answer=answer, highest=_HIGHEST)


@lru_cache(maxsize=512)
def _curve(history: tuple[Group, ...], parameter: float) -> Curve:
    """The pessimistic trade-off function: the upper envelope of tangents, a polygon."""
    if parameter <= 0:  # no leak
        return approximate_curve(0.0, 0.0)
    if parameter >= _HIGHEST:  # allows everything, so that no bound is larger
        return approximate_curve(0.0, 1.0)
    # Less noise leaks more, so a limit is on the safe side.
    groups = [(min(noise / parameter, _MOST_NOISE), rate, steps) for noise, rate, steps in history]
    epsilons, deltas = _profile(groups)
    alpha, beta = _envelope(np.exp(epsilons), 1 - deltas)
    return Curve(
        tradeoff=lambda rates: np.interp(rates, alpha, beta),
        inverse=lambda rates: np.interp(rates, beta[::-1], alpha[::-1]),
    )


def _envelope(growth: Array, height: Array) -> tuple[Array, Array]:
    """Corners of the largest of 0 and the lines ``height - growth * alpha``, alpha ascending."""
    corners = corners_of([*zip(growth.tolist(), height.tolist(), strict=True), (0.0, 0.0)])
    alpha = np.array([0.0, *(corner for corner in corners if 0 < corner < 1), 1.0])
    beta = (height - growth * alpha[:, None]).max(axis=1)
    return alpha, np.maximum(beta, 0.0)


def _profile(history: Iterable[Group]) -> tuple[Array, Array]:
    """Epsilons of either sign, and at each a delta that is nowhere below the true one."""
    groups = [group for group in history if group[1] < 1]
    # All steps without sampling are together one Gaussian step.
    mus = [math.sqrt(steps) / noise for noise, rate, steps in history if rate == 1]
    if mus:
        groups.append((1 / math.hypot(*mus), 1.0, 1))
    total = sum(steps for _, _, steps in groups)
    # Roundings of all steps add up like the root of their number; more points cost time.
    widest = max(1 / sigma**2 + 24 / sigma for sigma, _, _ in groups)
    interval = max(min(1e-3, 0.1 / math.sqrt(total)), widest / _POINTS)
    parts = [(*_one_step(rate, sigma, interval), steps) for sigma, rate, steps in groups]
    first, masses, infinite, _ = parts[0]
    if total > 1:
        first, masses = _composed([(first, masses, steps) for first, masses, _, steps in parts])
        finite = sum(steps * math.log1p(-infinite) for _, _, infinite, steps in parts)
        infinite = _TAIL - math.expm1(finite)
    losses = interval * (first + np.arange(len(masses)))
    masses, losses = masses[losses > -_MOST_EPSILON], losses[losses > -_MOST_EPSILON]
    # The mass above each loss with the record, and without it.
    above = np.append(np.cumsum(masses[::-1])[::-1], 0.0)
    others_above = np.append(np.cumsum((masses * np.exp(-losses))[::-1])[::-1], 0.0)

    def deltas(epsilons: Array) -> Array:
        place = np.searchsorted(losses, epsilons, side="right")
        return np.asarray(infinite + above[place] - np.exp(epsilons) * others_above[place])

    # Error rates beyond are below _SMALLEST; the tangents at the ends continue the curve.
    candidates = np.linspace(0.0, _MOST_EPSILON, 1000)[1:]
    reach = candidates[np.append(np.flatnonzero(deltas(candidates) <= _SMALLEST), -1)[0]]
    epsilons = np.linspace(-reach, reach, _TANGENTS)
    rounded_up = deltas(epsilons) * (1 + _EPS / interval) + 4 * total * _EPS
    return epsilons, np.clip(rounded_up, np.maximum(-np.expm1(epsilons), 0.0), 1.0)


def _one_step(rate: float, sigma: float, interval: float) -> tuple[int, Array, float]:
    r"""The privacy loss of a record's step on a grid that rounds to less privacy.

    The delta at epsilon is :math:`q\,\delta_{1/\sigma}(\log(1 + (e^\epsilon - 1) / q))`, that of a
    Gaussian step at another epsilon; below :math:`\log(1-q)` it is :math:`1 - e^\epsilon`. The
    masses are those of the mechanism whose delta is linear in :math:`e^\epsilon` between the points
    of the grid (Doroshenko et al. 2022, Algorithm 1).

    Returns:
        The place of the first mass on the grid, the masses, and the mass of an infinite loss.
    """
    # Ten standard deviations of noise on either side; what is left is below 1e-23.
    ends = np.array([-10 * sigma, 1 + 10 * sigma])
    with np.errstate(divide="ignore"):
        keeps = np.log1p(-rate)
        low, high = np.logaddexp(keeps, np.log(rate) + (2 * ends - 1) / (2 * sigma**2)) / interval
        first, last = math.floor(low), math.ceil(high)
        epsilons = interval * np.arange(first, last + 1)
        inside = epsilons > keeps
        without_sampling = epsilons + np.log(-np.expm1(np.minimum(keeps - epsilons, 0.0)))
        deltas = np.where(
            inside,
            rate
            * gaussian_delta(np.where(inside, without_sampling - np.log(rate), 0.0), 1 / sigma),
            -np.expm1(np.minimum(epsilons, 0.0)),
        )
    growth = math.expm1(interval)
    change = np.diff(deltas)
    masses = np.empty_like(deltas)
    masses[0] = 1 - deltas[0] + change[0] / growth
    masses[1:-1] = (change[1:] - (1 + growth) * change[:-1]) / growth
    masses[-1] = -change[-1] * (1 + growth) / growth
    # Rounding may have lost some mass.
    return first, masses, max(float(deltas[-1]), 1 - float(masses.sum()))


def _composed(parts: Sequence[tuple[int, Array, int]]) -> tuple[int, Array]:
    """The sum of independent losses, but for `_TAIL` of its mass, and the place of its first mass.

    Chernoff's bound gives the range of the sum. What is outside is added to the masses inside by
    the circular convolution, and once more to the infinite loss.

    Arguments:
        parts: The place of the first mass, the masses, and the number of steps that have them.
    """
    longest = max(len(masses) for _, masses, _ in parts)
    orders = np.geomspace(1e-3, 1e3, 60) / longest

    def furthest(sign: int) -> float:
        """How far the sum of the places reaches in one direction, but for half of `_TAIL`."""
        moments = np.zeros(len(orders))
        with np.errstate(over="ignore", invalid="ignore"):
            for _, masses, steps in parts:
                growth = np.exp(sign * orders[:, None] * np.arange(len(masses)))
                moments += steps * np.log(growth @ (np.maximum(masses, 0) + _EPS))
        bounds = (moments + math.log(2 / _TAIL)) / orders
        return float(bounds[np.isfinite(bounds)].min())

    most = sum(steps * (len(masses) - 1) for _, masses, steps in parts)
    lowest, highest = max(0, math.floor(-furthest(-1))), min(most, math.ceil(furthest(1)))
    length = next_fast_len(max(highest - lowest + 1, longest), real=True)
    transform = np.ones(length // 2 + 1, dtype=complex)
    for _, masses, steps in parts:
        transform *= np.fft.rfft(masses, length) ** steps
    circular = np.roll(np.fft.irfft(transform, length), -lowest)[: highest - lowest + 1]
    return sum(steps * first for first, _, steps in parts) + lowest, circular


def threshold_by_pilot(
    inserted: Array, not_inserted: Array, family: Family, *, rest: tuple[int, int]
) -> float:
    """The threshold that the pilot's scores recommend for the rest.

    The pilot only says how much noise there seems to be: the member of the family with the area
    under the curve that the pilot has. That member's best error rates are those that lie farthest
    from the curve of a little more noise; the pilot's quantile with this share of all scores
    above it is the threshold. ``rest`` are the numbers of scores of both kinds in the rest.
    """
    below = np.sort(not_inserted)
    places = np.searchsorted(below, inserted, "left") + np.searchsorted(below, inserted, "right")
    area = float(places.mean()) / (2 * len(below))

    def area_of(member: float) -> float:
        return float(np.trapezoid(1 - family.curve(member).tradeoff(_ALPHA), _ALPHA))

    member = bisect_left(_MEMBERS[:-1], area, key=area_of)
    share = 1 - _share_above(family, member, *rest)
    return float(np.quantile(np.concatenate([inserted, not_inserted]), share))


def _share_above(family: Family, member: int, positives: int, negatives: int) -> float:
    """The share of all scores above the threshold at which a member shows its noise best."""
    beta = family.curve(_MEMBERS[member]).tradeoff(_ALPHA)
    less = family.curve(_MEMBERS[member - _FEWER] if member >= _FEWER else 0.0)
    # Not rounded: two members may differ by less than one error.
    far = distances_of(negatives * _ALPHA, positives * beta, negatives, positives, less)
    good = np.flatnonzero(far >= 0.97 * far.max())
    best = int(good[len(good) // 2])  # many are about as good
    above = negatives * _ALPHA[best] + positives * (1 - beta[best])
    return float(above / (negatives + positives))


def dpsgd(history: Sequence[Group]) -> Method:
    """The method of this family: one threshold, chosen by a pilot, and the joint test.

    Arguments:
        history: Groups of equal steps, as in `dpsgd_family`.
    """
    family = dpsgd_family(history)

    def test(evidence: Evidence, _: Family, request: Request) -> Reading:
        rule = request.rule
        if isinstance(evidence, ErrorCounts):
            counts = evidence
        elif isinstance(rule, Fixed | Pilot):
            inserted, others = evidence.inserted_scores, evidence.other_scores
            if isinstance(rule, Fixed):
                threshold = rule.value
            else:
                pilot_in, inserted, pilot_out, others = rule.split(inserted, others)
                sizes = len(inserted), len(others)
                threshold = threshold_by_pilot(pilot_in, pilot_out, family, rest=sizes)
            counts = ErrorCounts.at(inserted, others, threshold)
        else:
            raise InvalidInput(
                f"threshold of method dpsgd must be 'pilot' or 'fixed=VALUE', got {rule.name!r}"
            )
        parameter = at_one_threshold(counts, family, 1 - request.confidence)
        reading = counted(evidence, counts, 0, parameter, request)
        noise = {"noise_multiplier": 1 / parameter if parameter > 0 else None}
        return replace(reading, details={**noise, **reading.details})

    steps = sum(steps for _, _, steps in history)
    rates = sorted({rate for _, rate, _ in history})
    sampling = " and ".join(f"{rate:g}" for rate in rates) if len(rates) < 3 else "as stated"
    changing = " of unequal noise, as stated" if len(history) > 1 else ""
    assumed = f"the mechanism is DP-SGD with sampling rate {sampling} and {steps:,} steps{changing}"
    return Method(
        name="dpsgd",
        test=test,
        family=family,
        assumptions=(assumed, INDEPENDENT_SCORES),
        reads_counts=True,
    )
