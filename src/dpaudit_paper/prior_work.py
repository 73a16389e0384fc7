"""The paper's table of prior adversaries, and the adversary of this package for each row.

The entries of a row (hidden state, tight, kind of canary) are as printed. Our adversaries have
their own attributes; where the two differ, the note of the row says why. The rows are in
``prior_work.csv``.

Paper:
    Cebere, Bellet, Papernot (ICLR 2025), appendix, "Summary of prior work on privacy auditing of
    DP-SGD".
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import final


@final
@dataclass(frozen=True, kw_only=True)
class PriorAdversary:
    """One row of the table.

    See also: `dpaudit.adversaries.ADVERSARIES`.

    Arguments:
        paper: Authors of the paper.
        year: Year, as cited by the paper.
        label: Name of the adversary in the table.
        hidden_state: Whether the table lists it as a hidden-state adversary.
        tight: Whether the table lists it as tight in its own threat model.
        canary: The kind of canary in the table.
        adversary: Name of our adversary; `None` for a row without one.
        note: How our adversary differs, or why there is none.
        estimator: The method of `dpaudit.estimate` for a row about an estimator.

    Example:
        >>> [row.label for row in PRIOR_WORK if row.adversary is None]
        ['Experiment 1', 'Experiment 2']
    """

    paper: str
    year: int
    label: str
    hidden_state: bool
    tight: bool
    canary: str
    adversary: str | None
    note: str = ""
    estimator: str | None = None


def _read(path: Path) -> tuple[PriorAdversary, ...]:
    with path.open(newline="", encoding="utf-8") as stream:
        return tuple(
            PriorAdversary(
                paper=row["paper"],
                year=int(row["year"]),
                label=row["label"],
                hidden_state=row["hidden_state"] == "yes",
                tight=row["tight"] == "yes",
                canary=row["canary"],
                adversary=row["adversary"] or None,
                note=row["note"],
                estimator=row["estimator"] or None,
            )
            for row in csv.DictReader(stream)
        )


PRIOR_WORK = _read(Path(__file__).with_suffix(".csv"))
