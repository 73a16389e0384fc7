"""Responses to crafted gradients, and the unit in which they are measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final


@final
@dataclass(frozen=True, kw_only=True)
class Response:
    """How far one crafted gradient moved the output along its own direction, with its error."""

    size: float
    error: float
    finite: bool = True


@final
@dataclass(frozen=True, kw_only=True)
class Unit:
    """The effect of a contribution of norm exactly C on the output.

    Arguments:
        size: How far the output moves.
        error: Error of ``size``.
        kind: ``linear`` if short gradients act in proportion to their norm (clipping),
            ``normalised`` if all act alike (automatic clipping), ``absent`` if no effect was seen,
            ``unclear`` otherwise.
    """

    size: float
    error: float
    kind: Literal["linear", "normalised", "absent", "unclear"]

    @property
    def known(self) -> bool:
        """Whether contributions can be measured in this unit."""
        return self.kind in ("linear", "normalised")

    @property
    def why_not(self) -> str:
        """The reason where it is not known."""
        if self.kind == "absent":
            return (
                "the canary has no effect: is it in the batch under this seed, is its coordinate "
                "trained, and is the optimizer plain SGD? An adaptive one such as Adam hides it; "
                "check its private gradient with check_step"
            )
        return (
            "the output is neither linear in short gradients nor the same for all of them, as with "
            "an adaptive optimizer; check its private gradient with check_step"
        )
