"""Tiles played by several processes, each with one thread.

A worker is handed the pickled game, and imports what that names.
"""

from __future__ import annotations

import contextlib
import pickle
import queue
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dpaudit._processes import Worker, drain, own_streams, receive, send
from dpaudit.errors import DpauditError
from dpaudit.games.prepared import Prepared
from dpaudit.scores import ScoreBlock

_ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}

Answers = queue.SimpleQueue[tuple[str, Any]]


def play_in_processes(
    prepared: Prepared, tiles: Sequence[int], notify: Callable[[str], None]
) -> Iterator[tuple[int, ScoreBlock]]:
    """Play ``tiles`` in ``speed.workers`` processes; give each as soon as it is there."""
    payload = pickle.dumps(prepared)
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    answers: Answers = queue.SimpleQueue()
    for tile in tiles:
        waiting.put(tile)
    with contextlib.ExitStack() as stack:
        for _ in range(min(prepared.speed.workers or 1, len(tiles))):
            worker = stack.enter_context(Worker(__name__, _ONE_THREAD))
            work = (worker, payload, waiting, answers)
            threading.Thread(target=_work, args=work, daemon=True).start()
        missing = len(tiles)
        while missing:
            kind, content = answers.get()
            if kind == "tile":
                missing -= 1
                yield content
            elif kind == "notice":
                notify(content)
            else:
                raise content


def _work(
    worker: Worker, payload: bytes, waiting: queue.SimpleQueue[int], answers: Answers
) -> None:
    """Hand out tiles to one worker until there are none; runs in a thread of its own."""
    tile = -1
    try:
        worker.tell(sys.path, payload)
        for tile in drain(waiting):
            worker.tell(tile)
            kind = "notice"
            while kind == "notice":
                kind, content = worker.hear()
                answers.put((kind, (tile, content) if kind == "tile" else content))
    except (EOFError, OSError, ValueError):
        error = DpauditError(
            f"a worker process ended while playing tile {tile} (exit code {worker.exit_code()}); "
            "-9 usually means out of memory: use fewer workers or a smaller tile"
        )
        answers.put(("error", error))


def serve() -> None:
    """What a worker process does: read a game, then tiles, and answer with scores."""
    source, sink = own_streams()
    with contextlib.suppress(EOFError, BrokenPipeError, KeyboardInterrupt):
        sys.path[:] = receive(source)
        try:
            from dpaudit.games.tiles import Player

            player = Player(pickle.loads(receive(source)))
        except Exception as error:
            receive(source)
            send(sink, ("error", _portable(error)))
            return
        while True:
            tile = receive(source)
            try:
                block = player.play_tile(tile, lambda notice: send(sink, ("notice", notice)))
            except Exception as error:
                send(sink, ("error", _portable(error)))
                return
            send(sink, ("tile", block))


def _portable(error: Exception) -> Exception:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # pickle raises whatever the object's own code raises
        return DpauditError(f"{type(error).__name__} in a worker process: {error}")
    return error
