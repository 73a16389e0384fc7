"""Exact privacy of the one-dimensional landscape process: densities, landscapes, search."""

from dpaudit.exact.clock import ChainLandscape, Clock, fitted_clock
from dpaudit.exact.densities import Resolution, densities
from dpaudit.exact.escalator import Escalator, fitted_escalator
from dpaudit.exact.landscapes import Constant, Literal, Staircase, Threshold, Wells
from dpaudit.exact.named import (
    SHAPES,
    decision_point,
    fitted_staircase,
    fitted_wells,
    named_landscape,
)
from dpaudit.exact.pair import DensityPair, DiscretePair, GaussianPair, Pair
from dpaudit.exact.privacy import ExactPrivacy, constant_mu, exact_privacy, pairs
from dpaudit.exact.search import LandscapeSearch, search_landscape
from dpaudit.exact.simulate import SimulatedScores, simulate
from dpaudit.exact.sweep import Sweep, sweep
from dpaudit.exact.table import Table
from dpaudit.exact.thresholds import ThresholdSearch, best_threshold, threshold_search

__all__ = [
    "SHAPES",
    "ChainLandscape",
    "Clock",
    "Constant",
    "DensityPair",
    "DiscretePair",
    "Escalator",
    "ExactPrivacy",
    "GaussianPair",
    "LandscapeSearch",
    "Literal",
    "Pair",
    "Resolution",
    "SimulatedScores",
    "Staircase",
    "Sweep",
    "Table",
    "Threshold",
    "ThresholdSearch",
    "Wells",
    "best_threshold",
    "constant_mu",
    "decision_point",
    "densities",
    "exact_privacy",
    "fitted_clock",
    "fitted_escalator",
    "fitted_staircase",
    "fitted_wells",
    "named_landscape",
    "pairs",
    "search_landscape",
    "simulate",
    "sweep",
    "threshold_search",
]
