"""The paper's figures and tables, one small file each, and the machinery that makes them.

A figure file has `measure`, `draw` and `findings`, and one frozen `Figure` that names them. To add
one, copy the shortest file here and name it in `registry`.
"""

from dpaudit_paper.contract import Cost, Figure, Need
from dpaudit_paper.making import Made, make_all, redraw
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
