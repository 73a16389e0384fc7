"""Descriptions of the audited mechanisms. Nothing here trains or accounts."""

from dpaudit.mechanisms.batches import (
    BatchPlan,
    FixedBatches,
    FullBatch,
    PoissonBatches,
    ReshuffledEpochs,
)
from dpaudit.mechanisms.dpsgd import DPSGD, FixedInitialisation, FreshInitialisation, Insertion
from dpaudit.mechanisms.landscape import Landscape, LandscapeProcess, Scaling

__all__ = [
    "DPSGD",
    "BatchPlan",
    "FixedBatches",
    "FixedInitialisation",
    "FreshInitialisation",
    "FullBatch",
    "Insertion",
    "Landscape",
    "LandscapeProcess",
    "PoissonBatches",
    "ReshuffledEpochs",
    "Scaling",
]
