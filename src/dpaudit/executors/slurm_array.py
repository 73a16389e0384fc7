"""Tiles played by the jobs of a SLURM array, with one result file per tile.

The folder on the shared file system has the player, one file for each finished tile, and the logs
of the jobs. There is no database in it: SQLite does not work on network file systems.

Only the jobs read the pickle of the player, which the audit wrote before it submitted them. Results
are data: a line of JSON with the audit, the tile and the notices, then the packed tile.
"""

from __future__ import annotations

import base64
import builtins
import contextlib
import json
import os
import pickle
import stat
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, final

from dpaudit import _validate, errors
from dpaudit._inputs import open_input
from dpaudit._outputs import write_whole
from dpaudit.errors import DpauditError, InvalidInput, InvalidScores, MissingExtra
from dpaudit.executors.base import Capacity, Executor, Lost, Notify, Player, time_limit
from dpaudit.scores import Failure, ScoreBlock
from dpaudit.scores.tiles import pack, unpack

_PLAYER, _ENDING = "player.pickle", ".tile"
_PACKED = "packed tile"


@final
class SlurmArray(Executor):
    """Plays tiles as array jobs of SLURM, submitted by submitit.

    A job that is preempted or reaches SLURM's time limit is requeued, and plays the tiles that have
    no result file yet. If this process is killed, the jobs continue: the same call, or
    `collect_tiles`, reads their results later.

    Arguments:
        folder: A folder on a file system that all machines share. Only you may write to it: the
            jobs run the player that is in it.
        cluster: ``"slurm"``; ``"local"`` and ``"debug"`` play on this machine, for tests.
        tiles_per_job: Number of tiles that a job plays one after the other.
        cpus_per_tile: CPUs of a job.
        gpus_per_tile: GPUs of a job.
        minutes: Time limit of a job in SLURM's queue.
        parameters: Further parameters of submitit, such as ``{"slurm_partition": "gpu"}``.
        timeout: Seconds after which a tile's process is killed; none by default.
        attempts: Number of times that a tile is submitted before its result is `Lost`.
        poll: Seconds between two looks at the result files.

    Example:
        >>> executor = SlurmArray(folder="/shared/me/audit", parameters={"slurm_partition": "gpu"})
    """

    immediate = False

    def __init__(
        self,
        *,
        folder: str | os.PathLike[str] = "dpaudit-slurm",
        cluster: str = "slurm",
        tiles_per_job: int = 1,
        cpus_per_tile: int = 1,
        gpus_per_tile: int = 0,
        minutes: int = 60,
        parameters: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        attempts: int = 3,
        poll: float = 5.0,
    ) -> None:
        super().__init__()
        self._folder = Path(folder)
        self._cluster = _validate.one_of("cluster", cluster, ("slurm", "local", "debug"))
        self._together = _validate.integer("tiles_per_job", tiles_per_job, at_least=1)
        self._parameters = {
            "cpus_per_task": _validate.integer("cpus_per_tile", cpus_per_tile, at_least=1),
            "gpus_per_node": _validate.integer("gpus_per_tile", gpus_per_tile),
            "timeout_min": _validate.integer("minutes", minutes, at_least=1),
            **(parameters or {}),
        }
        self._timeout = None if timeout is None else _validate.positive("timeout", timeout)
        self._attempts = _validate.integer("attempts", attempts, at_least=1)
        self._poll = _validate.positive("poll", poll)

    def capacity(self) -> Capacity:
        """The device of the jobs; how many run at the same time is not known."""
        device = "cuda" if self._parameters["gpus_per_node"] else "cpu"
        return Capacity(tiles=1, device=device)

    def play(
        self, player: Player, tiles: Sequence[int], notify: Notify
    ) -> Iterator[tuple[int, Any]]:
        """Submit the tiles that have no result file yet, and yield results as files appear."""
        folder = self._folder / (self.label or "tiles")
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _check_private(folder)
        _write(folder / _PLAYER, _pickled((list(sys.path), _pickled(player))))
        missing, tries, first = dict.fromkeys(tiles), Counter[int](), True
        jobs: list[Any] = []
        while missing:
            over = not first and all(job.done() for job in jobs)  # before the files are looked at
            for tile in [number for number in missing if _file(folder, number).exists()]:
                result, notices = _read(_file(folder, tile), tile)
                for notice in notices:
                    notify(notice)
                del missing[tile]
                yield tile, result
            self.status.in_flight = len(missing)
            if not missing:
                return
            if not (first or over):
                time.sleep(self._poll)
                continue
            for tile in [number for number in missing if tries[number] == self._attempts]:
                del missing[tile]
                yield tile, Lost(reason="its job left no result", attempts=tries[tile])
            if not missing:
                return
            if not first:
                self.status.retries += len(missing)
                notify(f"jobs ended without the results of {len(missing)} tiles; submitting again")
            tries.update(list(missing))
            jobs, first = self._submit(folder, list(missing)), False

    def _submit(self, folder: Path, tiles: list[int]) -> list[Any]:
        submitit = _submitit()
        try:
            executor = submitit.AutoExecutor(folder=folder / "logs", cluster=self._cluster)
            executor.update_parameters(**self._parameters)
        except (RuntimeError, NameError, TypeError, ValueError) as error:
            raise InvalidInput(f"cannot use SLURM through submitit: {error}") from None
        chunks = [tiles[at : at + self._together] for at in range(0, len(tiles), self._together)]
        self.status.workers = len(chunks)
        try:
            with executor.batch():
                return [
                    executor.submit(_Tiles(), str(folder), chunk, self._timeout) for chunk in chunks
                ]
        except submitit.core.utils.FailedJobError as error:
            raise DpauditError(f"SLURM did not accept the jobs: {error}") from None


