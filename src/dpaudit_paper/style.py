"""The style of the paper's figures: widths, colours, fonts; pyplot is not used."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from dpaudit.errors import MissingExtra
from dpaudit.report.palette import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, SKY

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

__all__ = ["BLUE", "GREEN", "GREY", "ORANGE", "PURPLE", "RED", "SKY"]

COLOURS = (BLUE, ORANGE, GREEN, RED, PURPLE, SKY, "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")

COLUMN = 3.6
"""Inches: one column of a two-column page."""

PAGE = 7.2
"""Inches: the width of a page's text."""

_STYLE: dict[Any, Any] = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "legend.fontsize": 7,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e5e5e5",
    "grid.linewidth": 0.5,
    "axes.axisbelow": True,
    "lines.linewidth": 1.3,
    "lines.markersize": 3.0,
    "legend.frameon": False,
    "svg.fonttype": "path",
    "pdf.fonttype": 42,  # TrueType, which journals accept
    # The same table gives the same bytes, so that redrawing a committed figure changes nothing.
    "svg.hashsalt": "dpaudit",
}


def require_matplotlib() -> None:
    """Raise `MissingExtra` where no figure could be drawn, before hours of training."""
    if find_spec("matplotlib") is None:
        raise MissingExtra("drawing a figure", "plot")


@contextmanager
def styled() -> Iterator[None]:
    """A context in which figures are drawn in this style."""
    require_matplotlib()
    import matplotlib as mpl

    with mpl.rc_context(_STYLE):
        yield


def new_figure(
    *, columns: int = 1, rows: int = 1, width: float = COLUMN, height: float
) -> tuple[Drawing, list[Any]]:
    """A figure and its axes as a flat list, without pyplot's global state."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("drawing a figure", "plot") from None
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    return figure, list(axes.flat)


def stamp(figure: Drawing, text: str) -> None:
    """A warning above the whole figure."""
    figure.suptitle(text, fontsize=6.5, color=RED)


def legend_below(figure: Drawing, handles: list[Any], *, columns: int) -> None:
    """One legend for all panels, under them."""
    figure.legend(handles=handles, loc="outside lower center", ncols=columns)


def grouped_legend_below(figure: Drawing, groups: list[list[Any]], *, columns: int) -> None:
    """One legend for all panels, under them; a column has entries of one group only.

    Arguments:
        figure: The figure.
        groups: The entries of each group.
        columns: The largest number of columns, at least one for each group.
    """
    from matplotlib.lines import Line2D

    rows = next(
        rows
        for rows in range(1, 1 + max(map(len, groups)))
        if sum(-(-len(group) // rows) for group in groups) <= columns
    )
    handles: list[Any] = []
    for group in groups:
        handles += group
        handles += [Line2D([], [], ls="", label=" ")] * (-len(group) % rows)
    legend_below(figure, handles, columns=len(handles) // rows)
