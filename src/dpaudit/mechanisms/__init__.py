"""Descriptions of the audited mechanisms. Nothing here trains or accounts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpaudit._loading import on_first_use

if TYPE_CHECKING:
    from dpaudit.mechanisms.batches import (
        BatchPlan,
        FixedBatches,
        FullBatch,
        PoissonBatches,
        ReshuffledEpochs,
    )
    from dpaudit.mechanisms.clipping import (
        Augmentation,
        AutomaticClipping,
        Clipping,
        FlatClipping,
        FlipAndShift,
        NormalisedGradients,
    )
    from dpaudit.mechanisms.correlation import CorrelatedNoise
    from dpaudit.mechanisms.dpsgd import DPSGD, FixedInitialisation, FreshInitialisation, Insertion
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
        UnclippedConvex,
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
    "UnclippedConvex",
    "UniformAverage",
    "WarmupDecay",
    "WeightAveraging",
]

if not TYPE_CHECKING:  # otherwise type checkers would accept every name
    __getattr__, __dir__ = on_first_use(
        __name__,
        {
            "batches": "BatchPlan FixedBatches FullBatch PoissonBatches ReshuffledEpochs",
            "clipping": "Augmentation AutomaticClipping Clipping FlatClipping FlipAndShift "
            "NormalisedGradients",
            "correlation": "CorrelatedNoise",
            "dpsgd": "DPSGD FixedInitialisation FreshInitialisation Insertion",
            "optimizers": "SGD Adam ConstantRate ExponentialAverage LearningRateSchedule "
            "Optimizer UniformAverage WarmupDecay WeightAveraging",
            "smoothness": "GivenLipschitz LinearModel SmoothLoss Smoothness SoftmaxHead "
            "UnclippedConvex",
        },
    )
