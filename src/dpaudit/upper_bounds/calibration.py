"""The way back: how much noise a promise takes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache

from dpaudit import _validate
from dpaudit.errors import NumericalError
from dpaudit.tradeoff import gaussian_mu
from dpaudit.upper_bounds.accountant import Accountant, NoisySteps
from dpaudit.upper_bounds.bounds import choose
from dpaudit.upper_bounds.privacy_loss import PldAccountant

# Relative accuracy of the noise multiplier; the promise itself is kept exactly.
_TOLERANCE = 1e-5


def noise_multiplier_for(
    *,
    epsilon: float,
    delta: float,
    steps: int,
    sampling_rate: float | None = None,
    accountant: str | Accountant | None = None,
) -> float:
    r"""The smallest noise multiplier with which an accountant promises ``epsilon`` at ``delta``.

    The promise is kept at the number returned; it is the smallest such one up to a relative
    :math:`10^{-5}`.

    See also:
        `dpaudit.upper_bounds.upper_bound`, the way there, for the arguments.

    Arguments:
        epsilon: The epsilon to reach, above 0.
        delta: The delta to reach it at, above 0.
        steps: How many steps the record may take part in.
        sampling_rate: Probability of Poisson sampling; `None` where the record is in every step.
        accountant: Whose promise; `None` for the sharpest one.

    Example:
        >>> round(noise_multiplier_for(epsilon=23.995359, delta=1e-5, steps=250), 4)
        4.0
    """
    target = _validate.positive("epsilon", epsilon, remedy="no finite noise promises epsilon 0")
    delta = _validate.between("delta", delta, 0, 1, remedy="a common choice is 1e-5")
    steps = _validate.integer("steps", steps, at_least=1)
    # Sampling only ever helps, so the closed form without it is where to start from.
    start = NoisySteps(
        noise_multiplier=math.sqrt(steps) / gaussian_mu(target, delta),
        steps=steps,
        sampling_rate=sampling_rate,
    )
    accounted = choose(accountant, start)

    def excess(sigma: float, judge: Accountant = accounted) -> float:
        described = replace(start, noise_multiplier=sigma)
        return judge.epsilon(described, delta=delta).epsilon - target

    neighbourhood = start.noise_multiplier
    if isinstance(accounted, PldAccountant) and start.subsampled:
        # A twentieth of the grid finds the neighbourhood in a twentieth of the time.
        sketch = PldAccountant(interval=20 * accounted.interval, points=accounted.points // 16)
        neighbourhood = _smallest(lambda sigma: excess(sigma, sketch), neighbourhood)
    return _smallest(excess, neighbourhood)


def _smallest(excess: Callable[[float], float], start: float) -> float:
    """The smallest argument with ``excess`` at most 0, for an ``excess`` that decreases."""
    excess = cache(excess)
    low, high = _bracket(excess, start)
    excess_low, excess_high = excess(low), excess(high)
    # Regula falsi in the logarithm, Illinois variant: the end that stays is given half its weight,
    # so both ends close in. `high` keeps the promise throughout.
    while high > low * (1 + _TOLERANCE):
        share = 0.5
        if math.isfinite(excess_low):
            share = min(max(excess_low / (excess_low - excess_high), 0.01), 0.99)
        middle = low * (high / low) ** share
        value = excess(middle)
        if value > 0:
            low, excess_low, excess_high = middle, value, excess_high / 2
        else:
            high, excess_high, excess_low = middle, value, excess_low / 2
    return high


def _bracket(excess: Callable[[float], float], start: float) -> tuple[float, float]:
    """Two arguments around the change of sign, searched for in growing steps from ``start``."""
    growth = 1 + _TOLERANCE / 2
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
