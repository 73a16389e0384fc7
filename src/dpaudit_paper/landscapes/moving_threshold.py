r"""The strongest landscape known after one insertion: a threshold that moves from batch to batch.

Fix epsilon and let :math:`\nu_1 = p_1 - e^\epsilon p_0` after the insertion. A step without the
canary pushes :math:`\nu` by :math:`x \mapsto x + d(x)` and convolves it with the noise, and
delta(epsilon) is the positive mass of the last :math:`\nu`. The batch of each step pushes away from
the place where :math:`\nu` changes its sign, at full speed. If :math:`\nu` has one sign change
it keeps one: pushing apart keeps it, and a Gaussian does not increase the number of sign changes.

Proven: the best landscape for one clean step (`dpaudit.upper_bounds.hidden_state`), and for any
number of steps at epsilon = 0. For more steps at other epsilons no landscape is known that keeps
more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft

from dpaudit import _validate
from dpaudit._arrays import Array
from dpaudit._roots import sign_change
from dpaudit.curves import gaussian_epsilon
from dpaudit.errors import InvalidInput
from dpaudit_paper.landscapes.process import BatchLandscapes, Landscape, LandscapeProcess
from dpaudit_paper.landscapes.shapes import Threshold

_CELLS = 40  # in one deviation of the smaller noise
_TAILS = 8.5  # deviations of the noise that are followed


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
        Threshold(at=4.4, away=True)
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
    r"""Thresholds at the sign changes, at the epsilon that they keep at ``delta``.

    The grid here only places them; `dpaudit_paper.landscapes.exact_privacy` computes what they keep
    to rounding error.

    Arguments:
        process: Noise, batch size, steps and scaling; its landscape is not used.
        delta: Delta at which epsilon is computed.

    Raises:
        InvalidInput: if the process inserts the canary more than once.

    Example:
        >>> from dpaudit_paper.landscapes import Constant, exact_privacy
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
    delta = _validate.between("delta", delta, 0, 1)
    highest = gaussian_epsilon(delta, 1 / process.noise_multiplier)

    def excess(epsilon: float) -> float:
        return delta - forward(process, epsilon)[0]

    epsilon = 0.0
    if highest > 0 and excess(0.0) <= 0:
        epsilon = sign_change(excess, 0.0, highest, tolerance=1e-6)[0]
    return MovingThreshold(places=forward(process, epsilon)[1])


def forward(process: LandscapeProcess, epsilon: float) -> tuple[float, tuple[float, ...]]:
    """Delta at ``epsilon`` after all steps, and the thresholds of steps 2, 3, …: one pass."""
    sigma, noise, reach = process.noise_multiplier, process.step_noise, process.reach
    push = math.ceil(_CELLS * reach / min(sigma, noise))  # in cells
    width = reach / push
    half = _TAILS * (sigma + noise * math.sqrt(process.steps)) + 1 + epsilon * sigma**2
    size = 2 * math.ceil(half / width)
    x: Array = width * (np.arange(size, dtype=np.float64) - size / 2 + 0.5)
    nu = normal_density(x - 1, sigma) - math.exp(epsilon) * normal_density(x, sigma)
    spread = math.ceil(_TAILS * noise / width)
    length = next_fast_len(size + 2 * spread, real=True)
    steps_of_noise = width * np.arange(-spread, spread + 1, dtype=np.float64)
    kernel = rfft(width * normal_density(steps_of_noise, noise), length)
    push = min(push, size)  # as good as any longer one: it leaves the grid
    places, beyond = [], 0.0  # beyond: mass right of the grid, too far away to come back
    for _ in range(1, process.steps):
        change = int(np.argmin(np.cumsum(nu))) + 1
        places.append(_zero(x, nu, change))
        pushed = np.zeros(size + 2 * push)
        pushed[:change] = nu[:change]
        pushed[change + 2 * push :] = nu[change:]
        spread_out = irfft(rfft(pushed[push : push + size], length) * kernel, length)
        beyond += float(pushed[push + size :].sum())
        beyond += float(spread_out[spread + size : size + 2 * spread].sum())
        nu = spread_out[spread : spread + size]
    delta = width * (beyond + float(np.maximum(nu, 0).sum()))
    return delta, tuple(places) or (0.5 + epsilon * sigma**2,)


def _zero(x: Array, nu: Array, change: int) -> float:
    """Where the measure changes its sign: between the cells ``change - 1`` and ``change``."""
    if not 0 < change < len(x) or nu[change] <= nu[change - 1]:
        return float(x[min(change, len(x) - 1)])
    share = -nu[change - 1] / (nu[change] - nu[change - 1])
    return float(x[change - 1] + min(max(share, 0.0), 1.0) * (x[change] - x[change - 1]))


def normal_density(x: Array, deviation: float) -> Array:
    """The density of a normal distribution around 0."""
    return np.asarray(np.exp(-0.5 * (x / deviation) ** 2) / (deviation * math.sqrt(2 * math.pi)))
