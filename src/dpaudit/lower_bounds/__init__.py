"""Lower bounds on epsilon from the scores of an audit. No file here imports torch."""

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
