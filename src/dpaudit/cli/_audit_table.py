"""The printed result of an audit: one page, and with ``--all-bounds`` everything else."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from dpaudit._numbers import counted, percent
from dpaudit.cli._bounds_table import print_bounds
from dpaudit.cli._render import console
from dpaudit.configuration import store_path
from dpaudit.privacy import Bound, Unavailable
from dpaudit.report.palette import terminal_style
from dpaudit.report.words import verdict_word

if TYPE_CHECKING:
    from dpaudit.audits import AuditResult

_MOST_FAILURES = 3

MOST_TENSORS = 12


def print_result(result: AuditResult, *, where: str, all_bounds: bool = False) -> None:
    """Print the result in at most twelve lines, and all bounds if asked.

    Arguments:
        result: The result.
        where: The store.
        all_bounds: Whether to print the bounds of every horizon, and notes, as well.
    """
    from dpaudit.audits.wording import SUSPECTED, verdict_page  # slow to import

    screen = console()
    lines = verdict_page(result, commands=_next(result, where, all_bounds=all_bounds))
    word = verdict_word(result.verdict).upper()
    style = terminal_style(result.verdict)
    for number, line in enumerate(lines):
        text = Text(line)
        if number == 0:
            text.stylize(style, 0, len(word))
        text.highlight_words([SUSPECTED], terminal_style("violation"))
        screen.print(text, soft_wrap=True)
    if all_bounds:
        screen.print()
        _print_everything(screen, result)


def _next(result: AuditResult, where: str, *, all_bounds: bool) -> tuple[str, ...]:
    """The commands that show more of the audit; none of one that is not kept."""
    if where == ":memory:":
        return ()
    store = "" if where == store_path(None) else f" --store {shlex.quote(where)}"
    report = f"dpaudit report {result.audit[:8]}{store}"
    more = f"dpaudit show {result.audit[:8]}{store} --all-bounds"
    return (report,) if all_bounds else (report, more)


def _print_everything(screen: Console, result: AuditResult) -> None:
    """All bounds with their assumptions, notes, failures, and the verdict in prose."""
    for assessment in result.horizons:
        stopped = (
            "" if assessment is result.final else f", training stopped at {assessment.horizon}"
        )
        bounds = (assessment.least_upper, *assessment.lower)
        missing = assessment.lower.unavailable
        print_side_by_side(
            screen, bounds, leading=assessment.leading, unavailable=missing, what=stopped
        )
    for line in _tensor_lines(result):
        screen.print(Text(line))
    screen.print(Text(f"{_seen(result)} Device: {result.device}.", style="dim"))
    for note in result.notes:
        screen.print(Text(note, style="dim"))
    for failure in result.failures[:_MOST_FAILURES]:
        screen.print(Text(f"run {failure.run} failed: {failure.error}", style="dim"))
    further = len(result.failures) - _MOST_FAILURES
    if further > 0:
        more = counted(further, "further run")
        screen.print(Text(f"({more} failed; dpaudit show prints all)", style="dim"))
    screen.print(Text(result.sentence))


def _tensor_lines(result: AuditResult) -> Iterator[str]:
    """One line for each of the tensors with the smallest p-values."""
    tests = sorted(result.final.tensors.items(), key=lambda item: item[1].p_value)
    for name, test in tests[:MOST_TENSORS]:
        yield f"tensor {name}: {test.verdict}, p = {test.p_value:.2g}"
    if len(tests) > MOST_TENSORS:
        yield f"({len(tests) - MOST_TENSORS} further tensors have larger p-values)"


def _seen(result: AuditResult) -> str:
    if result.threat_model is None:
        return "Threat model: unknown; it depends on what your score was made of."
    return f"Threat model: {result.threat_model.value}, scored by {result.adversary}."


def print_side_by_side(
    screen: Console,
    bounds: Sequence[Bound],
    *,
    leading: Bound,
    unavailable: Sequence[Unavailable] = (),
    what: str = "",
) -> None:
    """Print upper and lower bounds at one delta and confidence."""
    sure = f"{percent(leading.confidence or 0)} %"
    title = f"epsilon at delta = {leading.delta:g}, lower bounds at {sure} confidence{what}"
    hide = ("delta", "confidence", "error")
    print_bounds(screen, bounds, title, unavailable=unavailable, leading=leading, hide=hide)
