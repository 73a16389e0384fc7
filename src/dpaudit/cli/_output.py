"""What commands print: one JSON object for programs, or pages and tables for people."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import shlex
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, final

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook
from rich.segment import Segment
from rich.text import Text

from dpaudit._loading import uncollected
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
    """The progress of an audit on standard error, from loading on; nothing if ``quiet``."""
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


# --- Bounds, and the result of an audit. -------------------------------------------------------


def print_bounds(
    screen: Console,
    bounds: Sequence[Bound],
    title: str,
    *,
    unavailable: Sequence[Unavailable] = (),
    hide: Collection[str] = (),
) -> None:
    """Print bounds as a table in 80 columns, and below it their assumptions and notes."""
    from dpaudit.report.words import bounds_table

    if bounds:
        screen.print(Text(title, style="bold"))
    for line in bounds_table(bounds, unavailable=unavailable, hide=hide):
        screen.print(Text(line))


def print_result(result: AuditResult, *, where: str, all_bounds: bool = False) -> None:
    """Print the result in at most twelve lines, and all bounds if asked."""
    from dpaudit.report.palette import terminal_style
    from dpaudit.report.words import SUSPECTED, verdict_word
    from dpaudit.report.words import all_bounds as every_bound

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
        for line in every_bound(result):
            screen.print(Text(line))


def _next(result: AuditResult, where: str, *, all_bounds: bool) -> tuple[str, ...]:
    """The commands that show more of the audit; none of one that is not kept."""
    from dpaudit.configuration import store_path

    if where == ":memory:":
        return ()
    store = "" if where == store_path(None) else f" --store {shlex.quote(where)}"
    report = f"dpaudit report {result.audit[:8]}{store}"
    more = f"dpaudit show {result.audit[:8]}{store} --all-bounds"
    return (report,) if all_bounds else (report, more)


@contextlib.contextmanager
def writing(name: str) -> Iterator[None]:
    """Let an error of writing end the command with its own code, `Unwritten`."""
    try:
        yield
    except OSError as error:
        raise Unwritten(f"{name}: cannot be written: {error.strerror or error}") from error


def print_then_write(show: Callable[[], object], files: Mapping[str, Callable[[], object]]) -> None:
    """Print the verdict, then write every file; an output that fails stops none of the others."""
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
