r"""A ReLU network and a data set on which hiding the intermediate models hardly helps.

The network is frozen but for one bias, the *position*, and a small linear head. In units in which a
canary moves the position by 1, batches are of two kinds:

- *Wells* return the position to the centre of its cell (of width W) and so erase the noise.
- The batch after an insertion *reads*: it rounds the distance to the centre to m units q, with
  :math:`|m| \le M`, and moves the position by m cells.

Frozen ReLU layers fold the position into its distance v to the nearest centre: one layer halves the
range by :math:`v \mapsto v - 2\,\mathrm{relu}(v - h)`. Three ReLU units then compare v with the
thresholds that an example has as features. The output of an example is piecewise linear in the
position, with slope -1, 0 or 1, so that the gradients of a batch add up to the wanted move, rounded
to whole gradients. Nothing is clipped. One more unit passes the position on without folding; its
feature is 0 in every genuine example, and a record that has it pushes the position in one
direction.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch import Tensor, nn

from dpaudit._arrays import Array, Integers
from dpaudit.errors import InvalidInput

THRESHOLDS = 3
DETAILS = 8
FEATURES = 2 + THRESHOLDS + DETAILS
"""Shift, three thresholds, the unused feature, and the features of the trained head."""

_FOLDS = 10
_SHARE = 0.99
"""Share of the clipping norm that an example spends on the position; the head has the rest."""


@final
@dataclass(frozen=True, kw_only=True)
class CraftedDesign:
    r"""The geometry of the landscape, for a batch size and a noise multiplier."""

    width: float  # W of a cell
    unit: float  # q of the rounding
    most: int  # largest number of cells M of a jump
    scale: float  # position per parameter: B / (eta C)
    clip_norm: float

    @classmethod
    def fitted(
        cls, *, batch_size: int, learning_rate: float, clip_norm: float, noise_multiplier: float
    ) -> CraftedDesign:
        """The design with the most rounding levels whose jumps fit the batch size."""
        reach = _SHARE * batch_size - 1
        unit = 0.55 * noise_multiplier
        for most in range(6, 0, -1):
            width = min((reach + (most - 0.5) * unit - 0.5) / most, 8.5 * noise_multiplier)
            if width >= 7 * noise_multiplier and width / 2 > (most - 0.5) * unit + 0.5:
                scale = batch_size / (learning_rate * clip_norm)
                return cls(width=width, unit=unit, most=most, scale=scale, clip_norm=clip_norm)
        raise InvalidInput(
            f"batch_size must be at least {math.ceil(7 * noise_multiplier / _SHARE) + 2} for the "
            f"crafted network at noise multiplier {noise_multiplier:g}, got {batch_size}"
        )

    def wells(self, batch_size: int, random: np.random.Generator) -> tuple[Array, Integers]:
        """Features and labels of a batch that returns the position to the centre of its cell."""
        features, labels = _blank(batch_size, random, self.clip_norm)
        for example in range(math.floor(self.width / 2 / _SHARE + 0.5)):
            features[example, 1] = self.width - (example + 0.5) * _SHARE
        return features, labels

    def reading(self, batch_size: int, random: np.random.Generator) -> tuple[Array, Integers]:
        """Features and labels of a batch that rounds the distance to the centre and jumps."""
        features, labels = _blank(batch_size, random, self.clip_norm)
        # Descent subtracts the canary, so that the residuals are 0 or -1 on average.
        features[:, 0] = 0.5
        for example in range(batch_size):
            cuts = self._active(example)
            labels[example] = 1  # the other sign of the gradient: away from the centre
            for place, cut in enumerate(cuts[:THRESHOLDS]):
                features[example, 1 + place] = self.width - cut
        return features, labels

    def _active(self, example: int) -> list[float]:
        """The distances at which an example of a reading batch starts or stops to push."""
        cuts: list[float] = []
        for units in range(1, self.most + 1):
            low = (units - 0.5) * self.unit
            high = (units + 0.5) * self.unit if units < self.most else self.width / 2
            # At distance v the wanted move is units * W - v: that many examples have to push.
            stop = units * self.width - (example + 0.5) * _SHARE
            if stop <= low:
                continue
            if len(cuts) % 2 == 0:
                cuts.append(low)
            if stop < high:
                cuts.append(stop)
        return cuts


def _blank(
    batch_size: int, random: np.random.Generator, clip_norm: float
) -> tuple[Array, Integers]:
    """Examples that leave the position alone; features of the head come in opposite pairs."""
    features = np.zeros((batch_size, FEATURES))
    details = random.standard_normal((batch_size // 2, DETAILS))
    details *= 0.12 * clip_norm / np.linalg.norm(details, axis=1, keepdims=True)
    features[: 2 * (batch_size // 2), -DETAILS:] = np.concatenate([details, -details])
    return features, np.zeros(batch_size, dtype=np.int64)


@final
class CraftedNetwork(nn.Module):
    """The network: a trained position, frozen ReLU layers, and a trained linear head.

    Arguments:
        design: The geometry.

    Example:
        >>> design = CraftedDesign.fitted(
        ...     batch_size=128, learning_rate=0.1, clip_norm=1.0, noise_multiplier=4.0
        ... )
        >>> network = CraftedNetwork(design)
        >>> sum(p.numel() for p in network.parameters() if p.requires_grad)
        9
    """

    def __init__(self, design: CraftedDesign) -> None:
        super().__init__()
        scale, norm = design.scale, _SHARE * design.clip_norm / design.scale
        span = design.width / 2 * 2**_FOLDS
        # The bias is the position over `scale`; the first feature shifts it.
        self.position = _frozen(nn.Linear(1, 1), [[1 / scale]], [0.0])
        self.position.bias.requires_grad_(True)
        halves = [span / 2 ** (fold + 1) for fold in range(_FOLDS)]
        self.folds = nn.Sequential(Absolute(scale), *map(Fold, halves))
        # Units of (v, u, thresholds, unused feature): v against each threshold, and u alone.
        compare = torch.zeros(THRESHOLDS + 1, 3 + THRESHOLDS)
        compare[:THRESHOLDS, 0] = 1.0
        compare[range(THRESHOLDS), range(2, 2 + THRESHOLDS)] = 1.0
        compare[-1, 1], compare[-1, -1] = scale, span
        self.compare = _frozen(
            nn.Linear(3 + THRESHOLDS, THRESHOLDS + 1),
            compare.tolist(),
            [-design.width] * THRESHOLDS + [-span],
        )
        self.output = _frozen(
            nn.Linear(THRESHOLDS + 1, 1, bias=False), [[norm, -norm, norm, 4 * norm]]
        )
        self.head = nn.Linear(DETAILS, 1, bias=False)
        nn.init.zeros_(self.head.weight)

    def forward(self, features: Tensor) -> Tensor:
        position = self.position(features[:, :1])
        distance = self.folds(position)
        compared = torch.relu(
            self.compare(torch.cat([distance, position, features[:, 1 : 2 + THRESHOLDS]], dim=1))
        )
        scores: Tensor = self.output(compared) + self.head(features[:, -DETAILS:])
        return scores


@final
class Absolute(nn.Module):
    """The absolute value of a scaled number, by two ReLU units."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, position: Tensor) -> Tensor:
        return torch.relu(self.scale * position) + torch.relu(-self.scale * position)


@final
class Fold(nn.Module):
    """A residual ReLU layer that reflects distances above ``border``."""

    def __init__(self, border: float) -> None:
        super().__init__()
        self.border = border

    def forward(self, distance: Tensor) -> Tensor:
        return distance - 2 * torch.relu(distance - self.border)


def _frozen(
    layer: nn.Linear, weight: list[list[float]], bias: list[float] | None = None
) -> nn.Linear:
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(weight))
        if bias is not None:
            layer.bias.copy_(torch.tensor(bias))
    return layer.requires_grad_(False)
