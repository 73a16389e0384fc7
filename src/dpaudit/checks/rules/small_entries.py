"""Many small entries are clipped by their norm, also in half precision."""

from __future__ import annotations

import numpy as np

from dpaudit.checks.findings import Finding, Rule
from dpaudit.checks.measuring import Measurements
from dpaudit.checks.rules._judging import contribution, judged, largest, many_shapes
from dpaudit.checks.rules._needs import clipping
from dpaudit.checks.rules.base import Check, Found
from dpaudit.checks.units import unit_along

RULE = Rule(
    name="bounded contribution of small entries",
    requirement="A gradient of many small entries is clipped by the norm of all of them.",
    cause="Squares of small entries underflow to zero in half precision, or get lost in a long "
    "sum, so that the norm is too small and too little is clipped.",
    remedy="Compute norms in float32, whatever type the gradients have.",
    seen_in="jax_privacy PR #309",
)

_HALF_UNDERFLOW = 1.6e-4  # its square rounds to zero in float16


def check(measured: Measurements, found: Found) -> Finding:
    """Entries whose squares are zero in float16, enough of them to exceed C together."""
    parameters, clip_norm = measured.subject.parameters, measured.subject.clip_norm
    gradients = [measured.dense(share * clip_norm) for share in (1.5, 3.0)]
    longest = _HALF_UNDERFLOW * float(np.sqrt(parameters))
    reaches = longest >= 1.2 * clip_norm
    if reaches:
        gradients.append(measured.dense(longest))
    gradients += many_shapes(measured, lengths=np.geomspace(1.05, 100, 12))
    unit = unit_along(measured, gradients[0])
    worst = largest(
        contribution(measured, gradient, unit if place < 2 + reaches else None)
        for place, gradient in enumerate(gradients)
    )
    note = (
        f"With {parameters:,} parameters, entries whose squares are zero in float16 have norm "
        f"{longest:.2g} at most, which is too short to be clipped at C = {clip_norm:g}."
    )
    broken = (
        ""
        if worst is None
        else f"A gradient of norm {worst.length:.3g} C, made of many small entries, contributes "
        f"{worst.words}."
    )
    return judged(RULE, measured, worst, passed="" if reaches else note, broken=broken)


CHECK = Check(rule=RULE, run=check, after=("bounded", "whole-gradient"), needs=(clipping,))
