"""Matrix factorisation: the exact privacy of a linear training, and audits that reach it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dpaudit import audit, plan
from dpaudit.adversaries import DiracGradient, RandomDimension
from dpaudit.claims import Claim
from dpaudit.engine import Speed
from dpaudit.errors import InvalidInput
from dpaudit.mechanisms import DPSGD, CorrelatedNoise, Insertion, PoissonBatches
from dpaudit.testing import easy_training

FAST = Speed(device="cpu", compile=False, workers=1)
BANDED = CorrelatedNoise.square_root(bands=4)
STEPS, RUNS = 64, 400


def training(**more: object) -> DPSGD:
    """The gradients hardly change, so that the final model is a linear function of the noise."""
    settings = {"steps": STEPS, "noise_multiplier": 4.0, "learning_rate": 1e-4}
    return replace(easy_training(), **{**settings, "correlation": BANDED, **more})


class TestMathematics:
    @pytest.mark.parametrize("coefficients", [(1.0,), (2.0, 1.0, -0.5), (1.0, 0.5, 0.375, 0.3125)])
    def test_the_recursion_solves_the_matrix(self, coefficients):
        noise, fresh = (
            CorrelatedNoise(coefficients=coefficients),
            np.random.default_rng(0).normal(size=12),
        )
        past, found = [0.0] * noise.memory, []
        for number in fresh:
            found.append(noise.next(number, past))
            past = [found[-1], *past][: noise.memory]
        assert np.allclose(noise.matrix(12) @ found, fresh)

    def test_columns_have_norm_one(self):
        assert np.linalg.norm(BANDED.matrix(20), axis=0)[:17] == pytest.approx(np.ones(17))

    def test_sensitivity_is_the_largest_over_all_signs(self):
        noise = CorrelatedNoise(coefficients=(1.0, -0.6, 0.2))
        signs = np.array(np.meshgrid(*[[-1, 1]] * 6)).reshape(6, -1)
        largest = np.linalg.norm(noise.matrix(6) @ signs, axis=0).max()
        assert noise.sensitivity(range(6), steps=6) == pytest.approx(largest)

    def test_one_band_is_dp_sgd(self):
        alone = CorrelatedNoise(coefficients=(3.0,))
        assert alone.mu(2.0, range(9), steps=9) == pytest.approx(1.5)
        assert alone.spread_of_sum(np.ones(9)) == pytest.approx(3.0)

    def test_steps_further_apart_than_the_bands_compose_as_independent_ones(self):
        assert BANDED.mu(2.0, range(0, 16, 4), steps=16) == pytest.approx(np.sqrt(4) / 2)

    def test_no_test_of_the_final_model_beats_the_claim(self):
        """Cauchy-Schwarz: T <= |C 1| |C^-T 1|."""
        for bands in (1, 2, 8, 32):
            noise = CorrelatedNoise.square_root(bands=bands)
            final = 32 / noise.spread_of_sum(np.ones(32))
            assert final <= noise.sensitivity(range(32), steps=32) * (1 + 1e-12)

    def test_banded_noise_is_what_jax_privacy_accounts_for(self):
        toeplitz = pytest.importorskip("jax_privacy.matrix_factorization.toeplitz")
        strategy = np.array(BANDED.scaled, dtype=np.float32)
        squared = toeplitz.minsep_sensitivity_squared(strategy, min_sep=1, n=STEPS)
        assert BANDED.sensitivity(range(STEPS), steps=STEPS) ** 2 == pytest.approx(
            float(squared), rel=1e-4
        )


def exact_mu() -> float:
    return BANDED.mu(4.0, range(STEPS), steps=STEPS)


def test_the_claim_of_an_audit_is_exact():
    result = audit(training(), RandomDimension(), runs=4, anyway=True, speed=FAST)
    assert result.test.claim.mu == pytest.approx(exact_mu())
    assert result.least_upper.epsilon == pytest.approx(result.test.claim.epsilon(result.delta))
    given = Claim.from_matrix_factorisation(
        noise_multiplier=4.0, coefficients=BANDED.coefficients, steps=STEPS
    )
    assert given.mu == pytest.approx(exact_mu())


def separation(mechanism: DPSGD, adversary: object, runs: int) -> float:
    scores = audit(mechanism, adversary, runs=runs, speed=FAST).scores
    ones, zeros = scores.inserted_scores, scores.other_scores
    return float((ones.mean() - zeros.mean()) / np.sqrt((ones.var() + zeros.var()) / 2))


@pytest.mark.parametrize("adversary", [RandomDimension(), DiracGradient()], ids=lambda a: a.name)
def test_audits_are_tight_at_full_participation(adversary):
    """The exact separation is 0.985 of the claim for the final model, and 1 for all iterates."""
    found = separation(training(), adversary, runs=RUNS)
    final = STEPS / BANDED.spread_of_sum(np.ones(STEPS)) / 4.0
    exact = final if adversary.name == "random-dimension" else exact_mu()
    sampling_error = 3 * np.sqrt(4 / RUNS + exact**2 / (2 * RUNS))
    assert found == pytest.approx(exact, abs=sampling_error)
    assert exact >= 0.9 * exact_mu()
    assert found >= 0.9 * exact_mu() - sampling_error


def test_whitening_beats_the_plain_sum_of_noisy_gradients():
    """With a canary every second step, neighbouring steps show part of its noise."""
    noise, used = CorrelatedNoise.square_root(bands=8), np.arange(1, 32, 2)
    weights = noise.weights(used, steps=32)
    whitened = weights[used].sum() / np.linalg.norm(np.linalg.solve(noise.matrix(32).T, weights))
    assert whitened == pytest.approx(noise.sensitivity(used, steps=32))
    plain = np.zeros(32)
    plain[used] = 1
    seen = len(used) / np.linalg.norm(np.linalg.solve(noise.matrix(32).T, plain))
    assert seen < 0.8 * whitened


def test_plans_know_the_correlation():
    independent = plan(training(correlation=None), RandomDimension(), runs=10, speed=FAST)
    correlated = plan(training(), RandomDimension(), runs=10, speed=FAST)
    final = STEPS / BANDED.spread_of_sum(np.ones(STEPS)) / 4.0
    assert correlated.mu == pytest.approx(final)
    assert correlated.upper.epsilon > independent.upper.epsilon


def test_refusals():
    with pytest.raises(InvalidInput, match="FullBatch"):
        training(batches=PoissonBatches(rate=0.25))
    with pytest.raises(InvalidInput, match="coefficients"):
        CorrelatedNoise(coefficients=(0.0, 1.0))
    with pytest.raises(InvalidInput, match="bands"):
        CorrelatedNoise.square_root(bands=0)


def test_insertion_in_some_steps():
    mechanism, insertion = training(steps=16), Insertion(period=4, offset=3)
    result = audit(
        mechanism, RandomDimension(), runs=4, anyway=True, insertion=insertion, speed=FAST
    )
    used = [3, 7, 11, 15]
    assert result.test.claim.mu == pytest.approx(BANDED.mu(4.0, used, steps=16))
