"""The paper's figures and tables (``figures``), and the code that makes them.

A figure file has the functions ``measure``, ``draw`` and ``findings`` and one frozen `Figure` that
names them. To add a figure, add such a file and one line in ``registry``; another package registers
its figures as entry points of the group ``dpaudit.figures``. The contract test is
`dpaudit_paper.testing.check_figure`.
"""

from dpaudit_paper.base import Cost, Figure, Need
from dpaudit_paper.jobs import make_all
from dpaudit_paper.making import Made, redraw
from dpaudit_paper.registry import FIGURES, chosen
from dpaudit_paper.setting import Setting
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
