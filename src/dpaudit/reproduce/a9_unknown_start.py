"""A9: what is left of A_GC-R when the adversary does not know the initialisation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from dpaudit.adversaries import RandomDimension
from dpaudit.mechanisms.dpsgd import Insertion
from dpaudit.reproduce.contract import Cost, Figure, Need
from dpaudit.reproduce.curves import draw_curves
from dpaudit.reproduce.networks import insertions
from dpaudit.reproduce.readings import Line, curve_rows, curves, final_rows, readings, spread
from dpaudit.reproduce.table import Row, Table
from dpaudit.reproduce.trainings import Trainings, Weights
from dpaudit.scores import Scores

if TYPE_CHECKING:
    from dpaudit.mechanisms.dpsgd import DPSGD
    from dpaudit.reproduce.setting import Setting

RULES: tuple[Weights, ...] = ("xavier", "kaiming")
KNOWN, UNKNOWN, BIASES = "known start", "unknown start", "unknown start, biases only"
MANY = "unknown start, many trainings"


def measure(setting: Setting) -> Table:
    """Both rules, start known or not; of the unknown one also the canaries on biases alone."""
    rows: list[Row] = []
    for rule in RULES:
        panel = f"{rule.title()} weights"
        known = _trainings(setting, rule, known=True)
        unknown = _trainings(setting, rule, known=False)
        rows += curve_rows(known, setting, series=KNOWN, panel=panel)
        whole = curve_rows(unknown, setting, series=UNKNOWN, panel=panel)
        rows += whole
        rows += _on_biases(unknown, setting, whole)
    rows += curves(setting, _by_trainings(setting))
    return Table.of(rows)


def _trainings(setting: Setting, rule: Weights, *, known: bool) -> Trainings:
    return Trainings(
        preset="convnet",
        adversary=RandomDimension(),
        runs=1,
        canaries=20_000,
        seed=setting.seed,
        insertions=insertions(setting, 1),
        weights=rule,
        known_start=known,
    )


def _by_trainings(setting: Setting) -> Iterator[Line]:
    """The paper's protocol: a start drawn anew in each of many trainings."""
    if not setting.full:
        return
    for rule in RULES:
        trainings = Trainings(
            preset="convnet",
            adversary=RandomDimension(),
            runs=2000,
            seed=setting.seed,
            weights=rule,
            known_start=False,
        )
        yield Line(panel=f"{rule.title()} weights", series=MANY, trainings=trainings, gpu=True)


def _on_biases(trainings: Trainings, setting: Setting, whole: list[Row]) -> list[Row]:
    """The same scores, of those canaries only whose dimension is a bias: it starts at zero."""
    mechanism = trainings.mechanism(setting.data_dir)
    crafted = RandomDimension().craft(
        mechanism, Insertion(), canaries=trainings.canaries, seed=trainings.seed
    )
    chosen = np.flatnonzero(_is_bias(mechanism)[crafted.dimensions.numpy()])
    rows: list[Row] = []
    for row, assessment in zip(whole, trainings.play(setting).horizons, strict=True):
        scores = assessment.scores
        kept = np.isin(scores.canary, chosen)
        part = Scores(
            score=scores.score[kept],
            inserted=scores.inserted[kept],
            run=scores.run[kept],
            canary=scores.canary[kept],
        )
        found = readings(part, seed=trainings.seed)
        rows.append({**row, "series": BIASES, "canaries": int(kept.sum()), **found})
    return rows


def _is_bias(mechanism: DPSGD) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    from dpaudit.games.starting_points import known_model

    named = known_model(mechanism).named_parameters()
    return np.concatenate([np.full(value.numel(), name.endswith("bias")) for name, value in named])


def findings(table: Table) -> str:
    """Known against unknown, and why."""
    last = final_rows(table)
    parts = []
    for panel in last.words("panel"):
        told = []
        for series in (KNOWN, UNKNOWN, MANY, BIASES):
            row = last.where(panel=panel, series=series)
            if len(row):
                bound = spread(row.numbers("valid"))
                told.append(f"{series} {bound} (mu {row.number('mu'):.3f})")
        parts.append(f"{panel}: " + ", ".join(told))
    return (
        "; ".join(parts)
        + ". A canary moves its weight by T eta C / B = 0.02 in 250 steps; both rules draw weights "
        "with a deviation several times that, so a start that is drawn anew in every training "
        "hides the canary of a weight. Biases start at zero by both rules, and a canary there "
        "keeps its mu. An unknown start that is the same in all trainings of an audit would "
        "only shift every score, and a threshold chosen on the scores would not notice."
    )


FIGURE = Figure(
    id="A9",
    title="unknown initialisation: Xavier and Kaiming",
    label="fig:unknown_init",
    needs=frozenset({Need.CIFAR10}),
    quick=Cost(cpu=60, gpu=30),
    full=Cost(cpu=130, gpu=120),
    measure=measure,
    draw=draw_curves,
    findings=findings,
)
