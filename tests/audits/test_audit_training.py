"""The game played by a training of the user's: verdicts, coins, failures, and what they mean."""

from __future__ import annotations

import dataclasses
import functools
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import dpaudit
from dpaudit import Claim, GradientCanary, Predictions, Store, ThreatModel
from dpaudit.audits import read_result
from dpaudit.audits.identity import sample_seed
from dpaudit.claims.power import SAME_IN_ALL_RUNS
from dpaudit.errors import (
    DeadCanary,
    DpauditError,
    InvalidInput,
    StoreError,
    TrainingFailed,
)
from dpaudit.executors import InProcess
from dpaudit.report.words import power_line
from dpaudit.scores import Failure
from dpaudit.trainings.coins import inserted_in, training_seed

PARAMETERS = 20
CANARY = GradientCanary.draw(PARAMETERS, clip_norm=1.0, seed=1)
CLAIM = Claim.from_mu(1.0)

audit = functools.partial(dpaudit.audit, anyway=True)  # many of these are short


def gaussian(noise: float, calls: list | None = None):
    """One noisy step that claims mu = 1: it keeps its word where the noise is at least 1."""

    def train(canary, inserted, seed):
        if calls is not None:
            calls.append((np.copy(inserted), seed))
        random = np.random.default_rng(seed)
        return -(canary.clipped_sum(inserted) + random.normal(0, noise, canary.parameters))

    return train


def test_a_true_claim_is_consistent_and_a_false_one_a_violation():
    kept = audit(gaussian(1.0), canary=CANARY, claim=CLAIM)
    assert kept.verdict == "consistent"
    assert "No audit proves a claim" in kept.sentence
    broken = audit(gaussian(0.4), canary=CANARY, claim=CLAIM)
    assert broken.verdict == "violation"
    assert broken.test.p_value < 1e-4
    assert broken.lower["clopper-pearson"].epsilon > kept.lower["clopper-pearson"].epsilon
    assert broken.threat_model is ThreatModel.HIDDEN_STATE
    assert broken.adversary == "parameters"
    assert f"≥ {broken.leading.epsilon:.4f}" in broken.summary(all_bounds=True)
    plain = broken.to_dict()
    assert plain["verdict"] == "violation"
    assert plain["failures"] == []


def test_the_sentence_that_decides_is_never_cut():
    wordy = dataclasses.replace(CLAIM, description="a claim in many words " * 15)
    result = audit(gaussian(0.75), canary=CANARY, claim=wordy, runs=300, max_runs=300, seed=2)
    assert result.suspected
    page = " ".join(result.summary().split())
    assert "Repeat it without --max-runs and --time-limit, so that fresh runs decide." in page


def test_a_broken_rule_is_part_of_the_verdict():
    """The canary's own gradient is clipped, and gradients of other shapes are not."""
    canary = GradientCanary.draw(200, clip_norm=1.0)

    def train(canary, inserted, seed, steps=1):
        random = np.random.default_rng(seed)
        rows = np.nan_to_num(canary.rows(inserted), nan=0.0, posinf=0.0, neginf=0.0)
        return -(rows.sum(axis=0) + random.normal(0, 1.0, canary.parameters))

    claim = Claim.from_dpsgd(noise_multiplier=1.0, steps=1)
    asked = {"canary": canary, "claim": claim, "runs": 300}
    checked = audit(train, **asked, check=True)
    assert any("'bounded contribution' broken" in doubt for doubt in checked.final.doubts)
    assert checked.verdict != "consistent"
    unchecked = audit(train, **asked)
    assert not any("dpaudit check finds" in doubt for doubt in unchecked.final.doubts)


def test_false_alarms_at_most_nominal():
    audits = 60
    alarms = sum(
        audit(gaussian(1.0), canary=CANARY, claim=CLAIM, runs=60, seed=seed).verdict == "violation"
        for seed in range(audits)
    )
    assert alarms <= 0.05 * audits + 3 * np.sqrt(0.05 * 0.95 * audits)


