"""Write the tables of the README that list adversaries, lower bounds and accountants.

python docs/_site/readme.py
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from pathlib import Path

from dpaudit.adversaries import ADVERSARIES
from dpaudit.lower_bounds import METHODS
from dpaudit.privacy import ThreatModel
from dpaudit.upper_bounds import ACCOUNTANTS

README = Path(__file__).parents[2] / "README.md"

_SEES = {
    ThreatModel.HIDDEN_STATE: "the final model",
    ThreatModel.BLACK_BOX: "the final model's outputs",
    ThreatModel.STANDARD: "every iterate",
}


def tables() -> list[str]:
    """The tables, from the registries."""
    return [
        _table(
            ("`--adversary`", "paper", "sees", "inserts"),
            (
                (f"`{name}`", one.paper, _SEES[one.threat_model], f"a {one.canary}")
                for name, one in ADVERSARIES.items()
            ),
        ),
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
    """The text of the README, with its tables replaced."""
    for made in tables():
        header = made.partition("\n")[0]
        text, found = re.subn(
            rf"^{re.escape(header)}\n(?:\|.*\n)+", lambda _, new=made: new, text, flags=re.MULTILINE
        )
        assert found == 1, f"the README has no table that begins with {header}"
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
    README.write_text(with_tables(README.read_text("utf8")), "utf8")
