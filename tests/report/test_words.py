"""The statement of an audit: one page, the same facts in the same order in every form."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from played import normal_scores, settings, store_audit

import dpaudit
from dpaudit import AuditResult, Claim, GradientCanary
from dpaudit.audits import read_result
from dpaudit.report.words import SUSPECTED
from dpaudit.scores import Store

CANARY = GradientCanary.draw(20, clip_norm=1.0, seed=1)
TENSORS = GradientCanary.per_tensor({"first": 8, "second": 12}, clip_norm=1.0)
CLAIM = Claim.from_mu(1.0)
SAMPLED = Claim.from_dpsgd(noise_multiplier=1.0, steps=100, sampling_rate=0.05)


def gaussian(noise: float) -> Callable[..., Any]:
    def train(canary: Any, inserted: Any, seed: int) -> Any:
        random = np.random.default_rng(seed)
        return -(canary.clipped_sum(inserted) + random.normal(0, noise, canary.parameters))

    train.__qualname__ = "train"
    return train


def fails_at_times(canary: object, inserted: bool, seed: int) -> float:
    random = np.random.default_rng(seed)
    if random.random() < 0.1:
        raise ValueError("at times")
    return float(inserted) + random.normal()


def own(noise: float = 1.0, **options: Any) -> AuditResult:
    options = {"canary": CANARY, "claim": CLAIM, "runs": 200, "anyway": True, **options}
    return dpaudit.audit(gaussian(noise), **options)


def preset(mu: float = 250**0.5 / 4, **options: Any) -> AuditResult:
    with Store.open(":memory:") as store:
        described = settings(runs=600, **options)
        return read_result(store_audit(store, normal_scores(mu, runs=600), described))


AUDITS: dict[str, tuple[Callable[[], AuditResult], str]] = {
    "preset": (preset, "consistent"),
    "preset with horizons": (lambda: preset(horizons=(50, 100, 200)), "consistent"),
    "preset without noise": (lambda: preset(noise_multiplier=0.0), "no-claim"),
    "function": (own, "consistent"),
    "sampled claim": (lambda: own(claim=SAMPLED, confirm=False), "violation"),
    "claimed epsilon": (lambda: own(claim=None, claimed_epsilon=4.0), "consistent"),
    "several tensors": (lambda: own(canary=TENSORS, runs=400), "consistent"),
    "tensors that leak": (lambda: own(0.4, canary=TENSORS), "violation"),
    "violation": (lambda: own(0.4), "violation"),
    "without fresh runs": (lambda: own(0.4, confirm=False), "violation"),
    "suspected": (lambda: own(0.75, runs=300, max_runs=300, seed=2), "inconclusive"),
    "inconclusive": (lambda: own(runs=40), "inconclusive"),
    "until violation": (lambda: own(0.3, until_violation=True, runs=400), "violation"),
    "failures": (
        lambda: dpaudit.audit(fails_at_times, claim=CLAIM, runs=200, anyway=True),
        "consistent",
    ),
}


@pytest.mark.parametrize("kind", AUDITS)
def test_every_form_has_the_same_facts_in_the_same_order(kind: str) -> None:
    play, verdict = AUDITS[kind]
    result = play()
    assert result.verdict == verdict
    page = result.summary().splitlines()
    assert len(page) <= 12
    assert max(map(len, page)) <= 80

    statement, text = result.statement, " ".join(result.summary().split())
    claimed, leading = statement.claimed, statement.shown[0]
    for form in (text, statement.sentence, repr(result)):
        if result.test is not None:
            assert form.index(claimed.value) < form.rindex(leading.value)
    # What the verdict rests on, and what would have been found, are never left out.
    assert statement.meaning[0] in text
    if verdict == "consistent":
        assert statement.meaning[1].startswith("Would have found")
        assert statement.meaning[1] in text
    else:
        assert statement.advice in text

    plain = json.loads(json.dumps(result.to_dict(), default=str))
    assert list(plain)[:5] == ["verdict", "suspected", "claimed", "shown", "meaning"]
    assert (plain["verdict"], plain["sentence"]) == (verdict, statement.sentence)
    assert (plain["claimed"] is None) == (result.test is None)
    if result.test is not None:
        assert plain["claimed"]["epsilon"] == pytest.approx(result.claimed_epsilon)
    assert [heading for heading, _ in statement.rows][:3] == ["Claimed", "Shown", "Meaning"]


def test_one_test_without_fresh_runs_says_its_level() -> None:
    page = " ".join(AUDITS["without fresh runs"][0]().summary().split())
    assert "One test at 5 % decides." in page


def test_suspected_stands_beside_a_bound_above_the_claim() -> None:
    result = AUDITS["suspected"][0]()
    assert result.suspected
    assert result.leading.epsilon > result.claimed_epsilon
    assert SUSPECTED in result.summary()
    assert SUSPECTED in result.sentence
    assert SUSPECTED not in AUDITS["violation"][0]().summary()


def test_a_claim_that_was_asked_for_is_the_claim_that_is_shown() -> None:
    """Also where an accountant knows a smaller bound."""
    with Store.open(":memory:") as store:
        record = store_audit(store, normal_scores(3.9, runs=600), settings(runs=600))
        result = read_result(record, claim=Claim.from_epsilon(30.0, 1e-5))
    assert result.to_dict()["claimed"]["epsilon"] == pytest.approx(30.0)
    assert result.to_dict()["least_upper"]["epsilon"] == pytest.approx(23.995, abs=1e-3)
    assert "30.00" in result.summary()