def test_every_run_has_its_own_seed_and_half_of_them_the_canary():
    calls: list = []
    result = audit(gaussian(1.0, calls), canary=CANARY, claim=CLAIM, runs=50, seed=7)
    first, twin = calls[:2]  # one more training: the first run with the coin reversed
    assert (first[0] != twin[0], first[1] == twin[1]) == (True, True)
    del calls[1]
    inserted = np.array([coin for coin, _ in calls])
    seeds = [seed for _, seed in calls]
    assert inserted.reshape(25, 2).sum(axis=1).tolist() == [1] * 25
    assert 5 <= inserted[::2].sum() <= 20  # which of a pair comes first is a coin
    assert len(set(seeds)) == 50
    assert all(isinstance(seed, int) and 0 <= seed < 2**31 for seed in seeds)
    assert result.scores.inserted.tolist() == inserted.tolist()
    assert [training_seed(run, seed=8) for run in range(50)] != seeds


def test_seeds_never_repeat_and_look_random():
    seeds = np.array([training_seed(run, seed=3) for run in range(20_000)])
    assert len(np.unique(seeds)) == len(seeds)
    assert abs(np.corrcoef(seeds[:-1], seeds[1:])[0, 1]) < 0.03
    assert abs(seeds.mean() / 2**30 - 1) < 0.03


def test_many_canaries_have_a_fair_coin_each():
    calls: list = []
    canary = GradientCanary.draw(2000, clip_norm=1.0, count=1500)
    claim = Claim.from_dpsgd(noise_multiplier=1.0, steps=1)
    result = audit(gaussian(0.7, calls), canary=canary, claim=claim, runs=2)
    assert [coins.shape for coins, _ in calls] == [(1500,)] * (3 + 4)
    del calls[3:]  # the fresh runs
    assert (calls[0][0] != calls.pop(1)[0]).all()  # the first run with the coins reversed
    assert all(650 < coins.sum() < 850 for coins, _ in calls)
    assert (calls[0][0] != calls[1][0]).any()
    assert len(result.scores) == 3000
    assert result.verdict == "violation"
    assert any("independent" in text for text in result.test.assumptions)
    assert "one-run" in {bound.method for bound in result.lower}
    coins = np.mean([inserted_in(run, canaries=40, seed=0) for run in range(300)])
    assert abs(coins - 0.5) < 0.02


def test_a_score_of_the_trainings_own_and_predictions():
    def score(canary, inserted, seed):
        return inserted + np.random.default_rng(seed).normal()

    own = audit(score, claim=CLAIM, runs=40)
    assert (own.adversary, own.threat_model) == ("score", None)
    assert "it depends on what your score was made of" in own.summary(all_bounds=True)

    def answer(canary, inserted, seed):
        logit = 6.0 * inserted + np.random.default_rng(seed).normal()
        return Predictions(logits=[0.0, logit], target=1)

    seen = audit(answer, claim=CLAIM, runs=60)
    assert (seen.adversary, seen.threat_model) == ("predictions", ThreatModel.BLACK_BOX)
    assert seen.verdict == "violation"


def test_a_function_as_adversary_and_a_known_start():
    def train(canary, inserted, seed):
        random = np.random.default_rng(seed)
        return {"final": [float(inserted) * canary + random.normal(0, 0.1)]}

    own = audit(
        train, canary=3.0, claim=CLAIM, runs=40, adversary=lambda canary, got: got["final"][0]
    )
    assert (own.adversary, own.verdict) == ("own", "violation")
    start = np.arange(float(PARAMETERS))

    def moved(canary, inserted, seed):
        return start + gaussian(1.0)(canary, inserted, seed)

    known = audit(moved, canary=CANARY, claim=CLAIM, runs=10, initial=start)
    unknown = audit(moved, canary=CANARY, claim=CLAIM, runs=10)
    shift = unknown.scores.score - known.scores.score
    assert shift == pytest.approx(-start[CANARY.dimensions[0]])


