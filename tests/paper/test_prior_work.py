"""What the adversaries of prior work craft, what their scores obey, and the table of them all."""

from __future__ import annotations

import copy
import dataclasses
import math
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import binom
from torch import Tensor

from dpaudit.adversaries import (
    ADVERSARIES,
    AdaptivePoisoning,
    CanaryPoints,
    Canife,
    ClipBackdoor,
    CraftedDimensions,
    DiracGradient,
    GradientAttack,
    MaliciousData,
    Moment,
    OneRunBlackBox,
    OneRunWhiteBox,
    OneShotIterates,
    RandomDimension,
    StandardView,
    StaticPoisoning,
)
from dpaudit.adversaries.crafting import audited_mechanism
from dpaudit.audits import plan
from dpaudit.claims import Claim, test_claim
from dpaudit.engine import Speed, noise, simulate
from dpaudit.engine.evaluate import GenuineSums, clipped_gradients, losses
from dpaudit.engine.noise import Stream
from dpaudit.engine.reference import clipped_sum
from dpaudit.engine.starting_points import as_tensor, build_model, flat_parameters
from dpaudit.games import Game, play, prepare
from dpaudit.games.coins import insertion_coins
from dpaudit.lower_bounds import METHODS
from dpaudit.mechanisms.dpsgd import DPSGD, Insertion
from dpaudit.scores import Scores
from dpaudit.testing import easy_training
from dpaudit_paper.figures.tables import PRIOR_WORK

SPEED = Speed(device="cpu", compile=False, workers=1)
EXACT = dataclasses.replace(SPEED, precision="float64")
ROOT = Path(__file__).parents[2]


def _game(adversary: Any, mechanism: DPSGD, *, canaries: int = 1, **more: Any) -> Game:
    mechanism, insertion = (
        audited_mechanism(adversary, mechanism),
        more.get("insertion", Insertion()),
    )
    crafted = adversary.craft(mechanism, insertion, canaries=canaries, seed=3)
    given = {"runs": 8, "seed": 4, "coin": "half", **more}
    return Game(mechanism=mechanism, adversary=adversary, canaries=crafted, **given)


def _scores(game: Game, speed: Speed = SPEED) -> Scores:
    played = sorted(play(prepare(game, speed)), key=lambda tile: tile[0])
    return Scores.concat(block.scores(game.mechanism.steps) for _, block in played)


def _mu(scores: Scores) -> float:
    one, other = scores.inserted_scores, scores.other_scores
    spread = math.sqrt((one.var() + other.var()) / 2)
    return float((one.mean() - other.mean()) / spread)


@pytest.mark.parametrize("adversary", [DiracGradient(), MaliciousData()], ids=repr)
@pytest.mark.parametrize("period", [1, 5])
def test_iterates_leave_the_canary_and_the_noise_alone(adversary: Any, period: int) -> None:
    r"""Run by run, the score is C^2 n times the coin, plus C times the noise that was drawn."""
    training = dataclasses.replace(easy_training(noise_multiplier=1.5), clip_norm=0.8)
    insertion = Insertion(period=period)
    game = _game(adversary, training, canaries=2, insertion=insertion, coin="fair")
    found = _scores(game, EXACT).score.reshape(8, 2)
    assert isinstance(game.canaries, CraftedDimensions)
    coins = insertion_coins(seed=4, runs=8, canaries=2, coin="fair").double()
    steps = [step for step in range(20) if insertion.at(step)]
    drawn = sum(
        noise.normals(
            noise.key(4), Stream.NOISE, torch.arange(8), torch.tensor(step), 21, torch.float64
        )
        for step in steps
    )
    assert isinstance(drawn, Tensor)
    expected = 0.8**2 * (len(steps) * coins + 1.5 * drawn[:, game.canaries.dimensions])
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)


def test_at_every_step_the_published_sum_is_the_final_model_in_other_units() -> None:
    """It telescopes: without taking genuine gradients off, iterates tell nothing more."""
    training = easy_training(noise_multiplier=1.0)
    hidden = _scores(_game(RandomDimension(), training, canaries=3, coin="fair"), EXACT)
    unit = 30 / training.learning_rate * training.clip_norm
    for adversary in (OneRunWhiteBox(), DiracGradient(subtract=False)):
        seen = _scores(_game(adversary, training, canaries=3, coin="fair"), EXACT)
        np.testing.assert_allclose(seen.score, unit * hidden.score, rtol=1e-7, atol=1e-9)


def test_iterates_beat_the_hidden_state_where_insertions_are_rare() -> None:
    """k = 5: theory has mu = sqrt(20)/2 = 2.24 with iterates, and at most 20/(2 x 10) = 1 without.

    The standard error of mu at 600 runs is about 0.1.
    """
    training = dataclasses.replace(easy_training(noise_multiplier=2.0), steps=100)
    rare = {"insertion": Insertion(period=5), "runs": 600}
    with_iterates = _mu(_scores(_game(DiracGradient(), training, **rare)))
    without = _mu(_scores(_game(RandomDimension(), training, **rare)))
    assert with_iterates == pytest.approx(math.sqrt(20) / 2, abs=0.4)
    assert without < 1.4
    published = _mu(_scores(_game(OneRunWhiteBox(), training, **rare)))
    assert published > without + 0.4


