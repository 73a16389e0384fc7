"""Output of the commands: one JSON object for programs, or tables for people."""

from __future__ import annotations

import errno
import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, final

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook
from rich.segment import Segment

from dpaudit.cli._exit import printable


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
