"""The paper's tables: adversaries of prior work (T1) and hyperparameters (T2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpaudit.adversaries import ADVERSARIES
from dpaudit.presets import INSERTIONS, PRESETS
from dpaudit_paper.base import Cost, Figure
from dpaudit_paper.drawing import draw_table
from dpaudit_paper.prior_work import PRIOR_WORK
from dpaudit_paper.table import Row, Table
from dpaudit_paper.trainings import DELTA

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

    from dpaudit_paper.base import Setting

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
