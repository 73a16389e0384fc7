"""The table of an audit: upper bound, lower bounds, what each assumes, and what it means."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dpaudit.cli._render import console
from dpaudit.privacy import Bound

if TYPE_CHECKING:
    from dpaudit.audits import AuditResult

_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def print_result(result: AuditResult, *, where: str) -> None:
    """Print every horizon's table, then the sentence about the whole training."""
    screen = console()
    screen.print(Text(_title(result), style="bold"))
    for assessment in result.horizons:
        stopped = (
            "" if assessment is result.final else f", training stopped at {assessment.horizon}"
        )
        bounds = (assessment.least_upper, *assessment.lower)
        print_side_by_side(screen, bounds, leading=assessment.leading, what=stopped)
        for missing in assessment.lower.unavailable:
            screen.print(Text(f"{missing.method}: no number. {missing.reason}", style="dim"))
    for notice in result.notices:
        screen.print(Text(notice, style="dim"))
    screen.print()
    screen.print(Text(result.sentence, style="bold"))
    screen.print(Text(f"Audit {result.audit[:8]} in {where}.", style="dim"))


def print_side_by_side(
    screen: Console, bounds: Sequence[Bound], *, leading: Bound, what: str = ""
) -> None:
    """Print upper and lower bounds, narrow enough for a terminal of 80 columns.

    What a bound assumes has a letter in its row, and is spelt out below.
    """
    assumptions = dict.fromkeys(text for bound in bounds for text in bound.assumptions)
    letters = dict(zip(assumptions, _LETTERS, strict=False))
    sure = f"{100 * (leading.confidence or 0):g} %"
    title = f"epsilon at delta = {leading.delta:g}, lower bounds at {sure} confidence{what}"
    table = Table(title=Text(title), title_justify="left", box=box.SIMPLE_HEAD)
    for header, justify in _COLUMNS:
        table.add_column(header, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    for bound in bounds:
        marks = " ".join(letters[text] for text in bound.assumptions)
        table.add_row(*_cells(bound), marks, style="bold" if bound is leading else "")
    screen.print(table)
    for text, letter in letters.items():
        screen.print(Text(f" {letter}  assumes: {text}"))
    said: dict[str, dict[str, None]] = {}  # each note once, with everybody it belongs to
    for bound in bounds:
        for note in bound.notes:
            said.setdefault(note, {})[bound.method] = None
    for note, methods in said.items():
        screen.print(Text(f"{', '.join(methods)}: {note}", style="dim"))


_COLUMNS = (
    ("method", "left"),
    ("threshold", "left"),
    ("epsilon", "right"),
    ("mu", "right"),
    ("scores", "right"),
    ("assumes", "left"),
)


def _cells(bound: Bound) -> tuple[str, ...]:
    sign = "≤" if bound.side == "upper" else "≥"
    epsilon = "∞" if math.isinf(bound.epsilon) else f"{bound.epsilon:.4f}"
    return (
        bound.method,
        str(bound.details.get("threshold_rule", "")),
        f"{sign} {epsilon}",
        "" if bound.mu is None or math.isinf(bound.mu) else f"{bound.mu:.3f}",
        "" if bound.sample_size is None else f"{bound.sample_size:,}",
    )


def _title(result: AuditResult) -> str:
    runs = "1 run" if result.runs == 1 else f"{result.runs:,} runs"
    canaries = "" if result.canaries == 1 else f" with {result.canaries:,} canaries"
    stored = f", {result.resumed:,} from the store" if result.resumed else ""
    took = f", in {result.seconds:.1f} s" if result.seconds else ""
    return f"{result.title}: {runs}{canaries}{stored}{took} on {result.device}"
