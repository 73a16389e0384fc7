"""Lower bounds on epsilon from the scores of an audit. No file here imports torch.

The names are loaded on first use, so that a list of the methods does not import scipy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpaudit._loading import on_first_use

if TYPE_CHECKING:
    from dpaudit.lower_bounds.base import CountMethod, Method, ScoreMethod
    from dpaudit.lower_bounds.counts import ErrorCounts
    from dpaudit.lower_bounds.estimating import estimate, estimate_all, lower_bound
    from dpaudit.lower_bounds.profile import ProvenCurve, proven_curve
    from dpaudit.lower_bounds.registry import METHODS
    from dpaudit.lower_bounds.thresholds import (
        RULES,
        Best,
        Bonferroni,
        Fixed,
        Pilot,
        Simultaneous,
        ThresholdRule,
    )

__all__ = [
    "METHODS",
    "RULES",
    "Best",
    "Bonferroni",
    "CountMethod",
    "ErrorCounts",
    "Fixed",
    "Method",
    "Pilot",
    "ProvenCurve",
    "ScoreMethod",
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
            "base": "CountMethod Method ScoreMethod",
            "counts": "ErrorCounts",
            "estimating": "estimate estimate_all lower_bound",
            "profile": "ProvenCurve proven_curve",
            "registry": "METHODS",
            "thresholds": "RULES Best Bonferroni Fixed Pilot Simultaneous ThresholdRule",
        },
    )
