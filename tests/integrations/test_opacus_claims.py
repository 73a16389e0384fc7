"""A claim is what the user's accountant says, and the curve of exactly the steps it was told."""

import json
import math

import numpy as np
import pytest
from opacus.accountants import PRVAccountant, RDPAccountant
from opacus_trainings import OPACUS_WARNINGS, fit, private

from dpaudit.claims import Claim
from dpaudit.errors import InvalidInput
from dpaudit.integrations.opacus import canary_for, claim_of, insert_canary
from dpaudit.lower_bounds.estimating import claimed_history

pytestmark = OPACUS_WARNINGS

ALPHAS = np.linspace(0.01, 0.9, 30)


def told(kind, *groups):
    accountant = kind()
    for noise, rate, steps in groups:
        for _ in range(steps):
            accountant.step(noise_multiplier=noise, sample_rate=rate)
    return accountant


def test_without_sampling_the_curve_is_gaussian_and_exact():
    claim = claim_of(told(PRVAccountant, (2.0, 1.0, 9), (4.0, 1.0, 28)))
    assert claim.mu == pytest.approx(math.sqrt(9 / 4 + 28 / 16))
    assert "PRVAccountant says epsilon" in claim.description


def test_with_sampling_it_is_the_curve_of_dpsgd():
    claim = claim_of(told(RDPAccountant, (1.0, 0.05, 20)))
    same = Claim.from_dpsgd(noise_multiplier=1.0, steps=20, sampling_rate=0.05)
    np.testing.assert_allclose(claim.tradeoff(ALPHAS), same.tradeoff(ALPHAS), rtol=1e-12)
    assert claim.settings == same.settings  # so that the family of the claim leads
    unequal = claim_of(told(RDPAccountant, (1.0, 0.05, 20), (2.0, 0.05, 20)))
    again = Claim.from_dict(json.loads(json.dumps(unequal.to_dict())))
    assert claimed_history(again.settings) == [(1.0, 0.05, 20), (2.0, 0.05, 20)]


@pytest.mark.parametrize("kind", [PRVAccountant, RDPAccountant])
def test_the_accountant_never_claims_less_epsilon_than_the_curve(kind):
    """Its pair is a looser statement: a curve that is refuted need not refute the pair."""
    accountant = told(kind, (1.0, 0.1, 30))
    curve, pair = claim_of(accountant), claim_of(accountant, curve=False)
    assert (pair.tradeoff(ALPHAS) <= curve.tradeoff(ALPHAS) + 1e-12).all()
    assert pair.epsilons == (pytest.approx(accountant.get_epsilon(1e-5)),)


@pytest.mark.parametrize("poisson", [False, True])
def test_read_from_engine_optimizer_or_accountant_after_training(poisson):
    training = private(noise=1.5, poisson=poisson, accountant="rdp")
    fit(training, epochs=2)
    sources = (training.engine, training.optimizer, training.engine.accountant)
    described = {claim_of(source, curve=False).description for source in sources}
    assert len(described) == 1
    assert "noise multiplier 1.5, 6 steps, Poisson sampling rate 0.333333" in described.pop()


def test_an_accountant_that_fails_does_not_take_the_curve_with_it():
    class Failing(RDPAccountant):
        def get_epsilon(self, delta, **_):
            raise OverflowError("too small a noise")

    accountant = told(Failing, (2.0, 1.0, 4))
    assert claim_of(accountant).mu == 1
    assert "Failing has no epsilon" in claim_of(accountant).description
    with pytest.raises(OverflowError):
        claim_of(accountant, curve=False)


def test_planned_is_what_the_history_will_say():
    training = private(noise=1.5, poisson=True, accountant="rdp")
    planned = claim_of(training.optimizer, steps=6)
    assert training.engine.accountant.history == []
    fit(training, epochs=2)
    assert planned == claim_of(training.optimizer)


def test_the_canary_does_not_change_what_is_accounted():
    training = private(noise=1.5, poisson=True)
    with insert_canary(training.optimizer, canary_for(training.optimizer), True, seed=0):
        fit(training)
    assert training.engine.accountant.history == [(1.5, pytest.approx(1 / 3), 3)]


def test_clipping_per_layer_claims_the_noise_over_the_root_of_summed_squares():
    norms = [0.5, 0.2, 0.3, 0.4]
    training = private(noise=2.0, clipping="per_layer", clip=norms, batch=24)
    assert training.optimizer.max_grad_norm == pytest.approx(math.hypot(*norms))
    claim = claim_of(training.optimizer, steps=4)
    assert claim.mu == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        (PRVAccountant, {}, "history is empty"),
        (dict, {}, "leads to no accountant"),
        (PRVAccountant, {"steps": 3}, "needs a DPOptimizer"),
        (PRVAccountant, {"delta": 0.0}, "delta must be in"),
        (lambda: told(RDPAccountant, (0.0, 0.1, 3)), {}, "without noise there is no claim"),
    ],
)
def test_refusals(source, options, message):
    with pytest.raises(InvalidInput, match=message):
        claim_of(source(), **options)
