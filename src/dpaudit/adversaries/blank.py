"""Black-box adversaries that insert a blank example, from a crafted start or with a crafted query.

A blank example has no features. Training examples hardly have its gradient, so that its loss in the
final model shows little but the example itself and noise.
"""

from __future__ import annotations

import copy
import functools
import math
from dataclasses import dataclass, replace
from typing import final

from dpaudit import _validate
from dpaudit._torch import torch
from dpaudit.adversaries.crafting import generator, the_points
from dpaudit.adversaries.points import climb, mislabelled_points, require_real_features
from dpaudit.data.examples import Examples
from dpaudit.errors import InvalidInput
from dpaudit.mechanisms.dpsgd import DPSGD, FixedInitialisation, Insertion
from dpaudit.threat_models import (
    BlackBoxAdversary,
    BlackBoxView,
    Canaries,
    CanaryPoints,
    ChoosesStart,
)


@final
@dataclass(frozen=True, kw_only=True)
class WorstCaseStart(BlackBoxAdversary, ChoosesStart):
    r"""Trains the model before the training starts, and inserts a blank example.

    From a start that already fits the data, genuine gradients are small and hide little. The score
    is :math:`-\ell(\theta_T; x, y)`.

    See also: `AdversarialSample`, which crafts its query instead of the start; `ChoosesStart`.

    Paper: Annamalai, De Cristofaro, *Nearly tight black-box auditing of differentially private
    machine learning* (NeurIPS 2024). There the start is trained on other examples of the same
    distribution; see ``examples``. Here it is also trained to withstand the noise to come.

    Arguments:
        epochs: Passes over the examples before the training starts; 0 keeps the training's own
            start. They use Adam with batches of 128.
        learning_rate: Learning rate of these epochs; it decays linearly.
        sharpness: The last linear layer is multiplied by this after the epochs. Where the start
            fits all examples, genuine gradients vanish exponentially in it; that of the canary,
            which is clipped, does not. Measured in one setting only: 5, on 999 records of CIFAR-10
            and a network with tanh; check other settings.
        examples: The examples of these epochs; by default those of the training.
        blank: Whether the canary is a blank example with the class of the largest loss; otherwise
            it is a training example with a wrong label. Several canaries need the latter.

    Example:
        >>> from dpaudit.presets import preset
        >>> training = WorstCaseStart(epochs=1).prepare(preset("housing").training())
        >>> training.initialisation
        FixedInitialisation(seed=0)
    """

    name = "worst-case-start"
    paper = "Annamalai, De Cristofaro (NeurIPS 2024)"
    year = 2024
    canary = "data point"
    many = False

    epochs: int = 30
    learning_rate: float = 0.001
    sharpness: float = 1.0
    examples: Examples | None = None
    blank: bool = True

    def __post_init__(self) -> None:
        _validate.integer("epochs", self.epochs)
        _validate.positive("learning_rate", self.learning_rate)
        _validate.positive("sharpness", self.sharpness)

    def prepare(self, mechanism: DPSGD) -> DPSGD:
        """The same training from the model that the epochs give."""
        from dpaudit.engine.checking import refuse_types
        from dpaudit.engine.starting_points import known_model

        examples = mechanism.data if self.examples is None else self.examples
        model = known_model(mechanism)
        refuse_types(model)
        _train(model, mechanism, examples, epochs=self.epochs, learning_rate=self.learning_rate)
        if self.sharpness != 1.0:
            _sharpen(model, self.sharpness)
        return replace(
            mechanism,
            build_model=functools.partial(copy.deepcopy, model),
            initialisation=FixedInitialisation(),
        )

    def craft(
        self, mechanism: DPSGD, insertion: Insertion, *, canaries: int, seed: int
    ) -> CanaryPoints:
        """A blank example, or training examples with wrong labels."""
        if not self.blank:
            return mislabelled_points(mechanism, canaries, seed, self.name)
        return blank_example(mechanism, canaries, f"{self.name} unless blank is False")

    def queries(self, mechanism: DPSGD, canaries: Canaries) -> CanaryPoints:
        """The canaries themselves."""
        return the_points(canaries)

    def score(self, view: BlackBoxView, canaries: Canaries) -> torch.Tensor:
        """Minus the loss of each final model on each canary."""
        return -view.losses


_TOGETHER = 8
"""Shadow models that are trained together; more might not fit in memory."""


