"""Score what a training returned: one number per canary."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np

from dpaudit import _validate
from dpaudit._arrays import Array
from dpaudit.errors import InvalidInput
from dpaudit.privacy import ThreatModel
from dpaudit.trainings.crafted import CraftedCanary
from dpaudit.trainings.parameters import as_array, flat_parameters, looks_like_parameters
from dpaudit.trainings.predictions import Predictions
from dpaudit.trainings.private_gradients import PrivateGradients

Kind = Literal["score", "parameters", "predictions", "private gradients", "own"]
AdversaryLike = Callable[[Any, Any], Any] | str | None

NAMES = ("score", "parameters", "predictions", "private gradients")


class UnscorableReturn(InvalidInput):
    """The returned value cannot be scored, and would not be in any other run."""


class NotFinite(ValueError):
    """A score is not finite, so the run counts as failed."""


@final
@dataclass(frozen=True, kw_only=True)
class Scorer:
    """Scores what one training returned.

    Arguments:
        canary: The canary that was passed to the training.
        adversary: One of `NAMES`, a function of (canary, returned), or `None` to choose by type.
        initial: The parameters at the start of training, flat or as the training returns them.
    """

    canary: Any
    adversary: AdversaryLike = None
    initial: Any = None

    def __post_init__(self) -> None:
        if self.adversary is not None and not callable(self.adversary):
            _validate.one_of(
                "adversary",
                self.adversary,
                NAMES,
                remedy="or give a function of (canary, returned) that returns the score",
            )
        if self.initial is not None:
            start = flat_parameters(self.initial)
            _check_initial(start, self.canary)
            object.__setattr__(self, "initial", start)  # a copy: training may change a model

    @property
    def canaries(self) -> int:
        """Canaries per run: the count of a `GradientCanary`, otherwise one."""
        return canaries_of(self.canary)

    def kind(self, returned: Any) -> Kind:
        """The adversary for a returned value."""
        if returned is None and not callable(self.adversary):
            raise UnscorableReturn(
                "the training returned None, and nothing can be scored: does it end without "
                "'return'? A training returns a number (higher for 'inserted'), the final "
                "parameters, or dpaudit.Predictions"
            )
        if callable(self.adversary):
            return "own"
        if self.adversary is not None:
            return self.adversary  # type: ignore[return-value]  # checked above
        if isinstance(returned, Predictions):
            return "predictions"
        if isinstance(returned, PrivateGradients):
            return "private gradients"
        if isinstance(self.canary, CraftedCanary):
            size = _size(returned)
            if size == self.canary.parameters or size not in (None, self.canaries):
                return "parameters"
        elif looks_like_parameters(returned) and _size(returned) != self.canaries:
            raise UnscorableReturn(
                f"the training returned {_words(returned)}, which looks like parameters; they can "
                f"be scored for a GradientCanary, and canary is {_words(self.canary)}; give "
                "adversary=, a function of (canary, returned), or return a score"
            )
        return "score"

    def score(self, returned: Any) -> tuple[Kind, Array]:
        """One finite score per canary, and the adversary that gave it."""
        kind = self.kind(returned)
        scores = self._scored(kind, returned)
        if scores.shape != (self.canaries,):
            raise UnscorableReturn(
                f"one score for each of {self.canaries} canaries is needed, got shape "
                f"{scores.shape} from {_words(returned)}"
            )
        if not np.isfinite(scores).all():
            wrong = int(np.flatnonzero(~np.isfinite(scores))[0])
            raise NotFinite(
                f"the score of canary {wrong} is {scores[wrong]}, and must be finite: the training "
                "diverged, or it returned values that are not finite"
            )
        return kind, scores

    def _scored(self, kind: Kind, returned: Any) -> Array:
        try:
            if kind == "own":
                return np.atleast_1d(as_array(self._own(returned)))
            if kind in ("score", "private gradients"):
                return np.atleast_1d(as_array(returned))
            if kind == "predictions":
                if not isinstance(returned, Predictions):
                    raise InvalidInput("Predictions(probabilities=…, target=…) are expected")
                return returned.log_likelihood()
            if not isinstance(self.canary, CraftedCanary):
                raise InvalidInput(
                    f"parameters are scored for a GradientCanary, and canary is "
                    f"{_words(self.canary)}; give adversary=, a function of (canary, returned)"
                )
            initial = None if self.initial is None else flat_parameters(self.initial)
            return self.canary.score(flat_parameters(returned), initial)
        except InvalidInput as error:
            raise UnscorableReturn(
                f"the training returned {_words(returned)}, which the {_ADVERSARIES[kind]} cannot "
                f"score: {error}; a training returns a number (higher for 'inserted'), the final "
                "parameters, or dpaudit.Predictions"
            ) from error

    def _own(self, returned: Any) -> Any:
        try:
            return self.adversary(self.canary, returned)  # type: ignore[operator,misc]
        except Exception as error:
            raise InvalidInput(f"it raised {type(error).__name__}: {error}") from error


_ADVERSARIES: dict[Kind, str] = {
    "score": "adversary 'score'",
    "parameters": "adversary 'parameters'",
    "predictions": "adversary 'predictions'",
    "private gradients": "adversary 'private gradients'",
    "own": "function given as adversary",
}

THREAT_MODELS: dict[Kind, ThreatModel | None] = {
    "score": None,
    "parameters": ThreatModel.HIDDEN_STATE,
    "predictions": ThreatModel.BLACK_BOX,
    "private gradients": ThreatModel.STANDARD,
    "own": None,
}
"""What each adversary sees; `None` if only the user knows what the score was made of."""


def canaries_of(canary: Any) -> int:
    """The ``count`` of a canary that has one, otherwise 1."""
    count = getattr(canary, "count", 1)
    return int(count) if isinstance(count, int) and not isinstance(count, bool) else 1


def names_of(canary: Any) -> tuple[str, ...]:
    """The names of the canaries, which are then tested one by one; empty if they have none."""
    names = canary.names if isinstance(canary, CraftedCanary) else ()
    if names and (len(names) != canary.count or len(set(names)) != len(names)):
        raise InvalidInput(
            f"names must be one for each of the {canary.count} canaries, all different, got "
            f"{len(names)}: {', '.join(names[:5])}"
        )
    return tuple(names)


def coverage_of(canary: Any) -> str:
    """What the canaries test, in words."""
    if not isinstance(canary, CraftedCanary):
        return "what the score shows of this canary; other records and other scores may show more"
    if canary.names:
        return f"every tensor that has a canary ({len(canary.names)})"
    dimensions = getattr(canary, "dimensions", None)
    if dimensions is None:
        return f"{canary.count} random direction(s) in all {canary.parameters:,} parameters"
    which = f"parameter {int(dimensions[0])}" if canary.count == 1 else f"{canary.count:,}"
    return (
        f"{which} of {canary.parameters:,} parameters, not tensors without a canary: "
        "GradientCanary.per_tensor has one in each"
    )


def _size(returned: Any) -> int | None:
    try:
        return len(flat_parameters(returned))
    except InvalidInput:
        return None


def _check_initial(initial: Array, canary: object) -> None:
    if isinstance(canary, CraftedCanary) and len(initial) != canary.parameters:
        raise InvalidInput(
            f"initial must have one number for each of the {canary.parameters} parameters that "
            f"the canary was drawn for, got {len(initial)}"
        )
    wrong = int((~np.isfinite(initial)).sum())
    if wrong:
        raise InvalidInput(f"initial must be finite, got {wrong} numbers that are not")


def _words(value: Any) -> str:
    """The type and shape of a value, which may be too large to print."""
    if value is None:
        return "None"
    shape = getattr(value, "shape", None)
    of = f" of shape {tuple(shape)}" if shape is not None else ""
    if isinstance(value, str | bool | int | float):
        of = f" ({value!r:.60})"
    return f"a {type(value).__name__}{of}"
