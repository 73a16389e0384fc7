"""What the scores come to: upper bounds of the right steps, and verdicts that are earned."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import numpy as np
import pytest

from dpaudit.audits import Assessment, AuditResult, Description, Question, assess
from dpaudit.audits.identity import DescribedAdversary, DescribedMechanism
from dpaudit.mechanisms.dpsgd import Insertion
from dpaudit.privacy import Bounds
from dpaudit.report.words import bounds_table, power_line
from dpaudit.scores import Scores
from dpaudit.upper_bounds import upper_bound


def _configuration(
    *,
    noise_multiplier: float = 4.0,
    steps: int = 250,
    period: int = 1,
    offset: int = 0,
    sampling_rate: float | None = None,
    threat_model: str = "hidden state",
) -> Description:
    return Description(
        mechanism=DescribedMechanism(
            name="test",
            steps=steps,
            learning_rate=0.1,
            clip_norm=1.0,
            noise_multiplier=noise_multiplier,
            sampling_rate=sampling_rate,
        ),
        adversary=DescribedAdversary(name="test", threat_model=threat_model),
        insertion=Insertion(period=period, offset=offset),
        runs=200,
    )


def sentence(found: Assessment) -> str:
    runs = len(found.scores)
    return AuditResult(
        audit="0" * 16,
        name=None,
        description=_configuration(),
        question=Question(),
        horizons=(found,),
        runs=runs,
        asked=runs,
    ).sentence


def _scores(mu: float, a_side: int, seed: int = 0) -> Scores:
    random = np.random.default_rng(seed)
    return Scores.from_samples(random.normal(mu, 1, a_side), random.normal(0, 1, a_side))


def _assess(mu: float, a_side: int, **configuration: Any) -> Assessment:
    """Twice as many fresh scores decide where the first ones raise a suspicion."""
    described = _configuration(**configuration)
    return assess(
        described,
        Question(),
        _scores(mu, a_side),
        fresh=(_scores(mu, 2 * a_side, seed=1), ()),
        horizon=described.mechanism.steps,
    )


@pytest.mark.parametrize("period", [1, 5, 25])
def test_only_insertion_steps_are_composed(period: int) -> None:
    configuration = _configuration(steps=250 * period, period=period)
    assert configuration.noisy_steps(250 * period)["steps"] == 250
    bound = upper_bound(**configuration.noisy_steps(250 * period), delta=1e-5)
    assert bound.epsilon == pytest.approx(23.995359, abs=1e-6)


def test_an_earlier_horizon_composes_fewer() -> None:
    configuration = _configuration(steps=50, period=5, offset=2)
    composed = [configuration.noisy_steps(horizon)["steps"] for horizon in (3, 7, 8, 50)]
    assert composed == [1, 1, 2, 10]


@pytest.mark.parametrize("sampling_rate", [None, 0.5])
def test_the_least_upper_bound_is_the_smallest_of_all(sampling_rate: float | None) -> None:
    found = _assess(1.0, 50, steps=4, sampling_rate=sampling_rate)
    assert len(found.upper.bounds) >= 3
    assert found.least_upper == min(found.upper, key=lambda bound: bound.epsilon)


def test_slow_accountants_are_asked_only_when_their_bounds_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []

    def all_upper_bounds(**steps: Any) -> Bounds:
        asked.append(steps["steps"])
        return Bounds(bounds=(upper_bound(**steps),))

    monkeypatch.setattr("dpaudit.audits.assessment.all_upper_bounds", all_upper_bounds)
    found = _assess(3.9, 200)
    assert found.verdict == "consistent"
    assert asked == []
    assert found.to_dict()["upper"]
    assert asked == [250]


def test_poisson_sampling_counts_every_step_at_its_rate() -> None:
    configuration = _configuration(noise_multiplier=1.0, steps=100, period=5, sampling_rate=0.02)
    expected = upper_bound(noise_multiplier=1.0, steps=100, sampling_rate=0.02, delta=1e-5)
    found = upper_bound(**configuration.noisy_steps(100), delta=1e-5)
    assert found.epsilon == expected.epsilon
    assert found.epsilon < upper_bound(noise_multiplier=1.0, steps=20, delta=1e-5).epsilon


def test_all_accountants_stand_in_the_upper_bounds() -> None:
    found = _assess(3.953, 100)
    assert [bound.method for bound in found.upper] == ["gaussian", "pld", "rdp", "prv"]
    assert found.least_upper.method == "gaussian"


def test_lower_bounds_of_one_canary_and_of_many() -> None:
    single = _assess(3.953, 200)
    assert [(b.method, b.details.get("threshold_rule")) for b in single.lower] == [
        ("gaussian-dp", "pilot"),
        ("clopper-pearson", "pilot"),
        ("clopper-pearson", "simultaneous"),
        ("gaussian-fit", None),
    ]
    sampled = assess(
        _configuration(steps=100, sampling_rate=0.1), Question(), single.scores, horizon=100
    )
    assert [bound.method for bound in sampled.lower][:2] == ["dpsgd", "clopper-pearson"]
    assert sampled.leading.method == "dpsgd"
    random = np.random.default_rng(0)
    coins = random.random(400) < 0.5
    many = Scores(
        score=random.normal(size=400) + 3.953 * coins, inserted=coins, run=np.arange(400) % 4
    )
    found = assess(_configuration(), Question(), many, horizon=250)
    assert [b.method for b in found.lower][-2:] == ["one-run", "one-run-fdp"]
    assert any("independent" in text for text in found.leading.assumptions)


@pytest.mark.parametrize(
    ("mu", "a_side", "verdict", "tightness"),
    [
        (3.953, 2500, "consistent", "tight"),
        (3.0, 2500, "consistent", "gap"),
        (1.0, 2500, "inconclusive", "gap"),
        (0.0, 2500, "inconclusive", "gap"),
        (3.953, 60, "inconclusive", "more-runs"),
        (5.5, 2500, "violation", None),
        (8.0, 300, "violation", None),
    ],
)
def test_verdicts(mu: float, a_side: int, verdict: str, tightness: str | None) -> None:
    found = _assess(mu, a_side)
    assert (found.verdict, found.tightness) == (verdict, tightness)
    assert sentence(found).startswith(verdict.capitalize())
    assert found.power is not None
    assert (power_line(found.power) in sentence(found)) == (verdict != "violation")


@pytest.mark.parametrize(
    ("settings", "known"),
    [
        ({"initialisation": {"class": "FixedInitialisation", "seed": 1}}, True),
        ({"initialisation": {"class": "FreshInitialisation"}}, False),
        ({}, False),
    ],
)
def test_the_power_states_its_condition_unless_only_the_noise_varies(
    settings: dict[str, Any], known: bool
) -> None:
    described = _configuration()
    mechanism = msgspec.structs.replace(described.mechanism, **settings)
    found = assess(
        dataclasses.replace(described, mechanism=mechanism),
        Question(),
        _scores(3.953, 200),
        horizon=mechanism.steps,
    )
    assert found.power is not None
    assert (found.power.condition == "") == known
    assert ("if batches" not in power_line(found.power)) == known


def test_a_true_claim_is_hardly_ever_called_violated() -> None:
    """40 tight audits at 5 %: more than 6 suspicions have probability 0.004."""
    results = [
        assess(
            _configuration(),
            Question(),
            _scores(3.9528, 500, seed),
            fresh=(_scores(3.9528, 1000, seed + 100), ()),
            horizon=250,
            every_accountant=False,
        )
        for seed in range(40)
    ]
    assert sum(one.test is not None and one.test.stage == 2 for one in results) <= 6
    assert sum(one.verdict == "violation" for one in results) <= 1


@pytest.mark.parametrize("a_side", [50, 250])
def test_few_scores_of_a_tight_training_are_hardly_ever_called_a_gap(a_side: int) -> None:
    """60 tight audits, each with at most 5 %: more than 8 would have probability 0.002."""
    verdicts = [
        assess(
            _configuration(),
            Question(),
            _scores(3.9528, a_side, seed),
            horizon=250,
            every_accountant=False,
        ).tightness
        for seed in range(60)
    ]
    assert verdicts.count("gap") <= 8


def test_without_noise_no_privacy_is_claimed() -> None:
    found = _assess(50.0, 100, noise_multiplier=0.0)
    assert found.verdict == "no-claim"
    assert np.isinf(found.least_upper.epsilon)
    assert found.to_dict()["upper"][0]["epsilon"] == "inf"
    assert "Nothing finite is claimed" in sentence(found)


def test_delta_of_zero_falls_back_on_a_bound_that_can_answer() -> None:
    found = assess(_configuration(), Question(delta=0.0), _scores(3.0, 200), horizon=250)
    assert found.leading.method == "clopper-pearson"
    assert found.verdict == "no-claim"


@pytest.mark.parametrize(
    ("threat_model", "seen"),
    [("hidden state", "only the final model"), ("standard", "every iterate")],
)
def test_the_sentence_says_what_the_adversary_saw(threat_model: str, seen: str) -> None:
    assert seen in sentence(_assess(3.953, 2500, threat_model=threat_model))


def test_the_summary_names_every_bound_and_assumption() -> None:
    found = _assess(3.953, 200)
    text = "\n".join(bounds_table([found.least_upper, *found.lower]))
    for bound in found.lower:
        assert f"{bound.epsilon:.4f}" in text
        for assumption in bound.assumptions:
            assert assumption in text
    assert text.splitlines()[2].split()[:3] == ["gaussian", "≤", "23.9954"]
