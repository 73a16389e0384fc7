r"""The exact privacy loss of a landscape process at every step.

Reading wells are a Markov chain on their cells; all other landscapes are propagated as densities.
These are computed twice, on two grids with two widths of tails, and the disagreement is the
reported error.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from dpaudit import _validate
from dpaudit._arrays import Array
from dpaudit._numbers import decimals
from dpaudit.curves import gaussian_epsilon
from dpaudit.errors import NumericalError
from dpaudit_paper.landscapes.pair import Pair
from dpaudit_paper.landscapes.process import LandscapeProcess, accountant_mu
from dpaudit_paper.landscapes.propagation import Resolution, densities
from dpaudit_paper.landscapes.reading_wells import ReadingWells
from dpaudit_paper.landscapes.shapes import Threshold

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
        gdp_rule: What the paper's rule reports with infinitely many runs: the largest mu of a
            threshold on the released number, read as if the trade-off curve were Gaussian.
        accountant: The upper bound of composition after step T.
        error: Largest relative change of epsilon between two grids.
        last: The pair of distributions after step T.
        method: ``"densities"`` or ``"chain"``. A chain's numbers are exact for the cell and lower
            bounds for the position.
    """

    process: LandscapeProcess
    delta: float
    epsilon: Array
    gdp_rule: Array
    accountant: float
    error: float
    last: Pair
    method: Literal["densities", "chain"]

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
    process: LandscapeProcess, *, delta: float = 1e-5, resolution: Resolution = _FINE
) -> Iterator[Pair]:
    """The pair of distributions after steps 1, …, T.

    Example:
        >>> process = LandscapeProcess(
        ...     noise_multiplier=1, batch_size=1, steps=3, landscape=Threshold()
        ... )
        >>> [round(pair.delta(0), 4) for pair in pairs(process)]
        [0.3829, 0.3637, 0.3585]
    """
    if isinstance(process.landscape, ReadingWells):
        return process.landscape.pairs(process)
    return densities(process, delta=delta, resolution=resolution)


def exact_privacy(process: LandscapeProcess, *, delta: float = 1e-5) -> ExactPrivacy:
    r"""The exact epsilon of a process at every step.

    See also:
        `dpaudit_paper.landscapes.simulate`, the audit of the same process.

    Arguments:
        process: The process.
        delta: Delta at which epsilon is computed, in (0, 1).

    Raises:
        NumericalError: when two grids still disagree by more than 1e-3 after refinement.

    Example:
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
    if isinstance(process.landscape, ReadingWells):
        return _summary(process, delta, _FINE)
    error = math.inf
    for refinement in (1, 2, 4):
        coarse = replace(_COARSE, width=_COARSE.width / refinement)
        fine = replace(_FINE, width=_FINE.width / refinement)
        try:
            rough = np.array(
                [p.epsilon(delta) for p in pairs(process, delta=delta, resolution=coarse)]
            )
            result = _summary(process, delta, fine)
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


def _summary(process: LandscapeProcess, delta: float, resolution: Resolution) -> ExactPrivacy:
    epsilon, gdp_rule = np.empty(process.steps), np.empty(process.steps)
    for index, pair in enumerate(pairs(process, delta=delta, resolution=resolution)):
        epsilon[index] = pair.epsilon(delta)
        gdp_rule[index] = gaussian_epsilon(delta, pair.gdp_rule_mu())
    return ExactPrivacy(
        process=process,
        delta=delta,
        epsilon=epsilon,
        gdp_rule=gdp_rule,
        accountant=gaussian_epsilon(delta, accountant_mu(process, process.steps)),
        error=0.0,
        last=pair,
        method="chain" if isinstance(process.landscape, ReadingWells) else "densities",
    )


class ThresholdSearch(NamedTuple):
    """Epsilon at step T for a row of thresholds: exact, and by the GDP rule."""

    exact: Array
    gdp_rule: Array


def threshold_search(
    process: LandscapeProcess, thresholds: Sequence[float], *, delta: float = 1e-5
) -> ThresholdSearch:
    """Try the threshold landscape at many places (the paper's Algorithm 5).

    Arguments:
        process: The process whose landscape is replaced; the paper uses T = 2.
        thresholds: The places to try, in units of C.
        delta: Delta at which epsilon is computed.

    Example:
        >>> process = LandscapeProcess(
        ...     noise_multiplier=1, batch_size=8, steps=2, scaling="dpsgd", landscape=Threshold()
        ... )
        >>> search = threshold_search(process, [0.5, 4.877])
        >>> search.exact.round(3).tolist(), search.gdp_rule.round(3).tolist()
        ([2.943, 4.377], [4.377, 4.377])
    """
    epsilons = []
    for place in thresholds:
        *_, last = densities(process.with_landscape(Threshold(at=float(place))), delta=delta)
        epsilons.append((last.epsilon(delta), gaussian_epsilon(delta, last.gdp_rule_mu())))
    return ThresholdSearch(*np.array(epsilons).T)
