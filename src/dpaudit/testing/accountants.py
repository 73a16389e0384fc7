"""Contract test for accountants: `check_accountant`.

It compares with exact values that no accountant but `gaussian` uses: the closed form for steps
without sampling, and the closed form of a single sampled step.
"""

from __future__ import annotations

import itertools
import math

from scipy.special import log_ndtr

from dpaudit.curves import gaussian_delta
from dpaudit.testing._requiring import requiring
from dpaudit.upper_bounds import Accountant, NoisySteps

WITHOUT_SAMPLING = (
    NoisySteps(noise_multiplier=4.0, steps=40),
    NoisySteps(noise_multiplier=1.0, steps=1),
)
WITH_SAMPLING = (
    NoisySteps(noise_multiplier=1.0, steps=100, sampling_rate=0.01),
    NoisySteps(noise_multiplier=1.0, steps=1, sampling_rate=0.02),
)
_DELTAS = (1e-7, 1e-5, 1e-3)
# Grids differ from case to case, so neighbouring bounds may cross by this much.
_SLACK = 1e-4

_require = requiring("accountant")


def check_accountant(accountant: Accountant, *, sampling: bool | None = None) -> None:
    """Raise `AssertionError`, with the failing case, if ``accountant`` breaks the contract.

    Arguments:
        accountant: The accountant to check.
        sampling: Whether to check steps with Poisson sampling; by default, whether the accountant
            says that it supports them.

    Example:
        >>> from dpaudit.upper_bounds import GaussianAccountant
        >>> check_accountant(GaussianAccountant())
    """
    for steps in cases_of(accountant, sampling=sampling):
        check_range(accountant, steps)
        check_monotone(accountant, steps)
        check_round_trip(accountant, steps)
        check_truth(accountant, steps)
    check_without_guarantee(accountant)


def cases_of(accountant: Accountant, *, sampling: bool | None = None) -> tuple[NoisySteps, ...]:
    """The trainings on which an accountant is checked."""
    sampled = accountant.supports_sampling if sampling is None else sampling
    return WITHOUT_SAMPLING + (WITH_SAMPLING if sampled else ())


def check_range(accountant: Accountant, steps: NoisySteps) -> None:
    """Epsilon is at least 0, delta is in [0, 1], and the bound names side, quantity and method."""
    for delta in (*_DELTAS, 0.1, 0.9):
        bound = accountant.epsilon(steps, delta=delta)
        _require(bound.epsilon >= 0 and math.isfinite(bound.epsilon), bound, steps)
        _require((bound.side, bound.quantity, bound.delta) == ("upper", "epsilon", delta), steps)
        _require(bound.method == accountant.name and bound.confidence is None, bound, steps)
    for epsilon in (0.0, 0.5, 5.0, 500.0):
        bound = accountant.delta(steps, epsilon=epsilon)
        _require(0 <= bound.delta <= 1, bound, steps)
        _require((bound.quantity, bound.epsilon) == ("delta", epsilon), bound, steps)


def check_monotone(accountant: Accountant, steps: NoisySteps) -> None:
    """More delta, fewer steps, more noise or rarer sampling never increase epsilon."""

    def epsilon(sigma: float, count: int, share: float, delta: float) -> float:
        rate = None if steps.sampling_rate is None else share * steps.sampling_rate
        changed = NoisySteps(noise_multiplier=sigma, steps=count, sampling_rate=rate)
        return accountant.epsilon(changed, delta=delta).epsilon

    sigma, count = steps.noise_multiplier, steps.steps
    ladders = [
        [epsilon(sigma, count, 1.0, delta) for delta in _DELTAS],
        [epsilon(sigma, times * count, 1.0, 1e-5) for times in (3, 2, 1)],
        [epsilon(times * sigma, count, 1.0, 1e-5) for times in (1.0, 1.5, 3.0)],
        [epsilon(sigma, count, share, 1e-5) for share in (1.0, 0.5, 0.1)],
    ]
    for ladder in ladders:
        for larger, smaller in itertools.pairwise(ladder):
            _require(smaller <= larger + _SLACK, ladder, steps)


def check_round_trip(accountant: Accountant, steps: NoisySteps) -> None:
    """Delta at the epsilon of a delta is that delta again."""
    for delta in _DELTAS:
        there = accountant.epsilon(steps, delta=delta).epsilon
        back = accountant.delta(steps, epsilon=there).delta
        _require(there == 0 or abs(back / delta - 1) < 1e-3, delta, there, back, steps)


def check_truth(accountant: Accountant, steps: NoisySteps) -> None:
    """The bound is at least the exact value, and exceeds it by at most the stated error."""
    if steps.subsampled and steps.steps > 1:
        return
    for delta in _DELTAS:
        bound = accountant.epsilon(steps, delta=delta)
        exact = exact_delta(steps, bound.epsilon)
        _require(exact <= delta * (1 + 1e-9), bound, exact, steps)
        least = bound.epsilon - (bound.numerical_error or math.inf)
        _require(least <= 0 or exact_delta(steps, least) >= delta * (1 - 1e-9), bound, steps)
    for epsilon in (0.0, 0.3, 1.0, 4.0, 16.0):
        exact = exact_delta(steps, epsilon)
        bound = accountant.delta(steps, epsilon=epsilon)
        _require(bound.delta >= exact - 1e-14, bound, exact, steps)
        if bound.numerical_error is not None:
            _require(bound.delta - bound.numerical_error <= exact + 1e-14, bound, exact, steps)


def check_without_guarantee(accountant: Accountant) -> None:
    """No noise and a delta of 0 give an infinite epsilon with a reason, not an error."""
    silent = NoisySteps(noise_multiplier=0.0, steps=3)
    for bound in (
        accountant.epsilon(silent, delta=1e-5),
        accountant.epsilon(WITHOUT_SAMPLING[0], delta=0.0),
    ):
        _require(math.isinf(bound.epsilon) and bound.notes, bound)
    _require(accountant.delta(silent, epsilon=3.0).delta == 1, silent)


def exact_delta(steps: NoisySteps, epsilon: float) -> float:
    r"""The exact delta of steps without sampling, or of one sampled step.

    One sampled step compares :math:`(1-q) \mathcal N(0, \sigma^2) + q \mathcal N(1, \sigma^2)` with
    :math:`\mathcal N(0, \sigma^2)`. The loss of the first against the second exceeds epsilon right
    of a point :math:`x`, so delta is a difference of normal tails; for epsilon of at least 0 the
    other direction is never the larger one.
    """
    if not steps.subsampled:
        return float(gaussian_delta(epsilon, steps.mu))
    if steps.steps != 1:
        raise ValueError("no closed form for several sampled steps")
    rate, sigma = float(steps.sampling_rate or 1.0), steps.noise_multiplier
    x = sigma**2 * math.log(math.expm1(epsilon) / rate + 1) + 0.5
    with_record = math.exp(log_ndtr((1 - x) / sigma))
    without = math.exp(log_ndtr(-x / sigma))
    return max(0.0, rate * with_record - (math.expm1(epsilon) + rate) * without)