def test_an_epsilon_is_read_with_its_assumption_and_a_pair_without():
    read = audit(gaussian(0.3), canary=CANARY, claimed_epsilon=4.0, delta=1e-5)
    assert read.verdict == "violation"
    assert read.test.assumptions == Claim.from_epsilon(4.0, 1e-5).assumptions
    assert "This assumes that the claimed (4, 1e-05)" in read.sentence
    pair = Claim.from_points([(8.0, 1e-5)])
    bare = audit(gaussian(1e-6), canary=CANARY, claim=pair)
    assert bare.verdict == "inconclusive"
    assert bare.test.assumptions == ()
    assert any(re.search(r"[\d,]{5,} scores", note) for note in bare.notes)


@pytest.mark.parametrize("until_violation", [False, True])
def test_a_pure_epsilon(until_violation):
    result = audit(
        gaussian(0.1),
        canary=CANARY,
        claimed_epsilon=0.5,
        delta=0.0,
        runs=60,
        until_violation=until_violation,
    )
    assert result.verdict == "violation"
    assert result.test.assumptions == ()
    assert result.leading.epsilon >= 0.5
    assert result.to_dict()["claimed"]["epsilon"] == 0.5
    assert "gaussian" in result.lower.unavailable[0].method


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "a claim is needed"),
        ({"claim": CLAIM, "claimed_epsilon": 1.0}, "not both"),
        ({"claim": 8.0}, "claim must be a Claim"),
        ({"claimed_epsilon": -1.0}, "epsilon must be above 0"),
        ({"claim": CLAIM, "delta": 2.0}, "delta must be in"),
        ({"claim": CLAIM, "confidence": 95}, "confidence must be in"),
        ({"claim": CLAIM, "runs": 1}, "runs must be at least 4"),
        ({"claim": CLAIM, "workers": 0}, "workers must be at least 1"),
        ({"claim": CLAIM, "seed": -1}, "seed must be at least 0"),
        ({"claim": CLAIM, "on_error": "ignore"}, "on_error must be one of record, stop"),
        ({"claim": CLAIM, "adversary": "loss"}, "adversary must be one of score, parameters"),
        ({"claim": CLAIM, "initial": "zero"}, "no array of numbers"),
        ({"claim": CLAIM, "initial": [0.0, 1.0]}, "initial must have one number .* got 2"),
        ({"claim": CLAIM, "initial": np.full(CANARY.parameters, np.nan)}, "initial must be finite"),
    ],
)
def test_mistakes_are_seen_before_any_training(options, message):
    calls: list = []
    with pytest.raises(InvalidInput, match=message):
        audit(gaussian(1.0, calls), canary=CANARY, **options)
    assert calls == []


def test_a_training_that_cannot_be_called():
    with pytest.raises(InvalidInput, match=r"called as train\(canary, inserted, seed\)"):
        audit(lambda canary: 0.0, claim=CLAIM)
    with pytest.raises(InvalidInput, match="train must be a function"):
        audit(3, claim=CLAIM)


@pytest.mark.parametrize(
    ("returned", "options", "message"),
    [
        (None, {}, "returned None.*or dpaudit.Predictions"),
        ("accuracy 0.9", {}, "returned a str"),
        (np.zeros(7), {"canary": CANARY}, "20 parameters .*got shape \\(7,\\)"),
        (np.zeros(7), {}, "looks like parameters.*GradientCanary"),
        (0.5, {"adversary": "predictions"}, "Predictions.*are expected"),
        (np.zeros(7), {"adversary": "parameters"}, "scored for a GradientCanary"),
        (Predictions(probabilities=[0.5, 0.5], target=5), {}, "target must be in 0 to 1"),
        (Predictions(probabilities=[2.0, 3.0], target=1), {}, "for anything else give logits"),
        (0.5, {"adversary": lambda canary, got: got["loss"]}, "it raised TypeError"),
        ([0.1, 0.2], {"adversary": "score"}, "one score for each of 1 canaries"),
    ],
)
def test_what_cannot_be_scored_stops_before_a_second_training(returned, options, message):
    calls: list = []

    def train(canary, inserted, seed):
        calls.append((inserted, seed))
        return returned

    with pytest.raises(InvalidInput, match=message):
        audit(train, claim=CLAIM, **options)
    assert len(calls) == 1