class _Tiles:
    """What a job runs. It never raises: its results and errors are files."""

    def __call__(self, folder: str, tiles: Sequence[int], timeout: float | None) -> None:
        _check_private(Path(folder))  # the pickle runs code
        path, player = pickle.loads((Path(folder) / _PLAYER).read_bytes())
        sys.path.extend(folder for folder in path if folder not in sys.path)
        play_tile, notices = None, list[str]()
        for tile in tiles:
            file = _file(Path(folder), tile)
            if file.exists():
                continue  # played before the job was requeued
            try:
                if play_tile is None:
                    play_tile = pickle.loads(player).open()
                notices.clear()
                with time_limit(timeout):
                    content = play_tile(tile, notices.append)
                _write(file, _encoded(file, tile, content, notices))
            except Exception as error:
                _write(file, _encoded(file, tile, error, notices))
                return

    def checkpoint(self, *arguments: Any) -> Any:
        """Called by submitit when the job is preempted: submit the same tiles again."""
        return _submitit().helpers.DelayedSubmission(self, *arguments)


def folders_of_tiles(folder: str | os.PathLike[str]) -> list[Path]:
    """The folder itself if it has tiles, otherwise those of its folders that have."""
    place = Path(folder)
    inner = sorted(place.iterdir()) if place.is_dir() else []
    return [inside for inside in (place, *inner) if (inside / _PLAYER).is_file()]


def collect_tiles(folder: str | os.PathLike[str]) -> Iterator[tuple[int, Any]]:
    """The results in a folder of `SlurmArray`, without waiting for those that are missing.

    They are data, and each names the folder and the tile that it belongs to.
    """
    place = Path(folder)
    if not (place / _PLAYER).exists():
        raise InvalidInput(f"{folder} is not a folder of tiles: it has no {_PLAYER}")
    for file in sorted(place.glob(f"*{_ENDING}")):
        tile = int(file.stem)
        yield tile, _read(file, tile)[0]


def _file(folder: Path, tile: int) -> Path:
    return folder / f"{tile:09d}{_ENDING}"


