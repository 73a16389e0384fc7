"""A network at C = 1, 2, 4 with a canary at every step: F1a and F1b."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dpaudit_paper.networks import A_L, A_L_TOGETHER, flipped_labels, one_training
from dpaudit_paper.readings import Line, final_rows, spread, standard_error
from dpaudit_paper.table import Table

if TYPE_CHECKING:
    from dpaudit_paper.setting import Setting

CLIP_NORMS = (1.0, 2.0, 4.0)


def lines_of(setting: Setting, model: str) -> Iterator[Line]:
    """A_GC-R in one training with many canaries; A_L by the protocols that take minutes."""
    for clip_norm in CLIP_NORMS:
        panel = f"C = {clip_norm:g}"
        crafted = one_training(setting, model, clip_norm=clip_norm)
        yield Line(panel=panel, series="A_GC-R", trainings=crafted, gpu=model == "resnet18")
        # The quick version has A_L at one C only.
        if setting.full or clip_norm == 1.0:
            for series, flipped in flipped_labels(setting, model, clip_norm=clip_norm):
                yield Line(panel=panel, series=series, trainings=flipped, gpu=setting.full)


def findings(table: Table) -> str:
    """The bounds of both adversaries at the end of training."""
    last = final_rows(table)
    crafted = last.where(series="A_GC-R")
    upper = last.numbers("accountant")[0]
    mu = ", ".join(f"{value:.3f}" for value in crafted.numbers("mu"))
    text = (
        f"Of the accountant's {upper:.3f} at T = {int(last.numbers('steps')[0]):,}, A_GC-R proves "
        f"{spread(crafted.numbers('gaussian_dp'))} at C = 1, 2, 4 (by the paper's threshold rule "
        f"{spread(crafted.numbers('paper_rule'))}; mu by moments {mu}), from "
        f"{crafted.words('protocol')[0]} at each C, which assumes independent canaries; without "
        f"that assumption one-run-fdp proves {spread(crafted.numbers('one_run_fdp'))}."
    )
    above = [value - upper for value in crafted.numbers("gaussian_dp") if value > upper]
    if above:
        text += (
            f" The highest is {max(above):.2f} above the accountant's; at 95 % confidence this is "
            "expected for up to one bound in twenty."
        )
    alone, together = last.where(series=A_L), last.where(series=A_L_TOGETHER)
    if len(alone):
        text += f" A_L proves {_proven(alone)}."
    if len(together):
        text += (
            f" With many canaries in a training A_L proves {_proven(together)}: images that are "
            "trained together disturb each other and have different losses, so that this says "
            "little about a single image."
        )
    return text


def _proven(rows: Table) -> str:
    """The bound at each C, with its trainings where they are not those of the C before."""
    parts, said = [], ""
    for panel in rows.words("panel"):
        row = rows.where(panel=panel)
        mu = f"mu {row.number('mu'):.2f} ± {standard_error(row):.2f}"
        protocol = row.words("protocol")[0]
        details = mu if protocol == said else f"{protocol}; {mu}"
        parts.append(f"{row.number('gaussian_dp'):.2f} at {panel} ({details})")
        said = protocol
    return ", ".join(parts)