def failing(every: int, label: bool | None = None, noise: float = 1.0):
    """Fails in each ``every``-th run with this label, or of all runs."""

    def train(canary, inserted, seed):
        if seed % every == 0 and label in (None, inserted):
            raise ZeroDivisionError(f"seed {seed}")
        return gaussian(noise)(canary, inserted, seed)

    return train


def test_a_failure_is_kept_with_its_traceback_and_never_a_score():
    result = audit(failing(5), canary=CANARY, claim=CLAIM, runs=100)
    assert 5 <= len(result.failures) <= 40
    assert len(result.scores) == 100 - len(result.failures)
    failed = {failure.run for failure in result.failures}
    assert not failed & set(result.scores.run.tolist())
    first, first_seed = result.failures[0], result.description.sample(0).seed
    assert first.error == f"ZeroDivisionError: seed {training_seed(first.run, seed=first_seed)}"
    assert "in train" in first.traceback
    assert any("runs with the canary and" in note for note in result.notes)
    assert not any("depends on the canary" in note for note in result.notes)


def test_a_failure_stops_where_that_is_asked_and_is_tried_again(tmp_path, monkeypatch):
    store = tmp_path / "audits.sqlite"
    monkeypatch.setenv("BROKEN", "1")  # a value that the training holds would be another training

    def train(canary, inserted, seed):
        if seed % 5 == 0 and os.environ["BROKEN"] == "1":
            raise ZeroDivisionError("for now")
        return gaussian(1.0)(canary, inserted, seed)

    with pytest.raises(TrainingFailed, match=r"run \d+ failed with ZeroDivisionError: for now\n"):
        audit(train, canary=CANARY, claim=CLAIM, runs=40, on_error="stop", store=store, name="a")
    monkeypatch.setenv("BROKEN", "0")
    result = audit(
        train, canary=CANARY, claim=CLAIM, runs=40, on_error="stop", store=store, name="a"
    )
    assert 0 < result.resumed < 40
    assert (result.failures, len(result.scores)) == ((), 40)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_score_that_is_not_finite_is_a_failure(value):
    def train(canary, inserted, seed):
        return value if seed % 4 == 0 else float(inserted) + np.random.default_rng(seed).normal()

    result = audit(train, claim=CLAIM, runs=60)
    assert 3 <= len(result.failures) <= 30
    assert np.isfinite(result.scores.score).all()
    assert all("diverged" in failure.error for failure in result.failures)


def test_failures_that_depend_on_the_canary_are_flagged():
    def train(canary, inserted, seed):
        score = np.random.default_rng(seed).normal()
        if (inserted and score < 1.0) or (not inserted and score > 0.5):
            raise FloatingPointError("diverged")
        return score

    result = audit(train, claim=Claim.from_mu(1.0), runs=400, seed=1)
    assert any("depends on the canary" in doubt for doubt in result.final.doubts)
    assert any("of the runs failed" in doubt for doubt in result.final.doubts)


@pytest.mark.parametrize("only_inserted", [True, False])
def test_failures_that_reveal_the_canary_are_never_consistent(only_inserted):
    """The other scores alone are consistent with the claim and powerful."""

    def train(canary, inserted, seed):
        if seed % 6 == 0 and (inserted or not only_inserted):
            raise FloatingPointError("diverged")
        return 3 * inserted + np.random.default_rng(seed).normal()

    with Store.open(":memory:") as store:
        result = audit(train, claim=Claim.from_mu(3.0), runs=400, store=store)
        (record,) = store.audits()
        again = read_result(record)
    assert result.failures
    assert result.verdict == ("inconclusive" if only_inserted else "consistent")
    assert bool(result.final.doubts) is only_inserted
    assert again.final.doubts == result.final.doubts
    assert again.sentence == result.sentence


