"""Games divided into tiles, the unit of work for processes, GPUs and clusters.

The scores of a tile are a pure function of the game, the settled speed and the tile's number. They
do not depend on the order of tiles or on the number of threads or processes.
"""

from __future__ import annotations

import gc
import logging
import math
import platform
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import final

import numpy as np
import torch
from torch import Tensor

from dpaudit import _validate
from dpaudit.engine.checking import Checked
from dpaudit.engine.compiling import numerics
from dpaudit.engine.speed import Speed, threads
from dpaudit.engine.starting_points import flat_parameters, initial_parameters, known_model
from dpaudit.engine.training import Engine
from dpaudit.errors import InvalidInput, NumericalError
from dpaudit.executors import Capacity, Notify, Player, PlayTile
from dpaudit.games.budget import Cost, cost, settle
from dpaudit.games.coins import insertion_coins
from dpaudit.games.game import Game
from dpaudit.games.game_check import check_game
from dpaudit.games.views import contributions, scored
from dpaudit.mechanisms.dpsgd import FixedInitialisation
from dpaudit.scores import ScoreBlock
from dpaudit.threat_models import AdaptiveAdversary, Canaries, Moment, StandardAdversary

_log = logging.getLogger(__name__)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Prepared(Player):
    """A checked game with its settled speed: any process can play its tiles.

    See also: `prepare`, which makes it.

    Arguments:
        game: The game.
        speed: The settled speed: device, tile size, workers and compilation are all chosen.
        checked: The result of checking the mechanism.
        cost: The estimated cost of one run.
    """

    game: Game
    speed: Speed
    checked: Checked
    cost: Cost

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
        speed: Speed settings; choices left open are made from the model, the number of runs and
            the free memory.
        capacity: What the machines of an executor can play; by default this machine plays.
    """
    speed = Speed() if speed is None else speed
    checked = check_game(game)
    price = cost(game, checked, speed)
    settled = settle(game, speed, price, capacity)
    return Prepared(game=game, speed=settled, checked=checked, cost=price)


@final
class TilePlayer:
    """Plays tiles of one game in this process and reuses the compiled step between tiles.

    Arguments:
        prepared: The game, from `dpaudit.games.prepare`.
    """

    def __init__(self, prepared: Prepared) -> None:
        game, speed = prepared.game, prepared.speed
        self._prepared, self._game, self._speed = prepared, game, speed
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
                parts = [self._play(some) for some in torch.split(runs, self._together)]
            except torch.OutOfMemoryError:
                if self._together == 1:
                    raise
                self._together = math.ceil(self._together / 2)
                self._engine = None
                gc.collect()  # an engine and its step refer to each other
                torch.cuda.empty_cache()
                notify(f"out of memory: continuing with {self._together} runs at a time")
                continue
            break
        for notice in self._engine.notices if self._engine is not None else ():
            notify(notice)
        return parts[0] if len(parts) == 1 else _concatenate(parts)

    def _play(self, runs: Tensor) -> ScoreBlock:
        with numerics(self._speed.precision, self._device):
            parts = min(threads(), len(runs)) if self._playing_engine().releases_gil else 1
            trainings = [self._train(share) for share in runs.tensor_split(parts)]
            if len(trainings) == 1:
                return self._score(runs, trainings[0])
            with ThreadPoolExecutor(len(trainings)) as pool:
                return self._score(runs, _joined(trainings, pool))

    def _playing_engine(self) -> Engine:
        if self._engine is None:
            self._engine = engine_of(self._prepared, runs=self._together)
        return self._engine

    def _train(self, runs: Tensor) -> Iterator[tuple[int, Tensor]]:
        """The number of steps done and the parameters: at the start and at every horizon.

        For adversaries that see iterates, after every step up to the last horizon.
        """
        engine = self._playing_engine()
        # Shapes may be fixed: a short tile is filled up with runs whose scores are not used.
        size = len(runs) if engine.releases_gil else self._together
        filled = torch.arange(int(runs[0]), int(runs[0]) + size)
        coins = torch.zeros(size, self._game.canaries.count)
        coins[: len(runs)] = self._coins[runs].float()
        start = initial_parameters(
            self._game.mechanism, seed=self._game.seed, runs=filled, dtype=self._speed.dtype
        ).to(self._device)
        yield 0, start[: len(runs)]
        horizons = self._game.horizons
        shown_after = range(1, horizons[-1] + 1) if self._stepwise else horizons
        states = engine.states(start, filled, coins, shown_after)
        for steps, state in zip(shown_after, states, strict=True):
            shown = state[0] if self._stepwise else engine.released_in(state)
            yield steps, shown[: len(runs)]

    def _score(self, runs: Tensor, training: Iterator[tuple[int, Tensor]]) -> ScoreBlock:
        """Score at every horizon. Iterates are collected only for adversaries that see them."""
        game, initial = self._game, None
        if isinstance(game.mechanism.initialisation, FixedInitialisation):  # the start is public
            initial = flat_parameters(known_model(game.mechanism), self._speed.dtype)
            initial = initial.to(self._device)
        scores: list[np.ndarray] = []
        iterates: list[Tensor] = []
        for steps, current in training:
            if not self._stepwise:
                iterates.clear()
            iterates.append(current)
            if steps not in game.horizons:
                continue
            _refuse_divergence(runs, steps, current)
            values = scored(game, steps, initial, iterates, self._canaries)
            expected = (len(runs), game.canaries.count)
            if tuple(values.shape) != expected:
                raise InvalidInput(
                    f"adversary {game.adversary.name!r} must give scores of shape (runs, canaries) "
                    f"= {expected}, got {tuple(values.shape)}"
                )
            scores.append(values.detach().cpu().double().numpy())
        return self._block(runs, np.stack(scores))

    def _block(self, runs: Tensor, scores: np.ndarray) -> ScoreBlock:
        shape = scores.shape  # (horizons, runs, canaries)
        horizon, run, canary = np.meshgrid(
            np.array(self._game.horizons), runs.numpy(), np.arange(shape[2]), indexing="ij"
        )
        inserted = np.broadcast_to(self._coins[runs].numpy(), shape)
        return ScoreBlock(
            run=run.ravel(),
            canary=canary.ravel(),
            horizon=horizon.ravel(),
            inserted=inserted.ravel(),
            score=scores.ravel(),
            played_on=self._played_on,
        )


def _joined(
    trainings: list[Iterator[tuple[int, Tensor]]], pool: ThreadPoolExecutor
) -> Iterator[tuple[int, Tensor]]:
    """The parameters of all shares of a tile, which advance at the same time.

    They are scored together: the last bit of a product of matrices depends on their shapes, and so
    it would depend on the number of threads.
    """
    while True:
        following = pool.map(lambda training: next(training, None), trainings)
        parts = [part for part in following if part is not None]
        if not parts:
            return
        yield parts[0][0], torch.cat([current for _, current in parts])


def engine_of(prepared: Prepared, *, runs: int) -> Engine:
    """The engine that trains ``runs`` models of a game together."""
    game, speed = prepared.game, prepared.speed
    device = speed.torch_device()
    adversary, canaries, respond = game.adversary, _on_device(game.canaries, device), None
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


def _refuse_divergence(runs: Tensor, steps: int, current: Tensor) -> None:
    finite = torch.isfinite(current).all(1).cpu()
    if not finite.all():
        raise NumericalError(
            f"run {int(runs[~finite][0])} diverged to infinity within {steps} steps; lower the "
            "learning rate, or start from smaller parameters"
        )


def _on_device(canaries: Canaries, device: torch.device) -> Canaries:
    """The canaries with their tensors on ``device``."""
    tensors = {
        name: value.to(device)
        for name, value in vars(canaries).items()
        if isinstance(value, Tensor)
    }
    return replace(canaries, **tensors)  # type: ignore[type-var]


def _concatenate(blocks: list[ScoreBlock]) -> ScoreBlock:
    """The blocks of a halved tile, with rows in the order of the whole tile."""
    names = ("run", "canary", "horizon", "inserted", "score")
    columns = {name: np.concatenate([getattr(block, name) for block in blocks]) for name in names}
    order = np.lexsort((columns["canary"], columns["run"], columns["horizon"]))
    ordered = {name: column[order] for name, column in columns.items()}
    return ScoreBlock(**ordered, played_on=blocks[0].played_on)
