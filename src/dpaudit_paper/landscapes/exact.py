r"""The exact privacy loss of a landscape process at every step.

The landscape decides how the pair of distributions is computed: a constant landscape has a closed
form, reading wells are a Markov chain on their cells, and all others are propagated as densities.
The densities are computed twice, on two grids with two widths of tails, and the disagreement is
the reported error.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize.elementwise import find_root
from scipy.special import ndtri

from dpaudit import _validate
from dpaudit._arrays import Array
from dpaudit._numbers import decimals
from dpaudit.curves import gaussian_delta, gaussian_epsilon
from dpaudit.errors import NumericalError
from dpaudit_paper.landscapes.pair import GaussianPair, Pair
from dpaudit_paper.landscapes.process import LandscapeProcess, accountant_mu
from dpaudit_paper.landscapes.propagation import Resolution, densities
from dpaudit_paper.landscapes.reading_wells import ReadingWells
from dpaudit_paper.landscapes.shapes import Constant, Threshold

ExactMethod = Literal["closed form", "densities", "chain"]

LARGEST_ERROR = 1e-3  # relative; larger errors are refused
_COARSE = Resolution(order=8, negligible=1e-10, mass_tolerance=1e-9)
_FINE = Resolution(order=10, negligible=1e-12)


@dataclass(frozen=True, kw_only=True, eq=False)
class ExactPrivacy:
    r"""What a landscape process leaks at every step.

    Arguments:
        process: The process.
        delta: The delta at which epsilon is given.
        epsilon: The exact epsilon after steps 1, …, T. Entry t - 1 belongs to step t.
        gdp_rule_mu: What the paper's rule reports with infinitely many runs: the largest mu of a
            threshold on the released number.
        gdp_rule: The epsilon that rule claims; it assumes a Gaussian trade-off curve.
        accountant: The upper bound of composition after step T.
        error: Largest relative change of epsilon between two grids.
        last: The pair of distributions after step T.
        method: ``"closed form"``, ``"densities"`` or ``"chain"``. A chain's numbers are exact for
            the node and lower bounds for the position.
    """

    process: LandscapeProcess
    delta: float
    epsilon: Array
    gdp_rule_mu: Array
    gdp_rule: Array
    accountant: float
    error: float
    last: Pair
    method: ExactMethod

    def to_dict(self) -> dict[str, Any]:
        """Plain data: what ``--json`` prints."""
        return {
            "exact": [float(e) for e in self.epsilon],
            "gdp_rule": [float(e) for e in self.gdp_rule],
            "accountant": self.accountant,
            "error": self.error,
            "delta": self.delta,
            "method": self.method,
        }

    def __repr__(self) -> str:
        return (
            f"ExactPrivacy(epsilon={decimals(self.epsilon[-1], 4)} at step {self.process.steps} "
            f"and delta={self.delta:g}, accountant {decimals(self.accountant, 4)}, "
            f"error {self.error:.0e}, {self.method})"
        )


def pairs(
    process: LandscapeProcess, *, delta: float = 1e-5, resolution: Resolution | None = None
) -> Iterator[Pair]:
    """The pair of distributions after steps 1, …, T.

    Example:
        >>> process = LandscapeProcess(
        ...     noise_multiplier=2, batch_size=1, steps=4, landscape=Constant()
        ... )
        >>> [round(pair.gdp_rule_mu(), 4) for pair in pairs(process)]
        [0.5, 0.3536, 0.2887, 0.25]
    """
    _validate.between("delta", delta, 0, 1, remedy="a common choice is 1e-5")
    landscape = process.landscape
    if isinstance(landscape, Constant):
        return (GaussianPair(constant_mu(process, step)) for step in range(1, process.steps + 1))
    if isinstance(landscape, ReadingWells):
        return landscape.pairs(process)
    return densities(process, delta=delta, resolution=resolution or _FINE)


def constant_mu(process: LandscapeProcess, step: int) -> float:
    r"""The closed form for a constant landscape: canaries add up, and so do variances.

    :math:`\mu_t = (1 + \rho(n_t - 1)) / (\sigma\sqrt{1 + \rho^2 (t-1)})` with :math:`n_t`
    insertions. For one insertion in the paper's scaling this is
    :math:`1/(\sigma\sqrt{1 + (t-1)/B^2})`; for DP-SGD's, :math:`n_t / (\sigma \sqrt t)`.
    """
    ratio = process.step_ratio
    signal = 1 + ratio * (process.insertions(step) - 1)
    return signal / (process.noise_multiplier * math.sqrt(1 + ratio**2 * (step - 1)))


def exact_privacy(process: LandscapeProcess, *, delta: float = 1e-5) -> ExactPrivacy:
    r"""What the process leaks at each step, with a bound on the numerical error.

    See also:
        `pairs` for the distributions, `dpaudit_paper.landscapes.simulate` for simulated scores.

    Arguments:
        process: The process, with its landscape.
        delta: Delta at which epsilon is computed, in (0, 1).

    Raises:
        NumericalError: when two grids still disagree by more than 1e-3 after refinement.

    Example:
        >>> from dpaudit_paper.landscapes import Threshold
        >>> process = LandscapeProcess(
        ...     noise_multiplier=4, batch_size=4, steps=25, landscape=Threshold()
        ... )
        >>> result = exact_privacy(process)
        >>> round(float(result.epsilon[-1]), 4), round(float(result.gdp_rule[-1]), 4)
        (0.562, 0.9186)
        >>> result.error < 1e-6
        True
    """
    _validate.between("delta", delta, 0, 1, remedy="a common choice is 1e-5")
    if isinstance(process.landscape, Constant):
        return _closed_form(process, delta)
    if isinstance(process.landscape, ReadingWells):
        return _summary(process, delta, None, "chain")
    error = math.inf
    for refinement in (1, 2, 4):
        coarse = replace(_COARSE, width=_COARSE.width / refinement)
        fine = replace(_FINE, width=_FINE.width / refinement)
        try:
            rough = np.array(
                [p.epsilon(delta) for p in densities(process, delta=delta, resolution=coarse)]
            )
            result = _summary(process, delta, fine, "densities")
        except NumericalError:
            if refinement == 4:
                raise
            continue
        # Below 1e-6 epsilon is compared in absolute terms: the literal landscape goes to zero.
        error = float((np.abs(result.epsilon - rough) / np.maximum(result.epsilon, 1e-6)).max())
        if error <= LARGEST_ERROR:
            return replace(result, error=error)
    raise NumericalError(
        f"two grids disagree by {error:.1e} relative, more than {LARGEST_ERROR:g}, even after "
        "refining four times; the landscape varies too fast for its noise"
    )


def _summary(
    process: LandscapeProcess, delta: float, resolution: Resolution | None, method: ExactMethod
) -> ExactPrivacy:
    epsilon, mu = np.empty(process.steps), np.empty(process.steps)
    for index, pair in enumerate(pairs(process, delta=delta, resolution=resolution)):
        epsilon[index], mu[index] = pair.epsilon(delta), pair.gdp_rule_mu()
    return ExactPrivacy(
        process=process,
        delta=delta,
        epsilon=epsilon,
        gdp_rule_mu=mu,
        gdp_rule=gaussian_epsilons(delta, mu),
        accountant=gaussian_epsilon(delta, accountant_mu(process, process.steps)),
        error=0.0,
        last=pair,
        method=method,
    )


def _closed_form(process: LandscapeProcess, delta: float) -> ExactPrivacy:
    mu = np.array([constant_mu(process, step) for step in range(1, process.steps + 1)])
    epsilon = gaussian_epsilons(delta, mu)
    return ExactPrivacy(
        process=process,
        delta=delta,
        epsilon=epsilon,
        gdp_rule_mu=mu,
        gdp_rule=epsilon,
        accountant=gaussian_epsilon(delta, accountant_mu(process, process.steps)),
        error=0.0,
        last=GaussianPair(float(mu[-1])),
        method="closed form",
    )


def gaussian_epsilons(delta: float, mu: Array) -> Array:
    r"""`dpaudit.curves.gaussian_epsilon` for many mu at once.

    The root lies below :math:`\mu^2/2 + \mu\Phi^{-1}(1-\delta)`, since
    :math:`\delta(\epsilon) \le \Phi(\mu/2 - \epsilon/\mu)`.
    """
    mu = np.asarray(mu, dtype=float)
    epsilon = np.zeros_like(mu)
    positive = gaussian_delta(epsilon, mu) > delta
    some = mu[positive]
    if some.size:
        above = some * some / 2 - some * ndtri(delta)
        found = find_root(
            lambda e, m: gaussian_delta(e, m) - delta, (np.zeros_like(some), above), args=(some,)
        )
        epsilon[positive] = found.x
    return epsilon


@dataclass(frozen=True, kw_only=True, eq=False)
class ThresholdSearch:
    """Epsilon at step T for a row of thresholds.

    Arguments:
        thresholds: The places h, in units of C.
        exact: Exact epsilon with the threshold landscape at h.
        gdp_rule: What the GDP rule reports there with infinitely many runs.
    """

    thresholds: Array
    exact: Array
    gdp_rule: Array

    @property
    def best_exact(self) -> float:
        """The threshold with the largest exact epsilon."""
        return float(self.thresholds[np.argmax(self.exact)])

    @property
    def best_gdp_rule(self) -> float:
        """The threshold with the largest epsilon under the GDP rule."""
        return float(self.thresholds[np.argmax(self.gdp_rule)])


def threshold_search(
    process: LandscapeProcess, *, delta: float = 1e-5, thresholds: ArrayLike | None = None
) -> ThresholdSearch:
    r"""Try the threshold landscape at many places (the paper's Algorithm 5).

    Arguments:
        process: The process whose landscape is replaced; the paper uses T = 2.
        delta: Delta at which epsilon is computed.
        thresholds: The places to try. The default is the paper's, :math:`h_i =
            \sigma\Phi^{-1}(1 - \alpha_i)` for a row of false-positive rates, with its mirror image
            in C/2 and with C/2 itself; the smallest rate is 1e-9, since the exact epsilon at a
            small delta is decided at a small rate.

    Example:
        >>> process = LandscapeProcess(
        ...     noise_multiplier=1, batch_size=8, steps=2, scaling="dpsgd", landscape=Threshold()
        ... )
        >>> search = threshold_search(process, thresholds=[0.5, 4.877])
        >>> search.exact.round(3).tolist(), search.gdp_rule.round(3).tolist()
        ([2.943, 4.377], [4.377, 4.377])
    """
    if thresholds is None:
        rates = np.concatenate([np.logspace(-9, -2, 36)[:-1], np.linspace(0.01, 0.3, 30)])
        above = -process.noise_multiplier * np.asarray(ndtri(rates))
        above = above[above > 0.5]
        thresholds = np.concatenate([1 - above, [0.5], above])
    places = np.sort(np.asarray(thresholds, dtype=float).ravel())
    exact, mu = np.empty(places.size), np.empty(places.size)
    for index, place in enumerate(places):
        *_, last = densities(process.with_landscape(Threshold(at=float(place))), delta=delta)
        exact[index], mu[index] = last.epsilon(delta), last.gdp_rule_mu()
    return ThresholdSearch(thresholds=places, exact=exact, gdp_rule=gaussian_epsilons(delta, mu))