def test_a_traceback_begins_with_the_users_code_also_beside_the_package():
    """A folder whose name begins like that of dpaudit is the user's."""
    names, file = {}, f"{Path(dpaudit.__file__).parent}_of_mine/train.py"
    code = """
def step(*given):
    raise ValueError("diverged")
def train(canary, inserted, seed):
    step(inserted, seed)
"""
    exec(compile(code, file, "exec"), names)
    with pytest.raises(TrainingFailed) as failed:
        audit(names["train"], claim=Claim.from_mu(1.0), runs=40, on_error="stop")
    shown = re.findall(r'File "(.*)", line (\d+)', str(failed.value))
    assert shown == [(file, "5"), (file, "3")]


def test_failures_alone_never_make_a_violation_or_a_bound():
    """A failure is an output: scores of the other runs alone would refute a claim that holds."""

    def train(canary, inserted, seed):
        score = inserted + np.random.default_rng(seed).normal()  # 1-GDP, and so is what follows
        if -0.5 < score < 1.5:
            raise FloatingPointError("diverged")
        return score

    result = audit(train, claim=Claim.from_mu(1.0), runs=400, seed=1)
    alone = dpaudit.test_claim(result.scores, Claim.from_mu(1.0))
    assert alone.verdict == "violation"
    assert result.verdict == "inconclusive"
    assert result.lower["gaussian-dp"].mu < 1.0
    assert result.test.hidden_by_failures


def test_a_training_that_cannot_run_at_all_can_be_repaired_and_audited(tmp_path):
    """The runs that check the training fail first: they are not stored either."""
    data = tmp_path / "data"

    def train(canary, inserted, seed):
        return float(data.read_text()) + inserted + np.random.default_rng(seed).normal()

    with Store.open(":memory:") as store:
        with pytest.raises(TrainingFailed, match="all failed"):
            audit(train, claim=CLAIM, runs=40, store=store)
        (record,) = store.audits()
        assert not record.finished_tiles()
        data.write_text("0")
        result = audit(train, claim=CLAIM, runs=40, store=store)
        assert (result.audit, result.failures) == (record.id, ())


def test_a_training_that_always_fails_with_the_canary_is_given_up(tmp_path):
    calls: list = []

    def train(canary, inserted, seed):
        calls.append(inserted)
        if inserted:
            raise KeyError("canary")
        return np.random.default_rng(seed).normal()

    with pytest.raises(TrainingFailed, match="first 5 trainings with the canary all failed"):
        audit(train, claim=CLAIM, store=tmp_path / "a.sqlite", name="a")
    assert 5 <= sum(calls) <= 9  # the check of the canary also repeats runs with it
    with Store.open(tmp_path / "a.sqlite") as store:
        assert store.audit("a").failures() == ()
    # Too few runs to lose patience, and still nothing to compare.
    with pytest.raises(TrainingFailed, match="no run with the canary gave a score"):
        audit(train, claim=CLAIM, runs=4)
    with pytest.raises(TrainingFailed, match="first 5 trainings all failed"):
        audit(failing(1), canary=GradientCanary.draw(9, clip_norm=1.0, count=3), claim=CLAIM)


def test_runs_that_repeat_each_other_are_flagged():
    def adds_no_noise(canary, inserted, seed):
        np.random.default_rng(seed)
        return -canary.clipped_sum(inserted)

    for canary in (CANARY, GradientCanary.draw(PARAMETERS, clip_norm=1.0, count=10)):
        result = audit(adds_no_noise, canary=canary, claim=CLAIM, runs=20)
        assert any("adds no noise" in doubt for doubt in result.final.doubts)
        fresh = audit(gaussian(1.0), canary=canary, claim=CLAIM, runs=20)
        assert (fresh.notices, fresh.final.doubts) == ((), ())


