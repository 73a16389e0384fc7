"""Adversaries that insert examples: genuine, mislabelled, poisoned, or with a rare feature."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, final

import numpy as np
from numpy.typing import NDArray

from dpaudit import _validate
from dpaudit._torch import torch
from dpaudit.adversaries.crafting import check_room, generator, movement, the_points
from dpaudit.errors import InvalidInput
from dpaudit.mechanisms.dpsgd import DPSGD, Insertion
from dpaudit.threat_models import (
    Adversary,
    BlackBoxAdversary,
    BlackBoxView,
    Canaries,
    CanaryPoints,
    HiddenStateAdversary,
    HiddenStateView,
    StandardAdversary,
    StandardView,
)

if TYPE_CHECKING:
    from dpaudit.data import Examples

    Slope = Callable[[torch.Tensor], torch.Tensor]


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
    """

    name = "flipped-label"
    paper = "Nasr et al. (USENIX Security 2023): Algorithm 1; Cebere et al. (ICLR 2025): A_L"
    year = 2023
    canary = "data point"

    def craft(
        self, mechanism: DPSGD, insertion: Insertion, *, canaries: int, seed: int
    ) -> CanaryPoints:
        """Draw ``canaries`` different training examples, and a wrong label for each."""
        return mislabelled_points(mechanism, canaries, seed, self.name)

    def score(self, view: HiddenStateView, canaries: Canaries) -> torch.Tensor:
        """Minus the loss of each final model on each canary."""
        from dpaudit.engine.evaluate import losses

        points = the_points(canaries)
        return -losses(view.mechanism, view.final, points.features, points.targets)


class QueriesCanaries(BlackBoxAdversary):
    """A black-box adversary that asks for the losses of its canaries and nothing else."""

    @final
    def queries(self, mechanism: DPSGD, canaries: Canaries) -> CanaryPoints:
        """The canaries themselves."""
        return the_points(canaries)


@final
@dataclass(frozen=True, kw_only=True)
class ApiAccess(QueriesCanaries):
    r"""Inserts another copy of a training example and scores by minus its loss.

    The weakest adversary: it crafts nothing and sees no parameters. The score is
    :math:`-\ell(\theta_T; x, y)`.

    See also: `FlippedLabel`, whose example has a wrong label.

    Paper: Nasr et al., *Adversary instantiation* (S&P 2021), the API access adversary: a natural
    example, and a threshold on the loss.
    """

    name = "api-access"
    paper = "Nasr et al. (S&P 2021): API access"
    year = 2021
    canary = "data point"

    def craft(
        self, mechanism: DPSGD, insertion: Insertion, *, canaries: int, seed: int
    ) -> CanaryPoints:
        """Draw ``canaries`` different training examples."""
        return drawn_points(mechanism, canaries, seed)

    def score(self, view: BlackBoxView, canaries: Canaries) -> torch.Tensor:
        """Minus the loss of each final model on each canary."""
        return -view.losses


@final
@dataclass(frozen=True, kw_only=True)
class OneRunBlackBox(QueriesCanaries):
    r"""Inserts mislabelled training examples and scores by how much training lowered their loss.

    The score is :math:`\ell(\theta_0; x) - \ell(\theta_T; x)`, which makes canaries of different
    difficulty comparable. If the start is not public, it is :math:`-\ell(\theta_T; x)`.

    See also: `FlippedLabel`, which does not use the loss at the start; the bounds ``one-run`` and
    ``one-run-fdp``, which are made for many canaries in one run.

    Paper: Steinke, Nasr, Jagielski, *Privacy auditing with one (1) training run* (NeurIPS 2023),
    the DP-SGD auditor with ``audit-type = blackbox``.
    """

    name = "one-run-black-box"
    paper = "Steinke et al. (NeurIPS 2023): black box"
    year = 2023
    canary = "data point"

    def craft(
        self, mechanism: DPSGD, insertion: Insertion, *, canaries: int, seed: int
    ) -> CanaryPoints:
        """Different training examples, each with a wrong label."""
        return mislabelled_points(mechanism, canaries, seed, self.name)

    def score(self, view: BlackBoxView, canaries: Canaries) -> torch.Tensor:
        """How much training lowered the loss of each canary."""
        return -view.losses if view.initial_losses is None else view.initial_losses - view.losses


