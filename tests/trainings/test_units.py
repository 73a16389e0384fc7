"""Units of privacy other than one record: a user with several records, shuffled epochs."""

from __future__ import annotations

import math

import numpy as np
import pytest

import dpaudit
from dpaudit import Claim, GradientCanary
from dpaudit.errors import InvalidInput
from dpaudit.trainings import DirectionCanary

SIGMA, STEPS, PARAMETERS = 2.0, 4, 20


def train(canary, inserted, seed):
    """DP-SGD that clips every record by itself."""
    random = np.random.default_rng(seed)
    theta = np.zeros(PARAMETERS)
    for _ in range(STEPS):
        rows = canary.rows(inserted)
        clipped = rows * np.minimum(1, 1 / np.maximum(np.linalg.norm(rows, axis=1), 1e-9))[:, None]
        theta -= clipped.sum(axis=0) + random.normal(0, SIGMA, PARAMETERS)
    return theta


CLAIM = Claim.from_dpsgd(noise_multiplier=SIGMA, steps=STEPS)


@pytest.mark.parametrize("kind", [GradientCanary, DirectionCanary])
def test_a_user_enters_with_all_records(kind):
    canary = kind.draw(PARAMETERS, clip_norm=1.0, records=4, unit="user")
    rows = canary.rows(True)
    assert rows.shape == (4, PARAMETERS)
    assert np.allclose(np.linalg.norm(rows, axis=1), 10.0)
    assert np.allclose(canary.clipped_sum(True), 4 * rows[0] / 10)


def test_several_records_need_an_owner():
    with pytest.raises(InvalidInput, match="what owns the 4 records"):
        GradientCanary.draw(PARAMETERS, clip_norm=1.0, records=4)
    with pytest.raises(InvalidInput, match="unit must be a word"):
        GradientCanary.draw(PARAMETERS, clip_norm=1.0, unit="a user")


def test_accounting_per_record_sold_as_per_user_is_found_in_fifty_runs():
    canary = GradientCanary.draw(PARAMETERS, clip_norm=1.0, records=4, unit="user")
    result = dpaudit.audit(train, canary=canary, claim=CLAIM.per("user"), runs=50, workers=1)
    assert result.verdict == "violation"
    assert "per user" in str(result)


def test_the_claim_of_group_privacy_is_kept():
    canary = GradientCanary.draw(PARAMETERS, clip_norm=1.0, records=4, unit="user")
    claim = Claim.from_mu(4 * math.sqrt(STEPS) / SIGMA).per("user")
    result = dpaudit.audit(train, canary=canary, claim=claim, runs=300, workers=1)
    assert result.verdict == "consistent"


@pytest.mark.parametrize(
    ("claim", "records", "unit"), [(CLAIM, 4, "user"), (CLAIM.per("user"), 1, "record")]
)
def test_a_claim_of_another_unit_is_refused_before_training(claim, records, unit):
    canary = GradientCanary.draw(PARAMETERS, clip_norm=1.0, records=records, unit=unit)

    def never(canary, inserted, seed):
        raise AssertionError(canary.rows(inserted), seed)

    with pytest.raises(InvalidInput, match="claim must be for the unit that the canary is"):
        dpaudit.audit(never, canary=canary, claim=claim, runs=300, workers=1)


def test_a_unit_is_part_of_the_claim():
    claim = CLAIM.per("client")
    assert claim.description.endswith("per client")
    assert Claim.from_dict(claim.to_dict()) == claim
    assert Claim.from_epsilon(1.0, 1e-5).per("user").bare.unit == "user"
    with pytest.raises(InvalidInput, match="which this claim has"):
        claim.per("user")


def test_a_claim_for_users_of_some_size_is_not_tested_with_larger_ones():
    claim = Claim.from_mu(2 * math.sqrt(STEPS) / SIGMA).per("user", records=2)
    assert Claim.from_dict(claim.to_dict()) == claim
    assert claim.description.endswith("per user with at most 2 records")
    canary = GradientCanary.draw(PARAMETERS, clip_norm=1.0, records=4, unit="user")
    with pytest.raises(InvalidInput, match="for a user with 4 records"):
        dpaudit.audit(train, canary=canary, claim=claim, runs=300, workers=1)
    canary = GradientCanary.draw(PARAMETERS, clip_norm=1.0, records=2, unit="user")
    result = dpaudit.audit(train, canary=canary, claim=claim, runs=300, workers=1)
    assert result.verdict == "consistent"
    with pytest.raises(InvalidInput, match="what owns 2 records"):
        CLAIM.per("record", records=2)


def test_shuffled_epochs_have_no_amplification():
    claim = Claim.from_shuffled(noise_multiplier=2.0, epochs=4)
    assert claim.mu == 1.0
    assert "no amplification" in claim.description
    poisson = Claim.from_dpsgd(noise_multiplier=0.5, steps=100, sampling_rate=0.01)
    shuffled = Claim.from_shuffled(noise_multiplier=0.5, epochs=1)
    assert poisson.epsilon(1e-5) < shuffled.epsilon(1e-5)
