"""Upper bounds for an adversary who sees only the final model: description and base class.

The usual accountants bound what all iterates reveal. With further assumptions on the training, the
final model alone reveals less. To add such an accountant, write a frozen dataclass with a ``name``,
``check``, ``_epsilon`` and ``_delta``, and register it in `HIDDEN_STATE_ACCOUNTANTS`; the contract
test is `dpaudit.testing.check_hidden_state_accountant`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dpaudit import _validate
from dpaudit._registry import Registry
from dpaudit.errors import InvalidInput
from dpaudit.mechanisms.dpsgd import PHASES, Phase
from dpaudit.upper_bounds.base import Accounting

GIVEN = "every update of the genuine examples is c-Lipschitz with the constant given by the user"


@final
@dataclass(frozen=True, kw_only=True)
class HiddenState:
    r"""What is known about a training whose intermediate models are hidden.

    One step is :math:`\theta' = \varphi_t(\theta) - \frac\eta B (C u_t 1[t \in I] + \sigma C Z_t)`:
    :math:`\varphi_t` is the update of the genuine examples, :math:`I` are the steps with the
    record, and :math:`|u_t| \le 1` is its clipped gradient over :math:`C`.

    Arguments:
        period: The record takes part in one step of every ``period`` steps.
        phase: Whether that is the ``"first"`` or the ``"last"`` step of each period.
        insertion_steps: The steps with the record, from 0, for any other pattern; replaces
            ``period`` and ``phase``.
        step_lipschitz: A Lipschitz constant of every :math:`\varphi_t`, or one constant per step.
            `None` if none is known.
        assumption: The reason why that constant holds, as one sentence.
        domain_diameter: Diameter of the set onto which every step projects the parameters, in units
            of :math:`\eta C / B`; `None` without projection.
        batch_size: Number of genuine examples in a batch; needed by the bound that assumes only
            clipping.

    Example:
        >>> HiddenState(period=5, phase="last").inserted(10).nonzero()[0]
        array([4, 9])
    """

    period: int = 1
    phase: Phase = "first"
    insertion_steps: tuple[int, ...] | None = None
    step_lipschitz: float | Sequence[float] | None = None
    assumption: str = GIVEN
    domain_diameter: float | None = None
    batch_size: int | None = None

    def __post_init__(self) -> None:
        _validate.integer("period", self.period, at_least=1, remedy="use 1 for every step")
        _validate.one_of("phase", self.phase, PHASES)
        if self.step_lipschitz is not None:
            given = self.step_lipschitz
            several = isinstance(given, Sequence | np.ndarray)
            fixed = tuple(_validate.positive("step_lipschitz", one) for one in np.atleast_1d(given))
            object.__setattr__(self, "step_lipschitz", fixed if several else fixed[0])
        if self.insertion_steps is not None:
            for step in self.insertion_steps:
                _validate.integer("insertion_steps", step)
            object.__setattr__(self, "insertion_steps", tuple(sorted(set(self.insertion_steps))))
        if self.domain_diameter is not None:
            _validate.positive("domain_diameter", self.domain_diameter)
        if self.batch_size is not None:
            _validate.integer("batch_size", self.batch_size, at_least=1)

    def inserted(self, steps: int) -> NDArray[np.bool_]:
        """For each of the first ``steps`` steps, whether the record takes part in it."""
        if self.insertion_steps is None:
            offset = 0 if self.phase == "first" else self.period - 1
            return np.asarray(np.arange(steps) % self.period == offset)
        pattern = np.zeros(steps, dtype=bool)
        pattern[[step for step in self.insertion_steps if step < steps]] = True
        return pattern


@final
@dataclass(frozen=True, kw_only=True)
class HiddenSteps:
    r"""A training for a hidden-state accountant: noise, number of steps and what else is known.

    Arguments:
        noise_multiplier: :math:`\sigma`, the noise's standard deviation over the clipping norm.
        steps: :math:`T`, all steps of the training, with and without the record.
        hidden_state: Pattern of insertions and assumptions.
    """

    noise_multiplier: float
    steps: int
    hidden_state: HiddenState

    def __post_init__(self) -> None:
        _validate.non_negative("noise_multiplier", self.noise_multiplier)
        _validate.integer("steps", self.steps, at_least=1, at_most=10**7)
        if not self.inserted.any():
            raise InvalidInput(
                f"steps must be at least one insertion long, got {self.steps} with "
                f"{self.hidden_state!r}; train longer or insert earlier"
            )
        constants = self.hidden_state.step_lipschitz
        if isinstance(constants, tuple) and len(constants) != self.steps:
            raise InvalidInput(
                f"step_lipschitz must be one number or one per step ({self.steps}), "
                f"got {len(constants)} numbers"
            )

    @cached_property
    def inserted(self) -> NDArray[np.bool_]:
        """For each step, whether the record takes part in it."""
        return self.hidden_state.inserted(self.steps)

    @property
    def insertions(self) -> int:
        """The number of steps with the record."""
        return int(self.inserted.sum())

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What must be true of the training for a bound on its final model to hold."""
        return (
            "neighbours differ by one record, added or removed",
            "only the final model is released, and the initial model is known",
            "batches are fixed and known: no amplification by sampling",
        )

    @property
    def details(self) -> dict[str, Any]:
        """The description as plain data, for the details of a bound."""
        return {
            "noise_multiplier": float(self.noise_multiplier),
            "steps": self.steps,
            "insertions": self.insertions,
        }


class HiddenStateAccountant(Accounting[HiddenSteps]):
    """An accountant whose bounds hold for the final model alone."""


HIDDEN_STATE_ACCOUNTANTS: Registry[type[HiddenStateAccountant]] = Registry(
    "accountant",
    "dpaudit.hidden_state_accountants",
    {
        "hidden-state-lipschitz": "dpaudit.upper_bounds.hidden_state_lipschitz:LipschitzAccountant",
        "hidden-state-clipping": "dpaudit.upper_bounds.hidden_state_clipping:ClippingAccountant",
    },
)
"""The hidden-state accountants by name; other packages add theirs by entry points."""
