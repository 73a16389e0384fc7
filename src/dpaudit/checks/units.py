"""Contributions, and the unit that they are measured in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final


@final
@dataclass(frozen=True, kw_only=True)
class Response:
    """What one crafted gradient did: how far along its own direction, and how surely."""

    size: float
    error: float
    finite: bool = True


@final
@dataclass(frozen=True, kw_only=True)
class Unit:
    """What a contribution of norm exactly C does to the output.

    Arguments:
        kind: ``linear`` if short gradients act in proportion (clipping), ``normalised`` if they all
            act alike (automatic clipping), ``absent`` if nothing was seen, ``unclear`` otherwise.
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
                "the canary left no trace: is it in the batch under this seed, is its coordinate "
                "trained, and is the optimizer plain SGD? An adaptive one, as Adam, hides it; "
                "check its private gradient with check_step"
            )
        return (
            "the output is neither linear in short gradients nor the same for all of them, as an "
            "adaptive optimizer would have it; check its private gradient with check_step"
        )
