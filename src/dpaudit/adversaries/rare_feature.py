"""A data point with a feature that no training example has."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, final

import numpy as np

from dpaudit import _validate
from dpaudit.adversaries.crafting import generator, movement, the_points
from dpaudit.errors import InvalidInput
from dpaudit.threat_models import Canaries, CanaryPoints, HiddenStateAdversary, HiddenStateView

if TYPE_CHECKING:
    import torch

    from dpaudit.mechanisms.dpsgd import DPSGD, Insertion

_LARGEST = 2.0**20


@final
@dataclass(frozen=True, kw_only=True)
class RareFeature(HiddenStateAdversary):
    r"""Inserts a record whose only feature is one that is 0 in all training examples.

    Such features are common in one-hot and bag-of-words data. The record is clipped like any other;
    its value is chosen such that its gradient at the start is at least twice the clipping norm, so
    that it fills the clipping norm for the whole training. The examples do not move in that
    direction, so that nothing but noise disturbs what the record leaves there: for Lipschitz updates
    this attains the upper bound of the hidden state.

    The score is the movement of the parameters against the record's gradient at the start.

    See also: `RandomDimension`, which inserts a gradient and no data point.

    Example:
        >>> from dpaudit.mechanisms.dpsgd import Insertion
        >>> from dpaudit.presets import preset
        >>> training = preset("logistic").training()
        >>> canaries = RareFeature().craft(training, Insertion(), canaries=1, seed=0)
        >>> int((canaries.features != 0).sum())
        1
    """

    name: ClassVar[str] = "rare-feature"
    paper: ClassVar[str] = "dpaudit (2026), after Cebere, Bellet, Papernot (ICLR 2025): A_GC"
    year = 2026
    canary = "data point"

    def craft(
        self, mechanism: DPSGD, insertion: Insertion, *, canaries: int, seed: int
    ) -> CanaryPoints:
        """Draw ``canaries`` different unused features, and a value and a label for each."""
        import torch

        _validate.integer("canaries", canaries, at_least=1)
        shape = mechanism.data.features.shape[1:]
        used = np.any(mechanism.data.features.reshape(len(mechanism.data), -1) != 0, axis=0)
        unused = np.flatnonzero(~used)
        if canaries > len(unused):
            raise InvalidInput(
                f"canaries must be at most the number of features that are 0 in every example "
                f"({len(unused)}), got {canaries}; choose another adversary, such as "
                "random-dimension"
            )
        chosen = generator(seed).choice(unused, size=canaries, replace=False)
        points = np.zeros((canaries, used.size), dtype=np.float32)
        labels = np.zeros(canaries, dtype=np.int64)
        for row, column in enumerate(chosen.tolist()):
            points[row, column], labels[row] = self._value_and_label(mechanism, column, used.size)
        return CanaryPoints(
            features=torch.from_numpy(points.reshape(canaries, *shape)),
            targets=torch.from_numpy(labels),
        )

    def _value_and_label(self, mechanism: DPSGD, column: int, size: int) -> tuple[float, int]:
        """The smallest power of two, and its label, whose gradient has norm 2C or more."""
        import torch

        classes = mechanism.data.classes or 1
        shape = mechanism.data.features.shape[1:]
        value = 1.0
        while value <= _LARGEST:
            points = torch.zeros(classes, size)
            points[:, column] = value
            gradients = _gradients(
                dataclasses.replace(mechanism, clip_norm=2 * mechanism.clip_norm),
                points.reshape(classes, *shape),
                torch.arange(classes),
            )
            norms = gradients.norm(dim=1) / (2 * mechanism.clip_norm)
            if norms.max() > 1 - 1e-5:
                return value, int(norms.argmax())
            value *= 2
        raise InvalidInput(
            f"feature {column} does not move the model: its gradient stays below twice the "
            f"clipping norm ({mechanism.clip_norm:g}) up to a value of {_LARGEST:g}"
        )

    def score(self, view: HiddenStateView, canaries: Canaries) -> torch.Tensor:
        """The movement of each run against each canary's gradient at the start."""
        points = the_points(canaries)
        directions = _gradients(view.mechanism, points.features, points.targets)
        return -(movement(view) @ directions.to(view.final).T) / view.mechanism.clip_norm


def _gradients(
    mechanism: DPSGD, features: torch.Tensor, targets: torch.Tensor
) -> torch.Tensor:
    """The clipped gradients of the points at the starting model, shape (points, parameters)."""
    from dpaudit.engine.evaluate import clipped_gradients
    from dpaudit.engine.starting_points import flat_parameters, known_model

    start = flat_parameters(known_model(mechanism)).unsqueeze(0)
    return clipped_gradients(mechanism, start, features.cpu(), targets.cpu())[0]
