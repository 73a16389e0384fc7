"""Write the tables of docs/choosing-a-bound.md that list lower bounds and accountants.

python docs/_site/tables.py
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from pathlib import Path

from dpaudit.lower_bounds import METHODS
from dpaudit.upper_bounds import ACCOUNTANTS

PAGE = Path(__file__).parents[1] / "choosing-a-bound.md"


def tables() -> list[str]:
    """The tables, from the registries."""
    return [
        _table(
            ("`--method`", "what it assumes besides independent runs", "paper"),
            (
                (f"`{name}`", "; ".join(method.assumptions) or "nothing", method.paper or "none")
                for name, method in METHODS.items()
                if method.guarantee == "confidence"  # the others are for comparison with papers
            ),
        ),
        _table(
            ("`--accountant`", "method"),
            ((f"`{name}`", _first_line(kind)) for name, kind in ACCOUNTANTS.items()),
        ),
    ]


def with_tables(text: str) -> str:
    """The text of the page, with its tables replaced."""
    for made in tables():
        header = made.partition("\n")[0]
        text, replaced = re.subn(
            rf"^{re.escape(header)}\n(?:\|.*\n)+", lambda _, new=made: new, text, flags=re.MULTILINE
        )
        assert replaced == 1, f"the page has no table that begins with {header}"
    return text


def _table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [header, ("---",) * len(header), *rows]
    first, second, *others = [" | ".join(line) for line in lines]
    return "\n".join(
        [f"| {first} |", f"|{second.replace(' ', '')}|", *(f"| {o} |" for o in others), ""]
    )


def _first_line(kind: type) -> str:
    """The first line of a docstring, with code as Markdown writes it."""
    line = (inspect.getdoc(kind) or "").partition("\n")[0]
    return line.removesuffix(".").replace("``", "`")


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text("utf8")), "utf8")
