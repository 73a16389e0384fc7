"""The table of bounds that all commands print."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Literal, final

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dpaudit._numbers import decimals
from dpaudit.cli._render import by_text
from dpaudit.privacy import Bound, Unavailable

_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def print_bounds(
    screen: Console,
    bounds: Sequence[Bound],
    title: str,
    *,
    unavailable: Sequence[Unavailable] = (),
    leading: Bound | None = None,
    hide: Collection[str] = (),
) -> None:
    """Print bounds as a table in 80 columns, and below it their assumptions and notes.

    An assumption that not all bounds share has a letter, which their rows in the table show.

    Arguments:
        screen: The console.
        bounds: The bounds, one row each.
        title: Printed above the table.
        unavailable: Methods without a number, printed with their reason.
        leading: The bound whose row is printed in bold.
        hide: Headers of columns that the title makes unnecessary.
    """
    assumptions = list(dict.fromkeys(text for bound in bounds for text in bound.assumptions))
    shared = [text for text in assumptions if all(text in each.assumptions for each in bounds)]
    letters = dict(zip([one for one in assumptions if one not in shared], _LETTERS, strict=False))

    def marks(bound: Bound) -> str:
        return " ".join(letters[text] for text in bound.assumptions if text in letters)

    if bounds:
        # As a line of its own: a table's title cannot be wider than the table.
        screen.print(Text(title, style="bold"))
        columns = [*_COLUMNS, _Column("assumes", marks)]
        shown = [
            one
            for one in columns
            if one.header not in hide and any(one.text(bound) for bound in bounds)
        ]
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
        for column in shown:
            table.add_column(column.header, justify=column.justify, no_wrap=True)
        for bound in bounds:
            cells = [column.text(bound) for column in shown]
            table.add_row(*cells, style="bold" if bound is leading else "")
        screen.print(table)
    for text in shared:
        screen.print(Text(f"Assumes: {text}."))
    for text, letter in letters.items():
        screen.print(Text(f" {letter}  assumes: {text}"))
    methods = [bound.method for bound in bounds]

    def name(bound: Bound) -> str:
        rule = bound.details.get("threshold_rule")
        alone = rule is None or methods.count(bound.method) == 1
        return bound.method if alone else f"{bound.method} ({rule})"

    notes = [(name(bound), note) for bound in bounds for note in bound.notes]
    missing = [(one.method, f"no number. {one.reason}") for one in unavailable]
    for line in (*by_text(notes), *by_text(missing)):
        screen.print(Text(line, style="dim"))


@final
@dataclass(frozen=True)
class _Column:
    header: str
    text: Callable[[Bound], str | Text]
    justify: Literal["left", "right"] = "left"


def _epsilon(bound: Bound) -> str | Text:
    epsilon = "∞" if math.isinf(bound.epsilon) else decimals(bound.epsilon, 4)
    if bound.quantity != "epsilon":
        return epsilon
    return Text(f"{_sign(bound)} {epsilon}", style="bold")


def _delta(bound: Bound) -> str | Text:
    if bound.quantity != "delta":
        return f"{bound.delta:g}"
    return Text(f"{_sign(bound)} {bound.delta:.4g}", style="bold")


def _sign(bound: Bound) -> str:
    return "≥" if bound.side == "lower" else "≤"


def _confidence(bound: Bound) -> str:
    return bound.level.removesuffix(" confidence")


def _mu(bound: Bound) -> str:
    return "" if bound.mu is None or math.isinf(bound.mu) else decimals(bound.mu, 4)


def _numerical_error(bound: Bound) -> str:
    return "" if bound.numerical_error is None else f"{bound.numerical_error:.1g}"


def _sample_size(bound: Bound) -> str:
    return "" if bound.sample_size is None else f"{bound.sample_size:,}"


_COLUMNS = (
    _Column("method", lambda bound: bound.method),
    _Column("threshold", lambda bound: str(bound.details.get("threshold_rule", ""))),
    _Column("epsilon", _epsilon, "right"),
    _Column("delta", _delta, "right"),
    _Column("mu", _mu, "right"),
    _Column("confidence", _confidence, "right"),
    _Column("scores", _sample_size, "right"),
    _Column("error", _numerical_error, "right"),
)
