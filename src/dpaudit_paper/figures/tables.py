"""The paper's tables: adversaries of prior work (T1) and hyperparameters (T2).

``prior_work.csv`` has the rows of T1 as printed, and our adversary for each, or the method of
`dpaudit.estimate` for a row about an estimator; the note of a row says how ours differs.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dpaudit.adversaries import ADVERSARIES
from dpaudit.presets import INSERTIONS, PRESETS
from dpaudit_paper.base import Cost, Figure
from dpaudit_paper.drawing import draw_table
from dpaudit_paper.table import Row, Table
from dpaudit_paper.trainings import DELTA

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

    from dpaudit_paper.base import Setting

PRIOR_WORK = Table.read(Path(__file__).parent.parent / "prior_work.csv")

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


def measure_t1(setting: Setting) -> Table:
    """The paper's rows as printed, and beside them what the registry has."""
    rows: list[Row] = []
    for prior in PRIOR_WORK:
        name = prior["adversary"]
        rows.append(
            {
                "paper": f"{prior['paper']} ({prior['year']})",
                "adversary": prior["label"],
                "hidden state": prior["hidden_state"],
                "tight": prior["tight"],
                "canary": prior["canary"],
                "here": name or f"estimator {prior['estimator']}",
                "threat model here": ADVERSARIES[str(name)].threat_model.value if name else "any",
                "note": prior["note"] or "",
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


def draw_t1(table: Table) -> Drawing:
    """The table as a picture, without the notes."""
    places = [table.columns.index(name) for name in COLUMNS]
    shown = Table(columns=COLUMNS, rows=tuple(tuple(row[p] for p in places) for row in table.rows))
    return draw_table(shown, widths=(1.7, 1.9, 0.8, 0.6, 1.1, 1.7, 1.1))


T1 = Figure(
    id="T1",
    title="adversaries of prior work",
    label="tabel:related_work",
    quick=Cost(cpu=2, gpu=2),
    full=Cost(cpu=2, gpu=2),
    alike=True,
    measure=measure_t1,
    draw=draw_t1,
)


def measure_t2(setting: Setting) -> Table:
    """One row for each preset; parameters are counted, not copied."""
    from dpaudit.models import convnet, fcnn, linear_head, resnet18

    built = {
        "housing": fcnn(),
        "convnet": convnet(),
        "resnet18": resnet18(),
        "alexnet-head": linear_head(2304, 10),
    }
    swept = {"convnet": "1, 2, 4", "resnet18": "1, 2, 4"}
    rows: list[Row] = []
    for name, preset in PRESETS.items():
        if name not in built:
            continue
        rows.append(
            {
                "model": preset.summary,
                "parameters": sum(p.numel() for p in built[name].parameters()),
                "learning rate": preset.learning_rate,
                "batch size": preset.batch_size,
                "clip norm C": swept.get(name, f"{preset.clip_norm:g}"),
                "sigma": preset.noise_multiplier,
                "insertions": INSERTIONS,
                "delta": DELTA,
                "audited trainings": 5000,
                "confidence": 0.95,
            }
        )
    return Table.of(rows)


T2 = Figure(
    id="T2",
    title="hyperparameters",
    label="table:hyperparameters",
    quick=Cost(cpu=3, gpu=3),
    full=Cost(cpu=3, gpu=3),
    alike=True,
    measure=measure_t2,
    draw=lambda table: draw_table(
        table, widths=(2.6, 1.1, 0.9, 0.7, 0.8, 0.7, 1.1, 0.7, 0.95, 1.15)
    ),
)
