"""Limits that correct noise exceeds only with a stated, tiny probability."""

from __future__ import annotations

import math

from scipy import special

FALSE_ALARM = 1e-6
"""Largest probability that one rule about noise reports a correct training as broken."""


def smallest_ratio(degrees: int, level: float) -> float:
    """Below this, a sum of squares over its expectation falls with probability ``level``.

    Example:
        >>> round(smallest_ratio(1000, 1e-6), 4)
        0.8016
    """
    return float(2 * special.gammaincinv(degrees / 2, level) / degrees)


def largest_ratio(degrees: int, level: float) -> float:
    """Above this, a sum of squares over its expectation rises with probability ``level``."""
    return float(2 * special.gammainccinv(degrees / 2, level) / degrees)


def standard_deviations(level: float) -> float:
    """Standard deviations that a normal variable exceeds, on either side, at this level.

    Example:
        >>> round(standard_deviations(0.05), 2)
        1.96
    """
    return float(math.sqrt(2) * special.erfcinv(level))
