"""The paper's landscape adversary: a process in one dimension, its landscapes, its exact privacy.

The names are loaded on first use, so that the help of ``dpaudit landscape`` does not import scipy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpaudit._loading import on_first_use

if TYPE_CHECKING:
    from dpaudit_paper.landscapes.exact import (
        ExactPrivacy,
        exact_privacy,
        pairs,
        threshold_search,
    )
    from dpaudit_paper.landscapes.moving_threshold import MovingThreshold, fitted_moving_threshold
    from dpaudit_paper.landscapes.named import SHAPES, named_landscape
    from dpaudit_paper.landscapes.pair import DensityPair, DiscretePair, Pair
    from dpaudit_paper.landscapes.process import (
        BatchLandscapes,
        Landscape,
        LandscapeProcess,
        Scaling,
        accountant_mu,
        decision_point,
    )
    from dpaudit_paper.landscapes.propagation import Resolution, densities
    from dpaudit_paper.landscapes.reading_wells import ReadingWells, fitted_reading_wells
    from dpaudit_paper.landscapes.shapes import (
        Constant,
        PiecewiseLinear,
        Threshold,
        fitted_wells,
        from_file,
        wells,
    )
    from dpaudit_paper.landscapes.simulation import simulate

__all__ = [
    "SHAPES",
    "BatchLandscapes",
    "Constant",
    "DensityPair",
    "DiscretePair",
    "ExactPrivacy",
    "Landscape",
    "LandscapeProcess",
    "MovingThreshold",
    "Pair",
    "PiecewiseLinear",
    "ReadingWells",
    "Resolution",
    "Scaling",
    "Threshold",
    "accountant_mu",
    "decision_point",
    "densities",
    "exact_privacy",
    "fitted_moving_threshold",
    "fitted_reading_wells",
    "fitted_wells",
    "from_file",
    "named_landscape",
    "pairs",
    "simulate",
    "threshold_search",
    "wells",
]

if not TYPE_CHECKING:  # otherwise type checkers would accept every name
    __getattr__, __dir__ = on_first_use(
        __name__,
        {
            "exact": "ExactPrivacy exact_privacy pairs threshold_search",
            "moving_threshold": "MovingThreshold fitted_moving_threshold",
            "named": "SHAPES named_landscape",
            "pair": "DensityPair DiscretePair Pair",
            "process": (
                "BatchLandscapes Landscape LandscapeProcess Scaling accountant_mu decision_point"
            ),
            "propagation": "Resolution densities",
            "reading_wells": "ReadingWells fitted_reading_wells",
            "shapes": "Constant PiecewiseLinear Threshold fitted_wells from_file wells",
            "simulation": "simulate",
        },
    )