def test_the_same_result_for_every_seed_is_never_consistent():
    def fixed_noise(canary, inserted, seed):
        np.random.default_rng(seed)
        return gaussian(1.0)(canary, inserted, 0)

    many = GradientCanary.draw(PARAMETERS, clip_norm=1.0, count=10)
    for canary, runs in ((CANARY, 40), (CANARY, 8), (many, 8)):
        result = audit(fixed_noise, canary=canary, claim=CLAIM, runs=runs)
        assert result.verdict in ("violation", "inconclusive")
        assert "different seeds" in result.sentence
        assert result.to_dict()["doubts"]
    assert audit(fixed_noise, canary=CANARY, claim=CLAIM, runs=40).verdict == "violation"

    def score_of_wrong_sign(canary, returned):
        return float(returned[canary.dimensions[0]])

    with pytest.raises(DeadCanary, match="different seeds"):
        audit(fixed_noise, canary=CANARY, claim=CLAIM, adversary=score_of_wrong_sign)

    def fixed_score(canary, inserted, seed):
        return float(inserted) + 0 * seed

    result = audit(fixed_score, claim=Claim.from_mu(8.0), runs=40)
    assert result.verdict == "inconclusive"
    assert "same score" in result.sentence


def test_doubts_are_stored_with_the_audit(tmp_path):
    def fixed_noise(canary, inserted, seed):
        np.random.default_rng(seed)
        return gaussian(1.0)(canary, inserted, 0)

    store = tmp_path / "audits.sqlite"
    played = audit(fixed_noise, canary=CANARY, claim=CLAIM, runs=8, store=store)
    with Store.open(store) as opened:
        read = read_result(opened.audits()[0])
    assert read.final.doubts == played.final.doubts != ()


def test_trainings_that_no_audit_can_judge_are_refused_with_the_reason():
    def ignores_its_seed(canary, inserted, seed):
        return gaussian(1.0)(canary, inserted, 0)

    def ignores_inserted(canary, inserted, seed):
        return gaussian(1.0)(canary, True, seed)

    def untrained(canary, inserted, seed):
        gaussian(1.0)(canary, inserted, seed)
        return np.zeros(PARAMETERS)

    def another_order(canary, inserted, seed):
        return np.roll(gaussian(1.0)(canary, inserted, seed), 1)

    def wrong_sign(canary, inserted, seed):
        return -gaussian(1.0)(canary, inserted, seed)

    for train, error, message in (
        (ignores_its_seed, InvalidInput, "'seed'"),
        (ignores_inserted, InvalidInput, "'inserted'"),
        (untrained, DeadCanary, "exactly the same with and without the canary"),
        (another_order, DeadCanary, "another order"),
        (wrong_sign, DeadCanary, "wrong direction"),
    ):
        with pytest.raises(error, match=message):
            audit(train, canary=CANARY, claim=CLAIM)
    with pytest.raises(InvalidInput, match="canary must be given"):
        audit(gaussian(1.0), claim=CLAIM)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_model_that_every_run_changes_in_place_may_be_returned_and_given_as_the_start(sign):
    model = np.zeros(CANARY.parameters)

    def train(canary, inserted, seed):
        noise = np.random.default_rng(seed).normal(0, 1, len(model))
        model[:] = -sign * (canary.clipped_sum(inserted) + noise)
        return model

    asked = {"canary": CANARY, "claim": CLAIM, "initial": model, "runs": 20}
    if sign < 0:
        with pytest.raises(DeadCanary, match="wrong direction"):
            audit(train, **asked)
    else:
        by_copies = audit(lambda *given: train(*given).copy(), **asked)
        model[:] = 0
        assert audit(train, **asked).scores.score.tolist() == by_copies.scores.score.tolist()


def test_consistent_needs_the_power_to_find_halved_noise():
    def hardly_depends(canary, inserted, seed):
        return 0.05 * inserted + np.random.default_rng(seed).normal()

    blind = audit(hardly_depends, claim=CLAIM)
    assert (blind.suspected, blind.verdict) == (False, "inconclusive")
    assert blind.final.power.probability < 0.8
    seeing = audit(gaussian(1.0), canary=CANARY, claim=CLAIM)
    assert seeing.verdict == "consistent"
    assert 1 < seeing.final.power.missed < seeing.final.power.found < 2.2
    assert "Would have found noise" in seeing.sentence
    assert seeing.final.power.condition == SAME_IN_ALL_RUNS
    known = audit(gaussian(1.0), canary=CANARY, claim=CLAIM, initial=np.zeros(PARAMETERS))
    assert "if batches are the same in all runs" in known.sentence
    once = dataclasses.replace(known.description, runs=1)  # there is no other run to differ from
    assert once.condition == "the canaries of the run differ by noise only"
    lenient = audit(hardly_depends, claim=CLAIM, power=0.0)
    assert lenient.verdict == "consistent"