def _encoded(file: Path, tile: int, result: Any, notices: Sequence[str]) -> bytes:
    """A result as bytes: scores and failures packed, anything else, and errors, as JSON."""
    kind, payload = "json", b""
    if isinstance(result, ScoreBlock | Failure):
        kind, payload = "tile", pack(result)
    elif isinstance(result, Exception):
        kind, payload = "error", json.dumps([type(result).__name__, str(result)]).encode()
    else:
        payload = json.dumps(result, default=_as_text).encode()
    played_on = getattr(result, "played_on", "")
    head = {"audit": file.parent.name, "tile": tile, "kind": kind, "notices": list(notices)}
    return json.dumps({**head, "played_on": played_on}).encode() + b"\n" + payload


def _as_text(tile: object) -> dict[str, str]:
    """A tile inside of a result that is written as JSON."""
    if not isinstance(tile, ScoreBlock | Failure):
        raise TypeError(f"a {type(tile).__name__} is no result of a job")
    return {_PACKED: base64.b64encode(pack(tile)).decode()}


def _with_tiles(plain: dict[str, Any]) -> Any:
    return unpack(base64.b64decode(plain[_PACKED])) if plain.keys() == {_PACKED} else plain


def _read(file: Path, tile: int) -> tuple[Any, list[str]]:
    """The result in a file, and its notices; an error that the player raised is raised."""
    try:
        with open_input(file) as stream:
            line, _, payload = stream.read().partition(b"\n")
        head = json.loads(line)
        if (head["audit"], head["tile"]) != (file.parent.name, tile):
            raise ValueError(f"it belongs to tile {head['tile']} of {head['audit']}")
        if head["kind"] == "tile":
            result: Any = unpack(payload)
            if isinstance(result, ScoreBlock):
                result = replace(result, played_on=str(head["played_on"]))
        else:
            result = json.loads(payload, object_hook=_with_tiles)
    except (OSError, InvalidScores, ValueError, TypeError, KeyError) as error:
        raise DpauditError(
            f"cannot read the result {file}: {error}; delete it and repeat"
        ) from None
    if head["kind"] == "error":
        file.unlink(missing_ok=True)  # so that the same call tries again
        name, text = result
        kind = getattr(errors, name, getattr(builtins, name, None))
        if isinstance(kind, type) and issubclass(kind, Exception) and kind is not MissingExtra:
            raised: Exception = DpauditError(f"{name} in a job: {text}")
            with contextlib.suppress(TypeError):  # a type whose arguments are not one text
                raised = kind(text)
            raise raised
        raise DpauditError(f"{name} in a job: {text}")
    return result, [str(notice) for notice in head["notices"]]


def _write(file: Path, content: bytes) -> None:
    """Write a file that is whole or not there."""
    write_whole(file, lambda stream: stream.write(content))


def _pickled(content: Any) -> bytes:
    import cloudpickle  # comes with submitit; it also pickles functions of a script

    data: bytes = cloudpickle.dumps(content)
    return data


def _check_private(folder: Path) -> None:
    """Refuse a folder to which others may write: its pickles run code."""
    status = folder.lstat()
    linked = stat.S_ISLNK(status.st_mode)
    if linked or status.st_uid != os.getuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise InvalidInput(
            f"folder {folder} must belong to you and be writable only by you; use chmod 700, or "
            "another folder"
        )


def _submitit() -> Any:
    """The module, without the log lines that it would write to standard output."""
    quiet = "SUBMITIT_LOG_LEVEL" not in os.environ
    if quiet:
        os.environ["SUBMITIT_LOG_LEVEL"] = "NOCONFIG"  # read once, by the first import
    try:
        import submitit
    except ImportError:
        raise MissingExtra("the SLURM executor", "slurm") from None
    finally:
        if quiet:
            del os.environ["SUBMITIT_LOG_LEVEL"]  # jobs write their logs as usual
    return submitit
