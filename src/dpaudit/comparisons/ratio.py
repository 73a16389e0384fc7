r"""Lower bounds from confidence intervals of a ratio of two rates.

Epsilon at delta 0 is at least :math:`\log(\mathrm{TPR}/\mathrm{FPR})` and
:math:`\log(\mathrm{TNR}/\mathrm{FNR})`, so a lower limit of a ratio of two binomial proportions is
a lower bound on epsilon. Four classical limits are here. All are *asymptotic*, derived for large
counts; zero errors are replaced by a fraction of one. Over all counts (sampled at the largest
sizes) of 20 to 2,500 a side at 95 %, false claims reached 4.7 % (Katz, inverse sinh), 4.6 %
(adjusted log) and 9.3 % (Bailey, with about 5 errors expected on either side). Only Clopper-Pearson
guarantees its level.

A ratio does not bound delta at a given epsilon, so these methods only bound epsilon.

References:
    Katz et al. (Biometrics 1978); Walters (1985); Bailey (Biometrics 1987); Newcombe (The American
    Statistician 2001); compared in Aho and Bowyer (Methods in
    Ecology and Evolution 2015). For auditing: Lu et al. (NeurIPS 2022, arXiv 2210.08643). The
    treatment of zeros is that of the R package asbio, which tensorflow-privacy follows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv, ndtri

from dpaudit import _validate
from dpaudit._arrays import Array, broadcast_counts

Limit = Callable[..., Array]


def _limit(formula: Callable[[Array, Array, Array, Array, float], Array]) -> Limit:
    """A limit from hits, trials, other hits, other trials, and its one-sided error probability."""

    @wraps(formula)
    def limit(*counts: ArrayLike, tail: float) -> Array:
        z = float(ndtri(_validate.between("tail", tail, 0, 0.5)))
        with np.errstate(divide="ignore", invalid="ignore"):
            x, n, y, m = np.broadcast_arrays(*(np.asarray(v, dtype=float) for v in counts))
            return formula(x, n, y, m, z)

    return limit


@_limit
def katz_log_ratio(x: Array, n: Array, y: Array, m: Array, z: float) -> Array:
    r"""Lower limit of a ratio of rates: the logarithm is taken as normal (Katz et al. 1978).

    :math:`\frac{p_1}{p_2} \exp(z\sqrt{q_1/x_1 + q_2/x_2})` with :math:`z = \Phi^{-1}(tail) < 0`;
    0 where there is no hit; half a count stands for no other hit.

    Example:
        >>> round(float(katz_log_ratio(473, 984, 755, 1705, tail=0.05)), 8)
        1.01166194
    """
    x, n, y, m = _below_certainty(x, n, y, m)
    y = np.where(y == 0, 0.5, y)
    spread = np.sqrt((1 - x / n) / x + (1 - y / m) / y)
    return np.where(x == 0, 0.0, x / n / (y / m) * np.exp(z * spread))


@_limit
def adjusted_log_ratio(x: Array, n: Array, y: Array, m: Array, z: float) -> Array:
    r"""Lower limit of a ratio of rates: the logarithm after adding 1/2 (Walters 1985).

    As :func:`katz_log_ratio` with half a count and half a trial more on both sides.

    Example:
        >>> round(float(adjusted_log_ratio(473, 984, 755, 1705, tail=0.05)), 8)
        1.01189079
    """
    x, n, y, m = _below_certainty(x, n, y, m)
    spread = np.sqrt(1 / (x + 0.5) - 1 / (n + 0.5) + 1 / (y + 0.5) - 1 / (m + 0.5))
    ratio = (x + 0.5) / (n + 0.5) * (m + 0.5) / (y + 0.5)
    return np.where((x == 0) & (y == 0), 0.0, ratio * np.exp(z * spread))


@_limit
def bailey_ratio(x: Array, n: Array, y: Array, m: Array, z: float) -> Array:
    r"""Lower limit of a ratio of rates: cube roots are taken as normal (Bailey 1987).

    With :math:`A = z^2 q_1/(9 x_1)` and :math:`B = z^2 q_2/(9 x_2)` it is
    :math:`\frac{p_1}{p_2}\left(\frac{1 - \sqrt{A + B - AB}}{1 - B}\right)^3`. It is computed as
    :math:`(1-A)/(1+\sqrt{A+B-AB})` in the bracket, which is the same number, and still the right
    root of Bailey's equation where B is 1 or more: there the usual form blows up.

    Example:
        >>> round(float(bailey_ratio(473, 984, 755, 1705, tail=0.05)), 8)
        1.01148934
    """
    x, y = np.where(x == n, n - 0.5, x), np.where(y == m, m - 0.5, y)
    y = np.where(y == 0, 0.5, y)
    a, b = z * z * (1 - x / n) / (9 * x), z * z * (1 - y / m) / (9 * y)
    root = (1 - a) / (1 + np.sqrt(np.maximum(a + b - a * b, 0.0)))
    # A of 1 or more: so few hits that no positive ratio is excluded.
    return np.where((x <= 0) | (a >= 1), 0.0, x / n / (y / m) * root**3)


@_limit
def inverse_sinh_ratio(x: Array, n: Array, y: Array, m: Array, z: float) -> Array:
    r"""Lower limit of a ratio of rates by the inverse hyperbolic sine (Newcombe 2001).

    :math:`\frac{p_1}{p_2} \exp\left(2 \sinh^{-1}\left(\frac z2\sqrt{1/x_1 - 1/n_1 + 1/x_2 -
    1/n_2}\right)\right)`; :math:`z^2` counts stand for no other hit.

    Example:
        >>> round(float(inverse_sinh_ratio(473, 984, 755, 1705, tail=0.05)), 8)
        1.01167669
    """
    x, n, y, m = _below_certainty(x, n, y, m)
    y = np.where(y == 0, np.minimum(z * z, m), y)
    inside = z / 2 * np.sqrt(1 / x - 1 / n + 1 / y - 1 / m)
    return np.where(x == 0, 0.0, x / n / (y / m) * np.exp(2 * np.arcsinh(inside)))


def ratio_epsilon(limit: Limit, *counts: ArrayLike, delta: float, significance: float) -> Array:
    r"""Lower bound on epsilon from a lower limit of both ratios of rates.

    Half of ``significance`` goes to each of TPR/FPR and TNR/FNR, so the larger of the two may be
    taken; tensorflow-privacy takes the larger at the full level. If delta is not 0,
    :math:`(\mathrm{TPR}-\delta)/\mathrm{FPR}` is the ratio times :math:`1-\delta/\mathrm{TPR}`,
    with the Clopper-Pearson lower limit for the TPR.

    The counts are false positives, false negatives, negatives and positives, one per threshold. A
    bound is at least 0 and finite, and 0 where a class is empty.

    Example:
        >>> limits = katz_log_ratio, adjusted_log_ratio, bailey_ratio, inverse_sinh_ratio
        >>> asked = {"delta": 1e-5, "significance": 0.05}
        >>> [round(float(ratio_epsilon(limit, 20, 10, 500, 500, **asked)), 4) for limit in limits]
        [3.2574, 3.2247, 3.3126, 3.2666]
    """
    delta = _validate.delta(delta)
    tail = _validate.between("significance", significance, 0, 1) / 2
    fp, fn, n, p = broadcast_counts(*counts)
    nonempty = (n > 0) & (p > 0)
    # The bound of an empty class is 0; a count of 1 keeps the formulas defined.
    n, p = np.maximum(n, 1.0), np.maximum(p, 1.0)
    forth = _log_ratio(limit, p - fn, p, fp, n, delta, tail)
    back = _log_ratio(limit, n - fp, n, fn, p, delta, tail)
    return np.where(nonempty, np.maximum(np.maximum(forth, back), 0.0), 0.0)


def _log_ratio(
    ratio: Limit,
    hits: Array,
    trials: Array,
    others: Array,
    other_trials: Array,
    delta: float,
    tail: float,
) -> Array:
    """Lower bound on log((p1 - delta)/p2); minus infinity where there is none."""
    limit = ratio(hits, trials, others, other_trials, tail=tail)
    rate = betaincinv(np.maximum(hits, 0.5), trials - hits + 1, tail)
    with np.errstate(divide="ignore", over="ignore"):
        left = np.where(hits > 0, 1 - delta / np.maximum(rate, np.finfo(float).tiny), 0.0)
        return np.asarray(np.log(limit) + np.log(np.maximum(left, 0.0)))


def _below_certainty(x: Array, n: Array, y: Array, m: Array) -> tuple[Array, Array, Array, Array]:
    """Half a count less on both sides where both rates are 1, or there would be no spread."""
    certain = (x == n) & (y == m)
    return np.where(certain, n - 0.5, x), n, np.where(certain, m - 0.5, y), m