@pytest.mark.parametrize(("noise", "runs"), [(1.0, 20), (1.0, 200), (0.3, 60)])
def test_the_power_of_every_verdict_is_in_the_summary_the_page_and_the_json(noise, runs):
    found = audit(gaussian(noise), canary=CANARY, claim=CLAIM, runs=runs)
    sentence = power_line(found.final.power)
    assert found.to_dict()["power"]["sentence"] == sentence
    assert sentence in found.summary(all_bounds=True)
    # After a violation the page says what was found instead.
    assert (sentence in found.page().sentence) == (found.verdict != "violation")


@pytest.mark.parametrize("options", [{}, {"until_violation": True}])
def test_a_result_can_be_pickled_before_and_after_it_is_read(options):
    found = audit(gaussian(1.0), canary=CANARY, claim=CLAIM, runs=20, **options)
    unread = pickle.loads(pickle.dumps(found))
    assert unread.to_dict() == found.to_dict()
    read = pickle.loads(pickle.dumps(found))
    assert (read.sentence, read.summary()) == (found.sentence, found.summary())
    assert read.leading.details == found.leading.details
    with pytest.raises(TypeError):
        read.leading.details["more"] = 1


def test_the_figure_can_be_drawn():
    result = audit(gaussian(1.0), canary=CANARY, claim=CLAIM, runs=40)
    assert len(result.plot().axes) == 3
    watched = audit(gaussian(1.0), canary=CANARY, claim=CLAIM, runs=40, until_violation=True)
    assert len(watched.plot().axes) == 3


def test_stops_as_soon_as_a_violation_is_proven():
    calls: list = []
    result = audit(
        gaussian(0.2, calls), canary=CANARY, claim=CLAIM, runs=1000, until_violation=True
    )
    assert result.verdict == "violation"
    extra = 6  # the first run with the coin reversed, and gradients over all parameters
    assert result.stopped_at == result.runs == len(calls) - extra == len(result.scores) <= 60
    assert result.test.e_value >= 1000
    assert result.test.p_value == pytest.approx(1 / result.test.e_value)
    assert {bound.method for bound in result.lower} == {"anytime", "anytime-gaussian-dp"}
    assert result.lower["anytime-gaussian-dp"].mu >= 1.0
    patient = audit(gaussian(1.0), canary=CANARY, claim=CLAIM, runs=200, until_violation=True)
    assert (patient.verdict, patient.stopped_at, patient.runs) == ("consistent", None, 200)
    short = audit(gaussian(0.1), canary=CANARY, claim=CLAIM, runs=4, until_violation=True)
    assert short.verdict == "inconclusive"
    assert any("would not refute" in note for note in short.notes)


def test_every_confidence_reads_all_runs_of_a_watched_audit():
    """A test at a lower confidence would have stopped earlier, but this audit did not."""
    with Store.open(":memory:") as store:
        options = {"canary": CANARY, "claim": CLAIM, "runs": 400, "until_violation": True}
        played = audit(gaussian(0.5), **options, store=store)
        (record,) = store.audits()
        read = [read_result(record, confidence=level) for level in (0.5, 0.8, 0.95, 0.99)]
    for result in read:
        assert (result.runs, result.verdict) == (played.runs, "violation")
        assert {bound.sample_size for bound in result.lower} == {played.test.sample_size}
    for method in ("anytime", "anytime-gaussian-dp"):
        found = [result.lower[method].epsilon for result in read]
        assert found == sorted(found, reverse=True)


def test_one_run_of_many_canaries_may_be_watched_too():
    canary = GradientCanary.draw(3000, clip_norm=1.0, count=3000)
    claim = Claim.from_dpsgd(noise_multiplier=1.0, steps=1)
    result = audit(gaussian(0.7), canary=canary, claim=claim, runs=5, until_violation=True)
    assert (result.verdict, result.runs) == ("violation", 1)
    assert any("independent" in text for text in result.test.assumptions)


