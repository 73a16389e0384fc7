"""Views: exactly what each threat model shows of a training."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from dpaudit._torch import torch
from dpaudit.mechanisms.dpsgd import DPSGD, Insertion


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
