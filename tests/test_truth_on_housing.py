"""The paper's smallest experiment, with fewer runs and smaller batches, has the predicted bounds.

The full table, with 5,000 runs and five seeds, is ``benchmarks/housing_truth.py``.
"""

from __future__ import annotations

import math

import pytest

from dpaudit.adversaries import FlippedLabel, RandomDirection, SimulatedDimension
from dpaudit.audits import AuditResult, audit
from dpaudit.engine import Speed
from dpaudit.lower_bounds.prediction import expected_bound, predicted_mu
from dpaudit.mechanisms.dpsgd import Insertion
from dpaudit.presets import housing

pytestmark = pytest.mark.slow

RUNS = 300
MU = math.sqrt(250) / 4
ERROR = math.sqrt(4 / RUNS + MU**2 / (2 * RUNS))  # standard error of an estimate of mu
SPEED = Speed(device="cpu", compile="fused")


def _mu(result: AuditResult) -> float:
    return float(result.lower["gaussian-fit"].details["mu_estimate"])


@pytest.fixture(scope="module")
def results() -> dict[str, AuditResult]:
    return {
        adversary.name: audit(
            housing(seed=1, batch_size=100), adversary, runs=RUNS, seed=1, speed=SPEED
        )
        for adversary in (SimulatedDimension(), RandomDirection(), FlippedLabel())
    }


def test_the_simulated_dimension_is_nearly_tight(results: dict[str, AuditResult]) -> None:
    result = results["simulated-dimension"]
    assert 0.88 * MU < _mu(result) < MU + 3 * ERROR
    typical = expected_bound(MU, scores=RUNS, delta=1e-5).epsilon
    assert result.final.leading.epsilon > 0.8 * typical


def test_crafted_gradients_beat_the_baseline(results: dict[str, AuditResult]) -> None:
    assert _mu(results["simulated-dimension"]) > _mu(results["flipped-label"]) + 1
    assert _mu(results["random-direction"]) > _mu(results["flipped-label"])
    leading = {name: result.final.leading.epsilon for name, result in results.items()}
    assert leading["simulated-dimension"] > 1.3 * leading["flipped-label"] > 0


def test_no_claim_is_called_violated(results: dict[str, AuditResult]) -> None:
    """A correct training: assumption-free bounds stay below, the claim test does not reject."""
    for result in results.values():
        upper = result.final.least_upper.epsilon
        assert upper == pytest.approx(23.995359, abs=1e-6)
        assert result.verdict != "violation"
        assert result.final.test is not None
        assert result.final.test.p_value > 1e-3
        for bound in result.lower:
            if not bound.assumptions:
                assert bound.epsilon < upper


def test_a_rare_canary_leaves_a_gap_of_the_predicted_size() -> None:
    """Every fifth step: the accountant composes 50 steps, the final model shows less of them."""
    result = audit(
        housing(seed=1, batch_size=100),
        SimulatedDimension(),
        runs=RUNS,
        insertion=Insertion(period=5),
        seed=1,
        speed=SPEED,
    )
    predicted = predicted_mu(noise_multiplier=4.0, steps=250, insertions=50)
    error = math.sqrt(4 / RUNS + predicted**2 / (2 * RUNS))
    assert abs(_mu(result) - predicted) < 4 * error
    assert result.final.least_upper.mu == pytest.approx(math.sqrt(50) / 4)
    assert result.final.leading.epsilon < result.final.least_upper.epsilon
