"""Games divided into tiles, the unit of work for processes, GPUs and clusters.

The scores of a tile are a pure function of the game, the settled speed and the tile's number. They
do not depend on the order of tiles or on the number of threads or processes.
"""

from __future__ import annotations

import gc
import logging
import math
import platform
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import final

import numpy as np
import torch
from torch import Tensor

from dpaudit import _validate
from dpaudit._arrays import Array
from dpaudit.engine.checking import Checked
from dpaudit.engine.compiling import import_compiler, numerics
from dpaudit.engine.speed import Speed
from dpaudit.engine.starting_points import initial_parameters
from dpaudit.engine.training import Engine
from dpaudit.errors import DpauditError, InvalidInput, NumericalError
from dpaudit.executors import Capacity, Executor, InProcess, Lost, Notify, Player, PlayTile
from dpaudit.games.budget import Cost, cost, gpus, settle
from dpaudit.games.coins import insertion_coins
from dpaudit.games.game import Game
from dpaudit.games.game_check import check_game
from dpaudit.games.views import contributions, scored
from dpaudit.mechanisms.dpsgd import FixedInitialisation
from dpaudit.scores import ScoreBlock
from dpaudit.threat_models import AdaptiveAdversary, Canaries, Moment, StandardAdversary

_log = logging.getLogger(__name__)

_ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

