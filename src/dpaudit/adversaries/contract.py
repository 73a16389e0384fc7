"""What every adversary is: it crafts before training, and scores after it.

A threat model is a *type*, and each has a view of its own:

- `HiddenStateView` has no field for an iterate, so an adversary of that threat model cannot be
  handed one, by mistake or by politeness;
- `StandardView` has, and only a `StandardAdversary` takes it; an `AdaptiveAdversary` is besides
  shown every iterate while training goes on, and answers with the next canary;
- `BlackBoxView` has no parameters at all, only what the final models answered.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Literal, final

from dpaudit.errors import InvalidInput
from dpaudit.mechanisms.dpsgd import Insertion
from dpaudit.privacy import ThreatModel

if TYPE_CHECKING:
    import torch

    from dpaudit.mechanisms.dpsgd import DPSGD

CanaryKind = Literal["gradient", "data point"]


class Canaries(ABC):
    """What goes into the training when the coin says so: ``count`` canaries, one coin each."""

    @property
    @abstractmethod
    def count(self) -> int:
        """How many canaries there are."""


@final
@dataclass(frozen=True, kw_only=True)
class CraftedDimensions(Canaries):
    """Canary ``i`` is the gradient ``norm * e_d`` with ``d = dimensions[i]``; all d distinct."""

    dimensions: torch.Tensor  # (count,) int64
    norm: float

    @property
    def count(self) -> int:
        return len(self.dimensions)


@final
@dataclass(frozen=True, kw_only=True)
class CraftedGradients(Canaries):
    """Canary ``i`` is the dense gradient ``gradients[i]``, of norm at most C."""

    gradients: torch.Tensor  # (count, parameters)

    @property
    def count(self) -> int:
        return len(self.gradients)


@final
@dataclass(frozen=True, kw_only=True)
class CanaryPoints(Canaries):
    """Canary ``i`` is a data point, appended to the batch and clipped like any other."""

    features: torch.Tensor  # (count, ...)
    targets: torch.Tensor  # (count,)

    @property
    def count(self) -> int:
        return len(self.targets)


@final
@dataclass(frozen=True, kw_only=True)
class HiddenStateView:
    """What the hidden state shows of some runs: where training began, if known, and where it ended.

    Parameters are flat, in the order of ``model.parameters()``; the leading axis is the run.
    """

    mechanism: DPSGD
    steps: int  # the training was stopped here: mechanism.steps, or an earlier horizon
    initial: torch.Tensor | None  # (parameters,), None where the adversary does not know it
    final: torch.Tensor  # (runs, parameters)


@final
@dataclass(frozen=True, kw_only=True)
class StandardView:
    """What the standard threat model shows: every iterate, the first and the last included.

    At which steps a canary may have gone in is public, as for every adversary.
    """

    mechanism: DPSGD
    iterates: torch.Tensor  # (steps + 1, runs, parameters)
    insertion: Insertion = field(default_factory=Insertion)


@final
@dataclass(frozen=True, kw_only=True)
class BlackBoxView:
    """What the final models answered to the adversary's queries: numbers, and no parameters.

    Queries are asked once, before anything is answered, so that no function that holds the models
    need be handed out.
    """

    mechanism: DPSGD
    steps: int
    initial_losses: torch.Tensor | None  # (queries,), of the start; None where it is unknown
    losses: torch.Tensor  # (runs, queries)
    outputs: torch.Tensor  # (runs, queries, ...), what the models themselves return


@final
@dataclass(frozen=True, kw_only=True)
class Moment:
    """What an adaptive adversary is shown before a step: where each run stands."""

    mechanism: DPSGD
    step: int  # counted from 0
    current: torch.Tensor  # (runs, parameters)


@final
@dataclass(frozen=True, kw_only=True)
class AdaptedPoints:
    """The data points of one step: each run has its own, clipped like any other."""

    features: torch.Tensor  # (runs, count, ...)
    targets: torch.Tensor  # (runs, count)


@final
@dataclass(frozen=True, kw_only=True)
class AdaptedGradients:
    """The crafted gradients of one step: each run has its own, of norm at most C."""

    gradients: torch.Tensor  # (runs, count, parameters)


class Adversary(ABC):
    """Crafts before training and scores after it. Subclass one of the threat models below.

    ``name``, ``paper`` and ``threat_model`` every adversary has. ``year`` (of the paper), the kind
    of ``canary`` and whether it can place ``many`` of them are what tables of adversaries show.
    """

    name: ClassVar[str]
    paper: ClassVar[str]
    threat_model: ClassVar[ThreatModel]
    year: ClassVar[int | None] = None
    canary: ClassVar[CanaryKind | None] = None
    many: ClassVar[bool] = True

    @abstractmethod
    def craft(
        self, mechanism: DPSGD, insertion: Insertion, *, canaries: int, seed: int
    ) -> Canaries:
        """Choose the canaries, from public knowledge alone; the same seed gives the same ones."""


class HiddenStateAdversary(Adversary):
    """An adversary that sees only the final model."""

    threat_model = ThreatModel.HIDDEN_STATE

    @abstractmethod
    def score(self, view: HiddenStateView, canaries: Canaries) -> torch.Tensor:
        """One number for each (run, canary), shape (runs, count); higher means "inserted"."""


class StandardAdversary(Adversary):
    """An adversary that sees every iterate."""

    threat_model = ThreatModel.STANDARD

    @abstractmethod
    def score(self, view: StandardView, canaries: Canaries) -> torch.Tensor:
        """One number for each (run, canary), shape (runs, count); higher means "inserted"."""


class AdaptiveAdversary(StandardAdversary):
    """An adversary that sees every iterate when it is made, and chooses the next canary by it.

    What ``craft`` gives is only where it starts from; what goes in is what it responds. The upper
    bound is the same: composition allows each step to depend on what the earlier ones released.
    """

    @abstractmethod
    def respond(self, moment: Moment, canaries: Canaries) -> AdaptedPoints | AdaptedGradients:
        """The canaries of this step; a function of the arguments alone, and of each run alone."""


class BlackBoxAdversary(Adversary):
    """An adversary that asks the final model for losses and predictions, and sees nothing else."""

    threat_model = ThreatModel.BLACK_BOX

    @abstractmethod
    def queries(self, mechanism: DPSGD, canaries: Canaries) -> CanaryPoints:
        """The labelled points to ask the final models about."""

    @abstractmethod
    def score(self, view: BlackBoxView, canaries: Canaries) -> torch.Tensor:
        """One number for each (run, canary), shape (runs, count); higher means "inserted"."""


class ChoosesData(ABC):
    """A further power, beside any threat model: the training examples are the adversary's own.

    Differential privacy holds for every data set, so that no upper bound changes.
    """

    @abstractmethod
    def prepare(self, mechanism: DPSGD) -> DPSGD:
        """The same training on other examples; nothing else may differ."""


def prepared(adversary: Adversary, mechanism: DPSGD) -> DPSGD:
    """The training as this adversary has it: the one given, unless it may choose the examples."""
    if not isinstance(adversary, ChoosesData):
        return mechanism
    chosen = adversary.prepare(mechanism)
    # Any other change would be accounted for by the changed mechanism and prove nothing of ours.
    if chosen != replace(mechanism, data=chosen.data):
        raise InvalidInput(
            f"adversary {adversary.name!r} must change nothing of the mechanism but its data"
        )
    if chosen.data.features.shape != mechanism.data.features.shape:
        raise InvalidInput(
            f"adversary {adversary.name!r} must keep the shape of the data, "
            f"{mechanism.data.features.shape}, got {chosen.data.features.shape}"
        )
    return chosen
