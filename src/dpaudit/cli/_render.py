"""What the commands print: one JSON object for machines, or a table for people."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dpaudit.privacy import Bound


def print_json(value: Mapping[str, Any]) -> None:
    """Print one JSON object on standard output, and nothing else."""
    json.dump(value, sys.stdout, indent=2, allow_nan=False, default=_plain)
    sys.stdout.write("\n")


def console() -> Console:
    """The console for people; made when needed, so that it sees redirected output."""
    return Console(highlight=False, soft_wrap=False)


def bounds_table(bounds: Sequence[Bound], title: str) -> Table:
    """Bounds from below or above as a table, leaving out columns that none of them fills.

    Assumptions have a column for lower bounds, where each method has its own; upper bounds of one
    training share theirs, and the caller says them once.
    """
    shown = [column for column in _COLUMNS if any(column.text(bound) for bound in bounds)]
    # A title may be wider than the table under it.
    heading = Text(title, style="bold", no_wrap=True, overflow="ignore")
    table = Table(title=heading, title_justify="left", box=box.SIMPLE_HEAD)
    for column in shown:
        table.add_column(column.header, justify=column.justify, no_wrap=column.rigid)
    for bound in bounds:
        table.add_row(*(column.text(bound) for column in shown))
    return table


class _Column:
    """One column: its header, its alignment and how a bound fills it."""

    def __init__(self, header: str, text: Any, *, rigid: bool = True, right: bool = False) -> None:
        self.header = header
        self.text = text
        self.rigid = rigid
        self.justify: Any = "right" if right else "left"


def _epsilon(bound: Bound) -> str:
    epsilon = "∞" if math.isinf(bound.epsilon) else f"{bound.epsilon:.4f}"
    return f"[bold]{_sign(bound)} {epsilon}[/]" if bound.quantity == "epsilon" else epsilon


def _delta(bound: Bound) -> str:
    if bound.quantity == "delta":
        return f"[bold]{_sign(bound)} {bound.delta:.4g}[/]"
    return f"{bound.delta:g}"


def _sign(bound: Bound) -> str:
    return "≥" if bound.side == "lower" else "≤"


def _confidence(bound: Bound) -> str:
    return "" if bound.confidence is None else f"{100 * bound.confidence:g} %"


def _mu(bound: Bound) -> str:
    return "" if bound.mu is None or math.isinf(bound.mu) else f"{bound.mu:.4f}"


def _numerical_error(bound: Bound) -> str:
    return "" if bound.numerical_error is None else f"{bound.numerical_error:.1g}"


def _own_assumptions(bound: Bound) -> str:
    return "; ".join(bound.assumptions) if bound.side == "lower" else ""


def _notes(bound: Bound) -> str:
    return "; ".join(bound.notes)


_COLUMNS = (
    _Column("method", lambda bound: bound.method),
    _Column("epsilon", _epsilon, right=True),
    _Column("delta", _delta, right=True),
    _Column("mu", _mu, right=True),
    _Column("confidence", _confidence, right=True),
    _Column("numerical error", _numerical_error, right=True),
    _Column("assumes", _own_assumptions, rigid=False),
    _Column("note", _notes, rigid=False),
)


def _plain(value: Any) -> Any:
    """NumPy's numbers and arrays, and read-only mappings, as plain data."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not plain data")
