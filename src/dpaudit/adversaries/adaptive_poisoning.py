"""Adaptive poisoning: a new point at every step, made for the model as it stands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, final

from dpaudit import _validate
from dpaudit.adversaries.crafting import insertion_steps, the_points
from dpaudit.adversaries.poisoning import climb, drawn_points
from dpaudit.threat_models import (
    AdaptedPoints,
    AdaptiveAdversary,
    Canaries,
    CanaryPoints,
    Moment,
    StandardView,
)

if TYPE_CHECKING:
    import torch

    from dpaudit.mechanisms.dpsgd import DPSGD, Insertion


@final
@dataclass(frozen=True, kw_only=True)
class AdaptivePoisoning(AdaptiveAdversary):
    r"""Inserts at each step the point that the current model would learn most from.

    From a genuine point it climbs :math:`\|\nabla_\theta \ell(\theta_t; x, y)\|^2`, a double
    backward pass, within the range of the data: to first order that is what one step on the point
    takes off its loss. The score adds up what each step took off:
    :math:`\sum_t \ell(\theta_t; x_t) - \ell(\theta_{t+1}; x_t)`, over the insertion steps.

    See also: `Canife`, which also keeps out of the way of genuine gradients.

    Paper: Nasr et al., *Adversary instantiation* (S&P 2021), the adaptive poisoning adversary.

    Arguments:
        steps: How many steps to climb at every insertion, half a typical example's length in all.

    Example:
        >>> from dpaudit.mechanisms.dpsgd import Insertion
        >>> from dpaudit.presets import preset
        >>> training = preset("housing").training()
        >>> start = AdaptivePoisoning().craft(training, Insertion(), canaries=2, seed=0)
        >>> start.features.shape
        torch.Size([2, 8])
    """

    name: ClassVar[str] = "adaptive-poisoning"
    paper: ClassVar[str] = "Nasr et al. (S&P 2021): adaptive poisoning"
    year = 2021
    canary = "data point"

    steps: int = 3

    def __post_init__(self) -> None:
        _validate.integer("steps", self.steps, at_least=1)

    def craft(
        self, mechanism: DPSGD, insertion: Insertion, *, canaries: int, seed: int
    ) -> CanaryPoints:
        """Where every climb starts: different training points."""
        return drawn_points(mechanism, canaries, seed, adversary=self.name)

    def respond(self, moment: Moment, canaries: Canaries) -> AdaptedPoints:
        """Climb the squared norm of each point's gradient at each run's model."""
        from dpaudit.engine.evaluate import gradient_slope

        points, runs = the_points(canaries), len(moment.current)
        targets = points.targets.to(moment.current.device).expand(runs, -1)
        start = points.features.to(moment.current).expand(runs, *points.features.shape)
        slope = gradient_slope(
            moment.mechanism, moment.current, targets, lambda gradient: gradient.square().sum()
        )
        return AdaptedPoints(
            features=climb(moment.mechanism, start, slope, steps=self.steps, reach=0.5),
            targets=targets,
        )

    def score(self, view: StandardView, canaries: Canaries) -> torch.Tensor:
        """What the insertion steps took off the losses of their own points."""
        from dpaudit.engine.evaluate import losses

        mechanism, iterates = view.mechanism, view.iterates
        total = iterates.new_zeros(iterates.shape[1], canaries.count)
        for step in insertion_steps(view):
            moment = Moment(mechanism=mechanism, step=step, current=iterates[step])
            point = self.respond(moment, canaries)
            total += losses(mechanism, iterates[step], point.features, point.targets)
            total -= losses(mechanism, iterates[step + 1], point.features, point.targets)
        return total
