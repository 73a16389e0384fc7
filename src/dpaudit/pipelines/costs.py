r"""How much epsilon a difference between neighbouring data sets costs.

**Noise of another size.** With one data set the noise of :math:`d` numbers has standard deviation
:math:`s`, with the other :math:`r s`, because a divisor, a learning rate, a noise multiplier or a
number of steps differs. The record itself may be zeros. The log-likelihood ratio of
:math:`N(0, s^2 I_d)` and :math:`N(0, r^2 s^2 I_d)` is a function of :math:`|x|^2`, so that the
privacy profile is exact:

.. math:: \delta(\epsilon) = F_d(t / s^2) - e^\epsilon F_d(t / (r s)^2)

with the distribution function :math:`F_d` of chi-square and the threshold :math:`t` where the
likelihood ratio is :math:`e^\epsilon` (and upper tails in the other direction).

**Other records move.** If :math:`m_t` other records change their batch (or their content) in step
:math:`t`, and each can contribute up to C, the sums differ by up to :math:`m_t` C: a Gaussian
mechanism with :math:`\mu = \sqrt{\sum_t m_t^2} / \sigma`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.optimize import brentq
from scipy.stats import chi2

from dpaudit import _validate
from dpaudit.curves import gaussian_epsilon


def noise_ratio_epsilon(ratio: float, numbers: int, *, delta: float) -> float:
    """Epsilon at delta of noise whose standard deviation differs by a factor.

    Arguments:
        ratio: Standard deviation with one data set over that with the other.
        numbers: How many independent numbers have this noise.
        delta: Delta.

    Example:
        >>> round(noise_ratio_epsilon(2.0, 10, delta=1e-5), 2)
        54.13
        >>> noise_ratio_epsilon(1.0, 10, delta=1e-5)
        0.0
    """
    _validate.delta(delta)
    if ratio == 1 or numbers == 0:
        return 0.0
    if ratio in (0, math.inf):
        return math.inf
    wide, dims = max(ratio, 1 / ratio) ** 2, numbers

    def log_delta(epsilon: float) -> float:
        # Narrow over wide is largest at 0, wide over narrow in the tail.
        return max(_log_excess(epsilon, wide, dims, narrow=narrow) for narrow in (True, False))

    target, high = math.log(delta), 1.0
    if log_delta(0.0) <= target:
        return 0.0
    while log_delta(high) > target:
        high *= 2
    return float(brentq(lambda epsilon: log_delta(epsilon) - target, 0.0, high, xtol=1e-9))


def _log_excess(epsilon: float, wide: float, dims: int, *, narrow: bool) -> float:
    """Log of delta at epsilon of variances 1 and ``wide``, in one direction."""
    # log N(0, 1) / N(0, wide) at |x|^2 = t is (dims / 2) log wide - t (1 - 1 / wide) / 2.
    half = 0.5 * dims * math.log(wide)
    threshold = 2 * (half + (-epsilon if narrow else epsilon)) / (1 - 1 / wide)
    if threshold <= 0:
        return -math.inf if narrow else 0.0
    tail = chi2.logcdf if narrow else chi2.logsf
    own, other = (threshold, threshold / wide) if narrow else (threshold / wide, threshold)
    first = float(tail(own, dims))
    second = epsilon + float(tail(other, dims))
    if second >= first:
        return -math.inf
    return first + math.log1p(-math.exp(second - first))


def moved_epsilon(moved: Sequence[float], noise_multiplier: float, *, delta: float) -> float:
    """Epsilon at delta if so many clipped contributions change in each step.

    Arguments:
        moved: Contributions of norm C that change, for each step.
        noise_multiplier: Standard deviation of the noise over C.
        delta: Delta.

    Example:
        >>> round(moved_epsilon([1.0, 2.0], 2.0, delta=1e-5), 2)
        4.98
    """
    if not noise_multiplier > 0:
        return math.inf
    mu = float(np.linalg.norm(np.asarray(moved, dtype=np.float64))) / noise_multiplier
    return gaussian_epsilon(delta, mu) if mu else 0.0
