"""What every adversary is: it crafts before training, and scores after it.

A threat model is a *type*. `HiddenStateView` has no field for an iterate, so an adversary of that
threat model cannot be handed one, by mistake or by politeness; `StandardView` has, and only a
`StandardAdversary` takes it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, final

from dpaudit.privacy import ThreatModel

if TYPE_CHECKING:
    import torch

    from dpaudit.mechanisms.dpsgd import DPSGD, Insertion


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
    """What the standard threat model shows: every iterate, the first and the last included."""

    mechanism: DPSGD
    iterates: torch.Tensor  # (steps + 1, runs, parameters)


class Adversary(ABC):
    """Crafts before training and scores after it. Subclass one of the two threat models below."""

    name: ClassVar[str]
    paper: ClassVar[str]
    threat_model: ClassVar[ThreatModel]

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
