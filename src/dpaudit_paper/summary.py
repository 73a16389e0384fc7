"""The results of a folder as text of a page: a table of figures and their descriptions.

    python -m dpaudit_paper.summary results docs/reproduction.md

writes both parts between the markers of the page.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import sys
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from dpaudit._files import write_text
from dpaudit.errors import InvalidInput
from dpaudit_paper.registry import FIGURES
from dpaudit_paper.table import Table

PICTURED = ("F1a", "F1c", "F3b", "A9")
"""The figures that the page shows."""

PAPER = "the paper spent about 3,500 GPU hours"


def results_table(folder: Path) -> str:
    """One row per figure, in the paper's order, and the total time.

    Arguments:
        folder: The folder with the files NAME.json.
    """
    lines = [
        "| name | label in the paper | shows | made at | on | seconds | still missing |",
        "|---|---|---|---|---|---:|---|",
    ]
    total, before, on_gpu, jobs = 0.0, 0.0, 0.0, 1
    spans = []
    for figure in FIGURES.values():
        path = folder / f"{figure.id}.json"
        label = f"`{figure.label}`" if figure.label else "(ours)"
        head = f"| {figure.id} | {label} | {figure.title} |"
        if not path.is_file():
            missing = "needs a GPU" if figure.full.cpu is None else "not run yet"
            lines.append(f"{head} – |  |  | {missing} |")
            continue
        facts = json.loads(path.read_text(encoding="utf8"))
        before += facts.get("seconds_before", 0.0)
        seconds = facts["seconds"] + facts.get("seconds_before", 0.0)
        total += seconds
        jobs = max(jobs, facts.get("jobs", 1))
        end = datetime.fromisoformat(facts["made"]).timestamp()
        spans.append((end - facts["seconds"], end))
        on_gpu += sum(a["seconds"] for a in facts.get("audits", ()) if a["device"] != "cpu")
        missing = "; ".join(facts["left_out_without_gpu"])
        lines.append(f"{head} {facts['scale']} | {facts['device']} | {seconds:.0f} | {missing} |")
    made = sum((folder / f"{name}.json").is_file() for name in FIGURES)
    lines += ["", f"{made} of {len(FIGURES)} are made, in {total / 60:.0f} minutes in all."]
    if on_gpu:
        lines[-1] += f" Of that the trainings on a GPU took {on_gpu / 60:.0f} minutes; {PAPER}."
    if jobs > 1:
        passed = f"{(elapsed(spans) + before) / 60:.0f} minutes passed"
        lines[-1] += f" Up to {jobs} figures were made at the same time: {passed} altogether."
    return "\n".join(lines)


def elapsed(spans: Iterable[tuple[float, float]]) -> float:
    """The time covered by spans that may overlap, each given by its beginning and its end.

    Example:
        >>> elapsed([(0, 3), (1, 2), (2, 5), (7, 8)])
        6.0
    """
    total, until = 0.0, -math.inf
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total


def findings_of(folder: Path) -> str:
    """The description of every figure in the folder, in the paper's order."""
    parts = []
    for figure in FIGURES.values():
        table, facts = folder / f"{figure.id}.csv", folder / f"{figure.id}.json"
        if table.is_file() and facts.is_file():
            scale = json.loads(facts.read_text(encoding="utf8"))["scale"]
            quick = "" if scale == "full" else " *Quick version.*"
            parts.append(f"**{figure.id}**.{quick} {figure.findings(Table.read(table))}")
    return "\n\n".join(parts)


def filled(page: str, folder: Path) -> str:
    """The page with both generated parts updated."""
    for name, part in (("results", results_table(folder)), ("findings", findings_of(folder))):
        begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
        pattern = re.compile(f"{begin}.*?{end}", flags=re.DOTALL)
        if not pattern.search(page):
            raise InvalidInput(f"the page must have the markers {begin} and {end}, and has not")
        before, after = pattern.split(page, maxsplit=1)
        page = f"{before}{begin}\n\n{part}\n\n{end}{after}"
    return page


def main(folder: str, page: str) -> None:
    """Update both parts of the page and copy its pictures."""
    text = Path(page).read_text(encoding="utf8")
    write_text(Path(page), filled(text, Path(folder)))
    for name in PICTURED:
        drawn = Path(folder) / f"{name}.svg"
        if drawn.is_file():
            shutil.copyfile(drawn, Path(page).parent / "figures" / f"reproduction_{name}.svg")


if __name__ == "__main__":
    main(*sys.argv[1:])
