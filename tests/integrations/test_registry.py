"""Every registered integration fulfils the contract; objects lead to their integration."""

import numpy as np
import pytest
import torch
from opacus_trainings import OPACUS_WARNINGS, flat, private

from dpaudit import integrations
from dpaudit._registry import Registry
from dpaudit.errors import InvalidInput
from dpaudit.integrations import INTEGRATIONS, Integration, integration_of
from dpaudit.testing import check_integration

pytestmark = OPACUS_WARNINGS

RATE, BATCH = 0.5, 24


def opacus_training():
    training = private(noise=0.0, rate=RATE, batch=BATCH)
    inputs, labels = next(iter(training.loader))

    def step():
        training.optimizer.zero_grad()
        training.criterion(training.model(inputs), labels).backward()
        training.optimizer.step()

    training.optimizer.noise_multiplier = 1e-12  # a claim needs noise; this much is invisible
    return training.optimizer, step, lambda: flat(training)


def optax_training():
    jax = pytest.importorskip("jax")
    contrib = pytest.importorskip("optax.contrib")
    private = contrib.differentially_private_aggregate(1.0, 4.0, jax.random.key(0))
    return private, lambda: None, lambda: np.zeros(2)


def jax_privacy_training():
    plans = pytest.importorskip("jax_privacy.experimental.execution_plan")
    plan = plans.BandMFExecutionPlanConfig(
        strategy=[1.0], iterations=3, epsilon=None, delta=None, noise_multiplier=4.0
    )
    return plan, lambda: None, lambda: np.zeros(2)


TRAININGS = {
    "opacus": (opacus_training, RATE / BATCH),
    "optax": (optax_training, 1.0),
    "jax-privacy": (jax_privacy_training, 1.0),
}


def test_every_shipped_integration_is_tested():
    assert set(INTEGRATIONS) == set(TRAININGS)


@pytest.mark.parametrize("name", TRAININGS)
def test_contract(name):
    make, rate = TRAININGS[name]
    check_integration(INTEGRATIONS[name](), make, learning_rate=rate)


def test_the_contract_finds_a_canary_that_is_lost():
    class Loses(type(INTEGRATIONS["opacus"]())):  # type: ignore[misc]
        def insert_canary(self, optimizer, canary, inserted, *, seed, **options):
            return super().insert_canary(optimizer, canary, False, seed=seed, **options)

    with pytest.raises(AssertionError, match="clipped gradient"):
        check_integration(Loses(), opacus_training, learning_rate=RATE / BATCH)


def test_objects_lead_to_their_integration():
    training = private(noise=1.0)
    for source in (training.optimizer, training.engine, training.engine.accountant):
        assert integration_of(source).name == "opacus"
    with pytest.raises(InvalidInput, match="SGD"):
        integration_of(torch.optim.SGD([torch.nn.Parameter(torch.zeros(2))], lr=1.0))
    with pytest.raises(InvalidInput, match="ndarray"):
        integration_of(np.zeros(3))


def test_a_library_that_is_not_installed_is_skipped(monkeypatch):
    """``dpaudit[jax]`` does not install torch, which the integration of Opacus imports."""
    absent = Registry("integration", "dpaudit.none", {
        "absent": "a_library_that_is_not_there:Integration",
        "opacus": "dpaudit.integrations.opacus:OpacusIntegration",
    })  # fmt: skip
    monkeypatch.setattr(integrations, "INTEGRATIONS", absent)
    assert integration_of(private(noise=1.0).optimizer).name == "opacus"


def test_an_integration_is_abstract_until_every_method_is_there():
    with pytest.raises(TypeError, match="abstract"):
        Integration()
