r"""A threshold that moves from batch to batch: it stays where the likelihood ratio decides.

After step t the two densities cross :math:`p_{1,t} = e^\epsilon p_{0,t}` at some position
:math:`h_t`. The batch of the next step pushes away from that position at full speed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from dpaudit import _validate
from dpaudit.errors import InvalidInput
from dpaudit.landscapes.composition import decision_point
from dpaudit.landscapes.densities import Resolution, densities
from dpaudit.landscapes.landscapes import Threshold
from dpaudit.landscapes.pair import DensityPair
from dpaudit.mechanisms.landscape import BatchLandscapes, Landscape, LandscapeProcess

_QUICK = Resolution(order=8, negligible=1e-10, mass_tolerance=1e-8)
_ROUNDS = 60


@final
@dataclass(frozen=True, kw_only=True)
class MovingThreshold(BatchLandscapes):
    """A threshold landscape for every step.

    See also:
        `Threshold`, which does not move; `fitted_moving_threshold` for the best positions.

    Arguments:
        places: The thresholds of steps 2, 3, …, in units of C; later steps use the last one.

    Example:
        >>> MovingThreshold(places=(4.9, 4.4)).at(3)
        Threshold(at=4.4)
    """

    places: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.places:
            raise InvalidInput("places must have at least one threshold, got none")
        for place in self.places:
            _validate.real("places", place)

    def at(self, step: int) -> Landscape:
        return Threshold(at=self.places[min(max(step - 2, 0), len(self.places) - 1)])


def fitted_moving_threshold(process: LandscapeProcess, *, delta: float = 1e-5) -> MovingThreshold:
    r"""Thresholds at the crossings :math:`p_{1,t} = e^\epsilon p_{0,t}`, for one insertion.

    The epsilon is that of the last step, which depends on the thresholds: both are found in turn.

    Arguments:
        process: Noise, batch size, steps and scaling; its landscape is not used.
        delta: Delta at which epsilon is computed.

    Raises:
        InvalidInput: if the process inserts the canary more than once.

    Example:
        >>> from dpaudit.landscapes import Constant, exact_privacy
        >>> process = LandscapeProcess(
        ...     noise_multiplier=4, batch_size=4, steps=4, scaling="dpsgd", landscape=Constant()
        ... )
        >>> chosen = fitted_moving_threshold(process)
        >>> round(float(exact_privacy(process.with_landscape(chosen)).epsilon[-1]), 3)
        0.846
    """
    if process.insertions(process.steps) > 1:
        raise InvalidInput(
            f"period must be None for a moving threshold, got {process.period}; "
            "for several insertions use reading-wells"
        )
    places = np.full(max(1, process.steps - 1), decision_point(process, delta=delta))
    best, found = MovingThreshold(places=(float(places[0]),)), -1.0
    for _ in range(_ROUNDS):
        chosen = MovingThreshold(places=tuple(places.tolist()))
        pairs = list(densities(process.with_landscape(chosen), delta=delta, resolution=_QUICK))
        epsilon = pairs[-1].one_sided_epsilon(delta)
        if epsilon > found:
            best, found = chosen, epsilon
        # All crossings of this round at once; each depends on the thresholds before it only.
        new = places.copy()
        new[0] = 0.5 + epsilon * process.noise_multiplier**2
        for index in range(1, len(new)):
            new[index] = _crossing(pairs[index], epsilon, new[index - 1])
        moved, places = float(np.abs(new - places).max()), new
        if moved <= 1e-3 * process.noise_multiplier:
            break
    return best


def _crossing(pair: DensityPair, epsilon: float, otherwise: float) -> float:
    """The highest position where the log-likelihood ratio rises through epsilon."""
    position, above = pair.panels.nodes.ravel(), pair.log_ratio().ravel() - epsilon
    rising = np.flatnonzero((above[:-1] <= 0) & (above[1:] > 0))
    if not rising.size:
        return otherwise
    i = rising[-1]
    share = -above[i] / (above[i + 1] - above[i])
    return float(position[i] + share * (position[i + 1] - position[i]))
