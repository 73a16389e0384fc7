"""Threat models: canaries, what an adversary may see, and the base class of each kind of adversary.

Every threat model is a type with a view of its own:

- `HiddenStateView` has no field for intermediate iterates, so a hidden-state adversary cannot
  receive one by mistake.
- `StandardView` has all iterates, and only a `StandardAdversary` takes it. An `AdaptiveAdversary`
  also sees each iterate during training and chooses the next canary from it.
- `BlackBoxView` has no parameters, only the answers of the final models to queries.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, Literal, final

from dpaudit._torch import torch
from dpaudit.mechanisms.dpsgd import DPSGD, Insertion
from dpaudit.privacy import ThreatModel

CanaryKind = Literal["gradient", "data point"]


class Canaries(ABC):
    """Several canaries of one kind. Each is inserted or not by a coin of its own."""

    @property
    @abstractmethod
    def count(self) -> int:
        """Number of canaries."""


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
    """Canary ``i`` is an example that is appended to the batch and clipped like any other."""

    features: torch.Tensor  # (count, ...)
    targets: torch.Tensor  # (count, ...)
    asked: torch.Tensor | None = None  # (count, ...), features that are queried instead, if any

    @property
    def count(self) -> int:
        return len(self.targets)


@final
@dataclass(frozen=True, kw_only=True)
class HiddenStateView:
    """Some runs in the hidden state threat model: the start, if it is public, and the end.

    Parameters are flat, in the order of ``model.parameters()``. The first axis is the run. The
    insertion steps are public.
    """

    mechanism: DPSGD
    steps: int  # the training stopped here: mechanism.steps, or an earlier horizon
    initial: torch.Tensor | None  # (parameters,), None where the start is not public
    final: torch.Tensor  # (runs, parameters)
    insertion: Insertion = field(default_factory=Insertion)


@final
@dataclass(frozen=True, kw_only=True)
class StandardView:
    """Some runs in the standard threat model: every iterate, including the first and the last.

    The insertion steps are public, as for every adversary.
    """

    mechanism: DPSGD
    iterates: torch.Tensor  # (steps + 1, runs, parameters)
    insertion: Insertion = field(default_factory=Insertion)


@final
@dataclass(frozen=True, kw_only=True)
class BlackBoxView:
    """The answers of the final models to the adversary's queries, without any parameters.

    All queries are fixed before the first answer, so the adversary never holds a model.
    """

    mechanism: DPSGD
    steps: int
    initial_losses: torch.Tensor | None  # (queries,), at the start; None where it is not public
    losses: torch.Tensor  # (runs, queries)
    outputs: torch.Tensor  # (runs, queries, ...), the outputs of the models


@final
@dataclass(frozen=True, kw_only=True)
class Moment:
    """What an adaptive adversary sees before a step: the current parameters of each run."""

    mechanism: DPSGD
    step: int  # counted from 0
    current: torch.Tensor  # (runs, parameters)


@final
@dataclass(frozen=True, kw_only=True)
class AdaptedPoints:
    """The canaries of one step as examples, separate for each run and clipped like any other."""

    features: torch.Tensor  # (runs, count, ...)
    targets: torch.Tensor  # (runs, count, ...)


@final
@dataclass(frozen=True, kw_only=True)
class AdaptedGradients:
    """The canaries of one step as gradients of norm at most C, separate for each run."""

    gradients: torch.Tensor  # (runs, count, parameters)


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

    changes = ("data",)

    @abstractmethod
    def prepare(self, mechanism: DPSGD) -> DPSGD:
        """The same training on other examples; nothing else may differ."""


class ChoosesStart(ABC):
    """An additional power, in any threat model: the adversary chooses the initial parameters.

    They are public, and no upper bound depends on them.
    """

    changes = ("build_model", "initialisation")

    @abstractmethod
    def prepare(self, mechanism: DPSGD) -> DPSGD:
        """The same training of the same model from another start; nothing else may differ."""
