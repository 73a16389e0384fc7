"""What a figure is, and the setting in which it is measured.

Measuring computes and may take an hour on a GPU. Drawing reads only the measured table, so that a
figure can be drawn again from its CSV file.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, final

from dpaudit import _validate
from dpaudit_paper.table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

    from dpaudit.audits import AuditResult, Progress
    from dpaudit.executors import Executor
    from dpaudit_paper.trainings import Trainings

Scale = Literal["quick", "full"]

SCALES: tuple[Scale, ...] = ("quick", "full")

Choice = TypeVar("Choice")


class Need(enum.Enum):
    """Data or hardware that a figure requires."""

    GPU = "a GPU"
    CIFAR10 = "CIFAR-10"
    WEIGHTS = "weights"


@final
@dataclass(frozen=True, kw_only=True)
class Cost:
    """The approximate time of a figure, in seconds.

    Arguments:
        cpu: Seconds on two CPU cores; `None` for hours.
        gpu: Seconds on one H200.
    """

    cpu: float | None
    gpu: float


@final
@dataclass(frozen=True, kw_only=True)
class Figure:
    """One figure or table of the paper.

    See also: `dpaudit_paper.FIGURES`, `dpaudit_paper.make_all`.

    Arguments:
        id: The name on the command line.
        title: The content in a few words.
        label: The LaTeX label in the paper; empty for a figure of our own.
        needs: The data that it requires.
        quick: The cost of the quick version.
        full: The cost at the paper's size.
        alike: Whether the quick and the full version are the same.
        measure: The function that computes the table for a setting.
        draw: The function that draws the table.
        trainings: The function that lists the trainings behind the table, which several processes
            can play before it is measured.
    """

    id: str
    title: str
    label: str
    needs: frozenset[Need] = frozenset()
    quick: Cost
    full: Cost
    alike: bool = False
    measure: Callable[[Setting], Table]
    draw: Callable[[Table], Drawing]
    trainings: Callable[[Setting], Iterable[Trainings]] = lambda _: ()

    def cost(self, scale: Scale) -> Cost:
        """The cost at this scale."""
        return self.full if scale == "full" else self.quick

    def needs_at(self, scale: Scale) -> frozenset[Need]:
        """All requirements at this scale, including a GPU where two cores would take hours."""
        gpu = frozenset({Need.GPU}) if self.cost(scale).cpu is None else frozenset()
        return self.needs | gpu


@final
class Ledger:
    """The sources of a figure: filled while it is measured and written beside its table.

    Arguments:
        played: Seconds of the trainings, by name, that were played before the figure is measured.
    """

    def __init__(self, played: Mapping[str, float] | None = None) -> None:
        self._played = played or {}
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
                "seconds": self._played.get(name, round(result.seconds, 1)),
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
    ledger: Ledger = field(default_factory=Ledger, compare=False)

    def __post_init__(self) -> None:
        _validate.one_of("scale", self.scale, SCALES)
        _validate.integer("seed", self.seed)

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


def torch_device(device: str) -> str:
    """The device in use: ``"cuda"`` or ``"cpu"``."""
    from dpaudit.engine import Speed

    return Speed(device=device).torch_device().type
