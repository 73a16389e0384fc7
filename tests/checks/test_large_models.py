"""Models with more parameters than those whose noise is kept: every tensor is looked at."""

import numpy as np
import pytest

from dpaudit import GradientCanary
from dpaudit.checks import check_training, measure

SIZES = {"first": 300, "frozen": 150, "bias": 3, "last": 347}
STARTS = dict(zip(SIZES, np.cumsum([0, *SIZES.values()]).tolist(), strict=False))
SIZE, SIGMA = sum(SIZES.values()), 2.0


@pytest.fixture(autouse=True)
def _few_are_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a model of millions: the end of a tensor and a whole bias lie between watched ones."""
    monkeypatch.setattr(measure, "_WATCHED", 101)
    monkeypatch.setattr(measure, "_SPREAD", 64)
    even = np.linspace(0, SIZE - 1, 101).astype(int)
    assert STARTS["frozen"] - 1 not in even
    assert not set(even) & set(range(STARTS["bias"], STARTS["last"]))


def train_with(*, silent=None):
    def train(canary, inserted, seed, steps=1):
        random, theta = np.random.default_rng(seed), np.zeros(SIZE)
        for _ in range(steps):
            rows = canary.rows(inserted)
            rows = np.where(np.isfinite(rows).all(axis=1, keepdims=True), rows, 0.0)
            largest = np.abs(rows).max(axis=1, keepdims=True, initial=0.0) + 1e-300
            norms = largest * np.linalg.norm(rows / largest, axis=1, keepdims=True)
            clipped = (rows * np.minimum(1, 1 / np.maximum(norms, 1e-300))).sum(axis=0)
            noise = random.normal(0, SIGMA, SIZE)
            if silent:
                noise[STARTS[silent] :][: SIZES[silent]] = 0
            gradient = clipped + noise
            gradient[STARTS["frozen"] :][: SIZES["frozen"]] = 0
            theta -= 0.1 * gradient
        return {name: theta[STARTS[name] :][:size].copy() for name, size in SIZES.items()}

    return train


def check(train):
    axis = np.array([7])
    canary = GradientCanary(parameters=SIZE, dimensions=axis, clip_norm=1.0, norm=10.0)
    return check_training(train, canary, noise_multiplier=SIGMA)


def test_noise_of_a_frozen_neighbour_is_no_alarm():
    assert not check(train_with()).broken


def test_a_small_tensor_without_noise_is_found():
    found = check(train_with(silent="bias"))["noise in every parameter"]
    assert found.verdict == "broken"
    assert "bias" in found.explanation