@final
@dataclass(frozen=True, kw_only=True)
class AdversarialSample(BlackBoxAdversary):
    r"""Inserts a blank example, and asks about another one that tells the two cases better apart.

    The adversary trains shadow models with and without the canary. From the blank example it
    climbs to the features for which the losses of the two kinds of models are farthest apart:
    :math:`(m_0 - m_1)^2 / (s_0^2 + s_1^2)` with means :math:`m` and standard deviations :math:`s`.
    The score is minus the loss there.

    See also: `WorstCaseStart`, the same canary without a crafted query.

    Paper: Yoon, Jeung, No, *Adversarial sample-based approach for tighter privacy auditing in
    final model-only scenarios* (arXiv 2412.01756), the objective based on distributions.

    Arguments:
        shadows: Number of shadow models with the canary, and as many without it.
        steps: Number of ascent steps; together they move by a tenth of the length of a typical
            example.

    Example:
        >>> AdversarialSample()
        AdversarialSample(shadows=32, steps=10)
    """

    name = "adversarial-sample"
    paper = "Yoon et al. (arXiv 2024): adversarial sample"
    year = 2024
    canary = "data point"
    many = False

    shadows: int = 32
    steps: int = 10

    def __post_init__(self) -> None:
        _validate.integer("shadows", self.shadows, at_least=2)
        _validate.integer("steps", self.steps, at_least=1)

    def craft(
        self, mechanism: DPSGD, insertion: Insertion, *, canaries: int, seed: int
    ) -> CanaryPoints:
        """A blank example, with the example that separates the shadow models best."""
        from dpaudit.engine.evaluate import model_function
        from dpaudit.engine.simulation import simulate

        blank = blank_example(mechanism, canaries, self.name)
        seeds = generator(seed).integers(2**62, size=-(-self.shadows // _TOGETHER)).tolist()

        def trained(canaries: CanaryPoints | None) -> torch.Tensor:
            simulations = [
                simulate(
                    mechanism,
                    noisy=True,
                    runs=_TOGETHER,
                    seed=of_part,
                    canaries=canaries,
                    insertion=insertion,
                )
                for of_part in seeds
            ]
            return torch.cat([simulated.models for simulated in simulations])[: self.shadows]

        out, inserted = trained(None), trained(blank)
        answer = model_function(mechanism, out)

        def loss(flat: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
            return mechanism.loss(answer(flat, features), blank.targets)

        def separation(features: torch.Tensor) -> torch.Tensor:
            without, having = (
                torch.func.vmap(loss, in_dims=(0, None))(models, features)
                for models in (out, inserted)
            )
            spread = (without.var(0) + having.var(0)).sqrt()
            return ((without.mean(0) - having.mean(0)) / spread.clamp(min=1e-12)).sum()

        start = blank.features.to(out.dtype)
        asked = climb(mechanism, start, torch.func.grad(separation), steps=self.steps, reach=0.1)
        return replace(blank, asked=asked.to(blank.features.dtype))

    def queries(self, mechanism: DPSGD, canaries: Canaries) -> CanaryPoints:
        """The crafted example, with the canary's label."""
        points = the_points(canaries)
        if points.asked is None:
            raise InvalidInput(f"canaries must be those that {self.name} crafted, with a query")
        return CanaryPoints(features=points.asked, targets=points.targets)

    def score(self, view: BlackBoxView, canaries: Canaries) -> torch.Tensor:
        """Minus the loss of each final model on the crafted example."""
        return -view.losses


def blank_example(mechanism: DPSGD, canaries: int, adversary: str) -> CanaryPoints:
    """An example without features, and the class for which its loss at the start is largest."""
    from dpaudit.engine.evaluate import losses
    from dpaudit.engine.starting_points import flat_parameters, known_model

    require_real_features(mechanism, adversary)
    data = mechanism.data
    if data.classes is None or data.targets.ndim != 1:
        raise InvalidInput(f"data must have one class each for {adversary}, got {data!r}")
    if _validate.integer("canaries", canaries, at_least=1) > 1:
        raise InvalidInput(f"canaries must be 1 for {adversary}, got {canaries}")
    labels = torch.arange(data.classes)
    blanks = torch.zeros(data.classes, *data.features.shape[1:])
    start = flat_parameters(known_model(mechanism)).unsqueeze(0)
    worst = losses(mechanism, start, blanks, labels)[0].argmax()
    return CanaryPoints(features=blanks[:1], targets=labels[worst].unsqueeze(0))


def _sharpen(model: torch.nn.Module, sharpness: float) -> None:
    """Multiply the last linear layer, and so the outputs if it is the last layer of all."""
    linear = [module for module in model.modules() if isinstance(module, torch.nn.Linear)]
    if not linear:
        raise InvalidInput(
            f"sharpness must be 1 for a model without a linear layer, got {sharpness}"
        )
    with torch.no_grad():
        for parameter in linear[-1].parameters():
            parameter.mul_(sharpness)


def _train(
    model: torch.nn.Module,
    mechanism: DPSGD,
    examples: Examples,
    *,
    epochs: int,
    learning_rate: float,
) -> None:
    """Train the model in place, without privacy; the same result each time on one machine.

    Gradients are taken at parameters with as much noise as plain DP-SGD adds in all its steps, so
    that genuine gradients stay small to the end of the training.
    """
    from dpaudit.engine.speed import Speed
    from dpaudit.engine.starting_points import as_tensor, trainable

    device, parameters = Speed().torch_device(), trainable(model)
    home = parameters[0].device
    model.to(device)
    features, targets = (
        as_tensor(array).to(device) for array in (examples.features, examples.targets)
    )
    unit = mechanism.learning_rate / mechanism.batches.expected_size(len(mechanism.data))
    spread = unit * mechanism.clip_norm * mechanism.noise_multiplier * math.sqrt(mechanism.steps)
    random = torch.Generator(device).manual_seed(0)
    optimizer = torch.optim.Adam(parameters, lr=learning_rate)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.01, max(1, epochs))
    with torch.backends.cudnn.flags(deterministic=True):
        for _ in range(epochs):
            order = torch.randperm(len(targets), generator=random, device=device)
            for batch in torch.split(order, 128):
                exact = [parameter.detach().clone() for parameter in parameters]
                with torch.no_grad():
                    for parameter in parameters:
                        noise = torch.empty_like(parameter).normal_(generator=random)
                        parameter.add_(noise, alpha=spread)
                optimizer.zero_grad()
                loss = mechanism.loss(model(features[batch]), targets[batch]).mean()
                torch.autograd.backward(loss)
                with torch.no_grad():
                    for parameter, value in zip(parameters, exact, strict=True):
                        parameter.copy_(value)
                optimizer.step()
            schedule.step()
    optimizer.zero_grad()
    model.to(home)
