"""Small functions that tests of several packages use."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import gammaln, xlogy
from torch import Tensor
from torch.nn import functional

from dpaudit.checks import Finding


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """A loss of a user's, which no rule of the engine knows by name."""
    return functional.cross_entropy(outputs, targets, reduction="none")


def rule_names(findings: Iterable[Finding]) -> set[str]:
    """The rules of findings."""
    return {finding.rule.name for finding in findings}


def normal_numbers(*shape: int) -> Tensor:
    """The same standard normal numbers in each call."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def two_classes(count: int) -> tuple[Tensor, Tensor]:
    """Records with four features and random labels, the same in each call."""
    drawn = torch.Generator().manual_seed(3)
    return torch.randn(count, 4, generator=drawn), torch.randint(2, (count,), generator=drawn)


def binomial(trials: int, rate: float) -> NDArray[np.float64]:
    """Probabilities of 0..trials successes, with no help from the code under test."""
    k = np.arange(trials + 1)
    choose = gammaln(trials + 1) - gammaln(k + 1) - gammaln(trials - k + 1)
    return np.exp(choose + xlogy(k, rate) + xlogy(trials - k, 1 - rate))
