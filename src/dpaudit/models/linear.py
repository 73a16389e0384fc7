"""A linear model without bias that starts at zero."""

from __future__ import annotations

from torch import nn


def linear(inputs: int, outputs: int) -> nn.Linear:
    """A linear layer without bias, with all weights 0.

    Arguments:
        inputs: Number of features.
        outputs: Number of outputs.
    """
    layer = nn.Linear(inputs, outputs, bias=False)
    nn.init.zeros_(layer.weight)
    return layer
