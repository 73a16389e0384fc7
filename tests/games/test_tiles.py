"""Whole trainings: the engine and the slow twin end at the same parameters."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import slow_training
import torch
from helpers import cross_entropy
from torch import Tensor
from torch.nn import functional

from dpaudit.data import Examples
from dpaudit.engine import Speed, simulate
from dpaudit.engine.starting_points import initial_parameters
from dpaudit.games import Game, play, prepare
from dpaudit.games.coins import insertion_coins
from dpaudit.games.tiles import TilePlayer
from dpaudit.mechanisms.batches import (
    BatchPlan,
    FixedBatches,
    FullBatch,
    PoissonBatches,
    ReshuffledEpochs,
)
from dpaudit.mechanisms.dpsgd import (
    DPSGD,
    FixedInitialisation,
    FreshInitialisation,
    Initialisation,
    Insertion,
)
from dpaudit.threat_models import (
    Adversary,
    Canaries,
    CanaryPoints,
    CraftedDimensions,
    CraftedGradients,
    HiddenStateAdversary,
    HiddenStateView,
    StandardAdversary,
    StandardView,
)

EXACT = Speed(device="cpu", precision="float64", compile=False, tile_size=4)
TOGETHER = Speed(device="cpu", compile=False, tile_size=8)


def small() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.ReLU(), torch.nn.Linear(6, 2))


class Everything(StandardAdversary):
    """Scores by the whole story: the sum of one coordinate over all iterates."""

    name, paper = "everything", "none"

    def craft(
        self, mechanism: DPSGD, insertion: Insertion, *, canaries: int, seed: int
    ) -> Canaries:
        return CraftedDimensions(dimensions=torch.arange(canaries), norm=mechanism.clip_norm)

    def score(self, view: StandardView, canaries: Canaries) -> Tensor:
        return -view.iterates.sum(0)[:, : canaries.count]


class LastDimension(HiddenStateAdversary):
    """Scores by how far the canary's dimension moved."""

    name, paper = "last dimension", "none"

    def craft(
        self, mechanism: DPSGD, insertion: Insertion, *, canaries: int, seed: int
    ) -> Canaries:
        return CraftedDimensions(dimensions=torch.arange(canaries), norm=mechanism.clip_norm)

    def score(self, view: HiddenStateView, canaries: Canaries) -> Tensor:
        start = 0 if view.initial is None else view.initial
        moved = -(view.final - start)
        return moved[:, : canaries.count]


def examples(count: int = 40) -> Examples:
    generator = np.random.default_rng(5)
    return Examples(
        features=generator.standard_normal((count, 8)).astype(np.float32),
        targets=generator.integers(0, 2, count),
        classes=2,
    )


def training(
    batches: BatchPlan | None = None,
    initialisation: Initialisation | None = None,
    steps: int = 5,
    noise_multiplier: float = 1.5,
) -> DPSGD:
    return DPSGD(
        build_model=small,
        loss=cross_entropy,
        data=examples(),
        batches=FixedBatches(batch_size=12) if batches is None else batches,
        steps=steps,
        learning_rate=0.7,
        clip_norm=0.6,
        noise_multiplier=noise_multiplier,
        initialisation=FixedInitialisation(seed=3) if initialisation is None else initialisation,
    )


def dimensions(count: int) -> Canaries:
    return CraftedDimensions(dimensions=torch.arange(count) * 3 + 1, norm=0.5)


def gradients(count: int) -> Canaries:
    directions = torch.randn(count, 68, generator=torch.Generator().manual_seed(4))
    return CraftedGradients(gradients=0.6 * functional.normalize(directions, dim=1))


def points(count: int) -> Canaries:
    data = examples()
    return CanaryPoints(
        features=torch.from_numpy(data.features[:count]),
        targets=1 - torch.from_numpy(data.targets[:count]),
    )


def game(
    mechanism: DPSGD, canaries: Canaries, adversary: Adversary | None = None, **more: Any
) -> Game:
    return Game(
        mechanism=mechanism,
        adversary=Everything() if adversary is None else adversary,
        canaries=canaries,
        **{"runs": 8, "seed": 11, **more},
    )


def iterates(described: Game, speed: Speed) -> Tensor:
    """Every iterate of every run, by the engine."""
    player = TilePlayer(prepare(described, speed))
    parts = [
        torch.stack([current.clone() for _, current in player.train(runs)])
        for runs in torch.arange(described.runs).split(speed.tile_size or 1)
    ]
    return torch.cat(parts, dim=1)


