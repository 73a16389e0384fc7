"""The base classes of adversaries: one for each threat model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Literal

from dpaudit.errors import InvalidInput
from dpaudit.privacy import ThreatModel

if TYPE_CHECKING:
    import torch

    from dpaudit.mechanisms.dpsgd import DPSGD, Insertion
    from dpaudit.threat_models.canaries import Canaries, CanaryPoints
    from dpaudit.threat_models.views import (
        AdaptedGradients,
        AdaptedPoints,
        BlackBoxView,
        HiddenStateView,
        Moment,
        StandardView,
    )

CanaryKind = Literal["gradient", "data point"]


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
