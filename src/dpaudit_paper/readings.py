"""The bounds of a figure: the paper's bound and others, from the scores of an audit.

=================== ============================================================================
column              bound
=================== ============================================================================
``accountant``      from above: composition of the insertions
``paper_rule``      gaussian-dp at the best threshold of the scores it is read from (the paper's)
``gaussian_dp``     gaussian-dp with the threshold chosen on a pilot: a valid choice; the trade-off
                    curve is still assumed to be Gaussian. The line that figures draw
``clopper_pearson`` at all thresholds at once, nothing assumed about the curve
``gaussian_fit``    from means and variance: needs few runs, assumes normal scores
``one_run_fdp``     for many canaries in one training, which need not be independent
``mu``              by moments: no bound, no threshold
=================== ============================================================================
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from dpaudit.errors import DpauditError
from dpaudit.lower_bounds import estimate
from dpaudit.scores import Scores
from dpaudit_paper.table import Row, Table, Value

if TYPE_CHECKING:
    from dpaudit_paper.setting import Setting
    from dpaudit_paper.trainings import Trainings

DELTA = 1e-5

NAMES = {
    "random-dimension": "A_GC-R",
    "simulated-dimension": "A_GC-S",
    "random-direction": "A_CotS",
    "flipped-label": "A_L",
}
"""The paper's names of its adversaries."""


def readings(scores: Scores, *, delta: float = DELTA, seed: int = 0) -> dict[str, Value]:
    """The lower bounds of the table above from one set of scores; `None` for a missing value.

    Example:
        >>> import numpy as np
        >>> random = np.random.default_rng(0)
        >>> scores = Scores.from_samples(random.normal(2, 1, 500), random.normal(0, 1, 500))
        >>> list(readings(scores))[:4]
        ['paper_rule', 'gaussian_dp', 'clopper_pearson', 'gaussian_fit']
    """
    asked = {
        "paper_rule": ("gaussian-dp", "best"),
        "gaussian_dp": ("gaussian-dp", "pilot"),
        "clopper_pearson": ("clopper-pearson", "simultaneous"),
        "gaussian_fit": ("gaussian-fit", "pilot"),
        "one_run_fdp": ("one-run-fdp", "pilot"),
    }
    found: dict[str, Value] = {}
    for column, (method, threshold) in asked.items():
        if method == "one-run-fdp" and not scores.clustered:
            found[column] = None
            continue
        try:
            bound = estimate(scores, delta=delta, method=method, threshold=threshold, seed=seed)
            found[column] = bound.epsilon
        except DpauditError:
            found[column] = None  # too few scores for this method
    return {**found, "mu": mu_by_moments(scores)}


def mu_by_moments(scores: Scores) -> float | None:
    """The difference of the means over the pooled deviation, or `None`."""
    inserted, others = scores.inserted_scores, scores.other_scores
    if min(len(inserted), len(others)) < 2:
        return None
    pooled = (
        inserted.var(ddof=1) * (len(inserted) - 1) + others.var(ddof=1) * (len(others) - 1)
    ) / (len(scores) - 2)
    if not pooled > 0 or not math.isfinite(pooled):
        return None
    return float((inserted.mean() - others.mean()) / math.sqrt(pooled))


def standard_error(rows: Table) -> float:
    """Standard error of the mean mu by moments of the rows."""
    mu = sum(rows.numbers("mu")) / len(rows)
    counts = zip(rows.numbers("runs"), rows.numbers("canaries"), strict=True)
    return math.sqrt((4 + mu**2 / 2) / sum(runs * canaries for runs, canaries in counts))


def curve_rows(
    trainings: Trainings, setting: Setting, *, series: str, panel: str = ""
) -> list[Row]:
    """One row per horizon: the trainings and the bounds from their scores.

    Arguments:
        trainings: The trainings to play or to read from the store.
        setting: The setting.
        series: The name of the line that the rows belong to.
        panel: The panel that the line is drawn in.
    """
    result = trainings.play(setting)
    data = result.configuration["mechanism"]["data"]
    return [
        {
            "panel": panel,
            "series": series,
            "model": trainings.preset,
            "adversary": NAMES.get(trainings.adversary.name, trainings.adversary.name),
            "protocol": trainings.protocol,
            "period": trainings.period,
            "clip_norm": trainings.clip_norm,
            "weights": trainings.weights,
            "known_start": trainings.known_start,
            "seed": trainings.seed,
            "runs": trainings.runs,
            "canaries": trainings.canaries,
            "examples": data["examples"],
            "steps": assessment.horizon,
            "accountant": assessment.least_upper.epsilon,
            **readings(assessment.scores, seed=trainings.seed),
        }
        for assessment in result.horizons
    ]


@final
@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of a figure and the trainings behind it.

    Arguments:
        trainings: The trainings of the line.
        series: The name of the line.
        panel: The panel it is drawn in.
        gpu: Whether the line is left out without a GPU, because it would take hours.
    """

    trainings: Trainings
    series: str
    panel: str = ""
    gpu: bool = False


def curves(setting: Setting, lines: Iterable[Line]) -> Table:
    """The rows of several lines; lines that need a missing GPU are left out and noted.

    Trainings that another process plays now come last; by then they can be read from the store.
    """
    waiting: dict[int, Line] = {}
    for number, line in enumerate(lines):
        if line.gpu and not setting.on_gpu:
            where = f", {line.panel}" if line.panel else ""
            setting.ledger.leave_out(f"{line.series}{where}: {line.trainings.protocol}")
        else:
            waiting[number] = line
    rows: dict[int, list[Row]] = {}
    while waiting:
        free = (
            number
            for number, line in waiting.items()
            if not setting.played_elsewhere(line.trainings.name_in(setting))
        )
        number = next(free, min(waiting))
        line = waiting.pop(number)
        rows[number] = curve_rows(line.trainings, setting, series=line.series, panel=line.panel)
    return Table.of([row for number in sorted(rows) for row in rows[number]])


def final_rows(table: Table) -> Table:
    """The last row of every curve."""
    last: dict[tuple[Value, ...], tuple[Value, ...]] = {}
    at = {name: table.columns.index(name) for name in table.columns}
    for row in table.rows:
        key = tuple(row[at[name]] for name in ("panel", "series", "model", "seed", "protocol"))
        if key not in last or _steps(row[at["steps"]]) > _steps(last[key][at["steps"]]):
            last[key] = row
    return Table(columns=table.columns, rows=tuple(last.values()))


def _steps(value: Value) -> float:
    return float(value) if isinstance(value, int | float) else -1.0


def spread(values: Iterable[float]) -> str:
    """A number, or the range of several, as text.

    Example:
        >>> spread([22.31, 24.18]), spread([7.0])
        ('22.3 to 24.2', '7.0')
    """
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return "no number"
    low, high = f"{min(known):.1f}", f"{max(known):.1f}"
    return low if low == high else f"{low} to {high}"
