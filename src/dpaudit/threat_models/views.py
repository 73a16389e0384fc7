"""Views: what each threat model shows of a training, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

from dpaudit.mechanisms.dpsgd import Insertion

if TYPE_CHECKING:
    import torch

    from dpaudit.mechanisms.dpsgd import DPSGD


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
