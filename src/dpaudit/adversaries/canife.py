"""CANIFE: a data point whose gradient is orthogonal to everybody else's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, final

from dpaudit import _validate
from dpaudit.adversaries.crafting import insertion_steps, released_sums, the_points
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
class Canife(AdaptiveAdversary):
    r"""Designs a point for each iterate whose gradient is long and orthogonal to genuine ones.

    It descends, from a training point under another label,

    .. math:: \sum_i \langle g(z), g_i \rangle^2 + \max(C - \|g(z)\|, 0)^2,
        \qquad g(z) = \nabla_\theta \ell(\theta_t; z),

    over the input :math:`z`, where :math:`g_i` are clipped gradients of a few training points. The
    score adds up :math:`\langle \mathrm{clip}(g(z_t)), \text{noisy sum}_t \rangle` over the
    insertion steps; genuine gradients are left in. A small model has no room for a gradient that is
    orthogonal to a whole batch, and what overlaps drowns the canary.

    See also: `AdaptivePoisoning`; `DiracGradient`, which needs no point behind its gradient.

    Paper: Maddock, Sablayrolles, Stock, *CANIFE: crafting canaries for empirical privacy
    measurement in federated learning* (ICLR 2023), Algorithm 1. There the canary is a client of
    federated learning and each round is audited on its own, in mock rounds of a frozen model; here
    it is one example, a run has one coin, and the rounds add up.

    Arguments:
        genuine: How many training points stand for everybody else.
        steps: How many steps to descend at every insertion, one typical example's length in all.

    Example:
        >>> Canife(genuine=8)
        Canife(genuine=8, steps=5)
    """

    name: ClassVar[str] = "canife"
    paper: ClassVar[str] = "Maddock et al. (ICLR 2023): CANIFE, Algorithm 1"
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
        """Where every design starts: training points under the next label."""
        drawn = drawn_points(mechanism, canaries, seed, adversary=self.name)
        return CanaryPoints(
            features=drawn.features, targets=(drawn.targets + 1) % mechanism.data.classes
        )

    def respond(self, moment: Moment, canaries: Canaries) -> AdaptedPoints:
        """Descend the design loss at each run's model."""
        import torch

        from dpaudit.engine.evaluate import clipped_gradients, gradient_slope
        from dpaudit.engine.starting_points import as_tensor

        mechanism, current = moment.mechanism, moment.current
        points, runs = the_points(canaries), len(current)
        others = torch.from_numpy(
            mechanism.batches.indices(moment.step, len(mechanism.data))[: self.genuine]
        )
        theirs = clipped_gradients(
            mechanism,
            current,
            as_tensor(mechanism.data.features)[others],
            as_tensor(mechanism.data.targets)[others],
        )

        def worth(gradient: torch.Tensor, theirs: torch.Tensor) -> torch.Tensor:
            short = torch.clamp(mechanism.clip_norm - gradient.norm(), min=0.0)
            return -(theirs @ gradient).square().sum() - short.square()

        targets = points.targets.to(current.device).expand(runs, -1)
        start = points.features.to(current).expand(runs, *points.features.shape)
        slope = gradient_slope(mechanism, current, targets, worth, theirs)
        return AdaptedPoints(
            features=climb(mechanism, start, slope, steps=self.steps, reach=1.0), targets=targets
        )

    def score(self, view: StandardView, canaries: Canaries) -> torch.Tensor:
        """The inner products of each step's canary with its noisy sum, added up."""
        import torch

        from dpaudit.engine.evaluate import clipped_gradients

        mechanism, iterates = view.mechanism, view.iterates
        total = iterates.new_zeros(iterates.shape[1], canaries.count)
        for step in insertion_steps(view):
            moment = Moment(mechanism=mechanism, step=step, current=iterates[step])
            point = self.respond(moment, canaries)
            gradients = clipped_gradients(mechanism, iterates[step], point.features, point.targets)
            total += torch.einsum("rcp,rp->rc", gradients, released_sums(view, [step]))
        return total
