"""Descriptions of the audited mechanisms. Nothing here trains or accounts."""

from dpaudit.mechanisms.batches import (
    BatchPlan,
    FixedBatches,
    FullBatch,
    PoissonBatches,
    ReshuffledEpochs,
)
from dpaudit.mechanisms.dpsgd import DPSGD, FixedInitialisation, FreshInitialisation, Insertion
from dpaudit.mechanisms.landscape import BatchLandscapes, Landscape, LandscapeProcess, Scaling
from dpaudit.mechanisms.smoothness import (
    GivenLipschitz,
    LinearModel,
    SmoothLoss,
    Smoothness,
    SoftmaxHead,
    UnclippedConvex,
)

__all__ = [
    "DPSGD",
    "BatchLandscapes",
    "BatchPlan",
    "FixedBatches",
    "FixedInitialisation",
    "FreshInitialisation",
    "FullBatch",
    "GivenLipschitz",
    "Insertion",
    "Landscape",
    "LandscapeProcess",
    "LinearModel",
    "PoissonBatches",
    "ReshuffledEpochs",
    "Scaling",
    "SmoothLoss",
    "Smoothness",
    "SoftmaxHead",
    "UnclippedConvex",
]
