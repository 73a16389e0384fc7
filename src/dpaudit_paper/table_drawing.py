"""A table as a picture, so that tables of the paper have the same files as its figures."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dpaudit_paper import style
from dpaudit_paper.table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

_CHARACTERS_AN_INCH = 15.0
_LINE = 0.135  # inches


def draw_table(table: Table, *, widths: Sequence[float]) -> Drawing:
    """Draw a table with horizontal rules; long cells wrap.

    Arguments:
        table: The table to draw.
        widths: Relative widths of the columns.
    """
    total = sum(widths)
    inches = [style.PAGE * width / total for width in widths]
    rows = [list(table.columns), *[[_cell(v) for v in row] for row in table.rows]]
    wrapped = [
        [
            textwrap.wrap(cell, max(4, int(room * _CHARACTERS_AN_INCH))) or [""]
            for cell, room in zip(row, inches, strict=True)
        ]
        for row in rows
    ]
    heights = [_LINE * (max(len(cell) for cell in row) + 0.7) for row in wrapped]
    height = sum(heights)
    figure, (axis,) = style.new_figure(width=style.PAGE, height=height + 0.25)
    axis.set(xlim=(0, style.PAGE), ylim=(height, 0))
    axis.axis("off")
    top = 0.0
    for number, (row, tall) in enumerate(zip(wrapped, heights, strict=True)):
        left = 0.0
        for cell, room in zip(row, inches, strict=True):
            axis.text(
                left + 0.03,
                top + tall / 2,
                "\n".join(cell),
                va="center",
                fontsize=6.5,
                fontweight="bold" if number == 0 else "normal",
            )
            left += room
        if number <= 1:
            axis.axhline(top, color="black", lw=0.8)
        top += tall
    axis.axhline(top, color="black", lw=0.8)
    return figure


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
