"""Losses per example, for `dpaudit.mechanisms.DPSGD`. They import torch only when called."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def cross_entropy(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The cross-entropy of every example, shape (batch,).

    Arguments:
        outputs: Logits, shape (batch, classes), or (batch, …, classes) for sequences.
        targets: Classes, shape (batch,), or (batch, …). In sequences the loss is the mean over the
            places; places with target -100 do not count.
    """
    from torch.nn import functional

    if targets.ndim == 1:
        return functional.cross_entropy(outputs, targets, reduction="none")
    losses = functional.cross_entropy(outputs.movedim(-1, 1), targets, reduction="none")
    counted = targets.ne(-100).flatten(1).sum(1).clamp(min=1)
    return losses.flatten(1).sum(1) / counted


def squared_error(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The mean squared error of every example over all its outputs, shape (batch,)."""
    return (outputs - targets.reshape(outputs.shape)).square().flatten(1).mean(1)


def logistic(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The logistic loss of one output per example, for classes 0 and 1, shape (batch,)."""
    from torch.nn import functional

    return functional.softplus((1 - 2 * targets) * outputs.reshape(len(targets)))


def hinge(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The hinge loss of one output per example, for classes 0 and 1, shape (batch,)."""
    from torch.nn import functional

    return functional.relu(1 + (1 - 2 * targets) * outputs.reshape(len(targets)))
