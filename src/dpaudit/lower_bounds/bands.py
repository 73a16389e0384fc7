r"""One-sided bands that hold for a whole distribution function at once.

If :math:`j` of :math:`n` scores lie above a threshold, Clopper and Pearson bound the probability of
lying above it by the :math:`1-\gamma` quantile of :math:`\mathrm{Beta}(j+1, n-j)`. For one fixed
threshold :math:`\gamma` is the error probability. If the threshold is chosen after seeing the
scores, the bounds must hold for all :math:`j` together: with :math:`U_{(1)} < \dots < U_{(n)}` the
order statistics of uniforms, the bounds fail if :math:`U_{(i)} > b_i` for some :math:`i`, where
:math:`b_i` is the quantile with :math:`j = i-1`. Every :math:`i` gets the same *local level*
:math:`\gamma`, in the tails as in the centre. The DKW inequality is much wider in the tails, which
matter most for an audit.

References:
    Aldor-Noiman et al.: *The power to see: a new graphical test of normality* (2013).
    Moscovich, Nadler: *Fast calculation of boundary crossing probabilities* (2017).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainccinv, gammaln, ndtr, ndtri, xlog1py, xlogy

from dpaudit._roots import sign_change

Array = NDArray[np.float64]

# The exact recursion costs n^2; past this the union bound over a fixed grid of ranks is cheaper
# and costs one or two hundredths of mu: its local level is 2.4e-5, against 3.9e-4 exactly.
MOST_EXACT = 4_000
GRID = 1024


def upper_rate(errors: ArrayLike, trials: int, tail: float) -> Array:
    """Clopper-Pearson upper bound on an error rate, false with probability at most ``tail``.

    Example:
        >>> float(upper_rate(0, 500, 0.005).round(6))
        0.010541
    """
    errors = np.asarray(errors, dtype=float)
    inside = np.minimum(errors, trials - 1)
    return np.where(errors >= trials, 1.0, betainccinv(inside + 1, trials - inside, tail))


@final
@dataclass(frozen=True, kw_only=True)
class Band:
    """Simultaneous upper bounds on the rate of ``j`` errors in ``trials``, for every ``j``.

    Arguments:
        trials: :math:`n`.
        local_level: :math:`\\gamma`.
        ranks: The order statistics that the band is built on; a count between two of them takes
            the bound of the next larger one, which is conservative.
    """

    trials: int
    local_level: float
    ranks: NDArray[np.int64]

    def upper(self, errors: ArrayLike) -> Array:
        """Upper bound on the error rate where ``errors`` were counted."""
        count = np.asarray(errors, dtype=np.int64)
        place = np.searchsorted(self.ranks, count + 1)
        past = place >= len(self.ranks)
        rank = self.ranks[np.minimum(place, len(self.ranks) - 1)]
        return np.where(past, 1.0, upper_rate(rank - 1, self.trials, self.local_level))


@lru_cache(maxsize=256)
def simultaneous_band(trials: int, tail: float) -> Band:
    """The band that is false anywhere with probability at most ``tail``.

    Example:
        >>> band = simultaneous_band(2500, 0.025)
        >>> 3e-4 < band.local_level < 5e-4
        True
    """
    if trials <= MOST_EXACT:
        ranks = np.arange(1, trials + 1)
        return Band(trials=trials, local_level=_equal_local_level(trials, tail), ranks=ranks)
    # Evenly spaced in normal quantiles: as dense in the tails as in the centre.
    reach = 1 - 1 / trials
    spaced = trials * ndtr(np.linspace(-1, 1, GRID) * ndtri(reach))
    ranks = np.unique(np.clip(np.round(spaced), 1, trials).astype(np.int64))
    return Band(trials=trials, local_level=tail / len(ranks), ranks=ranks)


def crossing_probability(trials: int, local_level: float) -> float:
    r"""Exact probability that :math:`U_{(i)} > b_i` for some :math:`i`.

    The first violation is at rank :math:`i` when exactly :math:`i-1` points lie below :math:`b_i`
    and no earlier rank was violated; conditioning on the earlier first violations gives

    .. math:: P_i = \mathrm{Bin}(i-1; n, b_i)
        - \sum_{k<i} P_k \, \mathrm{Bin}(i-k; n-k+1, \tfrac{b_i-b_k}{1-b_k}).
    """
    n = trials
    ranks = np.arange(1, n + 1)
    edge = upper_rate(ranks - 1, n, local_level)
    log_factorial = gammaln(np.arange(n + 2) + 1.0)
    log_rest = np.log1p(-edge)
    start = np.exp(
        log_factorial[n] - log_factorial[ranks - 1] - log_factorial[n - ranks + 1]
        + xlogy(ranks - 1, edge) + xlog1py(n - ranks + 1, -edge)
    )  # fmt: skip
    first = np.zeros(n)
    for i in range(n):  # i is the rank minus one
        k = np.arange(i)
        gained, left = i - k, n - k
        log_share = np.log(edge[i] - edge[:i]) - log_rest[:i]
        log_miss = log_rest[i] - log_rest[:i]
        arrivals = np.exp(
            log_factorial[left] - log_factorial[gained] - log_factorial[left - gained]
            + gained * log_share + (left - gained) * log_miss
        )  # fmt: skip
        first[i] = max(0.0, start[i] - float(first[:i] @ arrivals))
    return float(first.sum())


def _equal_local_level(trials: int, tail: float) -> float:
    """The local level, rounded to the safe side by at most one part in 1e4."""
    if trials == 1:
        return tail

    def excess(log_level: float) -> float:
        return float(np.log(crossing_probability(trials, np.exp(log_level)) / tail))

    # The union bound over all ranks is valid; a single rank is not.
    ends = np.log(tail / trials), np.log(tail)
    return float(np.exp(sign_change(excess, *ends, tolerance=1e-5)[0]))
