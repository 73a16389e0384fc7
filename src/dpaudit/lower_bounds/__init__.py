"""Lower bounds: what the scores of an audit prove. One file a paper; nothing here knows torch."""

from dpaudit.lower_bounds.counts import ErrorCounts
from dpaudit.lower_bounds.estimating import METHODS, estimate, estimate_all, lower_bound
from dpaudit.lower_bounds.profile import ProvenCurve, proven_curve
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
    "ErrorCounts",
    "Fixed",
    "Pilot",
    "ProvenCurve",
    "Simultaneous",
    "ThresholdRule",
    "estimate",
    "estimate_all",
    "lower_bound",
    "proven_curve",
]
