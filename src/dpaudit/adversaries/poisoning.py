"""How poisoning adversaries make a point: climbing from a genuine one, within the data's range."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dpaudit.adversaries.crafting import check_points, generator
from dpaudit.errors import InvalidInput
from dpaudit.threat_models import CanaryPoints

if TYPE_CHECKING:
    import torch

    from dpaudit.data import Examples
    from dpaudit.mechanisms.dpsgd import DPSGD

    Slope = Callable[[torch.Tensor], torch.Tensor]


def drawn_points(mechanism: DPSGD, canaries: int, seed: int, *, adversary: str) -> CanaryPoints:
    """Different training points with their own labels: where poisoning starts from."""
    import torch

    data = mechanism.data
    check_points(canaries, len(data))
    if data.features.dtype != np.float32:
        raise InvalidInput(f"features must be real numbers for {adversary}, got tokens")
    chosen = generator(seed).choice(len(data), size=canaries, replace=False)
    return CanaryPoints(
        features=torch.from_numpy(data.features[chosen]),
        targets=torch.from_numpy(data.targets[chosen]),
    )


def climb(
    mechanism: DPSGD, features: torch.Tensor, slope: Slope, *, steps: int, reach: float
) -> torch.Tensor:
    """Points (…, *features) moved uphill, each by steps of one length.

    Arguments:
        mechanism: Its data gives the range of every feature and the length of a typical example.
        features: Where the points start.
        slope: From points to the gradient of what is to grow, point by point.
        steps: How many.
        reach: How far they go in all, in lengths of a typical example.
    """
    import torch

    lowest, highest, typical = _extent(mechanism.data)
    low, high = torch.from_numpy(lowest).to(features), torch.from_numpy(highest).to(features)
    length = reach * typical / steps
    axes = tuple(range(-low.ndim, 0))
    for _ in range(steps):
        uphill = slope(features)
        size = uphill.square().sum(dim=axes, keepdim=True).sqrt()
        # Where it is flat in every direction, a point stays where it is.
        features = features + length * uphill / size.clamp(min=1e-12)
        features = torch.minimum(torch.maximum(features, low), high)
    return features


@lru_cache(maxsize=4)  # every insertion step asks for the same one
def _extent(data: Examples) -> tuple[NDArray[np.float32], NDArray[np.float32], float]:
    """The range of every feature, and the mean length of an example."""
    flat = data.features.reshape(len(data), -1)
    typical = float(np.linalg.norm(flat, axis=1).mean())
    return data.features.min(axis=0), data.features.max(axis=0), typical