@pytest.mark.parametrize("canaries", [dimensions, gradients, points])
@pytest.mark.parametrize(
    "batches",
    [
        FixedBatches(batch_size=12),
        ReshuffledEpochs(batch_size=12),
        PoissonBatches(rate=0.3),
        FullBatch(),
    ],
    ids=["fixed", "reshuffled", "poisson", "full"],
)
def test_trainings_equal_the_slow_twins(canaries: Any, batches: BatchPlan) -> None:
    described = game(training(batches), canaries(3), insertion=Insertion(period=2, offset=1))
    found = iterates(described, EXACT)
    for run in (0, 5):
        expected = slow_training.play(described, run)
        torch.testing.assert_close(found[:, run], expected, rtol=1e-10, atol=1e-10)


def test_trainings_from_fresh_starts_equal_the_slow_twins() -> None:
    described = game(training(initialisation=FreshInitialisation()), dimensions(1), coin="half")
    found = iterates(described, EXACT)
    assert len(torch.unique(found[0, :, 0])) == described.runs
    for run in (1, 6):
        torch.testing.assert_close(
            found[:, run], slow_training.play(described, run), rtol=1e-10, atol=1e-10
        )


def test_float32_follows_float64() -> None:
    described = game(training(), gradients(2))
    exact = iterates(described, EXACT)
    single = iterates(described, Speed(device="cpu", compile=False, tile_size=4))
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), exact, rtol=1e-4, atol=1e-5)


def test_bfloat16_stays_near() -> None:
    described = game(training(), gradients(2))
    exact = iterates(described, EXACT)
    rough = iterates(
        described, Speed(device="cpu", precision="bfloat16", compile=False, tile_size=4)
    )
    assert rough.dtype == torch.float32
    moved = (exact[-1] - exact[0]).norm()
    assert (rough[-1].double() - exact[-1]).norm() < 0.02 * moved


def test_without_noise_an_inserted_dimension_moves_by_the_expected_amount() -> None:
    """With every gradient clipped to nothing but the canary, theta_T - theta_0 is known exactly."""
    mechanism = training(noise_multiplier=0)
    described = game(mechanism, dimensions(1), insertion=Insertion(period=2))
    with_canary = iterates(described, EXACT)[-1]
    coins = insertion_coins(seed=11, runs=8, canaries=1, coin="fair")[:, 0]
    assert coins.any()
    assert not coins.all()
    # Runs with the same coin are the same run when there is no noise.
    assert torch.equal(with_canary[coins][0], with_canary[coins][-1])
    assert torch.equal(with_canary[~coins][0], with_canary[~coins][-1])
    assert not torch.equal(with_canary[coins][0], with_canary[~coins][0])


def scores(described: Game, speed: Speed, **more: Any) -> dict[int, Any]:
    return dict(play(prepare(described, speed), **more))


def columns(block: Any) -> list[Any]:
    return [getattr(block, name) for name in ("run", "canary", "horizon", "inserted", "score")]


def test_horizons_are_audits_of_shorter_trainings() -> None:
    long = game(training(steps=6), dimensions(2), LastDimension(), horizons=(2, 5, 6))
    (block,) = scores(long, TOGETHER).values()
    assert block.horizons == (2, 5, 6)
    for steps in (2, 5, 6):
        short = game(training(steps=steps), dimensions(2), LastDimension())
        (alone,) = scores(short, TOGETHER).values()
        some = block.scores(steps)
        np.testing.assert_array_equal(some.score, alone.score)
        np.testing.assert_array_equal(some.inserted, alone.inserted)


def test_a_hidden_state_adversary_is_shown_ends_only() -> None:
    seen: list[HiddenStateView] = []

    class Curious(HiddenStateAdversary):
        name, paper = "curious", "none"

        def craft(self, *_: Any, **__: Any) -> Canaries:
            return dimensions(1)

        def score(self, view: HiddenStateView, canaries: Canaries) -> Tensor:
            seen.append(view)
            return torch.zeros(len(view.final), canaries.count)

    scores(game(training(), dimensions(1), Curious()), TOGETHER)
    scores(
        game(training(initialisation=FreshInitialisation()), dimensions(1), Curious()),
        TOGETHER,
    )
    known, unknown = seen
    assert known.initial is not None
    start = initial_parameters(training(), seed=0, runs=torch.tensor([0]))[0]
    assert torch.equal(known.initial, start)
    assert unknown.initial is None
    assert set(vars(known)) == {"mechanism", "steps", "initial", "final", "insertion"}
    assert known.final.shape == (8, 68)


def test_a_standard_adversary_is_shown_every_iterate() -> None:
    class Counting(StandardAdversary):
        name, paper = "counting", "none"

        def craft(self, *_: Any, **__: Any) -> Canaries:
            return dimensions(1)

        def score(self, view: StandardView, canaries: Canaries) -> Tensor:
            count = len(view.iterates)
            return torch.full((view.iterates.shape[1], canaries.count), float(count))

    described = game(training(), dimensions(1), Counting(), horizons=(2, 5))
    (block,) = scores(described, TOGETHER).values()
    assert set(block.scores(2).score) == {3.0}
    assert set(block.scores(5).score) == {6.0}


