"""The noisy gradients of a training, as evidence in an audit.

The final parameters of an adaptive optimizer say little about one canary. The noisy gradients say
everything that the accountant assumes an adversary to see: every step of the Gaussian mechanism.
"""

from __future__ import annotations

from typing import Any, final

import numpy as np

from dpaudit import _validate
from dpaudit._arrays import Array
from dpaudit.errors import InvalidInput


@final
class PrivateGradients:
    r"""Projections of every noisy gradient on every canary, inserted or not.

    A training returns this object in place of its parameters. The threat model is the standard one:
    the adversary sees every step. The score of a canary is the log-likelihood ratio of its
    projections :math:`x_t` (in units of C): for a canary in every step :math:`\sum_t x_t` up to
    constants, for one that is sampled with rate :math:`q` :math:`\sum_t \log(1 - q + q
    e^{(x_t - 1/2) / \sigma^2})`. If every canary has a step of its own, its score is the projection
    in that step: each is then one trial of a single Gaussian mechanism, and one training of T steps
    gives T of them.

    See also: `dpaudit.integrations.opacus.insert_canary`, which records one;
    `GradientCanary.score`, for the final parameters.

    Paper: Nasr et al. (USENIX Security 2023), Algorithm 1, scores the gradient of every step.

    Arguments:
        count: Number of canaries.
        noise_multiplier: The claimed sigma; only used if canaries are sampled.
        sampling_rate: Probability that a canary takes part in a step.
        own_step: Whether canary ``i`` takes part in step ``i`` only, counted from 0.

    Example:
        >>> gradients = PrivateGradients(count=2)
        >>> gradients.record([1.0, 0.1])
        >>> gradients.record([0.9, -0.2])
        >>> gradients.scores().round(3)
        array([ 1.344, -0.071])
    """

    def __init__(
        self,
        *,
        count: int = 1,
        noise_multiplier: float | None = None,
        sampling_rate: float = 1.0,
        own_step: bool = False,
    ) -> None:
        self.count = _validate.integer("count", count, at_least=1)
        self._sigma = noise_multiplier
        self._rate = _validate.between("sampling_rate", sampling_rate, 0, 1, closed_high=True)
        self._own_step = own_step
        self._projections: list[Array] = []

    def record(self, projections: Any) -> None:
        """Add the projections of one noisy gradient, one for each canary, in units of C."""
        row = np.asarray(projections, dtype=np.float64)
        if row.shape != (self.count,):
            raise InvalidInput(
                f"projections must be one number for each of the {self.count} canaries, got shape "
                f"{row.shape}"
            )
        self._projections.append(row)

    @property
    def steps(self) -> int:
        """Number of recorded steps."""
        return len(self._projections)

    @property
    def projections(self) -> Array:
        """All projections: one row per step, one column per canary."""
        return np.stack(self._projections) if self.steps else np.zeros((0, self.count))

    def scores(self) -> Array:
        """One score per canary; higher for a canary that was inserted."""
        if not self.steps:
            raise InvalidInput(
                "no noisy gradient was recorded: the training made no step of the private optimizer"
            )
        seen = self.projections
        if self._own_step:
            if self.steps < self.count:
                raise InvalidInput(
                    f"the training made {self.steps} steps, too few for {self.count} canaries with "
                    f"a step each; draw at most {self.steps} canaries"
                )
            return np.diagonal(seen).copy()
        if self._rate >= 1 or not self._sigma:
            total: Array = seen.sum(axis=0) / np.sqrt(self.steps)
            return total
        ratios = (seen - 0.5) / self._sigma**2
        likelihood: Array = np.logaddexp(np.log1p(-self._rate), np.log(self._rate) + ratios).sum(
            axis=0
        )
        return likelihood

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return self.scores() if dtype is None else self.scores().astype(dtype)

    def __repr__(self) -> str:
        return f"PrivateGradients({self.steps} steps, {self.count} canaries)"
