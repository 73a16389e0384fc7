"""Devices and precisions: what is chosen, and that a CPU reproduces the results of a GPU."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dpaudit.adversaries import RandomDimension, SimulatedDimension
from dpaudit.audits import audit, identity
from dpaudit.engine import Speed
from dpaudit.testing import easy_training
from dpaudit_paper.trainings import Trainings

SHARED = Path(__file__).parents[3] / "shared" / "data"
DATA = Path(os.environ.get("DPAUDIT_DATA", SHARED))

# Six runs of the ConvNet under Xavier's weights, drawn anew in each: the scores after ten steps on
# one H200 (torch 2.11, compiled by triton, products in TF32), with 20,000 training images.
ON_AN_H200 = [
    -0.03349285200238228,
    -0.07643920928239822,
    0.16648823022842407,
    0.12790843844413757,
    0.006812194362282753,
    0.10596074163913727,
]
INSERTED = [True, False, True, False, True, False]
BATCHES = [f"cifar-10-batches-bin/data_batch_{number}.bin" for number in (1, 2, 3)]


@pytest.mark.slow
@pytest.mark.skipif(
    [(DATA / name).is_file() for name in BATCHES] != [True, True, False],
    reason="needs the first two batches of CIFAR-10, and these alone",
)
def test_scores_of_a_gpu_are_scores_of_a_cpu_but_for_rounding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Uncompiled; other tests compare compiled trainings with uncompiled ones."""
    # They were played with the seed itself; now seeds depend on the number of runs, too.
    monkeypatch.setattr(identity, "sample_seed", lambda *, seed, runs, phase: seed)
    trainings = Trainings(
        preset="convnet",
        adversary=RandomDimension(),
        runs=6,
        weights="xavier",
        known_start=False,
    )
    scores = audit(
        replace(trainings.mechanism(str(DATA)), steps=10),
        trainings.adversary,
        runs=6,
        seed=trainings.seed,
        speed=Speed(device="cpu", compile=False, workers=1),
        anyway=True,
    ).scores
    assert scores.inserted.tolist() == INSERTED
    np.testing.assert_allclose(scores.score, ON_AN_H200, atol=2e-6)


@pytest.mark.parametrize(
    ("precision", "device", "expected"),
    [("auto", "cpu", "float32"), ("auto", "cuda", "tf32"), ("float32", "cuda", "float32")],
)
def test_the_default_precision_depends_on_the_device(
    precision: Any, device: str, expected: str
) -> None:
    settled = Speed(precision=precision).settled(torch.device(device))
    assert (settled.precision, settled.device) == (expected, device)


def test_adversaries_craft_on_the_device_of_the_audit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A simulation on another device would fail here, and elsewhere give other canaries."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    speed = Speed(device="cpu", compile=False, workers=1)
    result = audit(
        easy_training(noise_multiplier=1.0), SimulatedDimension(), runs=4, anyway=True, speed=speed
    )
    assert result.configuration["speed"]["precision"] == "float32"