class TestTiles:
    """A tile is a pure function of the game and its number."""

    speed = Speed(device="cpu", compile=False, tile_size=3, workers=1)
    described = game(training(), dimensions(2), LastDimension(), horizons=(3, 5))

    def test_order_and_restart_change_no_bit(self) -> None:
        whole = scores(self.described, self.speed)
        assert sorted(whole) == list(range(prepare(self.described, self.speed).tiles))
        prepared = prepare(self.described, self.speed)
        for tile in reversed(whole):
            again = TilePlayer(prepared).play_tile(tile)
            for one, other in zip(columns(whole[tile]), columns(again), strict=True):
                np.testing.assert_array_equal(one, other)
        rest = scores(self.described, self.speed, done={0, 2})
        assert sorted(rest) == [1]
        np.testing.assert_array_equal(rest[1].score, whole[1].score)

    @pytest.mark.parametrize("threads", [1, 2])
    def test_threads_change_no_bit(self, threads: int) -> None:
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            found = scores(self.described, self.speed)
            assert torch.get_num_threads() == threads
        finally:
            torch.set_num_threads(before)
        expected = scores(self.described, self.speed)
        for tile, block in expected.items():
            np.testing.assert_array_equal(block.score, found[tile].score)

    def test_the_tile_size_changes_scores_by_rounding_alone(self) -> None:
        one = scores(self.described, self.speed)
        other = scores(self.described, TOGETHER)
        together = np.concatenate([block.score[block.horizon == 5] for block in one.values()])
        expected = other[0].score[other[0].horizon == 5]
        np.testing.assert_allclose(together, expected, rtol=1e-4, atol=1e-6)

    def test_every_run_and_canary_is_scored_once(self) -> None:
        rows = [
            (int(run), int(canary), int(horizon))
            for block in scores(self.described, self.speed).values()
            for run, canary, horizon in zip(block.run, block.canary, block.horizon, strict=True)
        ]
        assert len(rows) == len(set(rows)) == 8 * 2 * 2

    def test_out_of_memory_halves_the_tile(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from dpaudit.games import tiles

        class Tight(tiles.Engine):  # type: ignore[misc]  # final, but this is a test
            def states(self, start: Tensor, runs: Tensor, *rest: Any) -> Any:
                if len(runs) > 2:
                    raise torch.OutOfMemoryError("pretended")
                return super().states(start, runs, *rest)

        monkeypatch.setattr(tiles, "Engine", Tight)
        told: list[str] = []
        found = scores(self.described, TOGETHER, notify=told.append)
        monkeypatch.undo()
        expected = scores(self.described, TOGETHER)
        assert [notice for notice in told if "2 runs at a time" in notice]
        np.testing.assert_allclose(found[0].score, expected[0].score, rtol=1e-4, atol=1e-6)
        for name in ("run", "canary", "horizon", "inserted"):
            np.testing.assert_array_equal(getattr(found[0], name), getattr(expected[0], name))


def test_coins_have_their_distribution() -> None:
    half = insertion_coins(seed=1, runs=1000, canaries=4, coin="half")
    assert half.sum(0).tolist() == [500] * 4
    # Which half is random: two canaries agree in about half of the runs.
    agree = int((half[:, 0] == half[:, 1]).sum())
    assert abs(agree - 500) < 80
    fair = insertion_coins(seed=1, runs=100, canaries=1000, coin="fair").double()
    assert abs(float(fair.mean()) - 0.5) < 5 * 0.5 / np.sqrt(fair.numel())
    assert abs(float(fair.mean(1).std()) - 0.5 / np.sqrt(1000)) < 0.006


def test_poisson_participation_has_its_rate_and_is_secret_per_run() -> None:
    from dpaudit.engine import noise
    from dpaudit.engine.training import participation

    key, runs = noise.key(4), torch.arange(500)
    steps = [participation(key, runs, torch.tensor(step), 1, 0.2) for step in range(100)]
    joined = torch.cat(steps, dim=1).double()
    assert abs(float(joined.mean()) - 0.2) < 5 * 0.4 / np.sqrt(joined.numel())
    assert len(torch.unique(joined, dim=0)) == 500


def test_participations_do_not_depend_on_how_many_are_drawn_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    described = game(training(PoissonBatches(rate=0.3)), points(3))
    together = iterates(described, EXACT)
    monkeypatch.setattr("dpaudit.engine.training._DRAWS_AT_ONCE", 30)  # two steps
    assert torch.equal(iterates(described, EXACT), together)


def test_simulations_measure_how_dimensions_move() -> None:
    mechanism = training(noise_multiplier=0)
    quiet = simulate(mechanism, noisy=False, runs=4, seed=0, speed=Speed(device="cpu"))
    unclipped = DPSGD(**{**vars(mechanism), "clip_norm": 1e6})
    (run,) = iterates(
        game(unclipped, dimensions(1), runs=1), Speed(device="cpu", tile_size=1, compile=False)
    ).unbind(1)
    inserted = bool(insertion_coins(seed=11, runs=1, canaries=1, coin="fair"))
    assert not inserted
    torch.testing.assert_close(quiet.final, (run[-1] - run[0]).abs(), rtol=1e-4, atol=1e-6)
    squares = (run[1:] - run[:-1]).square().sum(0)
    torch.testing.assert_close(quiet.per_step, (4 * squares).sqrt(), rtol=1e-4, atol=1e-6)


def test_noisy_simulations_do_not_use_the_noise_of_the_game() -> None:
    mechanism = training(noise_multiplier=50.0)
    simulated = simulate(mechanism, noisy=True, runs=1, seed=11, speed=Speed(device="cpu"))
    (run,) = iterates(
        game(mechanism, dimensions(1), runs=1), Speed(device="cpu", tile_size=1, compile=False)
    ).unbind(1)
    moved = (run[-1] - run[0]).abs()
    correlation = np.corrcoef(simulated.final.numpy(), moved.numpy())[0, 1]
    assert abs(correlation) < 0.5


def test_trainings_of_every_kind_of_model_equal_the_slow_twins(case: Any) -> None:
    mechanism = case.training()
    described = game(mechanism, CraftedDimensions(dimensions=torch.tensor([1]), norm=0.8), runs=3)
    found = iterates(described, EXACT)
    torch.testing.assert_close(found[:, 2], slow_training.play(described, 2), rtol=1e-9, atol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize(
    "batches", [FixedBatches(batch_size=12), PoissonBatches(rate=0.3)], ids=["fixed", "poisson"]
)
def test_compiled_trainings_equal_the_slow_twins_at_every_step(batches: BatchPlan) -> None:
    """Noise that a compiler had garbled at some steps and not at others would be seen here."""
    described = game(training(batches, steps=20), dimensions(2))
    found = iterates(described, Speed(device="cpu", compile=True, tile_size=3, workers=1))
    for run in (0, 3, 7):
        wanted = slow_training.play(described, run)
        torch.testing.assert_close(found[:, run], wanted.float(), rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_compiled_tiles_change_no_bit_with_order_threads_or_restart() -> None:
    described = game(training(), dimensions(2), LastDimension())
    speed = Speed(device="cpu", compile=True, tile_size=3, workers=1)
    before = torch.get_num_threads()
    first = scores(described, speed)
    torch.set_num_threads(2)
    try:
        player = TilePlayer(prepare(described, speed))
        again = {tile: player.play_tile(tile) for tile in reversed(first)}
    finally:
        torch.set_num_threads(before)
    for tile, block in first.items():
        np.testing.assert_array_equal(block.score, again[tile].score)
    engine, player._engine = weakref.ref(player._engine), None
    gc.collect()
    assert engine() is None  # a tile that is halved needs the memory


on_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@on_a_gpu
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("canaries", [dimensions, points])
def test_a_gpu_trains_as_the_slow_twins_do(
    canaries: Callable[[int], Canaries], compiled: bool
) -> None:
    described = game(training(steps=20), canaries(2))
    found = iterates(described, Speed(device="cuda", compile=compiled, tile_size=4))
    for run in (0, 3, 7):
        wanted = slow_training.play(described, run).float()
        torch.testing.assert_close(found[:, run].cpu(), wanted, rtol=1e-4, atol=1e-4)


@on_a_gpu
@pytest.mark.parametrize("compiled", [False, True])
def test_on_a_gpu_tiles_change_no_bit_with_order_or_restart(compiled: bool) -> None:
    described = game(training(), dimensions(2), LastDimension())
    speed = Speed(device="cuda", compile=compiled, tile_size=3)
    first = scores(described, speed)
    player = TilePlayer(prepare(described, speed))
    for tile in reversed(first):
        np.testing.assert_array_equal(player.play_tile(tile).score, first[tile].score)


@on_a_gpu
@pytest.mark.parametrize("compiled", [False, True])
def test_on_a_gpu_the_tile_size_changes_rounding_only(compiled: bool) -> None:
    described = game(training(), dimensions(2), LastDimension())
    found = [
        np.concatenate([block.score for block in scores(described, speed).values()])
        for speed in (
            Speed(device="cuda", compile=compiled, tile_size=8),
            Speed(device="cuda", compile=compiled, tile_size=3),
            TOGETHER,
        )
    ]
    np.testing.assert_allclose(found[1], found[0], atol=1e-5)
    np.testing.assert_allclose(found[2], found[0], atol=1e-5)
