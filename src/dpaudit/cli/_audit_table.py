"""The printed result of an audit: upper and lower bounds, what each assumes, and the verdict."""

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
_COLOURS = {"violation": "bold red", "consistent": "bold green", "inconclusive": "bold yellow"}


def print_result(result: AuditResult, *, where: str, took: bool = True) -> None:
    """Print the bounds of every horizon, then notices, failures and the verdict.

    Arguments:
        result: The result.
        where: The store.
        took: Whether to print the duration and the number of stored runs of this call.
    """
    screen = console()
    if took and result.description.training is not None and result.resumed:
        screen.print(Text(result.notices[0], style="bold"))
    screen.print(Text(_title(result, took=took), style="bold"))
    if result.test is not None and result.description.training is not None:
        screen.print(Text(f"Claim: {result.test.claim.description}. {_seen(result)}"))
    for assessment in result.horizons:
        stopped = (
            "" if assessment is result.final else f", training stopped at {assessment.horizon}"
        )
        bounds = (assessment.least_upper, *assessment.lower)
        print_side_by_side(screen, bounds, leading=assessment.leading, what=stopped)
        for missing in assessment.lower.unavailable:
            screen.print(Text(f"{missing.method}: no number. {missing.reason}", style="dim"))
    for note in result.notes:
        screen.print(Text(note, style="dim"))
    for failure in result.failures[:3]:
        screen.print(Text(f"run {failure.run} failed: {failure.error}", style="dim"))
    screen.print()
    word, colon, rest = result.sentence.partition(":")
    style = _COLOURS.get(result.verdict, "bold")
    screen.print(Text.assemble((word + colon, style), (rest, "bold")))
    screen.print(Text(f"Audit {result.audit[:8]} in {where}.", style="dim"))


def _seen(result: AuditResult) -> str:
    if result.threat_model is None:
        return "Threat model: unknown; it depends on what your score was made of."
    return f"Threat model: {result.threat_model.value}, scored by {result.adversary}."


def print_side_by_side(
    screen: Console, bounds: Sequence[Bound], *, leading: Bound, what: str = ""
) -> None:
    """Print upper and lower bounds in 80 columns.

    Each assumption has a letter, which stands in the rows of the bounds that make it.
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
    methods_of: dict[str, dict[str, None]] = {}  # each note is printed once, with its methods
    for bound in bounds:
        for note in bound.notes:
            methods_of.setdefault(note, {})[bound.method] = None
    for note, methods in methods_of.items():
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


def _title(result: AuditResult, *, took: bool) -> str:
    runs = "1 run" if result.runs == 1 else f"{result.runs:,} runs"
    canaries = "" if result.canaries == 1 else f" with {result.canaries:,} canaries"
    failed = f", {len(result.failures):,} failed" if result.failures else ""
    stored = f", {result.resumed:,} from the store" if result.resumed and took else ""
    seconds = f", in {result.seconds:.1f} s" if result.seconds and took else ""
    return f"{result.title}: {runs}{canaries}{failed}{stored}{seconds} on {result.device}"
