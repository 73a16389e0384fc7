"""Tiles played by the machines of a Ray cluster."""

from __future__ import annotations

import sys
import weakref
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, final

from dpaudit import _validate
from dpaudit.errors import DpauditError, InvalidInput, MissingExtra
from dpaudit.executors.base import (
    Attempts,
    Capacity,
    Executor,
    Notify,
    Player,
    PlayTile,
    time_limit,
)

_SECONDS_BETWEEN_LOOKS = 2.0
"""How often the cluster is asked for its machines, which may come and go."""


@final
class RayTasks(Executor):
    """Plays tiles as tasks of Ray Core, on one machine or many.

    The player is put into Ray's object store once. Tasks are stateless: a tile whose worker or
    machine dies is played again elsewhere. No more tasks are submitted than the cluster can play
    soon. A cluster that this executor started is stopped together with it.

    See also: the `Ray documentation <https://docs.ray.io>`_ on starting a cluster.

    Arguments:
        address: ``"local"`` starts Ray on this machine, ``"auto"`` finds the running cluster,
            ``"ray://host:10001"`` connects to a remote one. A connection that is open already is
            used whatever the address.
        cpus_per_tile: CPUs that Ray reserves for a tile.
        gpus_per_tile: GPUs that Ray reserves for a tile; 0.5 lets two tiles share a GPU.
        accelerator: Type of GPU, such as ``"H100"``; any by default.
        runtime_env: Ray's runtime environment of the tasks, such as ``{"pip": ["my-package"]}``.
        timeout: Seconds after which a tile's worker is killed; none by default.
        attempts: Number of times that a tile is tried before its result is `Lost`.

    Example:
        >>> from dpaudit.testing.executors import Squares
        >>> executor = RayTasks(address="local")
        >>> sorted(executor.play(Squares(), [3, 5], print))  # doctest: +SKIP
        [(3, 9), (5, 25)]
    """

    def __init__(
        self,
        *,
        address: str = "auto",
        cpus_per_tile: float = 1,
        gpus_per_tile: float = 0,
        accelerator: str | None = None,
        runtime_env: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        attempts: int = 3,
    ) -> None:
        super().__init__()
        if address not in ("auto", "local") and not address.startswith("ray://"):
            raise InvalidInput(
                f"address must be 'auto', 'local' or start with 'ray://', got {address!r}"
            )
        self._address = address
        self._needs = {
            "CPU": _validate.non_negative("cpus_per_tile", cpus_per_tile),
            "GPU": _validate.non_negative("gpus_per_tile", gpus_per_tile),
        }
        if accelerator is not None:
            self._needs[f"accelerator_type:{accelerator}"] = 0.001
        self._accelerator, self._runtime_env = accelerator, dict(runtime_env or {})
        self._timeout = None if timeout is None else _validate.positive("timeout", timeout)
        self._attempts = _validate.integer("attempts", attempts, at_least=1)

    def capacity(self) -> Capacity:
        """Number of tiles that the cluster has room for now."""
        slots = _Cluster(self._connected(), self._needs).slots()
        return Capacity(tiles=slots, device="cuda" if self._needs["GPU"] else "cpu")

    def play(
        self, player: Player, tiles: Sequence[int], notify: Notify
    ) -> Iterator[tuple[int, Any]]:
        """Play the tiles on whatever machines the cluster has; machines may come and go."""
        if not tiles:
            return
        ray = self._connected()
        waiting, flying = deque(tiles), dict[Any, int]()
        attempts = Attempts(self._attempts, self.status, notify)
        try:
            look = _Cluster(ray, self._needs)
            task = ray.remote(**self._options())(_play_tile)
            held = _put(ray, player)
            while waiting or flying:
                slots, self.status.lost_nodes = look.slots(), look.lost
                while waiting and len(flying) < 2 * slots + 2:
                    tile = waiting.popleft()
                    flying[task.remote(held, tile, self._timeout, sys.path)] = tile
                self.status.workers, self.status.in_flight = slots, len(flying)
                done, _ = ray.wait(list(flying), timeout=_SECONDS_BETWEEN_LOOKS)
                for reference in done:
                    tile = flying.pop(reference)
                    try:
                        result, notices = self._landed(ray, reference)
                    except _Died as death:
                        result, notices = attempts.failed(tile, str(death)), []
                        if result is None:
                            waiting.append(tile)
                            continue
                    for notice in notices:
                        notify(notice)
                    yield tile, result
        finally:
            for reference in flying:
                ray.cancel(reference, force=True)

    def _connected(self) -> Any:
        """Ray with an open connection, which is closed when this executor is not used any more."""
        ray = _ray()
        if not ray.is_initialized():
            self._connect(ray)
            weakref.finalize(self, _close, ray, ray.get_runtime_context().get_worker_id())
        return ray

    def _connect(self, ray: Any) -> None:
        settings: dict[str, Any] = {"address": self._address}
        if self._address == "local":
            settings["include_dashboard"] = False
        try:
            ray.init(log_to_driver=False, logging_level="ERROR", **settings)
        except (ConnectionError, ValueError, RuntimeError, OSError) as error:
            first = str(error).partition("\n")[0]
            raise InvalidInput(
                f"cannot connect to Ray at address {self._address!r}: {first}; "
                "start a cluster with 'ray start --head', or use address 'local'"
            ) from None

    def _options(self) -> dict[str, Any]:
        options: dict[str, Any] = {
            "num_cpus": self._needs["CPU"],
            "num_gpus": self._needs["GPU"],
            "max_calls": 0,  # a worker that has compiled the game plays further tiles
            "max_retries": 0,  # counted and reported here
        }
        if self._accelerator is not None:
            options["accelerator_type"] = self._accelerator
        if self._runtime_env:
            options["runtime_env"] = self._runtime_env
        return options

    def _landed(self, ray: Any, reference: Any) -> tuple[Any, list[str]]:
        """The result and the notices of a task; `_Died` if its worker did not survive."""
        errors = ray.exceptions
        try:
            result, notices = ray.get(reference)
        except errors.RayTaskError as error:
            cause = error.cause
            cause.add_note(f"On a machine of the Ray cluster:\n{error}")
            raise cause from None
        except (errors.RuntimeEnvSetupError, errors.TaskCancelledError):
            raise
        except errors.RayError as error:
            raise _Died(self._reason(error)) from None
        return result, notices

    def _reason(self, error: Exception) -> str:
        kind = type(error).__name__
        limit = (
            "" if self._timeout is None else f" or exceeded the time limit of {self._timeout:g} s"
        )
        return {
            "WorkerCrashedError": f"its worker died{limit}",
            "NodeDiedError": "its machine was lost",
            "OutOfMemoryError": "its machine ran out of memory",
        }.get(kind, f"{kind}: {(str(error).splitlines() or [''])[0]}")