_MOST_LOST = 10
"""Number of lost tiles after which the others are not tried any more."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Prepared(Player):
    """A checked game with its settled speed, made by `prepare`: any process can play its tiles."""

    game: Game
    speed: Speed  # settled: device, tile size, workers and compilation are all chosen
    checked: Checked
    cost: Cost  # of one run

    @property
    def tile_size(self) -> int:
        """Runs in every tile but the last, which may have fewer."""
        if self.speed.tile_size is None:
            raise InvalidInput("tile_size must be chosen before playing, got None; use prepare")
        return self.speed.tile_size

    @property
    def tiles(self) -> int:
        """Number of tiles."""
        return math.ceil(self.game.runs / self.tile_size)

    def runs_of(self, tile: int) -> range:
        """The numbers of the runs in one tile."""
        if not 0 <= _validate.integer("tile", tile) < self.tiles:
            raise InvalidInput(f"tile must be from 0 to {self.tiles - 1}, got {tile}")
        first = tile * self.tile_size
        return range(first, min(first + self.tile_size, self.game.runs))

    def open(self) -> PlayTile:
        """Compile once for all tiles that a process plays."""
        return TilePlayer(self).play_tile


def prepare(game: Game, speed: Speed | None = None, capacity: Capacity | None = None) -> Prepared:
    """Check a game and settle its speed. Call this once per game, before playing it.

    Raises `InvalidInput` or `UnsupportedModel` if the game cannot be played as described.

    Arguments:
        game: The game to play.
        speed: Speed settings; what is left open follows from model, runs and free memory.
        capacity: What the machines of an executor can play; by default this machine plays.
    """
    speed = Speed() if speed is None else speed
    checked = check_game(game)
    price = cost(game, checked, speed)
    settled = settle(game, speed, price, capacity)
    return Prepared(game=game, speed=settled, checked=checked, cost=price)


@final
class TilePlayer:
    """Plays tiles of one game in this process and reuses the compiled step between tiles."""

    def __init__(self, prepared: Prepared) -> None:
        game, speed = prepared.game, prepared.speed
        self._prepared, self._game = prepared, game
        if speed.compiled is True:
            import_compiler()
        self._device = speed.torch_device()
        device = torch.cuda.get_device_name(self._device) if self._device.type == "cuda" else "cpu"
        self._played_on = f"{platform.node()}: {device}, {speed.precision}"
        self._coins = insertion_coins(
            seed=game.seed, runs=game.runs, canaries=game.canaries.count, coin=game.coin
        )
        self._canaries = _on_device(game.canaries, self._device)
        self._together = prepared.tile_size
        self._engine: Engine | None = None
        self._stepwise = isinstance(game.adversary, StandardAdversary)

    def play_tile(self, tile: int, notify: Notify = _log.info) -> ScoreBlock:
        """The scores of tile number ``tile``: a pure function of the prepared game."""
        runs = torch.tensor(self._prepared.runs_of(tile))
        while True:
            try:
                with numerics(self._prepared.speed.precision, self._device):
                    parts = [self._scores(some) for some in torch.split(runs, self._together)]
                break
            except torch.OutOfMemoryError:
                if self._together == 1:
                    raise
                self._together = math.ceil(self._together / 2)
                self._engine = None
                gc.collect()  # an engine and its step refer to each other
                torch.cuda.empty_cache()
                notify(f"out of memory: continuing with {self._together} runs at a time")
        for notice in self._engine.notices if self._engine is not None else ():
            notify(notice)
        scores = np.concatenate(parts, axis=1)
        horizon, run, canary = np.meshgrid(
            np.array(self._game.horizons), runs.numpy(), np.arange(scores.shape[2]), indexing="ij"
        )
        inserted = np.broadcast_to(self._coins[runs].numpy(), scores.shape)
        columns = {"run": run, "canary": canary, "horizon": horizon, "inserted": inserted}
        return ScoreBlock(
            **{name: column.ravel() for name, column in columns.items()},
            score=scores.ravel(),
            played_on=self._played_on,
        )

    def train(self, runs: Tensor) -> Iterator[tuple[int, Tensor]]:
        """The number of steps done and the parameters: at the start and at every horizon.

        For adversaries that see iterates, after every step up to the last horizon.
        """
        game, speed = self._game, self._prepared.speed
        if self._engine is None:
            self._engine = engine_of(self._prepared, runs=self._together)
        # Shapes may be fixed: a short tile is filled up with runs whose scores are not used.
        filled = torch.arange(int(runs[0]), int(runs[0]) + self._together)
        coins = torch.zeros(self._together, game.canaries.count)
        coins[: len(runs)] = self._coins[runs].float()
        start = initial_parameters(
            game.mechanism, seed=game.seed, runs=filled, dtype=speed.dtype
        ).to(self._device)
        yield 0, start[: len(runs)]
        shown_after = range(1, game.horizons[-1] + 1) if self._stepwise else game.horizons
        states = self._engine.states(start, filled, coins, shown_after)
        averaged = game.mechanism.averaging is not None and not self._stepwise
        for steps, state in zip(shown_after, states, strict=True):
            yield steps, state[-1 if averaged else 0][: len(runs)]

    def _scores(self, runs: Tensor) -> Array:
        """The scores of runs that are trained together, shape (horizons, runs, canaries)."""
        game, scores, iterates = self._game, list[Array](), list[Tensor]()
        expected = (len(runs), game.canaries.count)
        public = isinstance(game.mechanism.initialisation, FixedInitialisation)
        initial: Tensor | None = None
        for steps, current in self.train(runs):
            if not self._stepwise:  # iterates are kept only for adversaries that see them
                iterates.clear()
            iterates.append(current)
            if steps == 0 and public:
                initial = current[0]
            if steps not in game.horizons:
                continue
            finite = torch.isfinite(current).all(1).cpu()
            if not finite.all():
                raise NumericalError(
                    f"run {int(runs[~finite][0])} diverged to infinity within {steps} steps; "
                    "lower the learning rate, or start from smaller parameters"
                )
            values = scored(game, steps, initial, iterates, self._canaries)
            if tuple(values.shape) != expected:
                raise InvalidInput(
                    f"adversary {game.adversary.name!r} must give scores of shape (runs, "
                    f"canaries) = {expected}, got {tuple(values.shape)}"
                )
            scores.append(values.detach().cpu().double().numpy())
        return np.stack(scores)


def engine_of(prepared: Prepared, *, runs: int) -> Engine:
    """The engine that trains ``runs`` models of a game together."""
    game, speed = prepared.game, prepared.speed
    adversary, respond = game.adversary, None
    canaries = _on_device(game.canaries, speed.torch_device())
    if isinstance(adversary, AdaptiveAdversary):

        def respond(step: int, current: Tensor) -> Tensor:
            moment = Moment(mechanism=game.mechanism, step=step, current=current)
            return contributions(adversary, moment, canaries)

    return Engine(
        game.mechanism,
        runs=runs,
        speed=speed,
        canaries=game.canaries,
        insertion=game.insertion,
        seed=game.seed,
        taps=prepared.checked.taps,
        respond=respond,
        compiled=speed.compiled,
        times=prepared.tiles,
    )


def _on_device(canaries: Canaries, device: torch.device) -> Canaries:
    """The canaries with their tensors on ``device``."""
    tensors = {
        name: value.to(device)
        for name, value in vars(canaries).items()
        if isinstance(value, Tensor)
    }
    return replace(canaries, **tensors)  # type: ignore[type-var]


def executor_for(prepared: Prepared, tiles: int | None = None) -> Executor:
    """Local processes for so many tiles, at most ``speed.workers``; this process for one."""
    workers = min(prepared.speed.workers or 1, prepared.tiles if tiles is None else tiles)
    if workers < 2:
        return InProcess()
    from dpaudit.executors import LocalProcesses

    device = prepared.speed.torch_device()
    if device.type == "cpu":
        return LocalProcesses(workers=workers, environment=_ONE_THREAD)
    # A numbered GPU keeps its number; otherwise each worker sees one GPU.
    return LocalProcesses(workers=workers, gpus=gpus(device) if device.index is None else ())


def play(
    prepared: Prepared,
    *,
    done: Collection[int] = (),
    notify: Notify | None = None,
    executor: Executor | None = None,
) -> Iterator[tuple[int, ScoreBlock]]:
    """Play the tiles that are not ``done``; yield each with its number as soon as it is finished.

    Raises `DpauditError`, after all other tiles, if the workers of a tile died in every attempt.

    Arguments:
        prepared: The game, from `dpaudit.games.prepare`.
        done: Numbers of tiles that are skipped.
        notify: Called once with each notice for the user.
        executor: Schedules the tiles; by default local processes, ``speed.workers`` of them.
    """
    reported: set[str] = set()

    def report(notice: str) -> None:
        if notice not in reported:
            reported.add(notice)
            _log.info(notice)
            if notify is not None:
                notify(notice)

    for notice in prepared.checked.notices:
        report(notice)
    tiles = [tile for tile in range(prepared.tiles) if tile not in frozenset(done)]
    executor = executor_for(prepared, len(tiles)) if executor is None else executor
    lost: dict[int, Lost] = {}
    for tile, result in executor.play(prepared, tiles, report):
        if not isinstance(result, Lost):
            yield tile, result
            continue
        lost[tile] = result
        if len(lost) == _MOST_LOST:
            break
    if lost:
        tile, last = lost.popitem()
        others = f" (and {len(lost)} more)" if lost else ""
        raise DpauditError(
            f"tile {tile}{others} could not be played in {last.attempts} attempts: {last.reason}; "
            "the other tiles that were played are kept. Use fewer workers or a smaller tile_size, "
            "and repeat the same call"
        )