def test_no_adversary_proves_more_than_the_accountant() -> None:
    """The test of the claimed curve calls a correct training broken in at most 5 % of audits.

    Of n audits the number of false alarms is at most binomial. The same audits have the power to
    find a false claim: one of twice the noise.
    """
    training = dataclasses.replace(easy_training(noise_multiplier=2.0), steps=6)
    claim = Claim.from_dpsgd(noise_multiplier=2.0, steps=6, sampling_rate=None)
    false = Claim.from_dpsgd(noise_multiplier=4.0, steps=6, sampling_rate=None)
    alarms, found = [], set()
    for one in ADVERSARIES.values():
        both = _scores(_game(one, training, runs=400))
        for seed, half in enumerate((both.run < 200, both.run >= 200)):
            scores = both.where(half)
            alarms.append(test_claim(scores, claim, confidence=0.95, seed=seed).p_value < 0.05)
            if test_claim(scores, false, confidence=0.95, seed=seed).p_value < 0.05:
                found.add(one.name)
    assert len(alarms) == 2 * len(ADVERSARIES)
    assert sum(alarms) <= binom.ppf(0.9999, len(alarms), 0.05)
    assert found >= {"dirac-gradient", "malicious-data", "one-run-white-box"}


def test_the_plan_leaves_out_the_noise_of_other_steps_for_iterates() -> None:
    """k = 5: sqrt(n)/sigma with iterates, n/(sigma sqrt(T)) without."""
    training = dataclasses.replace(easy_training(noise_multiplier=2.0), steps=100)
    rare = Insertion(period=5)
    with_iterates = plan(training, DiracGradient(), runs=10, insertion=rare, speed=SPEED)
    without = plan(training, RandomDimension(), runs=10, insertion=rare, speed=SPEED)
    assert with_iterates.mu == pytest.approx(math.sqrt(20) / 2)
    assert without.mu == pytest.approx(20 / (2 * 10))


def test_the_backdoor_lies_where_the_data_does_not() -> None:
    training = easy_training()
    features = training.data.features.copy()
    features[:, 4] *= 0.1
    features[:, 1] *= 0.3
    flat = dataclasses.replace(training, data=dataclasses.replace(training.data, features=features))
    crafted = ClipBackdoor().craft(flat, Insertion(), canaries=6, seed=0)
    directions = crafted.features / crafted.features.norm(dim=1, keepdim=True)
    assert directions[0, 4] > 0.99
    assert directions[1, 1] > 0.95
    spread = (torch.from_numpy(features) @ directions.T).norm(dim=0)
    assert (spread.diff() > 0).all()
    typical = np.linalg.norm(features, axis=1).mean()
    np.testing.assert_allclose(crafted.features.norm(dim=1), typical, rtol=1e-5)


def test_the_poison_is_hard_for_models_trained_without_it_and_within_range() -> None:
    training = easy_training()
    poison = StaticPoisoning().craft(training, Insertion(), canaries=5, seed=0)
    models = simulate(training, noisy=True, runs=4, seed=99).models
    start = as_tensor(training.data.features)
    genuine = losses(training, models, start, as_tensor(training.data.targets))
    poisoned = losses(training, models, poison.features, poison.targets)
    assert poisoned.mean() > 2 * genuine.mean()
    assert poisoned.mean(0).min() > genuine.mean()
    assert (poison.features >= start.min(0).values).all()
    assert (poison.features <= start.max(0).values).all()


def _current(training: DPSGD, runs: int = 3) -> Tensor:
    return torch.stack([flat_parameters(build_model(training, seed=seed)) for seed in range(runs)])


def _norms(training: DPSGD, current: Tensor, features: Tensor, targets: Tensor) -> Tensor:
    unclipped = dataclasses.replace(training, clip_norm=1e9)
    return clipped_gradients(unclipped, current, features, targets).norm(dim=2)


def test_the_adaptive_poison_is_longer_for_each_run() -> None:
    training = easy_training()
    adversary = AdaptivePoisoning()
    start = adversary.craft(training, Insertion(), canaries=4, seed=0)
    current = _current(training)
    response = adversary.respond(Moment(mechanism=training, step=0, current=current), start)
    before = _norms(training, current, start.features, start.targets)
    after = _norms(training, current, response.features, response.targets)
    assert (after > 1.2 * before).all()
    assert not torch.allclose(response.features[0], response.features[1])


