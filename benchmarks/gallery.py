"""Write the gallery: every figure of the project with the command that makes it.

python benchmarks/gallery.py
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from generated import write_part

from dpaudit_paper import FIGURES
from dpaudit_paper.base import Figure

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reproduction.md"
COMMAND = "python benchmarks/gallery.py"

# Figures of the documentation: file, title, command.
YOURS = (
    ("report-page.png", "The report page of an audit", "dpaudit report"),
    ("own-result.png", "The same audit as a figure for a paper", "result.plot().savefig(FILE)"),
)
OTHERS = (
    (
        "all_methods.png",
        "All lower bounds on the same scores",
        "python benchmarks/choosing_a_bound.py",
    ),
    (
        "claim_power.png",
        "Power of the test of a claim",
        "python benchmarks/choosing_a_bound.py",
    ),
    (
        "false_claims.png",
        "False claims of three threshold rules",
        "python benchmarks/choosing_a_bound.py",
    ),
    (
        "landscape_moving.png",
        "A moving threshold: landscape, densities, epsilon",
        "dpaudit landscape --noise-multiplier 1 --batch-size 1 --steps 25 --shape moving-threshold"
        " --plot docs/figures/landscape_moving.png",
    ),
)


def gallery() -> str:
    """The gallery, as Markdown."""
    return "\n".join(
        [
            "### Your own results\n",
            *_grid(_of_the_docs(*figure) for figure in YOURS),
            "`dpaudit.report.figures` draws each picture alone, in the width of a column.\n",
            "### The paper\n",
            *_grid(_of_the_paper(figure) for figure in FIGURES.values()),
            "### The documentation\n",
            *_grid(_of_the_docs(*figure) for figure in OTHERS),
        ]
    )


def _grid(cells: Iterable[str]) -> list[str]:
    return ['<div class="gallery" markdown>\n', *cells, "</div>\n"]


def _of_the_paper(figure: Figure) -> str:
    where = "" if figure.label else "not in the paper; "
    command = f"dpaudit reproduce {figure.id} --scale full"
    file = f"../results/{figure.id}.svg"
    if not (ROOT / "results" / f"{figure.id}.svg").exists():
        return f"- **{figure.id}** {figure.title}; *not made yet*\n"
    return (
        f"- **{figure.id}** {figure.title}\n\n    [![{figure.id}]({file})]({file})\n\n"
        f"    `{command}`\n\n    {where}[CSV](../results/{figure.id}.csv)\n"
    )


def _of_the_docs(file: str, title: str, command: str) -> str:
    return f"- {title}\n\n    [![{title}](figures/{file})](figures/{file})\n\n    `{command}`\n"


if __name__ == "__main__":
    write_part(PAGE, COMMAND, gallery())
