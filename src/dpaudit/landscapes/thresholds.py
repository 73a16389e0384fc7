r"""The best position of a threshold, which the paper's appendix studies for T = 2.

Under the GDP rule h = C/2 is the best position. Under the exact epsilon it is among the worst, and
`dpaudit.landscapes.decision_point` is close to the best.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize_scalar
from scipy.special import ndtri

from dpaudit import _validate
from dpaudit._arrays import Array
from dpaudit.landscapes.composition import decision_point
from dpaudit.landscapes.densities import Resolution, densities
from dpaudit.landscapes.landscapes import Threshold
from dpaudit.landscapes.privacy import gaussian_epsilons
from dpaudit.mechanisms.landscape import Landscape, LandscapeProcess

_QUICK = Resolution(order=8, negligible=1e-9, mass_tolerance=1e-9)


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


def best_threshold(process: LandscapeProcess, *, delta: float = 1e-5) -> Threshold:
    """The threshold landscape with the largest exact epsilon at step T.

    A scan, because the function of h is not unimodal, then Brent's method around its best point.
    By symmetry only thresholds above C/2 are tried.

    Example:
        >>> process = LandscapeProcess(
        ...     noise_multiplier=1, batch_size=4, steps=5, scaling="dpsgd", landscape=Threshold()
        ... )
        >>> round(best_threshold(process).at, 1)
        4.9
    """
    delta = _validate.between("delta", delta, 0, 1)
    sigma = process.noise_multiplier
    far = decision_point(process, delta=delta) + 2 * sigma

    def epsilon(place: float) -> float:
        return final_epsilon(process, Threshold(at=place), delta=delta)

    scan = np.linspace(0.5, far, 24)
    values = [epsilon(float(place)) for place in scan]
    best = int(np.argmax(values))
    low, high = scan[max(0, best - 1)], scan[min(scan.size - 1, best + 1)]
    found = minimize_scalar(
        lambda place: -epsilon(place),
        bounds=(low, high),
        method="bounded",
        options={"xatol": 1e-4 * sigma},
    )
    place = float(found.x) if -found.fun > values[best] else float(scan[best])
    return Threshold(at=place)


def final_epsilon(process: LandscapeProcess, landscape: Landscape, *, delta: float) -> float:
    """Epsilon (with the canary over without) after step T on a coarse grid, for searches."""
    *_, last = densities(process.with_landscape(landscape), delta=delta, resolution=_QUICK)
    return last.one_sided_epsilon(delta)
