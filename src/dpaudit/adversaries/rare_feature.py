"""A data point with a feature that no training example has, or the fewest."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from dpaudit import _validate
from dpaudit._torch import torch
from dpaudit.adversaries.crafting import generator, movement, the_points
from dpaudit.errors import InvalidInput
from dpaudit.mechanisms.dpsgd import DPSGD, Insertion
from dpaudit.threat_models import Canaries, CanaryPoints, HiddenStateAdversary, HiddenStateView

_LARGEST_POWER = 20


@final
@dataclass(frozen=True, kw_only=True)
class RareFeature(HiddenStateAdversary):
    r"""Inserts a record whose only feature is the rarest: at best it is 0 in all examples.

    Such features are common in one-hot and bag-of-words data. The record is clipped like any other;
    its value is chosen such that its gradient at the start is at least twice the clipping norm, so
    that it fills the clipping norm for the whole training. If no example has the feature, nothing
    but noise disturbs what the record leaves there: for Lipschitz updates this attains the upper
    bound of the hidden state. On dense data, curvature forgets it, and the bound is not attained.

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
        """Choose the ``canaries`` rarest features, and a value and a label for each."""
        from dpaudit.engine.mechanism_check import check_mechanism

        _validate.integer("canaries", canaries, at_least=1)
        check_mechanism(mechanism)  # before the model is used
        data = mechanism.data
        if data.classes is None:
            raise InvalidInput(
                "data must have classes for rare-feature, got real targets; choose another "
                "adversary, such as random-dimension"
            )
        counts = np.count_nonzero(data.features.reshape(len(data), -1), axis=0)
        if canaries > len(counts):
            raise InvalidInput(
                f"canaries must be at most the number of features ({len(counts)}), got {canaries}"
            )
        # The rarest first; equally rare ones in random order.
        order = generator(seed).permutation(len(counts))
        chosen = order[np.argsort(counts[order], kind="stable")][:canaries]
        points = np.zeros((canaries, len(counts)), dtype=np.float32)
        labels = np.zeros(canaries, dtype=np.int64)
        for row, column in enumerate(chosen.tolist()):
            points[row, column], labels[row] = _value_and_label(mechanism, column, data.classes)
        return CanaryPoints(
            features=torch.from_numpy(points.reshape(canaries, *data.features.shape[1:])),
            targets=torch.from_numpy(labels),
        )

    def score(self, view: HiddenStateView, canaries: Canaries) -> torch.Tensor:
        """The movement of each run against each canary's gradient at the start."""
        points = the_points(canaries)
        directions = _gradients(view.mechanism, points.features, points.targets)
        return -(movement(view) @ directions.to(view.final).T) / view.mechanism.clip_norm


def _value_and_label(mechanism: DPSGD, column: int, classes: int) -> tuple[float, int]:
    """The smallest power of two, and its label, whose gradient has norm 2C or more."""
    shape = mechanism.data.features.shape[1:]
    wide = dataclasses.replace(mechanism, clip_norm=2 * mechanism.clip_norm, smoothness=None)
    for power in range(_LARGEST_POWER + 1):
        points = torch.zeros(classes, math.prod(shape))
        points[:, column] = 2.0**power
        gradients = _gradients(wide, points.reshape(classes, *shape), torch.arange(classes))
        norms = gradients.norm(dim=1)
        if norms.max() > (1 - 1e-5) * wide.clip_norm:
            return 2.0**power, int(norms.argmax())
    raise InvalidInput(
        f"feature {column} does not move the model: its gradient stays below twice the clipping "
        f"norm ({mechanism.clip_norm:g}) up to a value of {2.0**_LARGEST_POWER:g}"
    )


def _gradients(mechanism: DPSGD, features: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The clipped gradients of the points at the starting model, shape (points, parameters)."""
    from dpaudit.engine.evaluate import clipped_gradients
    from dpaudit.engine.starting_points import flat_parameters, known_model

    start = flat_parameters(known_model(mechanism)).unsqueeze(0)
    return clipped_gradients(mechanism, start, features.cpu(), targets.cpu())[0]
