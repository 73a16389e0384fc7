"""T1: the table of prior adversaries, with the adversary of this package for each row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpaudit.adversaries import ADVERSARIES
from dpaudit_paper.base import Cost, Figure
from dpaudit_paper.prior_work import PRIOR_WORK
from dpaudit_paper.table import Row, Table
from dpaudit_paper.table_drawing import draw_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

    from dpaudit_paper.setting import Setting

OURS = (
    ("A_GC-R, k = 1", "random-dimension", "yes"),
    ("A_GC-R, k > 1", "random-dimension", "no"),
)
COLUMNS = (
    "paper",
    "adversary",
    "hidden state",
    "tight",
    "canary",
    "here",
    "threat model here",
)


def measure(setting: Setting) -> Table:
    """The paper's rows as printed, and beside them what the registry has."""
    rows: list[Row] = []
    for prior in PRIOR_WORK:
        known = None if prior.adversary is None else ADVERSARIES[prior.adversary]
        rows.append(
            {
                "paper": f"{prior.paper} ({prior.year})",
                "adversary": prior.label,
                "hidden state": _word(prior.hidden_state),
                "tight": _word(prior.tight),
                "canary": prior.canary,
                "here": prior.adversary or f"estimator {prior.estimator}",
                "threat model here": "any" if known is None else known.threat_model.value,
                "note": prior.note,
            }
        )
    for label, name, tight in OURS:
        rows.append(
            {
                "paper": "Cebere et al. (2025)",
                "adversary": label,
                "hidden state": "yes",
                "tight": tight,
                "canary": "gradient",
                "here": name,
                "threat model here": ADVERSARIES[name].threat_model.value,
                "note": "",
            }
        )
    return Table.of(rows)


def _word(value: bool) -> str:
    return "yes" if value else "no"


def draw(table: Table) -> Drawing:
    """The table as a picture, without the notes."""
    places = [table.columns.index(name) for name in COLUMNS]
    shown = Table(columns=COLUMNS, rows=tuple(tuple(row[p] for p in places) for row in table.rows))
    return draw_table(shown, widths=(1.7, 1.9, 0.8, 0.6, 1.1, 1.7, 1.1))


def findings(table: Table) -> str:
    """The number of rows that can be played, and differences from the table."""
    playable = sum(not str(name).startswith("estimator") for name in table.column("here"))
    differing = [
        str(row["here"])
        for row in table
        if row["hidden state"] == "yes" and row["threat model here"] == "standard"
    ]
    text = (
        f"{playable} of {len(table)} rows are adversaries that `dpaudit audit --adversary` plays; "
        "the others are about an estimator, which reads the scores of any of them."
    )
    if not differing:
        return text
    return text + (
        f" The table has {', '.join(differing)} as fit for the hidden state; it reads every "
        "iterate, so that here its threat model is the standard one."
    )


FIGURE = Figure(
    id="T1",
    title="adversaries of prior work",
    label="tabel:related_work",
    quick=Cost(cpu=2, gpu=2),
    full=Cost(cpu=2, gpu=2),
    alike=True,
    measure=measure,
    draw=draw,
    findings=findings,
)
