"""Adaptive adversaries: a new point at every step, made for the current model of each run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from dpaudit import _validate
from dpaudit._torch import torch
from dpaudit.adversaries.crafting import the_points
from dpaudit.adversaries.points import climb, starting_examples
from dpaudit.adversaries.sums import insertion_steps, noisy_sums
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
            points = self.respond(moment, canaries)
            total += losses(mechanism, iterates[step], points.features, points.targets)
            total -= losses(mechanism, iterates[step + 1], points.features, points.targets)
        return total


@final
@dataclass(frozen=True, kw_only=True)
class Canife(AdaptiveAdversary):
    r"""Designs a point for each iterate whose gradient is long and orthogonal to genuine ones.

    From a training example with another label it minimises

    .. math:: \sum_i \langle g(z), g_i \rangle^2 + \max(C - \|g(z)\|, 0)^2,
        \qquad g(z) = \nabla_\theta \ell(\theta_t; z),

    over the input :math:`z`, where :math:`g_i` are clipped gradients of a few training examples.
    The score adds up :math:`\langle \mathrm{clip}(g(z_t)), \text{noisy sum}_t \rangle` over the
    insertion steps. Genuine gradients are not subtracted. In a small model no gradient is
    orthogonal to a whole batch, and the overlap hides the canary.

    See also: `AdaptivePoisoning`; `DiracGradient`, which inserts a gradient without an example.

    Paper: Maddock, Sablayrolles, Stock, *CANIFE: crafting canaries for empirical privacy
    measurement in federated learning* (ICLR 2023), Algorithm 1. There the canary is a client of
    federated learning and each round is audited separately, in mock rounds of a frozen model.
    Here it is one example, a run has one coin, and the rounds add up.

    Arguments:
        genuine: Number of training examples whose gradients the canary should avoid.
        steps: Number of descent steps at every insertion; together they move by the length of a
            typical example.
    """

    name = "canife"
    paper = "Maddock et al. (ICLR 2023): CANIFE, Algorithm 1"
    year = 2023
    canary = "data point"

    genuine: int = 16
    steps: int = 5

    def __post_init__(self) -> None:
        _validate.integer("genuine", self.genuine, at_least=1)
        _validate.integer("steps", self.steps, at_least=1)

    def craft(
        self, mechanism: DPSGD, insertion: Insertion, *, canaries: int, seed: int
    ) -> CanaryPoints:
        """The starting points: training examples with the next label, if there are classes."""
        drawn = starting_examples(mechanism, canaries, seed, self.name)
        classes = mechanism.data.classes
        targets = drawn.targets if classes is None else (drawn.targets + 1) % classes
        return CanaryPoints(features=drawn.features, targets=targets)

    def respond(self, moment: Moment, canaries: Canaries) -> AdaptedPoints:
        """Minimise the design loss at each run's model."""
        from dpaudit.engine.evaluate import clipped_gradients, gradient_slope, repeated
        from dpaudit.engine.starting_points import as_tensor

        mechanism, current = moment.mechanism, moment.current
        chosen = torch.from_numpy(
            mechanism.batches.indices(moment.step, len(mechanism.data))[: self.genuine]
        )
        genuine = clipped_gradients(
            mechanism,
            current,
            as_tensor(mechanism.data.features)[chosen],
            as_tensor(mechanism.data.targets)[chosen],
        )

        def worth(gradient: torch.Tensor, genuine: torch.Tensor) -> torch.Tensor:
            short = torch.clamp(mechanism.clip_norm - gradient.norm(), min=0.0)
            return -(genuine @ gradient).square().sum() - short.square()

        start, targets = repeated(the_points(canaries), current)
        slope = gradient_slope(mechanism, current, targets, worth, genuine)
        return AdaptedPoints(
            features=climb(mechanism, start, slope, steps=self.steps, reach=1.0), targets=targets
        )

    def score(self, view: StandardView, canaries: Canaries) -> torch.Tensor:
        """The inner products of each step's canary with its noisy sum, added up."""
        from dpaudit.engine.evaluate import clipped_gradients

        mechanism, iterates = view.mechanism, view.iterates
        total = iterates.new_zeros(iterates.shape[1], canaries.count)
        for step, noisy in enumerate(noisy_sums(view)):
            if not view.insertion.at(step):
                continue
            moment = Moment(mechanism=mechanism, step=step, current=iterates[step])
            points = self.respond(moment, canaries)
            gradients = clipped_gradients(
                mechanism, iterates[step], points.features, points.targets
            )
            total += torch.einsum("rcp,rp->rc", gradients, noisy)
        return total
