"""The two questions a lower bound answers: epsilon at a delta, and delta at an epsilon."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from dpaudit import _validate
from dpaudit.errors import InvalidInput
from dpaudit.tradeoff import gaussian_delta, gaussian_epsilon


@final
@dataclass(frozen=True)
class AtDelta:
    """Bound epsilon at this delta."""

    delta: float

    def __post_init__(self) -> None:
        _validate.delta(self.delta)


@final
@dataclass(frozen=True)
class AtEpsilon:
    """Bound delta at this epsilon."""

    epsilon: float

    def __post_init__(self) -> None:
        _validate.non_negative("epsilon", self.epsilon)


Question = AtDelta | AtEpsilon


def question_of(delta: float | None, epsilon: float | None) -> Question:
    """The question asked by giving exactly one of delta and epsilon."""
    if (delta is None) == (epsilon is None):
        raise InvalidInput(
            f"give exactly one of delta and epsilon, got delta={delta!r} and epsilon={epsilon!r}"
        )
    return AtDelta(delta) if delta is not None else AtEpsilon(epsilon)  # type: ignore[arg-type]


@final
@dataclass(frozen=True, kw_only=True)
class Answer:
    """The bounded number, epsilon or delta, and the mu it was derived from, if any."""

    value: float
    mu: float | None = None

    @classmethod
    def of_mu(cls, mu: float, question: Question) -> Answer:
        """Epsilon or delta of a mechanism that is Gaussian-DP with at least this mu."""
        mu = max(mu, 0.0)
        if isinstance(question, AtDelta):
            return cls(value=gaussian_epsilon(question.delta, mu), mu=mu)
        return cls(value=float(gaussian_delta(question.epsilon, mu)), mu=mu)
