r"""Standard adversaries that insert a gradient and look for it in the noisy sum of every step.

In the standard threat model the iterates, the learning rates and the optimizer are public, so the
noisy sums can be recovered from the iterates. SGD, with or without momentum, is inverted exactly.
Adam divides by the root of a mean of squares, so a common factor of all gradients of a coordinate
cannot be seen; it is chosen such that the recovered gradients have the size of the noise and, if
they are known, of the genuine gradients.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, final

import numpy as np

from dpaudit import _validate
from dpaudit._torch import torch
from dpaudit.adversaries.crafting import (
    check_room,
    drawn_dimensions,
    least_moved,
    of_kind,
    parameter_count,
)
from dpaudit.adversaries.dimensions import drawn_directions
from dpaudit.errors import InvalidInput
from dpaudit.mechanisms.dpsgd import DPSGD, Insertion
from dpaudit.mechanisms.optimizers import SGD, Adam, ConstantRate
from dpaudit.threat_models import (
    Canaries,
    ChoosesData,
    CraftedDimensions,
    CraftedGradients,
    StandardAdversary,
    StandardView,
)

if TYPE_CHECKING:
    Genuine = Callable[[int], torch.Tensor]


@final
@dataclass(frozen=True, kw_only=True)
class DiracGradient(StandardAdversary):
    r"""Inserts :math:`C e_d` and looks for it in the noisy sum of every insertion step.

    The iterates and the batches are public, so the genuine part of each sum is computed and
    subtracted; the canary and the noise remain. The score adds this up over the :math:`n` insertion
    steps. It is normal with the accountant's :math:`\mu = \sqrt n/\sigma` for every model, data
    set and insertion period, with any momentum and schedule. Adam shows each sum only up to a
    factor (see `noisy_sums`), which costs little after the first steps.

    Without subtraction this is the adversary ``one-run-white-box``, of which `OneRunWhiteBox`
    makes one.

    See also: `RandomDimension`, the same canary in the hidden state threat model; the bounds
    ``one-run`` and ``one-run-fdp``, for many canaries in one run.

    Paper: Nasr et al., *Tight auditing of differentially private machine learning* (USENIX
    Security 2023), Algorithm 2, with its Dirac canary. There each step has its own coin and the
    audits of single steps are composed; here a run has one coin and the steps add up. Without
    subtraction: Steinke, Nasr, Jagielski, *Privacy auditing with one (1) training run* (NeurIPS
    2023), the DP-SGD auditor with ``audit-type = whitebox``, with Dirac canaries.

    Arguments:
        subtract: Whether to subtract the genuine part, which costs as much as the training.
            Without it, and with a canary at every step, the sum telescopes to
            :math:`\theta_0 - \theta_T`: the iterates then show no more than the final model.

    Example:
        >>> DiracGradient().name, DiracGradient(subtract=False).name
        ('dirac-gradient', 'one-run-white-box')
    """

    name = "dirac-gradient"
    paper = "Nasr et al. (USENIX Security 2023): Algorithm 2"
    year = 2023
    canary = "gradient"

    subtract: bool = True

    def __post_init__(self) -> None:
        if not self.subtract:
            object.__setattr__(self, "name", "one-run-white-box")
            object.__setattr__(self, "paper", "Steinke et al. (NeurIPS 2023): white box")

    def craft(
        self, mechanism: DPSGD, insertion: Insertion, *, canaries: int, seed: int
    ) -> CraftedDimensions:
        """Draw ``canaries`` different dimensions."""
        return drawn_dimensions(mechanism, canaries, seed)

    def score(self, view: StandardView, canaries: Canaries) -> torch.Tensor:
        """Inner products with the noisy sums of the insertion steps, less the genuine part."""
        from dpaudit.engine.evaluate import GenuineSums

        if not self.subtract:
            return released_along(view, canaries)
        weights, genuine = step_weights(view), GenuineSums(view.mechanism, view.iterates)
        return along(canaries, released_sums(view, weights, genuine) - genuine.total(weights))


OneRunWhiteBox = functools.partial(DiracGradient, subtract=False)
"""`DiracGradient` without subtraction, the white-box auditor of one training run."""


@final
@dataclass(frozen=True, kw_only=True)
class GradientAttack(StandardAdversary):
    r"""Inserts :math:`C/\sqrt w` in each of the :math:`w` dimensions that a simulation moved least.

    The score is the inner product of the canary with the noisy sums of the insertion steps. Several
    canaries have different dimensions.

    See also: `SimulatedDimension`, the same idea in the hidden state threat model;
    `MaliciousData`, which removes genuine gradients altogether.

    Paper: Nasr et al., *Adversary instantiation* (S&P 2021), the gradient attack. There the
    gradient is chosen at every step; here once, by simulation.

    Arguments:
        width: Number of dimensions :math:`w` of each canary.
    """

    name = "gradient-attack"
    paper = "Nasr et al. (S&P 2021): gradient attack"
    year = 2021
    canary = "gradient"

    width: int = 2

    def __post_init__(self) -> None:
        _validate.integer("width", self.width, at_least=1)

    def craft(
        self, mechanism: DPSGD, insertion: Insertion, *, canaries: int, seed: int
    ) -> CraftedGradients:
        """Take the least-moved dimensions of a noiseless simulation, ``width`` for each canary."""
        parameters = parameter_count(mechanism, canaries=canaries)
        check_room(canaries, parameters // self.width, "parameters divided by the width")
        order = least_moved(mechanism, canaries, seed)
        dimensions = order[: canaries * self.width].view(canaries, self.width)
        gradients = torch.zeros(canaries, parameters)
        gradients.scatter_(1, dimensions, mechanism.clip_norm / math.sqrt(self.width))
        return CraftedGradients(gradients=gradients)

    def score(self, view: StandardView, canaries: Canaries) -> torch.Tensor:
        """Inner products with the noisy sums of the insertion steps."""
        return released_along(view, canaries)


@final
@dataclass(frozen=True, kw_only=True)
class MaliciousData(StandardAdversary, ChoosesData):
    r"""Trains on blank examples and inserts :math:`C e_d` where they have no gradient.

    All features are 0, so the weights that multiply them have no genuine gradient: the noisy sum
    there is the canary plus the noise. The score adds this up over the :math:`n` insertion steps.
    It is normal with the accountant's :math:`\mu = \sqrt n/\sigma` for every model and insertion
    period. Several canaries take a dimension each; those beyond the weights without a gradient
    have no advantage.

    See also: `GradientAttack`, for the unchanged data.

    Paper: Nasr et al., *Adversary instantiation* (S&P 2021), the malicious data set. There the
    adversary also chooses learning rate and batches; here they stay those of the mechanism, and so
    does the upper bound.
    """

    name = "malicious-data"
    paper = "Nasr et al. (S&P 2021): malicious data set"
    year = 2021
    canary = "gradient"

    def prepare(self, mechanism: DPSGD) -> DPSGD:
        """The same training on blank examples."""
        data = mechanism.data
        blank = replace(data, features=np.zeros_like(data.features), name=f"blank {data.name}")
        return replace(mechanism, data=blank)

    def craft(
        self, mechanism: DPSGD, insertion: Insertion, *, canaries: int, seed: int
    ) -> CraftedDimensions:
        """Take the dimensions that a noiseless simulation moved least."""
        order = least_moved(mechanism, canaries, seed)
        return CraftedDimensions(dimensions=order[:canaries].clone(), norm=mechanism.clip_norm)

    def score(self, view: StandardView, canaries: Canaries) -> torch.Tensor:
        """Inner products with the noisy sums of the insertion steps."""
        return released_along(view, canaries)


@final
@dataclass(frozen=True, kw_only=True)
class OneShotIterates(StandardAdversary):
    r"""Inserts :math:`C u`, :math:`u` uniform on the sphere, and scores by the largest cosine.

    The score is :math:`\max_t \cos(u, \theta_t - \theta_{t+1})` over the insertion steps. The
    maximum discards most steps. It suits clients that participate once; for a canary at every
    step a sum is better.

    See also: `RandomDirection`, the same canary with the final model only (their Algorithm 2);
    the estimator ``gaussian-fit``, which fits a normal distribution to the scores as they do.

    Paper: Andrew et al., *One-shot empirical privacy estimation for federated learning* (ICLR
    2024; arXiv 2023), Algorithm 3.
    """

    name = "one-shot-iterates"
    paper = "Andrew et al. (arXiv 2023, ICLR 2024): Algorithm 3"
    year = 2023
    canary = "gradient"

    def craft(
        self, mechanism: DPSGD, insertion: Insertion, *, canaries: int, seed: int
    ) -> CraftedGradients:
        """Draw ``canaries`` independent directions."""
        return drawn_directions(mechanism, canaries, seed)

    def score(self, view: StandardView, canaries: Canaries) -> torch.Tensor:
        """The largest cosine of each canary with the noisy sum of an insertion step."""
        from torch.nn.functional import normalize

        gradients = of_kind(canaries, CraftedGradients).gradients
        directions = normalize(gradients.to(view.iterates), dim=1)
        best = view.iterates.new_full((view.iterates.shape[1], canaries.count), -1.0)
        for step, noisy in enumerate(noisy_sums(view)):
            if view.insertion.at(step):
                best = torch.maximum(best, normalize(noisy, dim=1) @ directions.T)
        return best


# What was released


def insertion_steps(view: StandardView) -> list[int]:
    """The played steps at which a canary may have been inserted."""
    return [step for step in range(len(view.iterates) - 1) if view.insertion.at(step)]


def step_weights(view: StandardView) -> dict[int, float]:
    """The weight of each step's noisy sum in the score of a canary in the insertion steps.

    Independent noise: 1 for insertion steps. Correlated noise: the weights of the whitened sums.
    """
    used, correlation = insertion_steps(view), view.mechanism.correlation
    if correlation is None:
        return dict.fromkeys(used, 1.0)
    weights = correlation.weights(used, steps=len(view.iterates) - 1)
    return dict(enumerate(weights.tolist()))


def released_sums(
    view: StandardView, weights: Mapping[int, float], genuine: Genuine | None = None
) -> torch.Tensor:
    r"""The noisy sums of the steps in ``weights``, added up, shape (runs, parameters).

    For plain DP-SGD they are :math:`\sum_t \frac{B}{\eta} ((1 - \eta\lambda) \theta_t -
    \theta_{t+1})`. Other optimizers are inverted by `noisy_sums`.

    The weights are those of `step_weights`; ``genuine`` gives that part of a step's sum, if known.
    """
    mechanism, iterates = view.mechanism, view.iterates
    total = iterates.new_zeros(iterates.shape[1:])
    if not (mechanism.optimizer == SGD() and mechanism.schedule == ConstantRate()):
        for step, noisy in enumerate(noisy_sums(view, genuine)):
            total += weights[step] * noisy if step in weights else 0
        return total
    size = mechanism.batches.expected_size(len(mechanism.data))
    shrink = 1 - mechanism.learning_rate * mechanism.weight_decay
    for step, weight in weights.items():
        total = total + weight * (shrink * iterates[step] - iterates[step + 1])
    return total * (size / mechanism.learning_rate)


def along(canaries: Canaries, vectors: torch.Tensor) -> torch.Tensor:
    """The inner product of every vector (runs, parameters) with every crafted gradient."""
    if isinstance(canaries, CraftedDimensions):
        return canaries.norm * vectors[:, canaries.dimensions.to(vectors.device)]
    return vectors @ of_kind(canaries, CraftedGradients).gradients.to(vectors).T


def released_along(view: StandardView, canaries: Canaries) -> torch.Tensor:
    """The inner products of the crafted gradients with the noisy sums of the insertion steps."""
    return along(canaries, released_sums(view, step_weights(view)))


_ROUNDS = 6  # of the fixed-point iteration for one step of Adam; the error shrinks tenfold in each
_EARLY = 10  # steps in which that iteration is damped
_FARTHEST = 8.0  # standard deviations of the noise


def noisy_sums(view: StandardView, genuine: Genuine | None = None) -> Iterator[torch.Tensor]:
    """The noisy sum of every step, shape (runs, parameters).

    ``genuine`` gives that part of a step's sum, if known; it improves the scale for Adam.
    """
    mechanism = view.mechanism
    size = mechanism.batches.expected_size(len(mechanism.data))
    directions = _directions(view, size)
    match mechanism.optimizer:
        case SGD(momentum=momentum, nesterov=nesterov):
            return _from_momentum(directions, momentum, nesterov) if momentum else directions
        case Adam():
            return _from_adam(view, mechanism.optimizer, size, genuine)
        case other:
            raise InvalidInput(f"optimizer must be SGD or Adam for this adversary, got {other!r}")


def _directions(view: StandardView, size: float) -> Iterator[torch.Tensor]:
    """The change of every step, times the batch size and divided by the learning rate."""
    mechanism, iterates = view.mechanism, view.iterates
    for step in range(len(iterates) - 1):
        rate = mechanism.rate(step)
        if not rate:
            raise InvalidInput(
                "the learning rate must be above 0 in every step for this adversary, got 0 in "
                f"step {step}; use a schedule whose factor is above 0"
            )
        shrink = 1 - rate * mechanism.weight_decay
        yield (shrink * iterates[step] - iterates[step + 1]) * (size / rate)


def _from_momentum(
    directions: Iterator[torch.Tensor], momentum: float, nesterov: bool
) -> Iterator[torch.Tensor]:
    velocity: torch.Tensor | float = 0.0
    for direction in directions:
        if nesterov:
            gradient = (direction - momentum**2 * velocity) / (1 + momentum)
        else:
            gradient = direction - momentum * velocity
        velocity = momentum * velocity + gradient
        yield gradient


def _from_adam(
    view: StandardView, optimizer: Adam, size: float, genuine: Genuine | None
) -> Iterator[torch.Tensor]:
    # Without noise, the size of one clipped gradient.
    noise = (view.mechanism.noise_multiplier or 1.0) * view.mechanism.clip_norm
    mean = torch.zeros_like(view.iterates[0], dtype=torch.float64)
    square, recovered = mean.clone(), []
    for count, direction in enumerate(_directions(view, 1.0), start=1):
        gradient = _adam_gradient(direction.double(), mean, square, optimizer, count, noise, size)
        mean = optimizer.beta1 * mean + (1 - optimizer.beta1) * gradient
        square = optimizer.beta2 * square + (1 - optimizer.beta2) * gradient.square()
        recovered.append(gradient)
    expected = torch.full_like(mean, noise**2)
    if genuine is not None:
        for step in range(len(recovered)):
            expected += genuine(step).double().square() / len(recovered)
    measured = torch.stack(recovered).square().mean(0)
    scale = (expected / measured.clamp(min=1e-300)).sqrt()
    return ((gradient * scale).to(view.iterates.dtype) for gradient in recovered)


def _adam_gradient(
    direction: torch.Tensor,
    mean: torch.Tensor,
    square: torch.Tensor,
    optimizer: Adam,
    count: int,
    noise: float,
    batch: float,
) -> torch.Tensor:
    """The noisy sum that changes ``mean`` and ``square`` such that the step is ``direction``."""
    if count == 1:
        return direction * noise  # the first step shows only the sign
    first, second = 1 - optimizer.beta1**count, 1 - optimizer.beta2**count
    damping = 0.5 if count < _EARLY else 1.0
    gradient = torch.zeros_like(direction)
    for _ in range(_ROUNDS):
        squares = optimizer.beta2 * square + (1 - optimizer.beta2) * gradient.square()
        size = (squares / second).sqrt() + optimizer.epsilon * batch
        target = (direction * size * first - optimizer.beta1 * mean) / (1 - optimizer.beta1)
        limit = _FARTHEST * torch.maximum(square.div(second).sqrt(), torch.tensor(noise))
        gradient = (gradient + damping * (target - gradient)).clamp(-limit, limit)
    return gradient
