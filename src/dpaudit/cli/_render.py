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

from dpaudit.privacy import Bound, Bounds


def print_json(value: Mapping[str, Any]) -> None:
    """Print one JSON object on standard output, and nothing else."""
    json.dump(value, sys.stdout, indent=2, allow_nan=False, default=_plain)
    sys.stdout.write("\n")


def console() -> Console:
    """The console for people; made when needed, so that it sees redirected output."""
    return Console(highlight=False, soft_wrap=False)


def duration(seconds: float) -> str:
    """Seconds, minutes or hours, whichever is easiest to read.

    Example:
        >>> duration(90), duration(600), duration(9000)
        ('90 s', '10 min', '2.5 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def print_bounds(screen: Console, result: Bounds, title: str) -> None:
    """Print bounds as a table, and below it what they assume and what else there is to say.

    What all of them assume is said once; what only some assume has a letter, which stands in the
    rows it belongs to, so that the table stays narrow.
    """
    assumptions = list(dict.fromkeys(text for bound in result for text in bound.assumptions))
    shared = [text for text in assumptions if all(text in each.assumptions for each in result)]
    own = [text for text in assumptions if text not in shared]
    letters = dict(zip(own, _LETTERS, strict=False))
    if result.bounds:
        # Not the table's title, which could be no wider than the table.
        screen.print(Text(title, style="bold"))
        screen.print(_table(result.bounds, letters))
    for text in shared:
        screen.print(Text(f"Assumes: {text}."))
    for text, letter in letters.items():
        screen.print(Text(f" {letter}  assumes: {text}"))
    for bound in result:
        for note in bound.notes:
            screen.print(Text(f"{bound.method}: {note}", style="dim"))
    for missing in result.unavailable:
        screen.print(Text(f"{missing.method}: no number. {missing.reason}", style="dim"))


_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def _table(bounds: Sequence[Bound], letters: Mapping[str, str]) -> Table:
    """The table itself, leaving out columns that no bound fills."""

    def marks(bound: Bound) -> str:
        return " ".join(letters[text] for text in bound.assumptions if text in letters)

    columns = [*_COLUMNS, _Column("assumes", marks)]
    shown = [column for column in columns if any(column.text(bound) for bound in bounds)]
    table = Table(box=box.SIMPLE_HEAD)
    for column in shown:
        table.add_column(column.header, justify=column.justify, no_wrap=True)
    for bound in bounds:
        table.add_row(*(column.text(bound) for column in shown))
    return table


class _Column:
    """One column: its header, its alignment and how a bound fills it."""

    def __init__(self, header: str, text: Any, *, right: bool = False) -> None:
        self.header = header
        self.text = text
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


def _sample_size(bound: Bound) -> str:
    return "" if bound.sample_size is None else f"{bound.sample_size:,}"


_COLUMNS = (
    _Column("method", lambda bound: bound.method),
    _Column("epsilon", _epsilon, right=True),
    _Column("delta", _delta, right=True),
    _Column("mu", _mu, right=True),
    _Column("confidence", _confidence, right=True),
    _Column("scores", _sample_size, right=True),
    _Column("error", _numerical_error, right=True),
)


def _plain(value: Any) -> Any:
    """NumPy's numbers and arrays, and read-only mappings, as plain data."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not plain data")
