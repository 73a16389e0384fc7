"""The base type of figures and tables: three functions that measure, draw and describe.

Measuring computes and may take an hour on a GPU. Drawing and describing read only the measured
table, so that a figure can be drawn again from its CSV file.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from dpaudit_paper.table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

    from dpaudit_paper.readings import Line
    from dpaudit_paper.setting import Scale, Setting


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

    See also: `dpaudit_paper.FIGURES`; `dpaudit_paper.make_all`.

    Arguments:
        id: The name on the command line.
        title: The content in a few words.
        label: The LaTeX label in the paper; empty for a figure of our own.
        needs: The data that it requires.
        quick: The cost of the quick version.
        full: The cost at the paper's size.
        alike: Whether the quick and the full version are the same.
        lines: The lines that ``measure`` plays, if other processes may play some of them; none by
            default.
        measure: The function that computes the table for a setting.
        draw: The function that draws the table.
        findings: The function that describes the table in one paragraph.
    """

    id: str
    title: str
    label: str
    needs: frozenset[Need] = frozenset()
    quick: Cost
    full: Cost
    alike: bool = False
    lines: Callable[[Setting], Iterable[Line]] | None = None
    measure: Callable[[Setting], Table]
    draw: Callable[[Table], Drawing]
    findings: Callable[[Table], str]

    def cost(self, scale: Scale) -> Cost:
        """The cost at this scale."""
        return self.full if scale == "full" else self.quick

    def needs_at(self, scale: Scale) -> frozenset[Need]:
        """All requirements at this scale, including a GPU where two cores would take hours."""
        gpu = frozenset({Need.GPU}) if self.cost(scale).cpu is None else frozenset()
        return self.needs | gpu
