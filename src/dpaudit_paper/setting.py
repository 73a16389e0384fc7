"""The setting of a figure: scale, device, data and seed."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, final

from dpaudit import _validate
from dpaudit.errors import InvalidInput
from dpaudit.scores import Store

if TYPE_CHECKING:
    from filelock import FileLock

    from dpaudit.audits import AuditResult, Progress
    from dpaudit.executors import Executor

Scale = Literal["quick", "full"]
SCALES: tuple[Scale, ...] = ("quick", "full")
Choice = TypeVar("Choice")


@final
class Ledger:
    """The sources of a figure: filled while it is measured and written beside its table."""

    def __init__(self) -> None:
        self.audits: list[dict[str, Any]] = []
        self.notes: list[str] = []
        self.left_out: list[str] = []

    def add(self, name: str, result: AuditResult) -> None:
        """Record one audit, without its scores."""
        data = result.configuration["mechanism"]["data"]
        self.audits.append(
            {
                "audit": name,
                "runs": result.runs,
                "canaries": result.canaries,
                "seed": result.configuration["seed"],
                "data": data["name"],
                "examples": data["examples"],
                "precision": result.configuration["speed"]["precision"],
                "device": result.device,
                "seconds": round(result.seconds, 1),
                "runs_from_store": result.resumed,
            }
        )

    def leave_out(self, what: str) -> None:
        """Record a part that is left out because there is no GPU."""
        if what not in self.left_out:
            self.left_out.append(what)

    def note(self, text: str) -> None:
        """Record a note for readers of the numbers, once."""
        if text not in self.notes:
            self.notes.append(text)


@final
@dataclass(frozen=True, kw_only=True)
class Setting:
    """The setting in which a figure is measured.

    Arguments:
        scale: ``"quick"`` for two CPU cores and a minute or two, ``"full"`` for the paper's size.
        device: Device: auto, cpu or cuda; auto chooses for each network.
        data_dir: Folder of CIFAR-10 and AlexNet's weights; by default ``$DPAUDIT_DATA``.
        seed: First random seed.
        store: File that stores trainings, so that none is repeated; none by default.
        progress: Progress callback; none by default.
        executor: Schedules the trainings; by default processes of this machine.
        jobs: Number of figures made at the same time.
        ledger: The sources, filled while measuring.

    Example:
        >>> Setting(scale="quick").choose(quick=500, full=5000)
        500
    """

    scale: Scale = "quick"
    device: str = "auto"
    data_dir: str | None = None
    seed: int = 0
    store: Path | None = None
    progress: Progress | None = None
    executor: Executor | None = None
    jobs: int = 1
    ledger: Ledger = field(default_factory=Ledger, compare=False)

    def __post_init__(self) -> None:
        _validate.one_of("scale", self.scale, SCALES)
        _validate.integer("seed", self.seed)
        _validate.integer("jobs", self.jobs, at_least=1)
        if self.jobs > 1 and self.executor is not None:
            raise InvalidInput(
                f"jobs must be 1 with an executor, got {self.jobs}: the executor schedules the "
                "trainings of one figure after the other; leave out one of the two"
            )

    @property
    def full(self) -> bool:
        """Whether the scale is full."""
        return self.scale == "full"

    def choose(self, *, quick: Choice, full: Choice) -> Choice:
        """One of two values, by scale."""
        return full if self.full else quick

    @property
    def on_gpu(self) -> bool:
        """Whether trainings run on a GPU; imports torch."""
        return torch_device(self.device) == "cuda"

    @contextlib.contextmanager
    def playing(self, audit: str) -> Iterator[None]:
        """Let one process at a time play this audit for the store; others wait.

        A lock file beside the store, which is released when its process ends, however it ends.

        Arguments:
            audit: The name of the audit in the store.
        """
        if self.store is None:
            yield
            return
        if self.progress is not None and self.played_elsewhere(audit):
            self.progress.notice("waits for another process, which plays the same trainings")
        with _lock(self.store, audit).acquire(poll_interval=0.2):
            yield

    def is_stored(self, audit: str) -> bool:
        """Whether all runs of this audit are in the store."""
        if self.store is None or not self.store.exists():
            return False
        with Store.open(self.store) as store:
            return any(one.name == audit and one.finished for one in store.audits())

    def played_elsewhere(self, audit: str) -> bool:
        """Whether another process plays this audit for the store now."""
        if self.store is None:
            return False
        lock = _lock(self.store, audit)
        try:
            lock.acquire(blocking=False)
        except TimeoutError:
            return True
        lock.release()
        return False


def _lock(store: Path, audit: str) -> FileLock:
    from filelock import FileLock

    folder = store.with_name(f"{store.name}-locks")
    folder.mkdir(exist_ok=True)
    return FileLock(folder / hashlib.sha256(audit.encode()).hexdigest()[:16])


def torch_device(device: str) -> str:
    """The device in use: ``"cuda"`` or ``"cpu"``."""
    from dpaudit.engine import Speed

    return Speed(device=device).torch_device().type
