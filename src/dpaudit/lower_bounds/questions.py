"""The questions that a lower bound answers, and its answer before it becomes a `Bound`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from dpaudit.curves import gaussian_delta, gaussian_epsilon
from dpaudit.privacy import AtDelta, AtEpsilon, Question, question_of

__all__ = ["Answer", "AtDelta", "AtEpsilon", "Question", "question_of"]


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