def _put(ray: Any, player: Player) -> list[Any]:
    """The player in Ray's object store; in a list, so that a worker fetches it only once."""
    try:
        return [ray.put(player)]
    except ray.exceptions.RayError as error:
        raise DpauditError(
            "the game does not fit into Ray's object store: free space on the disk of the machine "
            "that runs this command, or start Ray with a larger --object-store-memory. "
            f"Ray says: {error}"
        ) from None


class _Died(Exception):
    """The worker or the machine of a task was lost."""


class _Cluster:
    """How many tiles the cluster can play at the same time, and how many machines it has lost."""

    def __init__(self, ray: Any, needs: Mapping[str, float]) -> None:
        self._ray, self._needs = ray, {name: need for name, need in needs.items() if need}
        self._known: set[str] = set()
        self.lost = 0
        if self.slots() == 0:
            wanted = ", ".join(f"{need:g} {name}" for name, need in self._needs.items())
            raise InvalidInput(
                f"no machine of the Ray cluster has what a tile needs ({wanted}); start one that "
                "has, or lower cpus_per_tile or gpus_per_tile"
            )

    def slots(self) -> int:
        """Number of tiles that can be played at the same time."""
        nodes = self._ray.nodes()
        alive = {node["NodeID"] for node in nodes if node["Alive"]}
        self.lost += len(self._known - alive)
        self._known = alive
        return sum(self._slots_of(node) for node in nodes)

    def _slots_of(self, node: Mapping[str, Any]) -> int:
        if not node["Alive"]:
            return 0
        has = node["Resources"]
        return min((int(has.get(name, 0) / need) for name, need in self._needs.items()), default=1)


def _close(ray: Any, connection: str) -> None:
    """Close a connection, unless somebody else has closed it and opened another."""
    if ray.is_initialized() and ray.get_runtime_context().get_worker_id() == connection:
        ray.shutdown()


_opened: dict[str, PlayTile] = {}
"""In a worker: the player of the last tile, opened, by its identity in the object store."""


def _play_tile(
    held: list[Any], tile: int, timeout: float | None, path: list[str]
) -> tuple[Any, list[str]]:
    """Runs on a machine of the cluster: the result of a tile and the notices of its player."""
    key = held[0].hex()
    if key not in _opened:
        sys.path.extend(folder for folder in path if folder not in sys.path)
        _opened.clear()
        _opened[key] = _ray().get(held[0]).open()
    notices: list[str] = []
    with time_limit(timeout):
        return _opened[key](tile, notices.append), notices


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise MissingExtra("the Ray executor", "ray") from None
    return ray
