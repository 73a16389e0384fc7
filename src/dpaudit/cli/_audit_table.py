"""The printed result of an audit: upper and lower bounds, what each assumes, and the verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from dpaudit._numbers import percent
from dpaudit.cli._bounds_table import print_bounds
from dpaudit.cli._render import console
from dpaudit.privacy import Bound, Unavailable
from dpaudit.report.palette import terminal_style
from dpaudit.report.words import power_in_words

if TYPE_CHECKING:
    from dpaudit.audits import AuditResult

_MOST_FAILURES = 3

MOST_TENSORS = 12


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
        missing = assessment.lower.unavailable
        print_side_by_side(
            screen, bounds, leading=assessment.leading, unavailable=missing, what=stopped
        )
    for line in _tensor_lines(result):
        screen.print(Text(line))
    for note in result.notes:
        screen.print(Text(note, style="dim"))
    for failure in result.failures[:_MOST_FAILURES]:
        screen.print(Text(f"run {failure.run} failed: {failure.error}", style="dim"))
    further = len(result.failures) - _MOST_FAILURES
    if further > 0:
        runs = "run" if further == 1 else "runs"
        screen.print(
            Text(f"({further:,} further {runs} failed; dpaudit show prints all)", style="dim")
        )
    if result.final.power is not None and result.verdict in ("violation", "unfinished"):
        screen.print(Text(f"Power: {power_in_words(result.final.power)}.", style="dim"))
    screen.print()
    word, colon, rest = result.sentence.partition(":")
    screen.print(Text.assemble((word + colon, terminal_style(result.verdict)), (rest, "bold")))
    screen.print(Text(f"Audit {result.audit[:8]} in {where}.", style="dim"))


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


def _title(result: AuditResult, *, took: bool) -> str:
    runs = "1 run" if result.runs == 1 else f"{result.runs:,} runs"
    canaries = "" if result.canaries == 1 else f" with {result.canaries:,} canaries"
    failed = f", {len(result.failures):,} failed" if result.failures else ""
    stored = f", {result.resumed:,} from the store" if result.resumed and took else ""
    seconds = f", in {result.seconds:.1f} s" if result.seconds and took else ""
    return f"{result.title}: {runs}{canaries}{failed}{stored}{seconds} on {result.device}"
