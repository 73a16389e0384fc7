"""Upper bounds for an adversary who sees only the final model: description and base class.

The usual accountants bound what all iterates reveal. With further assumptions on the training, the
final model alone reveals less. To add such an accountant, write a frozen dataclass with a ``name``,
`HiddenStateAccountant._epsilon` and `HiddenStateAccountant._delta`, and register it in
`HIDDEN_STATE_ACCOUNTANTS`; the contract test is `dpaudit.testing.check_hidden_state_accountant`.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, final

import numpy as np
from numpy.typing import NDArray

from dpaudit import _validate
from dpaudit._registry import Registry
from dpaudit.errors import InvalidInput
from dpaudit.mechanisms.dpsgd import PHASES, Phase
from dpaudit.privacy import Bound, Bounds, Unavailable
from dpaudit.upper_bounds.base import Answer

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
            constants = given if isinstance(given, Sequence | np.ndarray) else [given]
            for constant in constants:
                _validate.positive("step_lipschitz", constant)
            fixed = float(given) if isinstance(given, int | float) else tuple(map(float, given))
            object.__setattr__(self, "step_lipschitz", fixed)
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


class HiddenStateAccountant(abc.ABC):
    """Upper bounds on the privacy loss of the final model alone.

    The public methods handle trainings without noise and a delta of 0; subclasses compute the rest.
    """

    name: ClassVar[str]

    @final
    def epsilon(self, steps: HiddenSteps, *, delta: float) -> Bound:
        """An upper bound on epsilon at ``delta``."""
        delta = _validate.delta(delta)
        if steps.noise_multiplier == 0 or delta == 0:
            self.check(steps)
            note = "no finite epsilon without noise or at delta 0"
            return self._bound(steps, Answer(value=math.inf, notes=(note,)), "epsilon", delta)
        return self._bound(steps, self._epsilon(steps, delta), "epsilon", delta)

    @final
    def delta(self, steps: HiddenSteps, *, epsilon: float) -> Bound:
        """An upper bound on delta at ``epsilon``."""
        epsilon = _validate.non_negative("epsilon", epsilon)
        if steps.noise_multiplier == 0:
            self.check(steps)
            return self._bound(steps, Answer(value=1.0, notes=("no noise",)), "delta", epsilon)
        return self._bound(steps, self._delta(steps, epsilon), "delta", epsilon)

    @abc.abstractmethod
    def check(self, steps: HiddenSteps) -> None:
        """Raise `InvalidInput` unless the assumptions of this accountant are met."""

    @abc.abstractmethod
    def _epsilon(self, steps: HiddenSteps, delta: float) -> Answer:
        """Epsilon for a noise multiplier above 0 and a delta in (0, 1)."""

    @abc.abstractmethod
    def _delta(self, steps: HiddenSteps, epsilon: float) -> Answer:
        """Delta for a noise multiplier above 0 and an epsilon of at least 0."""

    def _bound(
        self,
        steps: HiddenSteps,
        answer: Answer,
        quantity: Literal["epsilon", "delta"],
        given: float,
    ) -> Bound:
        value = max(0.0, float(answer.value))
        details: dict[str, Any] = {
            "noise_multiplier": float(steps.noise_multiplier),
            "steps": steps.steps,
            "insertions": steps.insertions,
        }
        return Bound(
            epsilon=value if quantity == "epsilon" else given,
            delta=given if quantity == "epsilon" else min(value, 1.0),
            side="upper",
            method=self.name,
            assumptions=(
                "neighbours differ by one record, added or removed",
                "only the final model is released, and the initial model is known",
                "batches are fixed and known: no amplification by sampling",
                *answer.assumptions,
            ),
            quantity=quantity,
            mu=answer.mu,
            numerical_error=answer.numerical_error,
            notes=answer.notes,
            details=details | dict(answer.details),
        )


HIDDEN_STATE_ACCOUNTANTS: Registry[type[HiddenStateAccountant]] = Registry(
    "accountant",
    "dpaudit.hidden_state_accountants",
    {
        "hidden-state-lipschitz": "dpaudit.upper_bounds.hidden_state_lipschitz:LipschitzAccountant",
        "hidden-state-clipping": "dpaudit.upper_bounds.hidden_state_clipping:ClippingAccountant",
    },
)
"""The hidden-state accountants by name; other packages add theirs by entry points."""


def hidden_state_bounds(
    steps: HiddenSteps, *, delta: float | None, epsilon: float | None
) -> Bounds:
    """Every hidden-state accountant's bound; one whose assumptions are not met has a reason.

    Arguments:
        steps: The training.
        delta: Bound epsilon at this delta; give either this or ``epsilon``.
        epsilon: Bound delta at this epsilon.
    """
    bounds, unavailable = [], []
    for name, accountant in HIDDEN_STATE_ACCOUNTANTS.items():
        try:
            bounds.append(ask(accountant(), steps, delta=delta, epsilon=epsilon))
        except InvalidInput as error:
            unavailable.append(Unavailable(method=name, reason=str(error)))
    return Bounds(bounds=tuple(bounds), unavailable=tuple(unavailable))


def hidden_state_bound(
    steps: HiddenSteps, accountant: str | None, *, delta: float | None, epsilon: float | None
) -> Bound:
    """The bound of one hidden-state accountant, or the smallest of all: each of them holds.

    Arguments:
        steps: The training.
        accountant: The name of the accountant; `None` for the smallest bound.
        delta: Bound epsilon at this delta; give either this or ``epsilon``.
        epsilon: Bound delta at this epsilon.
    """
    if accountant is not None:
        chosen = HIDDEN_STATE_ACCOUNTANTS[accountant]()
        return ask(chosen, steps, delta=delta, epsilon=epsilon)
    found = hidden_state_bounds(steps, delta=delta, epsilon=epsilon)
    if not found.bounds:
        raise InvalidInput("; ".join(missing.reason for missing in found.unavailable))
    return min(found, key=lambda bound: bound.value)


def ask(
    accountant: HiddenStateAccountant,
    steps: HiddenSteps,
    *,
    delta: float | None,
    epsilon: float | None,
) -> Bound:
    """The accountant's epsilon at ``delta``, or its delta at ``epsilon``."""
    if delta is not None:
        return accountant.epsilon(steps, delta=delta)
    return accountant.delta(steps, epsilon=float(epsilon or 0.0))
