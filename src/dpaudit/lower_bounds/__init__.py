"""Lower bounds on epsilon from the scores of an audit. No file here imports torch.

The names are loaded on first use, so that a list of the methods does not import scipy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpaudit._loading import on_first_use

if TYPE_CHECKING:
    from dpaudit.lower_bounds.counts import ErrorCounts
    from dpaudit.lower_bounds.estimating import estimate, estimate_all, lower_bound
    from dpaudit.lower_bounds.methods import Method, Reading, Request
    from dpaudit.lower_bounds.registry import DEFAULT_METHODS, METHODS
    from dpaudit.lower_bounds.selection import RULES, Fixed, Pilot, Simultaneous, ThresholdRule
    from dpaudit.lower_bounds.simultaneous import ProvenCurve, proven_curve

__all__ = [
    "DEFAULT_METHODS",
    "METHODS",
    "RULES",
    "ErrorCounts",
    "Fixed",
    "Method",
    "Pilot",
    "ProvenCurve",
    "Reading",
    "Request",
    "Simultaneous",
    "ThresholdRule",
    "estimate",
    "estimate_all",
    "lower_bound",
    "proven_curve",
]

if not TYPE_CHECKING:  # otherwise type checkers would accept every name
    __getattr__, __dir__ = on_first_use(
        __name__,
        {
            "counts": "ErrorCounts",
            "estimating": "estimate estimate_all lower_bound",
            "methods": "Method Reading Request",
            "registry": "DEFAULT_METHODS METHODS",
            "selection": "RULES Fixed Pilot Simultaneous ThresholdRule",
            "simultaneous": "ProvenCurve proven_curve",
        },
    )
