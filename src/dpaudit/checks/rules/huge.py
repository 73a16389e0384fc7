"""Gradients whose norm overflows, and gradients of zero."""

from __future__ import annotations

import numpy as np

from dpaudit.checks.findings import Finding, Rule
from dpaudit.checks.measuring import Measurements
from dpaudit.checks.rules._extreme import judge_entries
from dpaudit.checks.rules._needs import clipping
from dpaudit.checks.rules.base import Check, Found

RULE = Rule(
    name="huge and zero gradients",
    requirement="A gradient whose norm overflows is clipped or dropped; a zero gradient is "
    "harmless.",
    cause="The square of a large entry overflows, or zero is divided by a norm of zero, so that "
    "the result is not a number, or is not clipped.",
    remedy="Scale by the largest entry before squaring, drop what is not finite, and clip with "
    "min(1, C / norm), never with C / norm alone.",
    seen_in="jax_privacy PR #309 (norms in half precision)",
)

_ENTRIES = {"an entry of 1e30": 1e30, "an entry of 1e300": 1e300, "only zeros": 0.0}


def check(measured: Measurements, found: Found) -> Finding:
    """Entries of 1e30 and 1e300, where the output's own type can hold them, and all zeros."""
    # In float32, 1e300 is infinity, which another rule checks.
    wide = measured.precision < np.finfo(np.float32).eps
    entries = {name: value for name, value in _ENTRIES.items() if wide or value < 1e38}
    return judge_entries(measured, RULE, entries)


CHECK = Check(rule=RULE, run=check, after=("bounded",), needs=(clipping,))
