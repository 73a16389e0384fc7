"""The paper's smallest network, for California Housing."""

from __future__ import annotations

from torch import nn


def fcnn() -> nn.Module:
    """Fully connected 8-6-2 with one ReLU: 68 parameters.

    See also: `dpaudit.data.california_housing`.

    Paper: Cebere, Bellet, Papernot (ICLR 2025), Section 5 and the table of hyperparameters.

    Example:
        >>> sum(p.numel() for p in fcnn().parameters())
        68
    """
    return nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 2))
