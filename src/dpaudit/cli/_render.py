"""Output of the commands: one JSON object for programs, or tables for people."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, final

from rich import box
from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from dpaudit.cli._exit import printable
from dpaudit.privacy import Bound, Bounds


def print_json(value: Mapping[str, Any]) -> None:
    """Print one JSON object on standard output, and nothing else. Infinity becomes "inf"."""
    sys.stdout.write(json.dumps(_plain(value), indent=2, allow_nan=False) + "\n")


def console() -> Console:
    """The console for people; made when needed, so that it sees redirected output.

    Markup is off and control characters are replaced: names come from files and stores.
    """
    screen = _Screen(highlight=False, soft_wrap=False, markup=False, emoji=False)
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
        return [_Replaced(one) for one in renderables]


@final
class _Replaced:
    def __init__(self, content: ConsoleRenderable) -> None:
        self._content = content

    def __rich_console__(self, screen: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for segment in screen.render(self._content, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))


@contextlib.contextmanager
def user_code() -> Iterator[None]:
    """Send to standard error what the user's code prints in this process.

    Also what it writes to file descriptor 1, and what its child processes print. Standard output
    then has only the result.
    """
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stdout.flush()
    try:
        kept = os.dup(1)
        os.dup2(2, 1)
    except OSError:  # one of them is closed
        kept = -1
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        if kept >= 0:
            os.dup2(kept, 1)
            os.close(kept)


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
    """Print bounds as a table, and below it their assumptions and notes.

    An assumption that not all bounds share has a letter, which their rows in the table show.
    """
    assumptions = list(dict.fromkeys(text for bound in result for text in bound.assumptions))
    shared = [text for text in assumptions if all(text in each.assumptions for each in result)]
    own = [text for text in assumptions if text not in shared]
    letters = dict(zip(own, _LETTERS, strict=False))
    if result.bounds:
        # As a line of its own: a table's title cannot be wider than the table.
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


def _epsilon(bound: Bound) -> str | Text:
    epsilon = "∞" if math.isinf(bound.epsilon) else f"{bound.epsilon:.4f}"
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
