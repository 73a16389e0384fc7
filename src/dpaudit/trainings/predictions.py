"""Predictions on the canary: what a training returns in the black-box threat model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike

from dpaudit._arrays import Array
from dpaudit.errors import InvalidInput
from dpaudit.trainings.parameters import as_array

_SMALLEST = float(np.finfo(np.float64).tiny)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Predictions:
    r"""The predictions of the final model on the canary (black-box threat model).

    The score is :math:`\log p(y \mid x)`, the log-likelihood of the canary's label, which is higher
    for a model that was trained on the canary.

    See also: `dpaudit.audit_training`.

    Arguments:
        target: The label of each canary.
        probabilities: Predicted probabilities, shape (classes,) for one canary or (canaries,
            classes).
        logits: Instead of ``probabilities``: the inputs of the softmax.

    Example:
        >>> Predictions(probabilities=[0.1, 0.9], target=1).log_likelihood().round(4)
        array([-0.1054])
        >>> Predictions(logits=[[0.0, 0.0], [3.0, 3.0]], target=[0, 1]).log_likelihood().round(4)
        array([-0.6931, -0.6931])
    """

    target: ArrayLike
    probabilities: Any = None
    logits: Any = None

    def __post_init__(self) -> None:
        if (self.probabilities is None) == (self.logits is None):
            raise InvalidInput(
                "Predictions need exactly one of probabilities and logits, got "
                f"{'neither' if self.logits is None else 'both'}"
            )

    def log_likelihood(self) -> Array:
        """The log-likelihood of each canary's label."""
        given = self.logits if self.probabilities is None else self.probabilities
        table = np.atleast_2d(as_array(given))
        target = np.atleast_1d(as_array(self.target)).astype(np.int64)
        if table.ndim != 2 or len(table) != len(target):
            raise InvalidInput(
                "predictions must have one row of classes for each target, got shape "
                f"{table.shape} for {len(target)} targets"
            )
        classes = table.shape[1]
        if ((target < 0) | (target >= classes)).any():
            raise InvalidInput(f"target must be in 0 to {classes - 1}, got {self.target!r}")
        chosen: Array = table[np.arange(len(target)), target]
        if self.probabilities is None:
            from scipy.special import log_softmax  # slow to import, and few trainings need it

            chosen = log_softmax(table, axis=1)[np.arange(len(target)), target]
            return np.asarray(chosen)
        if (table < 0).any() or (np.abs(table.sum(axis=1) - 1) > 1e-3).any():
            raise InvalidInput(
                "probabilities must be at least 0 and sum to 1 in each row; for anything else give "
                "logits"
            )
        # A probability that underflowed to 0 has a very low score, not none.
        return np.asarray(np.log(np.maximum(chosen, _SMALLEST)))
