"""Would more runs help? The bound on all of them, on parts of them, and the forecast."""

from __future__ import annotations

import pytest
from played import normal_scores

from dpaudit.audits.evidence import TIMES, Growth, growth
from dpaudit.lower_bounds import estimate
from dpaudit.scores import Scores


def grown(scores: Scores, *, fitted: float | None = 2.0, claimed: float | None = 4.0) -> Growth:
    found = growth(
        scores,
        leading=estimate(scores, method="gaussian-dp", delta=1e-5),
        confidence=0.95,
        seed=0,
        fitted_mu=fitted,
        claimed_mu=claimed,
    )
    assert found is not None
    return found


def test_the_last_dot_is_the_bound_on_everything() -> None:
    scores = normal_scores(2.0, runs=800)
    found = grown(scores)
    whole = estimate(scores, method="gaussian-dp", delta=1e-5)
    assert found.unit == "runs"
    assert (found.bounds.x[-1], found.bounds.y[-1]) == (800, whole.epsilon)
    assert (found.free.y <= found.bounds.y + 1e-9).all() or found.free.y[-1] < found.bounds.y[-1]


def test_a_part_has_all_canaries_of_its_runs() -> None:
    scores = normal_scores(2.0, runs=10, canaries=60)
    found = grown(scores)
    assert found.unit == "runs"
    assert found.bounds.x[-1] == 10
    first = scores.run < int(found.bounds.x[0])
    part = Scores(score=scores.score[first], inserted=scores.inserted[first], run=scores.run[first])
    assert found.bounds.y[0] == estimate(part, method="gaussian-dp", delta=1e-5).epsilon


def test_a_single_run_counts_canaries() -> None:
    found = grown(normal_scores(2.0, runs=1, canaries=500))
    assert found.unit == "canaries"
    assert found.bounds.x[-1] == 500


def test_forecasts_reach_further_and_keep_their_order() -> None:
    found = grown(normal_scores(2.0, runs=800))
    assert found.expected is not None
    assert found.attainable is not None
    assert found.expected.x[-1] == pytest.approx(TIMES * 800)
    assert (found.expected.y <= found.attainable.y + 1e-9).all()
    assert "stronger adversary" in found.outlook


def test_a_missing_forecast_or_claim_is_reported() -> None:
    assert "do not look Gaussian" in grown(normal_scores(2.0), fitted=None).outlook
    assert "promise" not in grown(normal_scores(2.0), claimed=None).outlook


def test_too_few_scores_to_look_back_on() -> None:
    few = normal_scores(2.0, runs=20)
    leading = estimate(few, method="gaussian-dp", delta=1e-5)
    found = growth(few, leading=leading, confidence=0.95, seed=0, fitted_mu=None, claimed_mu=None)
    assert found is None
