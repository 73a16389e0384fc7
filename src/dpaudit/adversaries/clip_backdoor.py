"""ClipBKD: a backdoor along the direction in which the data varies least."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from dpaudit import _validate
from dpaudit._torch import torch
from dpaudit.adversaries.crafting import require_real_features, the_points
from dpaudit.errors import InvalidInput
from dpaudit.mechanisms.dpsgd import DPSGD, Insertion
from dpaudit.threat_models import BlackBoxAdversary, BlackBoxView, Canaries, CanaryPoints


@final
@dataclass(frozen=True, kw_only=True)
class ClipBackdoor(BlackBoxAdversary):
    r"""Inserts a point along the last singular vector of the data, with the least likely label.

    Genuine gradients hardly have a component in that direction, so they do not hide the backdoor.
    The point has the length of a typical example. The score is how much the backdoor raises the
    output of its label, :math:`(f(x) - f(0))_y`. Several canaries take the last singular vectors,
    one each.

    See also: `SimulatedDimension`, the same idea for crafted gradients.

    Paper: Jagielski, Ullman, Oprea, *Auditing differentially private machine learning* (NeurIPS
    2020), section 4, ClipBKD. There :math:`k` copies of the point are in the data; here one is
    inserted at each insertion step.

    Example:
        >>> from dpaudit.presets import preset
        >>> training = preset("housing").training(steps=5)
        >>> crafted = ClipBackdoor().craft(training, Insertion(), canaries=2, seed=0)
        >>> abs(float(crafted.features[0] @ crafted.features[1])) < 1e-4
        True
    """

    name = "clipbkd"
    paper = "Jagielski et al. (NeurIPS 2020): ClipBKD"
    year = 2020
    canary = "data point"

    def craft(
        self, mechanism: DPSGD, insertion: Insertion, *, canaries: int, seed: int
    ) -> CanaryPoints:
        """The last singular vectors, each with the least likely label under a trained model."""
        from dpaudit.engine.evaluate import outputs
        from dpaudit.engine.simulation import simulate

        data = mechanism.data
        _validate.integer("canaries", canaries, at_least=1)
        require_real_features(mechanism, self.name)
        if data.classes is None or data.targets.ndim != 1:
            raise InvalidInput(f"data must have one class each for {self.name}, got {data!r}")
        flat = data.features.reshape(len(data), -1).astype(np.float64)
        if canaries > flat.shape[1]:
            raise InvalidInput(
                f"canaries must be at most the number of features ({flat.shape[1]}), got {canaries}"
            )
        _, vectors = np.linalg.eigh(flat.T @ flat)  # smallest eigenvalues first
        chosen = vectors[:, :canaries].T
        # The sign of a singular vector is arbitrary: make its largest coordinate positive.
        largest = np.abs(chosen).argmax(axis=1, keepdims=True)
        chosen = chosen * np.sign(np.take_along_axis(chosen, largest, axis=1))
        points = chosen * np.linalg.norm(flat, axis=1).mean()
        features = torch.from_numpy(
            points.reshape(canaries, *data.features.shape[1:]).astype(np.float32)
        )
        trained = simulate(mechanism, noisy=False, runs=1, seed=seed).models[:1]
        return CanaryPoints(
            features=features, targets=outputs(mechanism, trained, features)[0].argmin(1)
        )

    def queries(self, mechanism: DPSGD, canaries: Canaries) -> CanaryPoints:
        """The canaries, and the origin with each of their labels."""
        points = the_points(canaries)
        return CanaryPoints(
            features=torch.cat([points.features, torch.zeros_like(points.features)]),
            targets=torch.cat([points.targets, points.targets]),
        )

    def score(self, view: BlackBoxView, canaries: Canaries) -> torch.Tensor:
        """How much each backdoor raises the output of its label."""
        points = the_points(canaries)
        lifted = view.outputs[:, : points.count] - view.outputs[:, points.count :]
        labels = points.targets.to(lifted.device).expand(len(lifted), -1)
        return lifted.gather(2, labels.unsqueeze(2)).squeeze(2)
