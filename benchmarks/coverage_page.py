"""Render the results of coverage.py as the page docs/coverage.md."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import final

from coverage_alarms import AlarmRow
from coverage_bounds import (
    GAUSSIAN_ONLY,
    PROFILE,
    SETTINGS,
    SIZES,
    WHOLE_CURVE,
    Row,
    Setting,
)
from coverage_cells import ACCURACY, COIN_CANARIES, SHARE, CellRow, common_coin_mu
from coverage_claims import BOUNDARY, NOISE, POWER_CLAIMS, POWER_SIZES, ClaimRow

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


def page(results: Results) -> str:
    """The whole page, as Markdown."""
    gaussian, others = SETTINGS[:3], SETTINGS[3:]
    parts = [
        INTRODUCTION.format(
            audits=f"{results.audits:,}",
            limit=f"{100 * _limit(results.audits):.1f}",
            fewer=f"{results.audits // 4:,}",
            minutes=f"{results.core_seconds / 60:.0f}",
            power=f"{results.power_audits:,}",
        ),
        "## Sharpened tests\n",
        CELL_WORDS,
        _cell_table(results),
        "\n## Canaries that depend on a common coin\n",
        COIN_WORDS,
        _coin_table(results),
        *(["\n## Alarms\n", ALARM_WORDS, _alarm_table(results)] if results.alarms else []),
        *([] if _current(results) else [OUTDATED]),
        "\n## Gaussian scores\n",
        GAUSSIAN_WORDS,
        _gaussian_table(results, gaussian),
        "\nMean of the bounds, to show how tight they are. The first row is the exact epsilon.\n",
        _mean_table(results, gaussian),
        "\n## Scores with other distributions\n",
        OTHER_WORDS,
        *(_family_table(results, setting) for setting in others),
        "## Testing a claim that is met exactly\n",
        BOUNDARY_WORDS,
        _boundary_table(results),
        "\n## Detecting noise that is too small\n",
        POWER_WORDS.format(power=f"{results.power_audits:,}"),
        _single_bound_words(results),
        *(_power_table(results, name) for name, _, _ in POWER_CLAIMS),
    ]
    return "\n".join(parts)


INTRODUCTION = """\
<!-- Written by benchmarks/coverage.py; do not edit. -->
# False claims, measured

A lower bound at 95 % confidence may be above the true epsilon in 5 % of audits. Here the true
epsilon is known exactly, so such false claims can be counted. Each cell is {audits} simulated
audits. Methods without a guarantee use {fewer} or fewer, except `best` with `gaussian-dp`. All
numbers come from the public functions with their defaults.

A tick means that the method has a theorem for these scores. Its rate must then be at most
{limit} %: 5 % plus three standard errors. **Bold** marks a rate above 5 % plus three standard
errors for its own number of audits.

The whole page took {minutes} minutes of processor time on a busy machine with two cores:

