"""Exact privacy of the one-dimensional landscape process: densities, landscapes, search."""

from dpaudit.landscapes.batch_search import BatchSearch, search_batch_landscapes
from dpaudit.landscapes.clock import ChainLandscape, Clock, fitted_clock
from dpaudit.landscapes.composition import accountant_mu, decision_point
from dpaudit.landscapes.densities import Resolution, densities
from dpaudit.landscapes.escalator import Escalator, fitted_escalator
from dpaudit.landscapes.landscapes import Constant, Literal, Staircase, Threshold, Wells
from dpaudit.landscapes.moving_threshold import MovingThreshold, fitted_moving_threshold
from dpaudit.landscapes.named import (
    SHAPES,
    fitted_staircase,
    fitted_wells,
    named_landscape,
)
from dpaudit.landscapes.pair import DensityPair, DiscretePair, GaussianPair, Pair
from dpaudit.landscapes.privacy import ExactPrivacy, constant_mu, exact_privacy, pairs
from dpaudit.landscapes.reading_wells import Reading, ReadingWells, fitted_reading_wells
from dpaudit.landscapes.search import LandscapeSearch, search_landscape
from dpaudit.landscapes.simulate import SimulatedScores, simulate
from dpaudit.landscapes.table import Table
from dpaudit.landscapes.thresholds import ThresholdSearch, best_threshold, threshold_search

__all__ = [
    "SHAPES",
    "BatchSearch",
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
    "MovingThreshold",
    "Pair",
    "Reading",
    "ReadingWells",
    "Resolution",
    "SimulatedScores",
    "Staircase",
    "Table",
    "Threshold",
    "ThresholdSearch",
    "Wells",
    "accountant_mu",
    "best_threshold",
    "constant_mu",
    "decision_point",
    "densities",
    "exact_privacy",
    "fitted_clock",
    "fitted_escalator",
    "fitted_moving_threshold",
    "fitted_reading_wells",
    "fitted_staircase",
    "fitted_wells",
    "named_landscape",
    "pairs",
    "search_batch_landscapes",
    "search_landscape",
    "simulate",
    "threshold_search",
]
