"""The description of a training: what is accepted, what is refused, and what differs."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from dpaudit import audit
from dpaudit.adversaries import RandomDimension
from dpaudit.data import Examples
from dpaudit.engine import Speed
from dpaudit.errors import InvalidInput
from dpaudit.mechanisms import (
    DPSGD,
    SGD,
    AutomaticClipping,
    BatchPlan,
    CorrelatedNoise,
    FixedBatches,
    FlipAndShift,
    FreshInitialisation,
    UniformAverage,
    WarmupDecay,
)
from dpaudit.presets import preset
from dpaudit.testing import easy_training

SPEED = Speed(device="cpu", compile=False, workers=1)

OTHER: dict[str, Any] = {
    "weight_decay": 0.1,
    "optimizer": SGD(momentum=0.5),
    "schedule": WarmupDecay(),
    "averaging": UniformAverage(),
    "clipping": AutomaticClipping(),
    "augmentation": FlipAndShift(),
    "correlation": CorrelatedNoise.square_root(bands=2),
}


def test_every_setting_with_a_default_is_described() -> None:
    """A setting that is in no description would make different audits equal."""
    optional = {
        setting.name
        for setting in dataclasses.fields(DPSGD)
        if setting.default is not dataclasses.MISSING
        or setting.default_factory is not dataclasses.MISSING
    }
    assert set(OTHER) == optional - {"initialisation", "name", "smoothness"}
    training = easy_training()
    assert training.further_settings() == {}
    for name, value in OTHER.items():
        changed = replace(training, **{name: value})
        assert changed.further_settings() == {name: value}
        assert changed.is_plain == (name == "weight_decay")


def test_every_run_starts_from_a_copy_of_a_module() -> None:
    training = easy_training()
    torch.manual_seed(5)
    module = training.build_model()
    given = replace(training, build_model=module)
    one, two = given.build_model(), given.build_model()
    assert one is not module
    assert one is not two
    drawn = audit(
        training, RandomDimension(), runs=8, seed=1, speed=SPEED, anyway=True
    ).scores.score
    fixed = audit(given, RandomDimension(), runs=8, seed=1, speed=SPEED, anyway=True).scores.score
    assert np.isfinite(fixed).all()
    assert not np.array_equal(drawn, fixed)
    with pytest.raises(InvalidInput, match="build_model must be a function that draws new weights"):
        replace(given, build_model=module, initialisation=FreshInitialisation())


FEATURES, CLASSES = np.eye(6, dtype=np.float32), np.array([0, 1, 2, 0, 1, 2])


@pytest.mark.parametrize(
    "data",
    [
        (FEATURES, CLASSES),
        (torch.from_numpy(FEATURES).requires_grad_(), torch.from_numpy(CLASSES)),
        TensorDataset(torch.from_numpy(FEATURES), torch.from_numpy(CLASSES)),
    ],
    ids=["arrays", "tensors", "dataset"],
)
def test_a_pair_of_features_and_targets_is_converted(data: Any) -> None:
    converted = replace(easy_training(), data=data, batches=FixedBatches(batch_size=2)).data
    expected = Examples(features=FEATURES, targets=CLASSES, classes=3)
    assert converted.fingerprint == expected.fingerprint


def test_real_targets_of_a_pair_are_regression_and_tokens_stay_whole() -> None:
    assert Examples.of((FEATURES, FEATURES[:, 0])).classes is None
    tokens = Examples.of((torch.arange(6).view(3, 2), torch.tensor([0, 1, 0])))
    assert tokens.features.dtype == np.int64


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"batches": 64}, r"batches must be FixedBatches\(batch_size=...\) .*, got 64"),
        ({"batches": None}, "batches must be .*, got None"),
        ({"data": FEATURES}, r"data must be .* a pair \(features, targets\).*got ndarray"),
        ({"data": (FEATURES,)}, "data must be .*TensorDataset of two tensors"),
        ({"build_model": "net"}, "build_model must be a function without arguments"),
        ({"optimizer": "adam"}, r"optimizer must be SGD\(\), .*, got 'adam'"),
        ({"initialisation": 3}, "initialisation must be .*, got 3"),
        ({"schedule": 0.5}, "schedule must be .*, got 0.5"),
    ],
)
def test_settings_of_a_wrong_kind_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        replace(easy_training(), **wrong)


def test_the_sampling_rate_of_any_plan_counts() -> None:
    class Alternating(BatchPlan):
        """All examples; the canary takes part in half of the steps."""

        sampling_rate = 0.5

        def indices(self, step: int, examples: int) -> Any:
            return np.arange(examples)

        def expected_size(self, examples: int) -> float:
            return float(examples)

        def check(self, examples: int) -> None:
            pass

    sampled = replace(easy_training(), batches=Alternating())
    assert sampled.sampling_rate == 0.5
    with pytest.raises(InvalidInput, match="correlation needs batches without sampling"):
        replace(sampled, correlation=CorrelatedNoise.square_root(bands=2))
    assert preset("housing").training().sampling_rate is None
