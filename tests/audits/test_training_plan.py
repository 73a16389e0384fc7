"""Plans of audits of a user's training: the predicted runs have the predicted power."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import dpaudit
from dpaudit.audits import plan_training
from dpaudit.claims import CONFIRMED
from dpaudit.cli import app
from dpaudit.errors import DpauditError, InvalidInput, TrainingFailed

CANARY = dpaudit.GradientCanary.draw(20, clip_norm=1.0)
CLAIM = dpaudit.Claim.from_mu(1.0)


def gaussian(noise):
    def train(canary, inserted, seed):
        random = np.random.default_rng(seed)
        return -(canary.clipped_sum(inserted) + random.normal(0, noise, canary.parameters))

    return train


def test_the_planned_runs_find_halved_noise_with_the_planned_power():
    plan = plan_training(gaussian(1.0), canary=CANARY, claim=CLAIM, pilot=40)
    assert plan.mu == pytest.approx(1.0, rel=0.3)
    assert plan.cautious_runs > plan.runs
    audits = [
        dpaudit.audit(gaussian(0.5), canary=CANARY, claim=CLAIM, runs=plan.cautious_runs, seed=seed)
        for seed in range(5)
    ]
    assert sum(one.verdict == "violation" for one in audits) >= 3


def test_weaker_faults_and_noisier_scores_need_more_runs():
    runs = [
        plan_training(gaussian(1.0), canary=CANARY, claim=CLAIM, detect=detect).runs
        for detect in (0.3, 0.5, 0.7)
    ]
    assert runs == sorted(runs)
    assert runs[0] < runs[2]
    blind = plan_training(gaussian(100.0), canary=CANARY, claim=CLAIM)
    assert blind.runs is None
    assert blind.seconds is None


def test_a_plan_by_tensors_is_for_the_weakest_one():
    canary = dpaudit.GradientCanary.per_tensor({"weight": 15, "bias": 5}, clip_norm=1.0)

    def train(canary, inserted, seed):
        theta = gaussian(1.0)(canary, inserted, seed)
        theta[15:] += np.random.default_rng([seed, 1]).normal(0, 1.0, 5)
        return theta

    plan = plan_training(train, canary=canary, claim=CLAIM, pilot=20)
    assert plan.weakest == "bias"
    assert "bias" in plan.sentence


def test_trainings_without_effect_or_noise_are_refused():
    def no_noise(canary, inserted, seed):
        return gaussian(0.0)(canary, inserted, seed)

    def no_effect(canary, inserted, seed):
        return gaussian(1.0)(canary, inserted and seed < 0, seed)

    for train in (no_noise, no_effect):
        with pytest.raises(DpauditError):
            plan_training(train, canary=CANARY, claim=CLAIM)
    with pytest.raises(InvalidInput, match="pilot"):
        plan_training(gaussian(1.0), canary=CANARY, claim=CLAIM, pilot=2)


TRAINING = """
import numpy as np
from dpaudit import GradientCanary
canary = GradientCanary.draw(20, clip_norm=1.0)

def train(canary, inserted, seed):
    print("training")
    random = np.random.default_rng(seed)
    return -(canary.clipped_sum(inserted) + random.normal(0, 2.0, 20))
"""


@pytest.mark.parametrize(("fails", "error"), [(True, "ValueError: disk"), (False, "NotFinite")])
def test_a_failed_pilot_training_is_the_users_error(fails, error):
    def train(canary, inserted, seed):
        if fails:
            raise ValueError("disk full")
        return inserted * seed * np.nan

    with pytest.raises(TrainingFailed, match=error):
        plan_training(train, claim=dpaudit.Claim.from_mu(1.0))


def test_the_command(tmp_path):
    path = tmp_path / "planned_training.py"
    path.write_text(TRAINING)
    asked = ["plan", f"{path}:train", "--noise-multiplier", "2", "--steps", "1"]
    run = CliRunner().invoke(app, [*asked, "--detect", "0.5", "--json"])
    assert run.exit_code == 0, run.output
    found = json.loads(run.stdout)
    assert found["runs_needed"] > 0
    assert found["pilot_trainings"] == 12
    table = CliRunner().invoke(app, asked)
    assert f"{found['runs_needed']:,} runs" in table.stdout.replace("\n", " ")
    for wrong, named in (
        (["plan", "--detect", "0.5"], "is for a function"),
        ([*asked, "--period", "3"], "--period"),
        ([*asked, "--detect", "half"], "--detect"),
    ):
        failed = CliRunner().invoke(app, wrong)
        assert failed.exit_code != 0
        assert named in failed.output + str(failed.exception)


@pytest.mark.parametrize(("mu", "noise"), [(1.0, 1.0), (2.0, 1.0), (1.0, 0.25)])
def test_most_audits_of_the_planned_runs_have_the_planned_power(mu, noise):
    """Also where the pilot's scores are farther apart than the claim allows."""
    claim = dpaudit.Claim.from_mu(mu)

    def train(canary, inserted, seed):
        return mu * inserted + np.random.default_rng(seed).normal(0, noise)

    plan = plan_training(train, claim=claim, pilot=40)
    powers = []
    for seed in range(20):
        random = np.random.default_rng([seed, 5])
        half = plan.runs // 2
        scores = dpaudit.Scores.from_samples(
            random.normal(mu, noise, half), random.normal(0, noise, half)
        )
        powers.append(dpaudit.claims.judge(scores, claim, policy=CONFIRMED).power.probability)
    assert np.mean(np.array(powers) >= 0.8) >= 0.75
