"""Calibration: the smallest noise multiplier that reaches an epsilon."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

from dpaudit import _validate
from dpaudit._roots import sign_change
from dpaudit.curves import gaussian_mu
from dpaudit.errors import InvalidInput, NumericalError
from dpaudit.upper_bounds.accountants import Accountant, upper_bound

# Relative accuracy of the noise multiplier; the epsilon asked for is never exceeded.
_TOLERANCE = 1e-5

# Beyond it the formulas overflow, and no training has such an epsilon.
_LARGEST = 1e6


def noise_multiplier_for(
    *,
    epsilon: float,
    delta: float,
    steps: int,
    sampling_rate: float | None = None,
    accountant: str | Accountant | None = None,
) -> float:
    r"""The smallest noise multiplier with at most ``epsilon`` at ``delta``.

    The number returned satisfies the target, and is the smallest one to a relative
    :math:`10^{-5}`. Steps, sampling rate and accountant are those of
    `dpaudit.upper_bounds.upper_bound`, the inverse.

    Example:
        >>> round(noise_multiplier_for(epsilon=23.995359, delta=1e-5, steps=250), 4)
        4.0
    """
    target = _validate.positive("epsilon", epsilon, remedy="no finite noise gives epsilon 0")
    if target > _LARGEST:
        raise InvalidInput(f"epsilon must be at most {_LARGEST:g}, got {epsilon!r}")
    delta = _validate.between("delta", delta, 0, 1, remedy="a common choice is 1e-5")
    steps = _validate.integer("steps", steps, at_least=1)

    def excess(sigma: float, judge: str | Accountant | None = accountant) -> float:
        bound = upper_bound(
            noise_multiplier=sigma,
            steps=steps,
            sampling_rate=sampling_rate,
            delta=delta,
            accountant=judge,
        )
        return bound.epsilon - target

    # The closed form without sampling is an upper end: sampling never hurts.
    start = math.sqrt(steps) / gaussian_mu(target, delta)
    if sampling_rate is not None and accountant in (None, "pld") and excess(start, "rdp") <= 0:
        # RDP is a hundred times faster than PLD, and finds the neighbourhood.
        start = _smallest(lambda sigma: excess(sigma, "rdp"), start, tolerance=1e-2)
    return _smallest(excess, start)


def _smallest(
    excess: Callable[[float], float], start: float, *, tolerance: float = _TOLERANCE
) -> float:
    """The smallest noise with ``excess`` at most 0, for an ``excess`` that decreases."""
    excess = cache(excess)
    low, high = _bracket(excess, start)
    # The end returned satisfies the target: its excess was evaluated and is at most 0.
    ratio, _ = sign_change(lambda x: excess(high / x), 1.0, high / low, tolerance=tolerance)
    return high / ratio


def _bracket(excess: Callable[[float], float], start: float) -> tuple[float, float]:
    """Two arguments around the change of sign, searched for in growing steps from ``start``."""
    growth = 1.005
    if excess(start) > 0:
        low, high = start, start * growth
        while excess(high) > 0:
            growth = min(growth**16, 2.0)
            low, high = high, high * growth
            if high > 1e12 * start:
                raise NumericalError(
                    "no noise multiplier reaches this epsilon with this accountant, whose "
                    "numerical error may be larger than the epsilon asked for"
                )
        return low, high
    low, high = start / growth, start
    while excess(low) <= 0:
        growth = min(growth**16, 2.0)
        low, high = low / growth, low
    return low, high
