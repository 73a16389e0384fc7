"""What commands print: one JSON object for programs, or pages and tables for people."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import shlex
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, final

from rich import box
from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from dpaudit._loading import uncollected
from dpaudit._numbers import counted, decimals, percent
from dpaudit._validate import printable, unobeyed
from dpaudit.cli._exit import Unwritten
from dpaudit.errors import DpauditError
from dpaudit.privacy import Bound, Unavailable

if TYPE_CHECKING:
    from dpaudit.audits import AuditResult, Progress


def print_json(value: Mapping[str, Any]) -> None:
    """Print one JSON object on standard output, and nothing else. Infinity becomes "inf"."""
    sys.stdout.write(unobeyed(json.dumps(_plain(value), indent=2, allow_nan=False)) + "\n")


_NARROWEST, _USUAL = 20, 80  # columns of a terminal


def console() -> Console:
    """The console for people; made when needed, so that it sees redirected output.

    Markup is off and control characters are replaced: names come from files and stores.
    """
    screen = _Screen(highlight=False, soft_wrap=False, markup=False, emoji=False)
    if screen.width < _NARROWEST:  # COLUMNS=0, which would print nothing
        screen.width = _USUAL
    screen.push_render_hook(_Printable())
    return screen


@final
class _Screen(Console):
    def on_broken_pipe(self) -> None:
        """Raise the error, in place of an exit with code 1, which means a violation here."""
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")


@final
class _Printable(RenderHook):
    """Replaces control characters in everything that a console prints."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_Replaced(renderable) for renderable in renderables]


@final
class _Replaced:
    def __init__(self, content: ConsoleRenderable) -> None:
        self._content = content

    def __rich_console__(self, screen: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for segment in screen.render(self._content, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))


def by_text(pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Each text once, after the names that share it.

    Example:
        >>> list(by_text([("a", "too few"), ("b", "no noise"), ("c", "too few")]))
        ['a, c: too few', 'b: no noise']
    """
    names_of: dict[str, dict[str, None]] = {}
    for name, text in pairs:
        names_of.setdefault(text, {})[name] = None
    return (f"{', '.join(names)}: {text}" for text, names in names_of.items())


def _plain(value: Any) -> Any:
    """Plain JSON data: arrays become lists, and infinities text, as in `Bound.to_dict`."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


# --- While the user's code runs. -----------------------------------------------------------------


@contextlib.contextmanager
def user_code() -> Iterator[None]:
    """Send to standard error what the user's code prints in this process.

    Also what it writes to file descriptor 1, and what its child processes print. Standard output
    then has only the result.
    """
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stdout.flush()
    try:
        saved = os.dup(1)
        os.dup2(2, 1)
    except OSError:  # one of them is closed
        saved = -1
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        if saved >= 0:
            os.dup2(saved, 1)
            os.close(saved)


@contextlib.contextmanager
def progress_shown(*, store: str, quiet: bool) -> Iterator[Progress]:
    """The progress of an audit on standard error, from loading on; nothing if ``quiet``.

    Arguments:
        store: The store, for the message after an interruption.
        quiet: Whether to show nothing.
    """
    with uncollected():
        from dpaudit.audits import Bar, Silent
    progress = Silent() if quiet else Bar()
    try:
        with progress, user_code():
            progress.stage("loading")
            yield progress
    except KeyboardInterrupt:
        if isinstance(progress, Bar) and progress.runs:
            print(
                f"dpaudit: {progress.done:,} of {progress.runs:,} runs are kept in {store}; the "
                "same command resumes the audit",
                file=sys.stderr,
            )
        raise


# --- The table of bounds that all commands print. ------------------------------------------------

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
    letters = dict(
        zip(
            [assumption for assumption in assumptions if assumption not in shared],
            _LETTERS,
            strict=False,
        )
    )

    def marks(bound: Bound) -> str:
        return " ".join(letters[text] for text in bound.assumptions if text in letters)

    if bounds:
        # As a line of its own: a table's title cannot be wider than the table.
        screen.print(Text(title, style="bold"))
        columns = [*_COLUMNS, _Column("assumes", marks)]
        shown = [
            column
            for column in columns
            if column.header not in hide and any(column.text(bound) for bound in bounds)
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
    missing = [(method.method, f"no number. {method.reason}") for method in unavailable]
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


# --- The result of an audit. ---------------------------------------------------------------------

_MOST_FAILURES = 3

MOST_TENSORS = 12


def print_result(result: AuditResult, *, where: str, all_bounds: bool = False) -> None:
    """Print the result in at most twelve lines, and all bounds if asked.

    Arguments:
        result: The result.
        where: The store.
        all_bounds: Whether to print the bounds of every horizon, and notes, as well.
    """
    from dpaudit.report.palette import terminal_style
    from dpaudit.report.words import SUSPECTED, verdict_word

    screen = console()
    lines = result.statement.page(_next(result, where, all_bounds=all_bounds))
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
    from dpaudit.configuration import store_path

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


@contextlib.contextmanager
def writing(name: str) -> Iterator[None]:
    """Let an error of writing end the command with its own code, `Unwritten`.

    Arguments:
        name: The option that names the file.
    """
    try:
        yield
    except OSError as error:
        raise Unwritten(f"{name}: cannot be written: {error.strerror or error}") from error


def print_then_write(show: Callable[[], object], files: Mapping[str, Callable[[], object]]) -> None:
    """Print the verdict, then write every file; an output that fails stops none of the others.

    Arguments:
        show: Prints the verdict.
        files: What writes each file, by its option.
    """
    unprinted = None
    try:
        show()
        sys.stdout.flush()
    except OSError as error:  # a closed pipe, a full disk
        unprinted = error
    problems = []
    for name, write in files.items():
        try:
            with writing(name):
                write()
        except (Unwritten, DpauditError) as error:
            problems.append(str(error))
    if problems:
        raise Unwritten("; ".join(problems)) from unprinted
    if unprinted is not None:
        raise unprinted
