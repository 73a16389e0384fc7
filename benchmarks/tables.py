"""Tables of results in pages of the documentation."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1] / "docs"


def put_table(page: str, benchmark: str, lines: Iterable[str]) -> None:
    """Replace the table of a benchmark in a page, between two comments."""
    start, end = f"<!-- table of benchmarks/{benchmark} -->\n", "<!-- end -->"
    text = (DOCS / page).read_text()
    head, rest = text.split(start)
    (DOCS / page).write_text(head + start + "\n".join(lines) + "\n" + end + rest.split(end, 1)[1])
