"""The contract test of figures, for those of this package and of others."""

from __future__ import annotations

from dpaudit_paper import style
from dpaudit_paper.base import Figure
from dpaudit_paper.table import Table


def check_figure(figure: Figure, table: Table) -> None:
    """Check that a figure draws a table that it measured, and nothing else.

    Arguments:
        figure: The figure to check.
        table: A table from the figure's ``measure``.

    Raises:
        AssertionError: for the first rule that the figure breaks.
    """
    assert figure.id, "a figure needs a name"
    assert figure.title, f"{figure.id} needs a title"
    for cost in (figure.quick, figure.full):
        assert cost.gpu > 0, f"{figure.id}: a cost must be positive"
        assert cost.cpu is None or cost.cpu > 0, f"{figure.id}: a cost must be positive"
    assert len(table), f"{figure.id} measured no rows"
    # Through CSV, because a figure is drawn from its file.
    table = Table.from_csv(table.to_csv())
    with style.styled():
        drawing = figure.draw(table)
        drawing.canvas.draw()
    width = drawing.get_figwidth()
    assert width <= style.PAGE, f"{figure.id} is {width:g} inches wide, at most {style.PAGE:g}"
