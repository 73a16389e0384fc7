"""At which size, on which device and with which data figures are made."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, final

from dpaudit import _validate

if TYPE_CHECKING:
    from dpaudit.audits import AuditResult, Progress

Scale = Literal["quick", "full"]
SCALES: tuple[Scale, ...] = ("quick", "full")
Choice = TypeVar("Choice")


@final
class Ledger:
    """What a figure was made from: filled while it is measured, written beside its table."""

    def __init__(self) -> None:
        self.audits: list[dict[str, Any]] = []
        self.notes: list[str] = []
        self.left_out: list[str] = []

    def add(self, name: str, result: AuditResult) -> None:
        """Keep what one audit was, without its scores."""
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
        """Keep what the paper has and this figure does not, for want of a GPU."""
        if what not in self.left_out:
            self.left_out.append(what)

    def note(self, text: str) -> None:
        """Keep a sentence that a reader of the numbers should know; once."""
        if text not in self.notes:
            self.notes.append(text)


@final
@dataclass(frozen=True, kw_only=True)
class Setting:
    """How a figure is measured.

    Arguments:
        scale: ``"quick"`` for two CPU cores and a minute or two, ``"full"`` for the paper's size.
        device: auto, cpu or cuda.
        data_dir: Where CIFAR-10 and AlexNet's weights are; `None`: ``DPAUDIT_DATA``.
        seed: The first of the seeds that are used.
        store: The file that keeps trainings, so that nothing is trained twice; `None`: keep none.
        progress: Who is told how trainings go on.
        ledger: What was used, filled while measuring.

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
    ledger: Ledger = field(default_factory=Ledger, compare=False)

    def __post_init__(self) -> None:
        _validate.one_of("scale", self.scale, SCALES)
        _validate.integer("seed", self.seed)

    @property
    def full(self) -> bool:
        """Whether the paper's size was asked for."""
        return self.scale == "full"

    def choose(self, *, quick: Choice, full: Choice) -> Choice:
        """One of two values, by scale."""
        return full if self.full else quick

    @property
    def on_gpu(self) -> bool:
        """Whether trainings run on a GPU; imports torch."""
        return torch_device(self.device) == "cuda"


def torch_device(device: str) -> str:
    """``"cuda"`` or ``"cpu"``: what ``device`` comes to on this machine."""
    from dpaudit.engine import Speed

    return Speed(device=device).torch_device().type
