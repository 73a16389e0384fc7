"""Results of a folder as one table: what was made, on what, how long it took, what is missing.

    python -m dpaudit.reproduce.summary results docs/reproduction.md

writes it between the markers of a page.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from dpaudit.errors import InvalidInput
from dpaudit.reproduce.registry import FIGURES

BEGIN, END = "<!-- results -->", "<!-- /results -->"


def results_table(folder: Path) -> str:
    """One row a figure, in the paper's order, and a line with the time in all.

    Arguments:
        folder: With the NAME.json of figures that were made.
    """
    lines = [
        "| name | label in the paper | shows | made at | on | seconds | waits for a GPU |",
        "|---|---|---|---|---|---:|---|",
    ]
    total = 0.0
    for figure in FIGURES.values():
        path = folder / f"{figure.id}.json"
        label = f"`{figure.label}`" if figure.label else "(ours)"
        head = f"| {figure.id} | {label} | {figure.title} |"
        if not path.is_file():
            lines.append(f"{head} not yet |  |  | all of it |")
            continue
        facts = json.loads(path.read_text(encoding="utf8"))
        total += facts["seconds"]
        missing = "; ".join(facts["left_out_without_gpu"])
        lines.append(
            f"{head} {facts['scale']} | {facts['device']} | {facts['seconds']:.0f} | {missing} |"
        )
    made = sum((folder / f"{name}.json").is_file() for name in FIGURES)
    lines += ["", f"{made} of {len(FIGURES)} are made, in {_duration(total)} in all."]
    return "\n".join(lines)


def write_into(page: Path, table: str) -> None:
    """Put the table between the markers of a page."""
    text = page.read_text(encoding="utf8")
    pattern = re.compile(f"{BEGIN}.*?{END}", flags=re.DOTALL)
    if not pattern.search(text):
        raise InvalidInput(f"{page} must have the markers {BEGIN} and {END}, and has not")
    filled = pattern.sub(lambda _: f"{BEGIN}\n\n{table}\n\n{END}", text)
    page.write_text(filled, encoding="utf8")


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} minutes"


def main(arguments: list[str]) -> Any:
    """The folder and, if given, the page to write into."""
    table = results_table(Path(arguments[0]))
    if len(arguments) > 1:
        write_into(Path(arguments[1]), table)
    else:
        print(table)


if __name__ == "__main__":
    main(sys.argv[1:])
