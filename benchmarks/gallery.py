"""Write docs/gallery.md: every figure of the project with the command that makes it.

python benchmarks/gallery.py
"""

from __future__ import annotations

from pathlib import Path

from dpaudit_paper import FIGURES
from dpaudit_paper.base import Figure

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "gallery.md"

INTRODUCTION = """\
<!-- Written by benchmarks/gallery.py; do not edit. -->
# Gallery

All figures of this project, with the command that makes each. The figures and tables of the
paper are drawn from the numbers in `results/`; without `--scale full` the same command makes a
small version on two CPU cores. [The paper, reproduced](reproduction.md) says what each figure
shows.
"""

# Figures of the documentation: file, title, command.
OTHERS = (
    ("report-page.png", "The report page of an audit", "dpaudit report"),
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


def page() -> str:
    """The whole page, as Markdown."""
    return "\n".join(
        [
            INTRODUCTION,
            "## The paper\n",
            *(_of_the_paper(figure) for figure in FIGURES.values()),
            "## The documentation\n",
            *(_of_the_docs(*one) for one in OTHERS),
        ]
    )


def _of_the_paper(figure: Figure) -> str:
    where = f"`{figure.label}` in the paper" if figure.label else "not in the paper"
    links = [
        f"[{suffix.upper()}](../results/{figure.id}.{suffix})"
        for suffix in ("svg", "csv")
        if (ROOT / "results" / f"{figure.id}.{suffix}").exists()
    ]
    head = (
        f"### {figure.id}: {figure.title}\n\n"
        f"```\ndpaudit reproduce {figure.id} --scale full\n```\n\n"
    )
    if not links:
        return f"{head}*{where}; not made yet*\n"
    return f"{head}![{figure.title}](../results/{figure.id}.svg)\n\n*{where}; {', '.join(links)}*\n"


def _of_the_docs(file: str, title: str, command: str) -> str:
    return f"### {title}\n\n```\n{command}\n```\n\n![{title}](figures/{file})\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf8")
