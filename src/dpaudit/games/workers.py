"""Tiles played by several processes, each with one thread.

Processes of our own rather than `multiprocessing`: those would run the user's script once more in
every worker unless it is guarded, or fork a process that has threads. A worker here is handed the
pickled game on its standard input, and imports what that names.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any, final

from dpaudit.errors import DpauditError
from dpaudit.games.check import Checked
from dpaudit.games.game import Game
from dpaudit.games.speed import Speed
from dpaudit.scores import ScoreBlock

_COMMAND = "from dpaudit.games.workers import serve; serve()"
_ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}


def play_in_processes(
    game: Game,
    speed: Speed,
    checked: Checked,
    tiles: Sequence[int],
    notify: Callable[[str], None],
) -> Iterator[tuple[int, ScoreBlock]]:
    """Play ``tiles`` in ``speed.workers`` processes; give each as soon as it is there."""
    payload = pickle.dumps((game, speed, checked))
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    answers: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
    for tile in tiles:
        waiting.put(tile)
    with contextlib.ExitStack() as stack:
        for _ in range(min(speed.workers or 1, len(tiles))):
            worker = stack.enter_context(_Worker(payload))
            threading.Thread(target=worker.work, args=(waiting, answers), daemon=True).start()
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


@final
class _Worker:
    """A process that plays the tiles it is told to."""

    def __init__(self, payload: bytes) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _COMMAND],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **_ONE_THREAD},
        )
        self._payload = payload

    def __enter__(self) -> _Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def work(
        self, waiting: queue.SimpleQueue[int], answers: queue.SimpleQueue[tuple[str, Any]]
    ) -> None:
        """Hand out tiles until there are none; runs in a thread of its own."""
        tile = -1
        try:
            process = self._process
            if process.stdin is None or process.stdout is None:  # pragma: no cover - for mypy
                raise OSError("no pipes")
            _send(process.stdin, sys.path)
            _send(process.stdin, self._payload)
            while True:
                try:
                    tile = waiting.get_nowait()
                except queue.Empty:
                    return
                _send(process.stdin, tile)
                kind = "notice"
                while kind == "notice":
                    kind, content = _receive(process.stdout)
                    answers.put((kind, (tile, content) if kind == "tile" else content))
        except (EOFError, OSError, ValueError):
            code = self._process.poll()
            answers.put(
                (
                    "error",
                    DpauditError(
                        f"a worker process ended while playing tile {tile} (exit code {code}); "
                        "-9 usually means out of memory: use fewer workers or a smaller tile"
                    ),
                )
            )


def serve() -> None:
    """What a worker process does: read a game, then tiles, and answer with scores."""
    source, sink = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever the user's code prints must not end up among the answers
    with contextlib.suppress(EOFError, BrokenPipeError, KeyboardInterrupt):
        sys.path[:] = _receive(source)
        try:
            from dpaudit.games.tiles import Player

            player = Player(*pickle.loads(_receive(source)))
        except Exception as error:
            _receive(source)
            _send(sink, ("error", _portable(error)))
            return
        while True:
            tile = _receive(source)
            try:
                block = player.play_tile(tile, lambda notice: _send(sink, ("notice", notice)))
            except Exception as error:
                _send(sink, ("error", _portable(error)))
                return
            _send(sink, ("tile", block))


def _portable(error: Exception) -> Exception:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # pickle raises whatever the object's own code raises
        return DpauditError(f"{type(error).__name__} in a worker process: {error}")
    return error


def _send(pipe: IO[bytes], content: object) -> None:
    data = pickle.dumps(content)
    pipe.write(len(data).to_bytes(8, "little") + data)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> Any:
    size = pipe.read(8)
    if len(size) < 8:
        raise EOFError
    data = pipe.read(int.from_bytes(size, "little"))
    return pickle.loads(data)