def test_the_canife_point_keeps_out_of_the_others_way() -> None:
    """What it minimises goes down for every run and canary."""
    training, adversary = easy_training(), Canife(genuine=8, steps=5)
    start = adversary.craft(training, Insertion(), canaries=4, seed=0)
    current = _current(training)
    response = adversary.respond(Moment(mechanism=training, step=0, current=current), start)
    others = torch.from_numpy(training.batches.indices(0, 120)[:8])
    theirs = clipped_gradients(
        training,
        current,
        as_tensor(training.data.features)[others],
        as_tensor(training.data.targets)[others],
    )

    def design_loss(features: Tensor, targets: Tensor) -> Tensor:
        unclipped = dataclasses.replace(training, clip_norm=1e9)
        own = clipped_gradients(unclipped, current, features, targets)
        overlap = torch.einsum("rcp,rip->rci", own, theirs).square().sum(2)
        return overlap + torch.clamp(1.0 - own.norm(dim=2), min=0).square()

    before = design_loss(start.features, start.targets)
    after = design_loss(response.features, response.targets)
    assert after.mean() < 0.7 * before.mean()


def test_genuine_sums_are_those_of_the_slow_twin() -> None:
    training = easy_training()
    models = [build_model(training, seed=seed) for seed in range(2)]
    current = torch.stack([flat_parameters(model, torch.float64) for model in models])
    iterates = torch.stack([current * (1 + step / 10) for step in range(6)])
    found = GenuineSums(training, iterates).total({1: 1.0, 4: 1.0})
    for run in range(2):
        expected = torch.zeros(21, dtype=torch.float64)
        for step in (1, 4):
            batch = training.batches.indices(step, 120)
            model = copy.deepcopy(models[run]).double()
            torch.nn.utils.vector_to_parameters(iterates[step, run], model.parameters())
            expected += clipped_sum(
                model,
                training.loss,
                as_tensor(training.data.features)[batch],
                as_tensor(training.data.targets)[batch],
                clip_norm=1.0,
            )
        np.testing.assert_allclose(found[run], expected, rtol=1e-9, atol=1e-12)


def test_the_gradient_attack_has_norm_c_in_the_least_moved_dimensions() -> None:
    training = dataclasses.replace(easy_training(), clip_norm=3.0)
    crafted = GradientAttack(width=2).craft(training, Insertion(), canaries=3, seed=0)
    np.testing.assert_allclose(crafted.gradients.norm(dim=1), 3.0, rtol=1e-6)
    moved = simulate(training, noisy=False, runs=1, seed=0).per_step
    used = crafted.gradients.sum(0) > 0
    assert int(used.sum()) == 6
    assert moved[used].max() <= moved[~used].min()


def test_the_largest_cosine_is_found_at_any_insertion_step_and_at_no_other() -> None:
    training, adversary = easy_training(), OneShotIterates()
    crafted = adversary.craft(training, Insertion(), canaries=1, seed=0)
    moves = torch.zeros(6, 1, 21)
    moves[:, 0, 0] = 1.0
    moves[4, 0] = -crafted.gradients[0]  # descent subtracts gradients
    iterates = torch.cat([torch.zeros(1, 1, 21), moves.cumsum(0)])
    seen = StandardView(mechanism=training, iterates=iterates, insertion=Insertion(period=2))
    assert float(adversary.score(seen, crafted)) == pytest.approx(1.0, abs=1e-5)
    missed = dataclasses.replace(seen, insertion=Insertion(period=2, offset=1))
    assert float(adversary.score(missed, crafted)) < 0.9


def test_one_run_scores_of_many_points_start_from_the_same_level() -> None:
    """Untrained models have taken nothing off: every canary scores 0 there."""
    training = dataclasses.replace(easy_training(noise_multiplier=0.0), steps=1, learning_rate=1e-9)
    scores = _scores(_game(OneRunBlackBox(), training, canaries=10, coin="fair"))
    np.testing.assert_allclose(scores.score, 0, atol=1e-5)


@pytest.mark.parametrize("name", ADVERSARIES)
def test_each_says_what_the_table_shows(name: str) -> None:
    one = ADVERSARIES[name]
    assert one.name == name
    assert one.year is not None
    assert 2020 <= one.year <= 2026
    assert str(one.year) in one.paper
    crafted = one.craft(easy_training(), Insertion(), canaries=2 if one.many else 1, seed=0)
    assert one.canary == ("data point" if isinstance(crafted, CanaryPoints) else "gradient")


def test_every_row_of_the_papers_table_is_there() -> None:
    counts = {"Jagielski": 1, "Zanella": 2, "Maddock": 1, "Andrew": 2, "Steinke": 2, "Nasr": 8}
    for who, rows in counts.items():
        assert sum(str(row["paper"]).startswith(who) for row in PRIOR_WORK) == rows
    for row in PRIOR_WORK:
        if row["adversary"] is None:
            assert row["note"]
            assert row["estimator"] in METHODS
        else:
            assert row["year"] == ADVERSARIES[str(row["adversary"])].year
    assert set(PRIOR_WORK.column("adversary")) - {None} <= set(ADVERSARIES)


def test_the_tables_of_the_page_are_what_the_code_and_the_measurements_make(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    made = runpy.run_path(str(ROOT / "benchmarks" / "adversaries.py"))
    page = made["PAGE"].read_text(encoding="utf-8")
    assert made["tables"](made["measurements"]()) in page, f"make it again: {made['COMMAND']}"
