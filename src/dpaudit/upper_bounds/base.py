"""What an accountant is: a description of noisy steps goes in, an upper bound comes out.

A new accountant is one file with one frozen dataclass, like `gaussian.py`, and one line in
`registry`. Check it with `dpaudit.testing.check_accountant`.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Protocol, TypeVar, final

from dpaudit import _validate
from dpaudit.errors import DpauditError, NumericalError
from dpaudit.privacy import AtDelta, AtEpsilon, Bound, Bounds, Question, Unavailable


@final
@dataclass(frozen=True, kw_only=True)
class NoisySteps:
    r"""The part of a DP-SGD training that an accountant needs.

    Every step releases a sum of clipped gradients plus noise
    :math:`\mathcal N(0, \sigma^2 C^2 I)`, where one record moves the sum by at most the clipping
    norm :math:`C`. Neighbouring data sets differ by one record, *added or removed*.

    Arguments:
        noise_multiplier: :math:`\sigma`, the noise's standard deviation over the clipping norm.
            At 0 there is no guarantee.
        steps: :math:`T`, the number of steps that may use the record.
        sampling_rate: :math:`q`, the probability with which each step uses each record (Poisson
            sampling). `None` or 1 if every step uses the record, without amplification. Fixed
            batches known to the adversary are this case, with ``steps`` the number of batches that
            contain the record.

    Example:
        >>> round(NoisySteps(noise_multiplier=4.0, steps=250).mu, 6)
        3.952847
    """

    noise_multiplier: float
    steps: int
    sampling_rate: float | None = None

    def __post_init__(self) -> None:
        _validate.non_negative("noise_multiplier", self.noise_multiplier)
        _validate.integer("steps", self.steps, at_least=1)
        if self.sampling_rate is not None:
            _validate.between(
                "sampling_rate",
                self.sampling_rate,
                0,
                1,
                closed_high=True,
                remedy="leave it out if every step uses the record",
            )

    @property
    def subsampled(self) -> bool:
        """Whether a step may not use the record."""
        return self.sampling_rate is not None and self.sampling_rate < 1

    @property
    def mu(self) -> float:
        r"""The Gaussian-DP parameter :math:`\sqrt T / \sigma` of the steps without sampling."""
        if self.noise_multiplier == 0:
            return math.inf
        return math.sqrt(self.steps) / self.noise_multiplier

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What must be true of the training for a bound on these steps to hold."""
        if self.subsampled:
            presence = (
                f"Poisson sampling: a step uses a record with probability {self.sampling_rate:g}"
            )
        else:
            presence = "every step uses the record: no amplification by sampling"
        return ("neighbours differ by one record, added or removed", presence)

    @property
    def details(self) -> dict[str, Any]:
        """The description as plain data, for the details of a bound."""
        return {
            "noise_multiplier": float(self.noise_multiplier),
            "steps": int(self.steps),
            "sampling_rate": None if self.sampling_rate is None else float(self.sampling_rate),
        }


@final
@dataclass(frozen=True, kw_only=True)
class Answer:
    """The result of an accountant, before it becomes a `Bound`.

    Arguments:
        value: The upper bound on epsilon or delta.
        numerical_error: Largest distance of the exact number below ``value``, if known.
        mu: The Gaussian-DP parameter, if the accountant uses one.
        assumptions: Assumptions of this accountant beyond the description of the steps.
        notes: Remarks for the reader.
        details: Further numbers by name.
    """

    value: float
    numerical_error: float | None = None
    mu: float | None = None
    assumptions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    details: Mapping[str, float] = field(default_factory=dict)