@dataclass(frozen=True, kw_only=True)
class ShadowPoisoning(Adversary):
    """Crafts training examples moved to where models trained without them have the largest loss.

    Arguments:
        shadows: Number of shadow models, trained with clipping and noise.
        steps: Number of ascent steps; together they move by the length of a typical example.
    """

    year = 2021
    canary = "data point"

    shadows: int = 4
    steps: int = 20

    def __post_init__(self) -> None:
        _validate.integer("shadows", self.shadows, at_least=1)
        _validate.integer("steps", self.steps, at_least=1)

    @final
    def craft(
        self, mechanism: DPSGD, insertion: Insertion, *, canaries: int, seed: int
    ) -> CanaryPoints:
        """Increase the mean loss of the shadow models."""
        from dpaudit.engine.evaluate import loss_slope
        from dpaudit.engine.simulation import simulate

        drawn = starting_examples(mechanism, canaries, seed, self.name)
        models = simulate(mechanism, noisy=True, runs=self.shadows, seed=seed).models
        slope = loss_slope(mechanism, models, drawn.targets)
        start = drawn.features.to(models.dtype)
        moved = climb(mechanism, start, slope, steps=self.steps, reach=1.0)
        return CanaryPoints(features=moved.to(drawn.features.dtype), targets=drawn.targets)


@final
@dataclass(frozen=True, kw_only=True)
class StaticPoisoning(ShadowPoisoning, QueriesCanaries):
    r"""Inserts a training example moved to where models trained without it have a large loss.

    The adversary trains shadow models and increases their mean loss by gradient ascent from a
    training example, within the range of the data and with its label. The score is
    :math:`-\ell(\theta_T; x, y)`.

    See also: `IntermediatePoisoning`, the same point in the standard threat model;
    `FlippedLabel`, which changes the label instead of the features.

    Paper: Nasr et al., *Adversary instantiation* (S&P 2021), the static poisoning adversary.

    Arguments:
        shadows: Number of shadow models, trained with clipping and noise.
        steps: Number of ascent steps; together they move by the length of a typical example.
    """

    name = "static-poisoning"
    paper = "Nasr et al. (S&P 2021): static poisoning"

    def score(self, view: BlackBoxView, canaries: Canaries) -> torch.Tensor:
        """Minus the loss of each final model on each canary."""
        return -view.losses


