"""The paper's figures and tables, and the code that makes them.

``figures`` has one file for each source of data. A figure is a frozen `Figure` with the functions
``measure`` and ``draw``, and one line in ``registry``; another package registers its figures as
entry points of the group ``dpaudit.figures``. The contract test is
`dpaudit_paper.testing.check_figure`.
"""

from dpaudit_paper.base import Cost, Figure, Need, Setting
from dpaudit_paper.making import Made, make_all, redraw
from dpaudit_paper.registry import FIGURES, chosen
from dpaudit_paper.table import Table

__all__ = [
    "FIGURES",
    "Cost",
    "Figure",
    "Made",
    "Need",
    "Setting",
    "Table",
    "chosen",
    "make_all",
    "redraw",
]
