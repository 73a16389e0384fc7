"""A game played by an executor, tile by tile."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator

from dpaudit.errors import DpauditError
from dpaudit.executors import Executor, InProcess, Lost, Notify
from dpaudit.games.budget import gpus
from dpaudit.games.tiles import Prepared
from dpaudit.scores import ScoreBlock

_ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

_MOST_LOST = 10
"""Number of lost tiles after which the others are not tried any more."""

_log = logging.getLogger(__name__)


def executor_for(prepared: Prepared, done: Collection[int] = ()) -> Executor:
    """Local processes, as many as the settled speed has; this process for a single one."""
    workers = min(prepared.speed.workers or 1, prepared.tiles - len(done))
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
    executor = executor_for(prepared, done) if executor is None else executor
    lost: dict[int, Lost] = {}
    for tile, result in executor.play(prepared, tiles, report):
        if not isinstance(result, Lost):
            yield tile, result
            continue
        lost[tile] = result
        if len(lost) == _MOST_LOST:
            break
    if lost:
        raise DpauditError(_loss(lost))


def _loss(lost: dict[int, Lost]) -> str:
    tile, last = lost.popitem()
    others = f" (and {len(lost)} more)" if lost else ""
    return (
        f"tile {tile}{others} could not be played in {last.attempts} attempts: {last.reason}; the "
        "other tiles that were played are kept. Use fewer workers or a smaller tile_size, and "
        "repeat the same call"
    )
