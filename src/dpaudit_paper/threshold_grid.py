"""The grid of landscape processes behind F3a, F3b and A11: exact, by the GDP rule, and audited.

A_S inserts one canary in the first step on a threshold landscape; the position after T steps is the
score. The exact epsilon needs no runs; the audit simulates runs, as in the paper.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dpaudit.lower_bounds import estimate
from dpaudit.scores import Scores
from dpaudit_paper.landscapes import LandscapeProcess, Threshold, exact_privacy, simulate
from dpaudit_paper.readings import DELTA
from dpaudit_paper.table import Row, Table

if TYPE_CHECKING:
    from dpaudit_paper.landscapes import ExactPrivacy, Scaling
    from dpaudit_paper.setting import Setting

BATCH_SIZES = (1, 2, 4, 8, 16)
NOISE_MULTIPLIERS = (1, 2, 3, 4, 5, 6, 7, 8)
STEPS = 25
AUDITED = (1, 2, 3, 5, 10, 15, 20, 25)
"""The steps at which runs are simulated; the exact curve has every step."""


def threshold_process(
    sigma: float, batch: int, steps: int = STEPS, scaling: Scaling = "paper"
) -> LandscapeProcess:
    """The paper's landscape, with the corrected sign."""
    return LandscapeProcess(
        noise_multiplier=sigma,
        batch_size=batch,
        steps=steps,
        scaling=scaling,
        landscape=Threshold(),
    )


def measure_grid(
    setting: Setting,
    noise_multipliers: Sequence[float],
    batch_sizes: Sequence[int] = BATCH_SIZES,
    *,
    audited: Sequence[int] = AUDITED,
    scalings: Sequence[Scaling] = ("paper", "dpsgd"),
) -> Table:
    """One row for each process and step.

    The audit has 200,000 runs at every step in full: at sigma = 8, 5,000 runs cannot distinguish
    an epsilon of 0.43 from 0. It is done in the paper's scaling only.
    """
    runs = setting.choose(quick=20_000, full=200_000)
    setting.ledger.note(f"{runs:,} simulated runs for each audited step")
    rows: list[Row] = []
    for scaling in scalings:
        for sigma in noise_multipliers:
            for batch in batch_sizes:
                rows += _process_rows(
                    threshold_process(sigma, batch, scaling=scaling),
                    runs=runs,
                    seed=setting.seed,
                    audited=audited if scaling == "paper" else (),
                )
    return Table.of(rows)


def _process_rows(
    process: LandscapeProcess, *, runs: int, seed: int, audited: Sequence[int]
) -> list[Row]:
    exact = _exact(process)
    rows: list[Row] = []
    for step in range(1, process.steps + 1):
        row: dict[str, str | int | float | None] = {
            "scaling": process.scaling,
            "sigma": process.noise_multiplier,
            "batch_size": process.batch_size,
            "steps": step,
            "accountant": exact.accountant,
            "exact": float(exact.epsilon[step - 1]),
            "gdp_rule": float(exact.gdp_rule[step - 1]),
            "numerical_error": exact.error,
            "runs": None,
            "paper_rule": None,
            "gaussian_dp": None,
            "clopper_pearson": None,
        }
        if step in audited:
            row |= _audited(process, step, runs, seed)
        rows.append(row)
    return rows


# Three figures look at the same processes; in one session they are computed once.
@functools.cache
def _exact(process: LandscapeProcess) -> ExactPrivacy:
    return exact_privacy(process, delta=DELTA)


@functools.cache
def _audited(
    process: LandscapeProcess, step: int, runs: int, seed: int
) -> dict[str, str | int | float | None]:
    stopped = LandscapeProcess(
        noise_multiplier=process.noise_multiplier,
        batch_size=process.batch_size,
        steps=step,
        scaling=process.scaling,
        landscape=process.landscape,
    )
    found = simulate(stopped, runs=runs, seed=seed)
    scores = Scores.from_samples(found.inserted, found.not_inserted)
    asked = {
        "paper_rule": ("gaussian-dp", "best"),
        "gaussian_dp": ("gaussian-dp", "pilot"),
        "clopper_pearson": ("clopper-pearson", "simultaneous"),
    }
    bounds = {
        column: estimate(scores, delta=DELTA, method=method, threshold=rule, seed=seed).epsilon
        for column, (method, rule) in asked.items()
    }
    return {"runs": runs, **bounds}
