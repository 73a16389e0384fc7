"""T2: the hyperparameters of every network, from the presets that the audits really use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpaudit.presets import INSERTIONS, PRESETS
from dpaudit_paper.base import Cost, Figure
from dpaudit_paper.readings import DELTA
from dpaudit_paper.table import Row, Table
from dpaudit_paper.table_drawing import draw_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

    from dpaudit_paper.setting import Setting

PRINTED_LEARNING_RATE = 0.01
"""The values of the printed table for every network."""


def measure(setting: Setting) -> Table:
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


def draw(table: Table) -> Drawing:
    """The table as a picture."""
    return draw_table(table, widths=(2.6, 1.1, 0.9, 0.7, 0.8, 0.7, 1.1, 0.7, 0.95, 1.15))


def findings(table: Table) -> str:
    """Where the presets differ from the printed table."""
    sizes = dict(zip(table.column("model"), table.column("parameters"), strict=True))
    listed = ", ".join(f"{name} {count:,}" for name, count in sizes.items())
    rate = table.numbers("learning rate")[0]
    return (
        f"Parameters, counted: {listed}; the paper's table has the same numbers for its three "
        f"networks. The learning rate of Housing is the text's {rate:g}, not the table's "
        f"{PRINTED_LEARNING_RATE:g}: with the latter a random dimension is as good as a simulated "
        "one, and the paper's contrast does not show. What the table calls noise variance is the "
        "noise multiplier: the standard deviation is sigma C. The fourth row, the head on "
        "AlexNet's features, is ours."
    )


FIGURE = Figure(
    id="T2",
    title="hyperparameters",
    label="table:hyperparameters",
    quick=Cost(cpu=3, gpu=3),
    full=Cost(cpu=3, gpu=3),
    alike=True,
    measure=measure,
    draw=draw,
    findings=findings,
)