def test_a_finished_audit_is_played_again_and_read_by_its_identity(tmp_path):
    calls: list = []
    options = {"canary": CANARY, "claim": CLAIM, "runs": 60, "store": tmp_path / "a.sqlite"}
    first, again = (audit(gaussian(0.2, calls), **options) for _ in range(2))
    assert (len(calls), again.resumed) == (2 * (61 + 120), 0)
    assert first.audit != again.audit
    assert again.scores.score.tobytes() == first.scores.score.tobytes()
    with Store.open(options["store"]) as store:
        read = read_result(store.audit(first.audit), confidence=0.99)
    assert len(calls) == 2 * (61 + 120)
    assert (read.verdict, read.leading.confidence) == ("violation", 0.99)


def test_trainings_of_one_source_differ_by_their_captured_values(tmp_path):
    options = {"canary": CANARY, "claim": CLAIM, "runs": 200, "store": tmp_path / "a.sqlite"}
    small, large = (audit(gaussian(noise), **options) for noise in (0.2, 1.0))
    assert (small.verdict, large.verdict) == ("violation", "consistent")
    assert small.audit != large.audit
    assert large.resumed == 0

    def train(canary, inserted, seed, *, noise):
        return gaussian(noise)(canary, inserted, seed)

    one, two = (audit(functools.partial(train, noise=noise), **options) for noise in (0.2, 1.0))
    assert one.audit != two.audit


def test_only_an_unfinished_audit_of_the_same_settings_is_resumed(tmp_path, monkeypatch):
    store = tmp_path / "a.sqlite"
    monkeypatch.setenv("STOPS_AT", str(training_seed(3, seed=sample_seed(seed=0, runs=20))))

    def interrupted(canary, inserted, seed):
        if os.environ["STOPS_AT"] == str(seed):
            raise KeyboardInterrupt
        return inserted + np.random.default_rng(seed).normal()

    with pytest.raises(KeyboardInterrupt):
        audit(interrupted, claim=CLAIM, store=store, runs=20)
    with Store.open(store) as opened:
        assert len(opened.audits()[0].finished_tiles()) == 3
    monkeypatch.setenv("STOPS_AT", "")
    other = audit(interrupted, claim=CLAIM, store=store, runs=30)
    same = audit(interrupted, claim=CLAIM, store=store, runs=20)
    assert (other.resumed, same.resumed) == (0, 3)
    with Store.open(store) as opened:
        assert [record.finished is None for record in opened.audits()] == [False, False]


def test_no_torch_is_needed():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import dpaudit\n"
        "canary = dpaudit.GradientCanary.draw(4, clip_norm=1.0)\n"
        "def train(canary, inserted, seed):\n"
        "    return {'w': -canary.clipped_sum(inserted) + 0 * seed}\n"
        "print(dpaudit.audit(train, canary=canary, claimed_epsilon=1.0, runs=40).verdict)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "violation"


def test_scored_and_failed_runs_are_those_asked_for(tmp_path):
    class Forgetful(InProcess):
        def play(self, player, tiles, notify):
            return super().play(player, [tile for tile in tiles if tile != 7], notify)

    store = tmp_path / "audits.sqlite"
    asked = {"canary": CANARY, "claim": CLAIM, "runs": 20, "store": store}
    train = functools.partial(_noisy_step)
    with pytest.raises(DpauditError, match="19 of 20 runs"):
        audit(train, executor=Forgetful(), **asked)
    assert audit(train, **asked).runs == 20
    with Store.open(store) as opened:
        record = opened.audits()[0]
        failure = Failure(run=7, inserted=0, canaries=1, error="too", traceback="")
        record.add_tiles([(20, failure)])
        with pytest.raises(StoreError, match="20 runs with scores and 1 failed"):
            dpaudit.audits.read_result(record)


def _noisy_step(canary, inserted, seed):
    random = np.random.default_rng(seed)
    return -(canary.clipped_sum(inserted) + random.normal(0, 1.0, canary.parameters))
