"""Root finding that returns a bracket, so that callers can round to the safe side."""

from __future__ import annotations

import math
from collections.abc import Callable


def sign_change(
    function: Callable[[float], float],
    low: float,
    high: float,
    *,
    tolerance: float = 4e-16,
    most_steps: int = 200,
) -> tuple[float, float]:
    """Bracket the root of an increasing function: ``function(low) <= 0 < function(high)``.

    Secant steps by the Illinois rule, replaced by halving where they fail. Both ends returned have
    been evaluated, so a bound taken from the proper end stays valid wherever the iteration stops.

    Arguments:
        function: An increasing function; infinite values are allowed, NaN counts as positive.
        low: A point where the function is at most 0.
        high: A first guess above the root; it is doubled until the function is positive.
        tolerance: Relative width of the bracket at which to stop.
        most_steps: Evaluations after which to stop in any case.

    Example:
        >>> low, high = sign_change(lambda x: x * x - 2, 0.0, 1.0)
        >>> low <= 2**0.5 <= high and high - low < 1e-15
        True
    """
    below, above = function(low), function(high)
    while above <= 0:
        low, below, high = high, above, 2 * high
        if math.isinf(high):
            raise ArithmeticError(f"the function is not positive up to {low:g}")
        above = function(high)
    last_moved, since_halving = 0, 0
    for _ in range(most_steps):
        width = high - low
        if width <= tolerance * abs(high):
            break
        rise = above - below  # 0 where both are near the smallest number
        secant = since_halving < 3 and rise > 0
        middle = (low * above - high * below) / rise if secant else math.nan
        if not low < middle < high:
            middle, since_halving = low + width / 2, 0
        if middle in (low, high):
            break
        value = function(middle)
        if value <= 0:
            low, below = middle, value
            above, last_moved = (above / 2 if last_moved < 0 else above), -1
        else:
            high, above = middle, value
            below, last_moved = (below / 2 if last_moved > 0 else below), 1
        # A bracket that three secant steps did not halve is halved.
        since_halving = since_halving + 1 if high - low > width / 2 else 0
    return low, high
