"""Descriptions of the audited mechanisms. Nothing here trains or accounts."""

from dpaudit.mechanisms.augmentation import Augmentation, FlipAndShift
from dpaudit.mechanisms.batches import (
    BatchPlan,
    FixedBatches,
    FullBatch,
    PoissonBatches,
    ReshuffledEpochs,
)
from dpaudit.mechanisms.clipping import (
    AutomaticClipping,
    Clipping,
    FlatClipping,
    NormalisedGradients,
)
from dpaudit.mechanisms.correlation import CorrelatedNoise
from dpaudit.mechanisms.dpsgd import DPSGD, FixedInitialisation, FreshInitialisation, Insertion
from dpaudit.mechanisms.losses import cross_entropy, hinge, logistic, squared_error
from dpaudit.mechanisms.optimizers import (
    SGD,
    Adam,
    ConstantRate,
    ExponentialAverage,
    LearningRateSchedule,
    Optimizer,
    UniformAverage,
    WarmupDecay,
    WeightAveraging,
)
from dpaudit.mechanisms.smoothness import (
    GivenLipschitz,
    LinearModel,
    SmoothLoss,
    Smoothness,
    SoftmaxHead,
)

__all__ = [
    "DPSGD",
    "SGD",
    "Adam",
    "Augmentation",
    "AutomaticClipping",
    "BatchPlan",
    "Clipping",
    "ConstantRate",
    "CorrelatedNoise",
    "ExponentialAverage",
    "FixedBatches",
    "FixedInitialisation",
    "FlatClipping",
    "FlipAndShift",
    "FreshInitialisation",
    "FullBatch",
    "GivenLipschitz",
    "Insertion",
    "LearningRateSchedule",
    "LinearModel",
    "NormalisedGradients",
    "Optimizer",
    "PoissonBatches",
    "ReshuffledEpochs",
    "SmoothLoss",
    "Smoothness",
    "SoftmaxHead",
    "UniformAverage",
    "WarmupDecay",
    "WeightAveraging",
    "cross_entropy",
    "hinge",
    "logistic",
    "squared_error",
]
