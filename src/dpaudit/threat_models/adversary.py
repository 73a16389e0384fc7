"""The base classes of adversaries: one for each threat model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import ClassVar, Literal

from dpaudit._torch import torch
from dpaudit.errors import InvalidInput
from dpaudit.mechanisms.dpsgd import DPSGD, Insertion
from dpaudit.privacy import ThreatModel
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
    """Crafts canaries before training and scores them afterwards. Subclass a threat model below.

    Class attributes: ``name`` is the word on the command line, ``paper`` the source, and
    ``threat_model`` is set by the threat model. Tables of adversaries also show ``year`` (of the
    paper), the kind of ``canary``, and whether it can craft ``many`` canaries.
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
        """Choose the canaries from public knowledge; the same seed gives the same canaries."""


class HiddenStateAdversary(Adversary):
    """An adversary that sees only the final model."""

    threat_model = ThreatModel.HIDDEN_STATE

    @abstractmethod
    def score(self, view: HiddenStateView, canaries: Canaries) -> torch.Tensor:
        """One score for each (run, canary), shape (runs, count); higher means "inserted"."""


class StandardAdversary(Adversary):
    """An adversary that sees every iterate."""

    threat_model = ThreatModel.STANDARD

    @abstractmethod
    def score(self, view: StandardView, canaries: Canaries) -> torch.Tensor:
        """One score for each (run, canary), shape (runs, count); higher means "inserted"."""


class AdaptiveAdversary(StandardAdversary):
    """An adversary that sees each iterate during training and chooses the next canary from it.

    The canaries from ``craft`` are only the starting point of ``respond``. The upper bound does not
    change: composition allows each step to depend on what earlier steps released.
    """

    @abstractmethod
    def respond(self, moment: Moment, canaries: Canaries) -> AdaptedPoints | AdaptedGradients:
        """The canaries of this step: a pure function, computed separately for each run."""


class BlackBoxAdversary(Adversary):
    """An adversary that sees only losses and outputs of the final model on its own queries."""

    threat_model = ThreatModel.BLACK_BOX

    @abstractmethod
    def queries(self, mechanism: DPSGD, canaries: Canaries) -> CanaryPoints:
        """The labelled points on which the final models are evaluated."""

    @abstractmethod
    def score(self, view: BlackBoxView, canaries: Canaries) -> torch.Tensor:
        """One score for each (run, canary), shape (runs, count); higher means "inserted"."""


class ChoosesData(ABC):
    """An additional power, in any threat model: the adversary chooses the training examples.

    Differential privacy holds for every data set, so no upper bound changes.
    """

    @abstractmethod
    def prepare(self, mechanism: DPSGD) -> DPSGD:
        """The same training on other examples; nothing else may differ."""


def audited_mechanism(adversary: Adversary, mechanism: DPSGD) -> DPSGD:
    """The mechanism that is audited: with the adversary's own data if it `ChoosesData`."""
    if not isinstance(adversary, ChoosesData):
        return mechanism
    chosen = adversary.prepare(mechanism)
    # Any other change would be an audit of a different mechanism.
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