class Described(Protocol):
    """What every description of a training has: `NoisySteps`, and `HiddenSteps`."""

    @property
    def noise_multiplier(self) -> float:
        """The noise's standard deviation over the clipping norm; 0 without noise."""

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What must be true of the training for a bound on it to hold."""

    @property
    def details(self) -> dict[str, Any]:
        """The description as plain data, for the details of a bound."""


Steps = TypeVar("Steps", bound=Described)


class Accounting(abc.ABC, Generic[Steps]):
    """Upper bounds on epsilon at a delta, and on delta at an epsilon.

    The public methods handle the cases without a guarantee (no noise, delta 0) and refuse results
    that are not numbers. Subclasses are frozen dataclasses; their fields set the accuracy only.
    """

    name: ClassVar[str]

    def check(self, steps: Steps) -> None:
        """Raise `InvalidInput` unless the assumptions of this accountant are met."""

    @final
    def epsilon(self, steps: Steps, *, delta: float) -> Bound:
        """The smallest epsilon this accountant can guarantee at ``delta``."""
        delta = _validate.delta(delta)
        self.check(steps)
        if steps.noise_multiplier == 0:
            answer = Answer(value=math.inf, notes=("without noise there is no guarantee",))
        elif delta == 0:
            answer = Answer(
                value=math.inf, notes=("Gaussian noise has no finite epsilon at delta 0",)
            )
        else:
            answer = self._computed(self._epsilon, steps, delta)
        return self._bound(steps, answer, AtDelta(delta))

    @final
    def delta(self, steps: Steps, *, epsilon: float) -> Bound:
        """The smallest delta this accountant can guarantee at ``epsilon``."""
        epsilon = _validate.non_negative("epsilon", epsilon)
        self.check(steps)
        if steps.noise_multiplier == 0:
            answer = Answer(value=1.0, notes=("without noise there is no guarantee",))
        else:
            answer = self._computed(self._delta, steps, epsilon)
        return self._bound(steps, answer, AtEpsilon(epsilon))

    @final
    def bound(self, steps: Steps, question: Question) -> Bound:
        """The answer to either question."""
        if isinstance(question, AtDelta):
            return self.epsilon(steps, delta=question.delta)
        return self.delta(steps, epsilon=question.epsilon)

    @abc.abstractmethod
    def _epsilon(self, steps: Steps, delta: float) -> Answer:
        """Epsilon for a noise multiplier above 0 and a delta in (0, 1)."""

    @abc.abstractmethod
    def _delta(self, steps: Steps, epsilon: float) -> Answer:
        """Delta for a noise multiplier above 0 and an epsilon of at least 0."""

    def _computed(
        self, formula: Callable[[Steps, float], Answer], steps: Steps, given: float
    ) -> Answer:
        """The answer of one of the formulas; a failure of arithmetic is an error with a remedy."""
        try:
            answer = formula(steps, given)
        except DpauditError:
            raise
        except (ArithmeticError, ValueError) as error:
            reason = f"failed ({error})"
        else:
            if not math.isnan(answer.value):
                return answer
            reason = "computed NaN"
        raise NumericalError(f"accountant {self.name} {reason} for {steps}; use another accountant")

    def _bound(self, steps: Steps, answer: Answer, question: Question) -> Bound:
        value = float(answer.value)
        # Round-off may leave the range of the quantity.
        most = math.inf if isinstance(question, AtDelta) else 1.0
        return Bound(
            **question.answered(min(max(value, 0.0), most)),
            side="upper",
            method=self.name,
            assumptions=steps.assumptions + answer.assumptions,
            mu=answer.mu,
            numerical_error=answer.numerical_error,
            notes=answer.notes,
            details=steps.details | dict(answer.details),
        )


class Accountant(Accounting[NoisySteps]):
    """An accountant whose bounds hold for every adversary, also if it sees all iterates.

    One that sets ``supports_sampling`` to False raises `InvalidInput` for sampled steps.
    """

    supports_sampling: ClassVar[bool] = True


def every_bound(
    accountants: Mapping[str, type[Accounting[Steps]]], steps: Steps, question: Question
) -> Bounds:
    """The bound of each accountant; one without an answer is listed with its reason."""
    bounds: list[Bound] = []
    unavailable: list[Unavailable] = []
    for name in accountants:
        try:
            bounds.append(accountants[name]().bound(steps, question))
        except DpauditError as error:
            unavailable.append(Unavailable(method=name, reason=str(error)))
    return Bounds(bounds=tuple(bounds), unavailable=tuple(unavailable))
