"""One example changes the update by at most C in total, also through the other examples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from dpaudit._arrays import Array
from dpaudit.checks.findings import Finding, Rule
from dpaudit.checks.measuring import Measurements
from dpaudit.checks.rules._needs import NOT_LINEAR, clipping, one_step, same_output
from dpaudit.checks.rules.base import Check, Found
from dpaudit.checks.subject import UserCodeFailed
from dpaudit.checks.transforms import bends

RULE = Rule(
    name="bounded total change",
    requirement="One example changes the whole update by at most C, wherever its gradient lies and "
    "whatever it does to the other examples.",
    cause="A sum or a mean of several examples is clipped, so that one of them rescales the "
    "others; or a tensor is left out of the norm that decides the clipping; or the clip norm is "
    "computed from the batch.",
    remedy="Clip each example by itself, by the norm over all tensors, to a constant C.",
    seen_in="APPFL #349, tf-privacy #81",
)

_TENSORS = 24  # of which each costs a call
_ADAPTIVE = 20.0  # times the claimed noise: short gradients are scaled down, as by Adam
_ALIKE = 1.5  # scales of one tensor differ by less, up to rounding; a flat vector has no tensors
_MIXED = 1.3  # times C: noise behind a public map is measured less precisely


def check(measured: Measurements, found: Found) -> Finding:
    """Long gradients in one tensor at a time, alone and beside others, against a zero gradient."""
    if measured.cover > _ADAPTIVE:
        return RULE.unknown(NOT_LINEAR)
    if measured.mixes and not measured.white:
        return RULE.unknown(
            "A public linear map leaves noise in few directions, so that changes do not add up."
        )
    ruler = _against_noise(measured) if measured.mixes else _against_unit(measured)
    if ruler is None:
        return RULE.unknown("Rounding hides contributions in single tensors.")
    worst, allowed = 0.0, f"at most {ruler.allowed:.4g} C"
    for name, gradient, companions in _gradients(measured):
        try:
            changed = _change(measured, gradient, companions)
        except UserCodeFailed:
            continue  # the training expects exactly one row
        if not np.all(np.isfinite(changed)):
            continue  # another rule's business
        size = ruler.size(changed)
        if size - ruler.floor > ruler.allowed:
            if bends(measured):
                return RULE.unknown(NOT_LINEAR)
            return RULE.broken(
                f"A gradient of norm 1e+06 C in {name} changes the update by {size:.4g} C in "
                "total.",
                measured=f"{size:.4g} C",
                allowed=allowed,
            )
        worst = max(worst, size)
    seen = {"measured": f"{worst:.4g} C", "allowed": allowed}
    if ruler.floor > 0.5 * ruler.allowed:
        return RULE.unknown("Rounding hides changes of this size.", **seen)
    return RULE.passed(**seen)


@final
@dataclass(frozen=True, kw_only=True)
class _Ruler:
    """How the size of a change is measured.

    Arguments:
        scales: What a contribution of C does along each coordinate; zero if it is not trained.
        floor: What rounding may add.
        allowed: The largest allowed size.
    """

    scales: Array
    floor: float
    allowed: float

    def size(self, changed: Array) -> float:
        """The norm of a change, in multiples of C."""
        trained = self.scales > 0
        return float(np.linalg.norm(changed[trained] / self.scales[trained]))


def _against_unit(measured: Measurements) -> _Ruler | None:
    """Measure changes by what short gradients do to each coordinate."""
    scales = _scales(measured)
    if scales is None:
        return None
    trained = scales > 0
    cover = measured.cover_of_scales
    allowed = 1 + measured.slack + 2 * measured.unit.error / measured.unit.size
    return _Ruler(
        scales=scales,
        floor=float(np.linalg.norm(measured.rounding[trained] / scales[trained])),
        allowed=max(allowed, 1.03 * cover) if cover > 1.1 else allowed,
    )


def _against_noise(measured: Measurements) -> _Ruler | None:
    """Measure changes by the noise, which a public linear map scales like the changes."""
    if not measured.white or not measured.noise_is_there:
        return None
    scale = measured.noise_level() / measured.subject.noise_multiplier
    return _Ruler(
        scales=np.full(measured.subject.parameters, scale),
        floor=float(np.linalg.norm(measured.rounding)) / scale,
        allowed=_MIXED,
    )


def _scales(measured: Measurements) -> Array | None:
    """The effect of a contribution of C along each coordinate, between the measured ones."""
    known = measured.scales()
    if known is None:
        return None
    places, parameters = measured.spread, np.arange(measured.subject.parameters)
    right = np.searchsorted(places, parameters)  # the first place that is not before
    left = np.searchsorted(places, parameters, side="right") - 1
    # Between two measured coordinates the larger scale: their tensors may differ.
    scales: Array = np.maximum(known[0][left], known[0][np.minimum(right, len(places) - 1)])
    for tensor in measured.tensors:
        inside = known[0][(places >= tensor.start) & (places < tensor.stop)]
        if len(inside) and inside.max() <= _ALIKE * inside.min():
            scales[tensor.start : tensor.stop] = np.median(inside)
    if measured.unit.kind == "linear":
        scales[measured.axis] = measured.unit.size
    return scales


def _gradients(measured: Measurements) -> list[tuple[str, Array, Array | None]]:
    """Names, long gradients, and gradients of other examples beside them."""
    tensors, long = measured.tensors, 1e6 * measured.subject.clip_norm
    chosen = np.unique(np.linspace(0, len(tensors) - 1, min(len(tensors), _TENSORS)).astype(int))
    axis = measured.along_axis(long)
    # Others in the same micro-batch, in the opposite direction.
    others = -2 * measured.subject.clip_norm * np.tile(axis / long, (3, 1))
    gradients: list[tuple[str, Array, Array | None]] = [
        ("one coordinate", axis, None),
        ("one coordinate, beside three other examples", axis, others),
    ]
    for place in chosen:
        tensor = tensors[int(place)]
        if tensor.size:
            places = np.arange(tensor.start, tensor.stop)
            gradients.append((tensor.name, measured.dense(long, places), None))
    return gradients


def _change(measured: Measurements, gradient: Array, companions: Array | None) -> Array:
    """The change against a zero gradient, so that the batch size is the same."""
    ends = [
        measured.subject.output(one, measured.seeds[0], measured.steps, companions=companions)
        for one in (gradient, np.zeros_like(gradient))
    ]
    return ends[0] - ends[1]


CHECK = Check(
    rule=RULE,
    run=check,
    after=("bounded", "zero-gradient"),
    needs=(clipping, same_output, one_step),
)
