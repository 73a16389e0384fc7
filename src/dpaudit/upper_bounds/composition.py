"""Composition of unequal steps: noise or sampling that changes during the training."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from dpaudit._arrays import Array
from dpaudit.errors import InvalidInput
from dpaudit.upper_bounds.base import NoisySteps
from dpaudit.upper_bounds.bounds import privacy_profile
from dpaudit.upper_bounds.privacy_loss import Curve, PldAccountant, affordable, compose


def composed_profile(parts: Iterable[NoisySteps], *, epsilons: ArrayLike) -> Array:
    r"""Upper bounds on delta at many epsilons, for a training with several parts.

    Steps without sampling compose in closed form, :math:`\mu^2 = \sum_i T_i / \sigma_i^2`. The
    privacy losses of sampled steps are convolved on one grid, rounded up as in `privacy_loss`.

    See also:
        `privacy_profile`, for equal steps.

    Paper: Dong, Roth, Su (JRSS-B 2022), Corollary 3.3, without sampling; Doroshenko et al. (PoPETs
    2022), Algorithm 1, with it.

    Arguments:
        parts: Groups of equal steps; their order does not matter.
        epsilons: Epsilons at which delta is bounded.

    Example:
        >>> loud = NoisySteps(noise_multiplier=2.0, steps=4)
        >>> quiet = NoisySteps(noise_multiplier=1.0, steps=1)
        >>> composed_profile([loud, quiet], epsilons=[1.0]).round(4)
        array([0.2862])
        >>> privacy_profile(noise_multiplier=1.0, steps=2, epsilons=[1.0]).round(4)
        array([0.2862])
    """
    merged = _merged(parts)
    if not merged:
        raise InvalidInput("parts must describe at least one step, got none")
    if len(merged) == 1:
        (only,) = merged
        return privacy_profile(
            noise_multiplier=only.noise_multiplier,
            steps=only.steps,
            sampling_rate=only.sampling_rate,
            epsilons=epsilons,
        )
    wanted = np.asarray(epsilons, dtype=float)
    if not (np.isfinite(wanted).all() and (wanted >= 0).all()):
        raise InvalidInput(f"epsilons must be finite and at least 0, got {epsilons!r}")
    if any(part.noise_multiplier == 0 for part in merged):
        return np.ones_like(wanted)
    return _composed(merged).deltas(wanted.ravel()).reshape(wanted.shape)


def _merged(parts: Iterable[NoisySteps]) -> tuple[NoisySteps, ...]:
    """Equal steps counted together, and all steps without sampling as a single one."""
    sampled: dict[tuple[float, float], int] = {}
    squared_mu = 0.0
    for part in parts:
        if part.subsampled:
            key = (float(part.noise_multiplier), float(part.sampling_rate or 1.0))
            sampled[key] = sampled.get(key, 0) + part.steps
        else:
            squared_mu += part.mu**2
    merged = [
        NoisySteps(noise_multiplier=noise, sampling_rate=rate, steps=steps)
        for (noise, rate), steps in sorted(sampled.items())
    ]
    if squared_mu > 0:
        merged.append(NoisySteps(noise_multiplier=1 / math.sqrt(squared_mu), steps=1))
    return tuple(merged)


@lru_cache(maxsize=8)
def _composed(parts: tuple[NoisySteps, ...]) -> Curve:
    # Ten times coarser than for equal steps, since every part costs a convolution. The roundings
    # still vary far less than the privacy loss itself does.
    accuracy = PldAccountant(interval=1e-3, points=2**17)
    steps = sum(part.steps for part in parts)
    wanted = min(accuracy.interval, 0.1 / math.sqrt(steps))

    def interval(wanted: float, points: int) -> float:
        return max(affordable(part.noise_multiplier, wanted, points) for part in parts)

    # As for equal steps, a coarse grid finds the range of the fine one.
    sketch = compose(parts, interval(10 * wanted, accuracy.points // 8))
    reach = sketch.epsilon(max(1e-13, 10 * sketch.floor))
    return compose(parts, max(interval(wanted, accuracy.points), 2 * reach / accuracy.points))
