"""What every figure and table of the paper is here: it measures, it draws, it says what it found.

The three are apart. Measuring computes and may take an hour on a GPU; drawing and finding read the
measured table and nothing else, so that a figure can be drawn again from its CSV alone.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from dpaudit_paper.table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

    from dpaudit_paper.setting import Scale, Setting


class Need(enum.Enum):
    """What a figure cannot be made without."""

    GPU = "a GPU"
    CIFAR10 = "CIFAR-10"
    WEIGHTS = "weights"


@final
@dataclass(frozen=True, kw_only=True)
class Cost:
    """About how many seconds a figure takes.

    Arguments:
        cpu: On two CPU cores; `None` where that would be hours.
        gpu: On one H200.
    """

    cpu: float | None
    gpu: float


@final
@dataclass(frozen=True, kw_only=True)
class Figure:
    """One figure or table of the paper.

    See also: `dpaudit_paper.FIGURES`; `dpaudit_paper.making`, which makes one.

    Arguments:
        id: What the command line calls it.
        title: What it shows, in a few words.
        label: Its LaTeX label in the paper; empty where the paper has no such figure.
        needs: The data it cannot be made without.
        quick: What the quick version costs.
        full: What the paper's size costs.
        alike: Whether the quick version is the full one.
        measure: From a setting to the table: the only part that computes.
        draw: From the table to a figure.
        findings: From the table to one paragraph.
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
    findings: Callable[[Table], str]

    def cost(self, scale: Scale) -> Cost:
        """What it costs at this scale."""
        return self.full if scale == "full" else self.quick

    def needs_at(self, scale: Scale) -> frozenset[Need]:
        """Everything it needs at this scale, a GPU where two cores would take hours."""
        gpu = frozenset({Need.GPU}) if self.cost(scale).cpu is None else frozenset()
        return self.needs | gpu
