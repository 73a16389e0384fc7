"""Lower bounds on epsilon from the scores of an audit. No file here imports torch.

The names are loaded on first use, so that a list of the methods does not import scipy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

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

_HOMES = {
    "base": "CountMethod Method ScoreMethod",
    "counts": "ErrorCounts",
    "estimating": "estimate estimate_all lower_bound",
    "profile": "ProvenCurve proven_curve",
    "registry": "METHODS",
    "thresholds": "RULES Best Bonferroni Fixed Pilot Simultaneous ThresholdRule",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
