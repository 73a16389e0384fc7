"""Adaptive poisoning: a new point at every step, made for the current model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from dpaudit import _validate
from dpaudit._torch import torch
from dpaudit.adversaries.crafting import insertion_steps, the_points
from dpaudit.adversaries.poisoning import climb, starting_examples
from dpaudit.mechanisms.dpsgd import DPSGD, Insertion
from dpaudit.threat_models import (
    AdaptedPoints,
    AdaptiveAdversary,
    Canaries,
    CanaryPoints,
    Moment,
    StandardView,
)


@final
@dataclass(frozen=True, kw_only=True)
class AdaptivePoisoning(AdaptiveAdversary):
    r"""Inserts at each step the point with the largest gradient at the current model.

    From a training example it increases :math:`\|\nabla_\theta \ell(\theta_t; x, y)\|^2` by a
    double backward pass, within the range of the data. To first order this is how much one step
    on the point lowers its loss. The score adds up how much each insertion step lowered it:
    :math:`\sum_t \ell(\theta_t; x_t) - \ell(\theta_{t+1}; x_t)`.

    See also: `Canife`, which also avoids genuine gradients.

    Paper: Nasr et al., *Adversary instantiation* (S&P 2021), the adaptive poisoning adversary.

    Arguments:
        steps: Number of ascent steps at every insertion; together they move by half the length of
            a typical example.

    Example:
        >>> from dpaudit.presets import preset
        >>> training = preset("housing").training()
        >>> start = AdaptivePoisoning().craft(training, Insertion(), canaries=2, seed=0)
        >>> start.features.shape
        torch.Size([2, 8])
    """

    name = "adaptive-poisoning"
    paper = "Nasr et al. (S&P 2021): adaptive poisoning"
    year = 2021
    canary = "data point"

    steps: int = 3

    def __post_init__(self) -> None:
        _validate.integer("steps", self.steps, at_least=1)

    def craft(
        self, mechanism: DPSGD, insertion: Insertion, *, canaries: int, seed: int
    ) -> CanaryPoints:
        """The starting points: different training examples."""
        return starting_examples(mechanism, canaries, seed, self.name)

    def respond(self, moment: Moment, canaries: Canaries) -> AdaptedPoints:
        """Increase the squared norm of each point's gradient at each run's model."""
        from dpaudit.engine.evaluate import gradient_slope, repeated

        start, targets = repeated(the_points(canaries), moment.current)
        slope = gradient_slope(
            moment.mechanism, moment.current, targets, lambda gradient: gradient.square().sum()
        )
        return AdaptedPoints(
            features=climb(moment.mechanism, start, slope, steps=self.steps, reach=0.5),
            targets=targets,
        )

    def score(self, view: StandardView, canaries: Canaries) -> torch.Tensor:
        """How much the insertion steps lowered the losses of their own points."""
        from dpaudit.engine.evaluate import losses

        mechanism, iterates = view.mechanism, view.iterates
        total = iterates.new_zeros(iterates.shape[1], canaries.count)
        for step in insertion_steps(view):
            moment = Moment(mechanism=mechanism, step=step, current=iterates[step])
            point = self.respond(moment, canaries)
            total += losses(mechanism, iterates[step], point.features, point.targets)
            total -= losses(mechanism, iterates[step + 1], point.features, point.targets)
        return total
