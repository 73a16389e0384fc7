"""Optimizers, schedules, averaging and kinds of clipping: slow twins and the scores under them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import slow_training
import torch

from dpaudit import audit, plan
from dpaudit.adversaries import (
    DiracGradient,
    OneRunWhiteBox,
    RandomDimension,
    SimulatedDimension,
)
from dpaudit.adversaries.sums import noisy_sums
from dpaudit.engine import Speed
from dpaudit.engine.evaluate import GenuineSums
from dpaudit.errors import InvalidInput
from dpaudit.games import Game, TilePlayer, prepare
from dpaudit.mechanisms import (
    DPSGD,
    SGD,
    Adam,
    AutomaticClipping,
    CorrelatedNoise,
    ExponentialAverage,
    Insertion,
    LinearModel,
    NormalisedGradients,
    UniformAverage,
    WarmupDecay,
)
from dpaudit.mechanisms.final_model import gradient_weights
from dpaudit.mechanisms.optimizers import LearningRateSchedule
from dpaudit.testing import easy_training
from dpaudit.threat_models import CraftedDimensions, StandardView

EXACT = Speed(device="cpu", precision="float64", compile=False, workers=1)
FAST = Speed(device="cpu", compile=False, workers=1)

SETTINGS: dict[str, dict[str, Any]] = {
    "momentum": {"optimizer": SGD(momentum=0.9)},
    "nesterov": {"optimizer": SGD(momentum=0.8, nesterov=True)},
    "adam": {"optimizer": Adam(), "learning_rate": 0.05},
    "adamw, warm-up, cosine": {
        "optimizer": Adam(beta1=0.8, beta2=0.99),
        "weight_decay": 0.3,
        "schedule": WarmupDecay(warmup=2),
        "learning_rate": 0.05,
    },
    "linear decay": {"schedule": WarmupDecay(decay="linear", last=0.1)},
    "exponential average": {"averaging": ExponentialAverage(decay=0.8)},
    "momentum, uniform average, decay": {
        "optimizer": SGD(momentum=0.5),
        "averaging": UniformAverage(),
        "weight_decay": 0.1,
    },
    "normalised gradients": {"clipping": NormalisedGradients()},
    "automatic clipping": {"clipping": AutomaticClipping(stability=0.1)},
    "correlated noise": {"correlation": CorrelatedNoise.square_root(bands=3)},
    "correlated noise, one band": {"correlation": CorrelatedNoise(coefficients=(2.0,))},
    "correlated noise, momentum, average": {
        "correlation": CorrelatedNoise(coefficients=(1.0, 0.4)),
        "optimizer": SGD(momentum=0.5),
        "averaging": UniformAverage(),
    },
}


def training(name: str, **more: Any) -> DPSGD:
    return replace(easy_training(noise_multiplier=1.0), **{"steps": 5, **SETTINGS[name], **more})


def game(mechanism: DPSGD, adversary: Any, runs: int = 2) -> Game:
    canaries = CraftedDimensions(dimensions=torch.tensor([4]), norm=1.0)
    return Game(mechanism=mechanism, adversary=adversary, canaries=canaries, runs=runs)


@pytest.mark.parametrize("name", SETTINGS)
def test_iterates_equal_the_slow_twins(name: str) -> None:
    described = game(training(name), DiracGradient())
    trained = TilePlayer(prepare(described, EXACT)).train(torch.arange(2))
    iterates = torch.stack([current.clone() for _, current in trained])
    for run in range(2):
        expected = slow_training.play(described, run)
        torch.testing.assert_close(iterates[:, run], expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", SETTINGS)
def test_released_models_equal_the_slow_twins(name: str) -> None:
    described = game(training(name), RandomDimension())
    *_, (_, released) = TilePlayer(prepare(described, EXACT)).train(torch.arange(2))
    for run in range(2):
        expected = slow_training.released(described, run)
        torch.testing.assert_close(released[run], expected, rtol=1e-8, atol=1e-10)


def test_clipped_norms_are_at_most_the_clip_norm() -> None:
    norms = torch.tensor([0.0, 1e-3, 0.5, 1.0, 30.0], dtype=torch.float64)
    for clipping in (NormalisedGradients(), AutomaticClipping(), training("momentum").clipping):
        clipped = norms * clipping.factor(norms, 0.7)
        assert bool((clipped <= 0.7 * (1 + 1e-12)).all()), clipping
        assert float(clipped[0]) == 0


@pytest.mark.parametrize("name", ["momentum", "nesterov", "linear decay"])
def test_linear_optimizers_are_inverted_exactly(name: str) -> None:
    described = game(training(name), DiracGradient())
    iterates = slow_training.play(described, 1).unsqueeze(1)
    view = StandardView(mechanism=described.mechanism, iterates=iterates)
    found = torch.stack([noisy[0] for noisy in noisy_sums(view)])
    genuine = GenuineSums(described.mechanism, iterates)
    plain = game(replace(described.mechanism, optimizer=SGD()), DiracGradient())
    noise = slow_training.play(plain, 1)  # the first step has the same noise and canary
    first = (noise[0] - noise[1]) * 30 / described.mechanism.rate(0)
    torch.testing.assert_close(found[0], first, rtol=1e-7, atol=1e-8)
    left = found - torch.stack([genuine(step)[0] for step in range(5)])
    assert float(left.std()) == pytest.approx(1.0, abs=0.35)  # noise of the sum: sigma C = 1


def test_a_step_without_learning_rate_is_named() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Pausing(LearningRateSchedule):
        def factor(self, step: int, steps: int) -> float:
            return float(step != 2)

    mechanism = replace(training("momentum"), schedule=Pausing())
    view = StandardView(mechanism=mechanism, iterates=torch.zeros(6, 1, 3))
    with pytest.raises(InvalidInput, match="step 2"):
        list(noisy_sums(view))


def separation(mechanism: DPSGD, adversary: Any, runs: int, **options: Any) -> float:
    scores = audit(mechanism, adversary, runs=runs, speed=FAST, **options).scores
    ones, zeros = scores.inserted_scores, scores.other_scores
    return float((ones.mean() - zeros.mean()) / np.sqrt((ones.var() + zeros.var()) / 2))


LINEAR = [
    "momentum",
    "linear decay",
    "exponential average",
    "momentum, uniform average, decay",
    "correlated noise, momentum, average",
]


@pytest.mark.parametrize("name", LINEAR)
def test_plans_know_how_much_the_released_model_shows(name: str) -> None:
    mechanism = training(name, steps=12, noise_multiplier=2.0, learning_rate=1e-3)
    insertion, runs = Insertion(period=2), 1000
    expected = plan(mechanism, RandomDimension(), runs=4, insertion=insertion, speed=FAST).mu
    found = separation(mechanism, RandomDimension(), runs=runs, insertion=insertion)
    assert found == pytest.approx(expected, abs=3 * np.sqrt(4 / runs + expected**2 / (2 * runs)))


def test_weights_of_steps_equal_those_of_single_gradients() -> None:
    for name in LINEAR:
        mechanism = training(name, steps=7)
        optimizer, averaging = mechanism.optimizer, mechanism.averaging
        for step, weight in enumerate(gradient_weights(mechanism)):
            current = average = velocity = 0.0
            for now in range(7):
                rate = mechanism.rate(now)
                current, state = optimizer.step(
                    (1 - rate * mechanism.weight_decay) * current,
                    float(now == step),
                    (velocity,),
                    rate=rate,
                    count=now + 1,
                )
                velocity = state[0] if state else 0.0
                if averaging is not None:
                    average = averaging.update(average, current, count=now + 1)
            released = current if averaging is None else average
            assert weight == pytest.approx(-released, rel=1e-12)


def test_plans_approximate_the_final_model_of_adam() -> None:
    mechanism = training("adamw, warm-up, cosine", steps=60, noise_multiplier=2.0)
    expected, runs = plan(mechanism, RandomDimension(), runs=4, speed=FAST), 1000
    assert any("Adam" in notice for notice in expected.notices)
    assert expected.mu < 0.9 * np.sqrt(60) / 2
    found = separation(mechanism, RandomDimension(), runs=runs)
    sampling_error = 3 * np.sqrt(4 / runs + found**2 / (2 * runs))
    assert found == pytest.approx(expected.mu, abs=sampling_error + 0.05 * expected.mu)
    assert not plan(mechanism, DiracGradient(), runs=4, speed=FAST).notices


@pytest.mark.slow
@pytest.mark.parametrize("name", ["momentum", "nesterov"])
def test_a_gc_stays_within_five_percent_of_the_accountant_under_momentum(name: str) -> None:
    mechanism = training(name, steps=250, noise_multiplier=4.0, learning_rate=0.001)
    accountant = np.sqrt(250) / 4
    found = separation(mechanism, SimulatedDimension(), runs=2000)
    assert found == pytest.approx(accountant, rel=0.05 + 3 / np.sqrt(1000) / accountant)


def test_inverting_adam_beats_the_movement() -> None:
    mechanism = training("adam", steps=50, noise_multiplier=4.0, learning_rate=0.01)
    accountant = np.sqrt(50) / 4
    naive = separation(mechanism, RandomDimension(), runs=1200)
    adapted = separation(mechanism, DiracGradient(), runs=1200)
    assert adapted > naive
    assert adapted == pytest.approx(accountant, rel=0.12)


def test_one_run_scores_are_adapted_too() -> None:
    """At every other step the sum of movements would mix canary and momentum."""
    mechanism = training("momentum", steps=40, noise_multiplier=2.0, learning_rate=0.005)
    result = audit(mechanism, OneRunWhiteBox(), runs=400, insertion=Insertion(period=2), speed=FAST)
    ones, zeros = result.scores.inserted_scores, result.scores.other_scores
    found = (ones.mean() - zeros.mean()) / np.sqrt((ones.var() + zeros.var()) / 2)
    assert found == pytest.approx(np.sqrt(20) / 2, rel=0.2)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: SGD(momentum=1.0), "momentum"),
        (lambda: SGD(nesterov=True), "momentum"),
        (lambda: Adam(beta2=1.0), "beta2"),
        (lambda: Adam(epsilon=0.0), "epsilon"),
        (lambda: WarmupDecay(decay="steps"), "decay"),
        (lambda: ExponentialAverage(decay=1.0), "decay"),
        (lambda: AutomaticClipping(stability=0.0), "stability"),
    ],
)
def test_invalid_settings_are_refused(make: Any, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        make()


def test_lipschitz_constants_are_for_plain_dp_sgd() -> None:
    with pytest.raises(InvalidInput, match="plain"):
        LinearModel(loss="logistic").step_lipschitz(training("momentum"))
