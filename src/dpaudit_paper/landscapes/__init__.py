"""The paper's landscape adversary: a process in one dimension, its landscapes, its exact privacy.

The names are loaded on first use, so that the help of ``dpaudit landscape`` does not import scipy.
"""

from dpaudit._loading import on_first_use

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
