"""The history of an accountant as a claim: groups of equal steps of DP-SGD, composed."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dpaudit import _validate
from dpaudit.claims import Claim
from dpaudit.upper_bounds import NoisySteps
from dpaudit.upper_bounds.composition import composed_profile

History = Sequence[tuple[float, float, int]]
"""Groups of (noise multiplier, sampling rate, number of steps)."""


def curve_of(history: History, description: str) -> Claim:
    """The trade-off function of the steps, in closed form if none is sampled."""
    parts = [_described(*group) for group in history]
    if not any(part.subsampled for part in parts):
        squared = sum(part.mu**2 for part in parts)
        return Claim(description=description, mu=math.sqrt(squared))
    epsilons = np.concatenate([np.linspace(0, 4, 81), np.linspace(4.25, 40, 144)])
    deltas = composed_profile(parts, epsilons=epsilons)
    return Claim(
        description=description,
        epsilons=tuple(epsilons.tolist()),
        deltas=tuple(np.clip(deltas, 0.0, 1.0).tolist()),
    )


def in_words(history: History) -> str:
    """The first three groups in words."""
    return "; ".join(map(_words, history[:3])) + ("; ..." if len(history) > 3 else "")


def merged(history: History) -> History:
    """Equal steps counted together; the order does not matter."""
    counts: dict[tuple[float, float], int] = {}
    for noise, rate, steps in history:
        _validate.positive(
            "noise_multiplier in the accountant's history",
            float(noise),
            remedy="without noise there is no claim to test",
        )
        counts[noise, rate] = counts.get((noise, rate), 0) + steps
    return [(noise, rate, steps) for (noise, rate), steps in counts.items()]


def _words(group: tuple[float, float, int]) -> str:
    noise, rate, steps = group
    sampled = f", Poisson sampling rate {rate:g}" if rate < 1 else ""
    return f"DP-SGD with noise multiplier {noise:g}, {steps} steps{sampled}"


def _described(noise_multiplier: float, rate: float, steps: int) -> NoisySteps:
    return NoisySteps(
        noise_multiplier=float(noise_multiplier),
        steps=int(steps),
        sampling_rate=None if rate >= 1 else float(rate),
    )
