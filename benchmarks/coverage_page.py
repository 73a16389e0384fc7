"""Render the results of coverage.py as the appendix of docs/choosing-a-bound.md."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import final

from coverage_alarms import AlarmRow
from coverage_bounds import PROFILE, SIZES, WHOLE_CURVE, Row
from coverage_cells import ACCURACY, COIN_CANARIES, SHARE, CellRow, common_coin_mu
from coverage_claims import BOUNDARY, ClaimRow

NOMINAL = 0.05
NAMED = {PROFILE: "profile = clopper-pearson, simultaneous"}
# Which contestants state a theorem, and for which families.
ALWAYS = ("clopper-pearson", PROFILE, WHOLE_CURVE, "one-run")
IF_GAUSSIAN = (
    "gaussian-dp",
    "gaussian-dp, simultaneous",
    "gaussian-fit",
    "one-run-fdp",
    "one-run-independent",
)


@final
@dataclass(frozen=True, kw_only=True)
class Results:
    """Everything that coverage.py measured."""

    audits: int
    power_audits: int
    core_seconds: float
    rows: list[Row]
    claims: list[ClaimRow]
    cells: list[CellRow] = field(default_factory=list)
    alarms: list[AlarmRow] = field(default_factory=list)


def appendix(results: Results) -> str:
    """The appendix, as Markdown."""
    return "\n".join(
        [
            INTRODUCTION.format(
                audits=f"{results.audits:,}",
                fewer=f"{results.audits // 4:,}",
                minutes=f"{results.core_seconds / 60:.0f}",
            ),
            "### Sharpened tests\n",
            CELL_WORDS,
            _cell_table(results),
            "### All methods\n",
            METHOD_WORDS,
            _method_table(results),
            "### Canaries that depend on a common coin\n",
            COIN_WORDS,
            _coin_table(results),
            "### Alarms\n",
            ALARM_WORDS,
            _alarm_table(results),
            "### Testing a claim that is met exactly\n",
            BOUNDARY_WORDS,
            _boundary_table(results),
            "### Detecting noise that is too small\n",
            _power_words(results),
        ]
    )


INTRODUCTION = """\
A lower bound at 95 % confidence may be above the true epsilon in 5 % of audits. Here the true
epsilon is known exactly, so such false claims can be counted. **Bold** marks a rate above 5 % plus
three standard errors. `benchmarks/coverage.json` has the numbers of every cell, with the mean of
every bound: {audits} simulated audits each, {fewer} or fewer for methods without a guarantee. It
took {minutes} minutes of processor time on a busy machine with two cores.
"""

CELL_WORDS = """\
Each mechanism has exactly the epsilon or mu that is tested, so that false claims are as frequent
as they get. "Declined" counts audits in which the method refused the scores, for example because
the coins did not look fair.
"""

METHOD_WORDS = """\
The largest rate of false claims, in per cent, for 50, 500 and 2,500 scores a side. Gaussian scores
have mu = 0, 1 and 3.95. The others are randomised response, Laplace noise and two-point mixtures of
epsilon 1 and 4, and a subsampled Gaussian, at delta 1e-5 and 0.01. A tick means that the method has
a theorem for all these scores, "Gaussian ✓" that it has one for Gaussian scores only.
"""

COIN_WORDS = f"""\
One run with {COIN_CANARIES:,} canaries. A common coin, with probability {SHARE:g}, switches all
canaries to randomised response of accuracy {ACCURACY:g}; otherwise the scores are pure noise. Each
canary is {common_coin_mu():.3f}-GDP, so 1-GDP is true. Methods that assume independent canaries
say so in their output; the others are valid for any dependence.
"""

ALARM_WORDS = """\
A p-value of 0.05 only raises a suspicion ([the rule](#suspicion-and-violation)). The table shows in
how many simulated audits the first runs made the claim suspected, and in how many the rule called a
violation. Where the claim is met exactly, at most 0.1 % may end in a violation; three standard
errors are 0.07 % of 20,000 audits.

- `whole`: audits of a training function, with the stages of `dpaudit.audit`; every 400th was also
  played by it, with the same verdict. The other rows draw scores.
- `confirmed`: twice as many fresh runs are tested at 0.02. `strict`: no fresh runs, a p-value of
  0.001. `anytime`: a look after every pair, an e-value of 1,000.
- The claim is 1-GDP, and (1, 0)-DP for randomised response. The learned score is that of audits
  with `neighbours`, trained on 48 pilot runs.
"""

BOUNDARY_WORDS = """\
Share of audits with a p-value of `dpaudit.test_claim` of 0.05 or less, in per cent. Each mechanism
meets its claim with equality, and the scores are the most informative ones possible.
"""


def _cell_table(results: Results) -> str:
    rows = [
        [row.test, row.scores, f"{row.audits:,}", _rate(row.wrong, row.audits), f"{row.declined:,}"]
        for row in results.cells
        if row.table == "cells"
    ]
    return _table(["test", "scores", "audits", "false, %", "declined"], rows)


def _coin_table(results: Results) -> str:
    assuming = ("independent", "gaussian-dp", "clopper", "`test_claim`")
    rows = [
        [
            row.test,
            f"{row.audits:,}",
            "yes" if any(word in row.test for word in assuming) else "no",
            _rate(row.wrong, row.audits),
        ]
        for row in results.cells
        if row.table == "coin"
    ]
    return _table(["test", "audits", "assumes independent canaries", "false, %"], rows)


def _alarm_table(results: Results) -> str:
    rows = [
        [
            row.rule,
            row.scores,
            f"{row.runs:,}",
            str(row.tensors),
            f"{row.audits:,}",
            f"{100 * row.suspected / row.audits:.1f}",
            f"{100 * row.violations / row.audits:.3g}",
        ]
        for row in results.alarms
    ]
    header = ["rule", "scores", "first runs", "tensors", "audits", "suspected, %", "violation, %"]
    return _table(header, rows)


def _limit(audits: int) -> float:
    return NOMINAL + 3 * math.sqrt(NOMINAL * (1 - NOMINAL) / audits)


def _rate(false: int, audits: int) -> str:
    text = f"{100 * false / audits:.1f}"
    return f"**{text}**" if false / audits > _limit(audits) else text


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|---|" + "---:|" * (len(header) - 1)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


def _method_table(results: Results) -> str:
    """For each method its largest rate, over Gaussian and over other scores."""
    rows = []
    for label in dict.fromkeys(row.contestant for row in results.rows):
        shares = [_largest(results, label, gaussian=gaussian) for gaussian in (True, False)]
        name = NAMED.get(label, label)
        proven = " ✓" if label in ALWAYS else " (Gaussian ✓)" if label in IF_GAUSSIAN else ""
        rows.append([name + proven, *shares])
    return _table(["method", "Gaussian scores", "other scores"], rows)


def _largest(results: Results, label: str, *, gaussian: bool) -> str:
    chosen = [
        row
        for row in results.rows
        if row.contestant == label and row.family.startswith("Gaussian") == gaussian
    ]
    if not chosen:
        return ""
    worst = max(chosen, key=lambda row: row.false_claims / row.audits)
    return _rate(worst.false_claims, worst.audits)


def _boundary_table(results: Results) -> str:
    rows = []
    for name, _, _ in BOUNDARY:
        at = {row.each: row for row in results.claims if row.claim == name and row.noise == 1}
        rates = [_rate(at[each].alarms, at[each].audits) for each in SIZES]
        rows.append([name, f"{at[SIZES[0]].audits:,}", *rates])
    return _table(["claim", "audits", *(f"{each:,} a side" for each in SIZES)], rows)


def _power_words(results: Results) -> str:
    rows = [row for row in results.claims if row.test == "clopper-pearson"]
    alarms, audits = sum(row.alarms for row in rows), sum(row.audits for row in rows)
    return (
        "The power of the test of a claim is shown [above](#testing-a-claim), from "
        f"{results.power_audits} audits of each\nsetting. `clopper-pearson` was above the claimed "
        f"epsilon {alarms} times in {audits:,} audits with too\nlittle noise. Without assumptions, "
        "a bound on epsilon at a small delta does not detect such faults.\n"
    )