```
OMP_NUM_THREADS=1 python benchmarks/coverage.py
```
"""

OUTDATED = """
*The tables below were measured before 0.2.0, in which `clopper-pearson`, `gaussian-dp` and the test
of a claim became joint tests of both error rates and one-run plans changed. Bounds and power are
larger now. Run `python benchmarks/coverage.py` to measure them again.*
"""

CELL_WORDS = """\
Each mechanism has exactly the epsilon or mu that is tested, so that false claims are as frequent
as they get. "Declined" counts audits in which the method refused the scores, for example because
the coins did not look fair.
"""

COIN_WORDS = f"""\
One run with {COIN_CANARIES:,} canaries. A common coin, with probability {SHARE:g}, switches all
canaries to randomised response of accuracy {ACCURACY:g}; otherwise the scores are pure noise. Each
canary is {common_coin_mu():.3f}-GDP, so 1-GDP is true. Methods that assume independent canaries
say so in their output. They are often wrong here when the coin switches, and more so with more
canaries.
The others are valid for any dependence. False claims in per cent:
"""

ALARM_WORDS = """\
A violation ends builds, so a p-value of 0.05 only raises a suspicion ([the
rule](choosing-a-bound.md#suspicion-and-violation)). The table has the share of simulated audits in
which the first runs (with `anytime`, the runs so far) made the claim suspected, and in which the
rule called a violation. `whole` are audits of a training function with the coins, seeds, sizes and
stages of `dpaudit.audit`; every 400th was also played by it, with the same verdict. The other rows
draw scores. The `learned score` is that of audits with `neighbours`: 48 pilot runs train it, the
first runs and the fresh ones test it. `confirmed` tests twice as many fresh runs at 0.02; `strict`
has no fresh runs and needs a p-value of 0.001; `anytime` looks after every pair and needs a wealth
of 1,000. The claim is 1-GDP, and (1, 0)-DP for randomised response. Where it is met exactly, at
most 0.1 % of audits may end in a violation; three standard errors are 0.07 % of 20,000 audits.
"""

GAUSSIAN_WORDS = """\
False claims in per cent, delta = 1e-5, for 50, 500 and 2,500 scores a side. At mu = 0 nothing
leaks, so any epsilon above 0 is a false claim. The threshold rule is `pilot` unless another is
named.
"""

OTHER_WORDS = """\
False claims in per cent. All of these families attain their epsilon at some threshold. The
two-point mixture attains it at *every* threshold, which is the hardest case for a threshold that
was selected on the same scores. `one-run` uses fair coins and twice as many canaries as scores a
side. The assumption of the Gaussian methods is false here, and so are most of their claims. The
subsampled Gaussian is an exception: there their bounds are far too small.
"""

BOUNDARY_WORDS = """\
Share of audits with a p-value of `dpaudit.test_claim` of 0.05 or less, in per cent. Each mechanism
meets its claim with equality, and the scores are the most informative ones possible.
"""

POWER_WORDS = """\
Share of {power} audits, in per cent, that raise an alarm when the noise is 10, 20 or 30 % too
small: a p-value of `test_claim` of 0.05 or less. Scores are Gaussian. The test assumes nothing
about the scores and tests the whole trade-off function. For comparison, an alarm of `gaussian-dp`
is a lower bound above the claimed epsilon at delta = 1e-5; it assumes a Gaussian trade-off
function.
"""


def _current(results: Results) -> bool:
    """Whether the stored tables have all contestants of this version."""
    stored = {row.contestant for row in results.rows}
    return all(who.label in stored for setting in SETTINGS for who in setting.contestants)


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


def _labels(setting: Setting) -> list[str]:
    """Contestants in their order of the page, those of the profile after clopper-pearson."""
    labels = [who.label for who in setting.contestants]
    return [labels[0], PROFILE, WHOLE_CURVE, *labels[1:]]


def _shown(label: str, promised: Sequence[str]) -> str:
    return f"{NAMED.get(label, label)} {'✓' if label in promised else ''}".strip()


def _find(results: Results, setting: Setting, each: int, delta: float, label: str) -> Row | None:
    for row in results.rows:
        place = (row.family, row.each, row.delta, row.contestant)
        if place == (setting.family.name, each, delta, label):
            return row
    return None


def _gaussian_columns(settings: Sequence[Setting]) -> list[str]:
    return [
        f"{setting.family.name.removeprefix('Gaussian, ')}: {each:,}"
        for setting in settings
        for each in SIZES
    ]


def _gaussian_table(results: Results, settings: Sequence[Setting]) -> str:
    rows = []
    for label in _labels(settings[0]):
        cells = [
            _find(results, setting, each, setting.deltas[0], label)
            for setting in settings
            for each in SIZES
        ]
        rates = [_rate(row.false_claims, row.audits) if row else "" for row in cells]
        rows.append([_shown(label, (*ALWAYS, *IF_GAUSSIAN)), *rates])
    return _table(["method", *_gaussian_columns(settings)], rows)


def _mean_table(results: Results, settings: Sequence[Setting]) -> str:
    truths = [
        f"{setting.family.epsilon(setting.deltas[0]):.2f}" for setting in settings for _ in SIZES
    ]
    rows = [["*exact epsilon*", *truths]]
    for label in _labels(settings[0]):
        if label != WHOLE_CURVE:
            cells = [
                _find(results, setting, each, setting.deltas[0], label)
                for setting in settings
                for each in SIZES
            ]
            means = [f"{row.total_epsilon / row.audits:.2f}" if row else "" for row in cells]
            rows.append([NAMED.get(label, label), *means])
    return _table(["method", *_gaussian_columns(settings)], rows)


def _family_table(results: Results, setting: Setting) -> str:
    header = ["method"]
    header += [f"delta = {delta:g}: {each:,}" for delta in setting.deltas for each in SIZES]
    gaussian = {who.label for who in GAUSSIAN_ONLY}
    rows = []
    for label in _labels(setting):
        cells = [
            _find(results, setting, each, delta, label)
            for delta in setting.deltas
            for each in SIZES
        ]
        shown = _shown(label, ALWAYS)
        if label in gaussian:
            shown += " (assumption false)"
        rates = [_rate(row.false_claims, row.audits) if row else "" for row in cells]
        rows.append([shown, *rates])
    exact = ", ".join(
        f"{setting.family.epsilon(delta):.4f} at delta = {delta:g}" for delta in setting.deltas
    )
    name = setting.family.name
    title = f"### {name[0].upper()}{name[1:]}\n\nExact epsilon: {exact}.\n"
    return f"{title}\n{_table(header, rows)}"


def _boundary_table(results: Results) -> str:
    rows = []
    for name, _, _ in BOUNDARY:
        found = {row.each: row for row in results.claims if row.claim == name and row.noise == 1}
        audits = f"{found[SIZES[0]].audits:,}"
        rows.append(
            [name, audits, *(_rate(found[each].alarms, found[each].audits) for each in SIZES)]
        )
    return _table(["claim", "audits", *(f"{each:,} a side" for each in SIZES)], rows)


def _power_table(results: Results, name: str) -> str:
    rows = []
    for noise in NOISE:
        for test in ("test_claim", "gaussian-dp"):
            found = {
                row.each: row
                for row in results.claims
                if (row.claim, row.noise, row.test) == (name, noise, test)
            }
            if found:
                shares = [f"{100 * found[n].alarms / found[n].audits:.0f}" for n in POWER_SIZES]
                rows.append([f"{100 * (1 - noise):.0f} % too small, {test}", *shares])
    header = ["scores a side", *(f"{each:,}" for each in POWER_SIZES)]
    return f"### Claim: {name}\n\n{_table(header, rows)}"


def _single_bound_words(results: Results) -> str:
    rows = [row for row in results.claims if row.test == "clopper-pearson"]
    alarms, audits = sum(row.alarms for row in rows), sum(row.audits for row in rows)
    return (
        f"`clopper-pearson` was above the claimed epsilon {alarms} times in {audits:,} audits:"
        "\nwithout assumptions, a bound on epsilon at a small delta does not detect such faults.\n"
    )
