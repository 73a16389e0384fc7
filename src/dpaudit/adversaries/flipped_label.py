"""A_L: a mislabelled example, detected by its loss. The baseline for other adversaries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from dpaudit._torch import torch
from dpaudit.adversaries.crafting import drawn_indices, generator, the_points, wrong_targets
from dpaudit.mechanisms.dpsgd import DPSGD, Insertion
from dpaudit.threat_models import Canaries, CanaryPoints, HiddenStateAdversary, HiddenStateView


@final
@dataclass(frozen=True, kw_only=True)
class FlippedLabel(HiddenStateAdversary):
    r"""Inserts a training example with a wrong label.

    The score is minus the loss of the final model on it, so the initialisation need not be known.
    The example is drawn at random, and so is its wrong label if there are more than two classes.
    In a sequence every token gets a wrong label; in regression the target is the end of its range
    that is farther away. Several canaries are different examples.

    See also: `RandomDimension`, which does not depend on the model's gradient of an example.

    Paper: the loss-based adversary of Nasr et al., *Adversary instantiation* (S&P 2021); A_L in
    Cebere, Bellet, Papernot (ICLR 2025), section 5.1.

    Example:
        >>> from dpaudit.presets import preset
        >>> training = preset("housing").training()
        >>> canaries = FlippedLabel().craft(training, Insertion(), canaries=2, seed=0)
        >>> tuple(canaries.features.shape)
        (2, 8)
    """

    name = "flipped-label"
    paper = "Nasr et al. (USENIX Security 2023): Algorithm 1; Cebere et al. (ICLR 2025): A_L"
    year = 2023
    canary = "data point"

    def craft(
        self, mechanism: DPSGD, insertion: Insertion, *, canaries: int, seed: int
    ) -> CanaryPoints:
        """Draw ``canaries`` different training examples, and a wrong label for each."""
        data, random = mechanism.data, generator(seed)
        chosen = drawn_indices(mechanism, canaries, random)
        wrong = wrong_targets(mechanism, chosen, random, self.name)
        return CanaryPoints(
            features=torch.from_numpy(data.features[chosen]), targets=torch.from_numpy(wrong)
        )

    def score(self, view: HiddenStateView, canaries: Canaries) -> torch.Tensor:
        """Minus the loss of each final model on each canary."""
        from dpaudit.engine.evaluate import losses

        points = the_points(canaries)
        return -losses(view.mechanism, view.final, points.features, points.targets)