@final
@dataclass(frozen=True, kw_only=True)
class IntermediatePoisoning(ShadowPoisoning, StandardAdversary):
    r"""Inserts the point of `StaticPoisoning` and averages its loss over all later iterates.

    The score is :math:`-\frac1T \sum_{t=1}^T \ell(\theta_t; x, y)`.

    See also: `StaticPoisoning`; `AdaptivePoisoning`, which moves the point at every step.

    Paper: Nasr et al., *Adversary instantiation* (S&P 2021), the intermediate poisoning adversary.
    Cebere, Bellet, Papernot (ICLR 2025) count it as a hidden-state adversary. It reads the loss of
    intermediate models, so here it belongs to the standard threat model.

    Arguments:
        shadows: Number of shadow models, trained with clipping and noise.
        steps: Number of ascent steps; together they move by the length of a typical example.
    """

    name = "intermediate-poisoning"
    paper = "Nasr et al. (S&P 2021): intermediate poisoning"

    def score(self, view: StandardView, canaries: Canaries) -> torch.Tensor:
        """Minus the mean loss over the iterates, without the start."""
        from dpaudit.engine.evaluate import losses

        points, later = the_points(canaries), view.iterates[1:]
        each = losses(view.mechanism, later.flatten(0, 1), points.features, points.targets)
        return -each.view(*later.shape[:2], points.count).mean(0)


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
        check_room(canaries, flat.shape[1], "features")
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
    """

    name = "rare-feature"
    paper = "dpaudit (2026), after Cebere, Bellet, Papernot (ICLR 2025): A_GC"
    year = 2026
    canary = "data point"

    def craft(
        self, mechanism: DPSGD, insertion: Insertion, *, canaries: int, seed: int
    ) -> CanaryPoints:
        """Choose the ``canaries`` rarest features, and a value and a label for each."""
        from dpaudit.engine.checking import check_mechanism

        _validate.integer("canaries", canaries, at_least=1)
        check_mechanism(mechanism)  # before the model is used
        data = mechanism.data
        if data.classes is None:
            raise InvalidInput(
                "data must have classes for rare-feature, got real targets; choose another "
                "adversary, such as random-dimension"
            )
        counts = np.count_nonzero(data.features.reshape(len(data), -1), axis=0)
        check_room(canaries, len(counts), "features")
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
    wide = replace(mechanism, clip_norm=2 * mechanism.clip_norm, smoothness=None)
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


# Examples of the training data, and examples moved away from them


def drawn_points(mechanism: DPSGD, canaries: int, seed: int) -> CanaryPoints:
    """Different training examples drawn at random, with their own targets."""
    chosen = _drawn_indices(mechanism, canaries, generator(seed))
    data = mechanism.data
    return CanaryPoints(
        features=torch.from_numpy(data.features[chosen]),
        targets=torch.from_numpy(data.targets[chosen]),
    )


def mislabelled_points(mechanism: DPSGD, canaries: int, seed: int, adversary: str) -> CanaryPoints:
    """Different training examples drawn at random, with wrong targets.

    A random other class for each label or token; for regression, for each output the end of its
    range that is farther from the true target.
    """
    data, random = mechanism.data, generator(seed)
    chosen = _drawn_indices(mechanism, canaries, random)
    targets: np.ndarray = data.targets[chosen]
    if data.classes is not None:
        shift = random.integers(1, data.classes, size=targets.shape)
        wrong = (targets + shift) % data.classes
    elif targets.size:
        low, high = data.targets.min(axis=0), data.targets.max(axis=0)
        wrong = np.where(targets - low > high - targets, low, high)
    else:
        raise InvalidInput(f"data must have targets for {adversary}, got {data!r}")
    return CanaryPoints(
        features=torch.from_numpy(data.features[chosen]), targets=torch.from_numpy(wrong)
    )


def starting_examples(mechanism: DPSGD, canaries: int, seed: int, adversary: str) -> CanaryPoints:
    """Training examples from which the ascent starts; they need real features."""
    require_real_features(mechanism, adversary)
    return drawn_points(mechanism, canaries, seed)


def require_real_features(mechanism: DPSGD, adversary: str) -> None:
    """Raise `InvalidInput` if the features are tokens, which cannot be moved a little."""
    if mechanism.data.features.dtype != np.float32:
        raise InvalidInput(f"features must be real numbers for {adversary}, got tokens")


def _drawn_indices(mechanism: DPSGD, canaries: int, random: np.random.Generator) -> np.ndarray:
    check_room(canaries, len(mechanism.data), "examples")
    return random.choice(len(mechanism.data), size=canaries, replace=False)


def climb(
    mechanism: DPSGD, features: torch.Tensor, slope: Slope, *, steps: int, reach: float
) -> torch.Tensor:
    """Points (…, *features) after gradient ascent with steps of constant length.

    They stay in the range of the data, and move in all by ``reach`` lengths of a typical example.
    """
    lowest, highest, typical = _extent(mechanism.data)
    low, high = torch.from_numpy(lowest).to(features), torch.from_numpy(highest).to(features)
    length = reach * typical / steps
    axes = tuple(range(-low.ndim, 0))
    for _ in range(steps):
        uphill = slope(features)
        size = uphill.square().sum(dim=axes, keepdim=True).sqrt()
        # A point whose gradient is zero stays in place.
        features = features + length * uphill / size.clamp(min=1e-12)
        features = torch.minimum(torch.maximum(features, low), high)
    return features


@lru_cache(maxsize=4)  # every insertion step asks for the same one
def _extent(data: Examples) -> tuple[NDArray[np.float32], NDArray[np.float32], float]:
    """The range of every feature, and the mean length of an example."""
    flat = data.features.reshape(len(data), -1)
    typical = float(np.linalg.norm(flat, axis=1).mean())
    return data.features.min(axis=0), data.features.max(axis=0), typical
