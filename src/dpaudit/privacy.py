"""Core types: a bound on the privacy loss, the question it answers, and what adversaries see."""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any, Literal, final

from dpaudit import _validate
from dpaudit._numbers import decimals, percent
from dpaudit.errors import InvalidInput

Side = Literal["lower", "upper"]
Guarantee = Literal["confidence", "credible", "none"]

DETECT, LEAST_POWER = 0.5, 0.8
"""An audit is ``consistent`` with a claim only if noise `DETECT` times as large as claimed would
have been found with at least the probability `LEAST_POWER`, unless others are asked for."""


class ThreatModel(enum.Enum):
    """What the adversary sees of a training run.

    *Hidden state*: only the final model is released. *Standard*: every iterate is released.
    *Black box*: only losses or predictions are released.
    """

    HIDDEN_STATE = "hidden state"
    STANDARD = "standard"
    BLACK_BOX = "black box"


@final
@dataclass(frozen=True, kw_only=True)
class Bound:
    """A bound on the privacy loss, with its confidence and assumptions.

    The mechanism's epsilon at ``delta`` is at least (``side="lower"``) or at most
    (``side="upper"``) ``epsilon``. If ``quantity`` is ``"delta"``, epsilon was given and delta is
    the bounded number.

    Arguments:
        epsilon: The privacy loss, at least 0; infinite only in an upper bound.
        delta: The delta of (epsilon, delta)-DP, in [0, 1].
        side: ``"lower"`` for an audit, ``"upper"`` for an accountant.
        method: The name of the estimator or accountant.
        confidence: Probability that a lower bound holds, in the sense of ``guarantee``; `None` for
            an upper bound, which always holds.
        guarantee: Of a lower bound: ``"confidence"`` if a theorem says that it holds in this share
            of all audits, ``"credible"`` if it is a posterior probability, and ``"none"`` if the
            method or the choice of the threshold has no theorem. Bounds of the last two kinds are
            for comparison with papers.
        assumptions: What must be true for the bound to hold; empty if nothing is assumed.
        sample_size: Number of scores behind a lower bound; `None` for an upper bound.
        quantity: Which of the two numbers is the result.
        mu: The Gaussian-DP parameter, where the method goes through one.
        numerical_error: Bound on the numerical error of the result, where it is known.
        notes: Diagnostics, and the reason for a lower bound of 0.
        details: Further numbers of the method, by name.

    Example:
        >>> Bound(epsilon=2.0, delta=1e-5, side="lower", method="clopper-pearson", confidence=0.95)
        Bound(epsilon >= 2.0000 at delta=1e-05, 95% confidence, clopper-pearson)
    """

    epsilon: float
    delta: float
    side: Side
    method: str
    confidence: float | None = None
    guarantee: Guarantee = "confidence"
    assumptions: tuple[str, ...] = ()
    sample_size: int | None = None
    quantity: Literal["epsilon", "delta"] = "epsilon"
    mu: float | None = None
    numerical_error: float | None = None
    notes: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        # A NaN could be read as "no leak".
        if math.isnan(self.epsilon) or self.epsilon < 0:
            raise InvalidInput(f"epsilon of a Bound must be at least 0, got {self.epsilon!r}")
        if not 0 <= self.delta <= 1:
            raise InvalidInput(f"delta of a Bound must be in [0, 1], got {self.delta!r}")
        if self.side == "lower":
            if math.isinf(self.epsilon):
                raise InvalidInput("a lower bound on epsilon from finitely many scores is finite")
            if self.confidence is None:
                raise InvalidInput("a lower bound needs its confidence")
        object.__setattr__(self, "details", MappingProxyType(dict(self.details)))

    def __reduce__(self) -> tuple[partial[Bound], tuple[()]]:
        # A read-only view of a dictionary cannot be pickled.
        return partial(Bound, **{**vars(self), "details": dict(self.details)}), ()

    @property
    def value(self) -> float:
        """The bounded number: epsilon, or delta if epsilon was given."""
        return self.epsilon if self.quantity == "epsilon" else self.delta

    @property
    def level(self) -> str:
        """The confidence in words; empty for an upper bound.

        "95 % confidence", "95 % credible", or "nominally 95 %" where nothing is guaranteed.
        """
        if self.confidence is None:
            return ""
        share = f"{percent(self.confidence)} %"
        if self.guarantee == "none":
            return f"nominally {share}"
        return f"{share} {self.guarantee}"

    def to_dict(self) -> dict[str, Any]:
        """The bound as plain data, as ``--json`` prints it; infinity becomes "inf"."""
        fields: dict[str, Any] = {
            "method": self.method,
            "side": self.side,
            "quantity": self.quantity,
            "epsilon": _finite(self.epsilon),
            "delta": self.delta,
            "confidence": self.confidence,
            "guarantee": self.guarantee if self.side == "lower" else None,
            "assumptions": list(self.assumptions),
            "sample_size": self.sample_size,
        }
        if self.mu is not None:
            fields["mu"] = _finite(self.mu)
        if self.numerical_error is not None:
            fields["numerical_error"] = self.numerical_error
        fields["notes"] = list(self.notes)
        fields |= {name: value for name, value in self.details.items() if name not in fields}
        return fields

    def __repr__(self) -> str:
        sign = ">=" if self.side == "lower" else "<="
        if self.quantity == "epsilon":
            what = f"epsilon {sign} {decimals(self.epsilon, 4)} at delta={self.delta:g}"
        else:
            what = f"delta {sign} {self.delta:.4g} at epsilon={self.epsilon:g}"
        return (
            f"Bound({', '.join(filter(None, [what, self.level.replace(' %', '%'), self.method]))})"
        )


@final
@dataclass(frozen=True, kw_only=True)
class Question:
    """What is bounded: epsilon at ``delta``, or delta at ``epsilon``. Exactly one is given."""

    delta: float | None = None
    epsilon: float | None = None

    def __post_init__(self) -> None:
        if (self.delta is None) == (self.epsilon is None):
            raise InvalidInput(
                "give either delta or epsilon: delta to bound epsilon, epsilon to bound delta; "
                f"got delta={self.delta!r} and epsilon={self.epsilon!r}"
            )
        if self.epsilon is None:
            _validate.delta(self.delta)
        else:
            _validate.non_negative("epsilon", self.epsilon)


@final
@dataclass(frozen=True, kw_only=True)
class Unavailable:
    """A method without a bound in this case, and the reason."""

    method: str
    reason: str

    def to_dict(self) -> dict[str, Any]:
        """The entry as plain data."""
        return {"method": self.method, "reason": self.reason}


@final
@dataclass(frozen=True, kw_only=True)
class Bounds:
    """The bounds of several methods, and the methods that gave none.

    Each bound holds at its own confidence; the largest one, chosen afterwards, does not.
    """

    bounds: tuple[Bound, ...]
    unavailable: tuple[Unavailable, ...] = ()

    def __iter__(self) -> Iterator[Bound]:
        return iter(self.bounds)

    def __getitem__(self, method: str) -> Bound:
        """The bound of one method, by name."""
        for bound in self.bounds:
            if bound.method == method:
                return bound
        for missing in self.unavailable:
            if missing.method == method:
                raise InvalidInput(f"method {method!r} is not available here: {missing.reason}")
        names = ", ".join(bound.method for bound in self.bounds)
        raise InvalidInput(f"method must be one of {names}, got {method!r}")


def _finite(number: float) -> float | str:
    """JSON has no infinity."""
    return number if math.isfinite(number) else "inf"
