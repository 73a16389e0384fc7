"""Responses to crafted gradients, and the unit in which they are measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, final

import numpy as np

from dpaudit._arrays import Array
from dpaudit.checks.arithmetic import direction

if TYPE_CHECKING:
    from dpaudit.checks.measuring import Measurements

ENDLESS = 1e6
"""A clipped gradient of so many C keeps a millionth of its length."""

_IMPRECISE = 0.005


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


def unit_along(measured: Measurements, gradient: Array) -> Unit:
    """The effect of a contribution of norm C along this gradient's direction.

    It is measured with gradients too short to be clipped. It differs between directions if tensors
    have different learning rates.
    """
    full = measured.subject.clip_norm * direction(gradient)
    if not measured.repeatable:
        # A short gradient is invisible in the noise: assume that noise is as claimed.
        size = measured.noise_level() * measured.insertions / np.sqrt(measured.steps)
        size /= measured.subject.noise_multiplier
        return Unit(size=float(size), error=0.05 * float(size), kind="linear")
    # A tenth is below every threshold even where each of a hundred tensors has its own.
    for share in (0.1, 0.5, 1.0):
        seen = measured.response(share * full)
        if seen.error <= _IMPRECISE * seen.size:
            break
    if seen.size <= 2 * seen.error or not seen.finite:
        return Unit(size=0.0, error=seen.error, kind="absent")
    half = measured.response(share / 2 * full)
    slack = 0.02 + 2 * seen.error / seen.size
    if abs(half.size / seen.size - 0.5) <= slack:
        size = seen.size / share
        if measured.steps > 1:
            # The other examples react to a canary, not always in proportion to its norm.
            size = max(size, measured.response(full).size)
        return Unit(size=size, error=seen.error / share, kind="linear")
    if measured.steps == 1 and measured.noise_is_there and measured.moves_alike:
        return Unit(size=seen.size, error=seen.error, kind="unclear")
    long = measured.response(1e3 * full)
    if half.size / seen.size > 0.75:
        return Unit(size=long.size, error=long.error, kind="normalised")
    longer = measured.response(ENDLESS * full)
    if long.finite and abs(longer.size / max(long.size, 1e-300) - 1) <= 0.01 + slack:
        return Unit(size=longer.size, error=longer.error, kind="normalised")
    return Unit(size=seen.size, error=seen.error, kind="unclear")
