"""Render what bugs.py measured, and the docstrings of examples/bugs, as the page docs/bugs.md."""

from __future__ import annotations

import re
import sys
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

from scipy import special

from dpaudit._version import __version__

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "examples"))

NOMINAL = 0.05
PARTS = ("Bug", "Source", "Leak", "Fix", "Found by")  # of a docstring
_REFERENCE = re.compile(r"(?:([\w.-]+/[\w.-]+) )?(?:PR )?#(\d+)|arXiv (\d{4}\.\d{5})")
_CODE = re.compile(r"([\w.-]+/[\w.-]+), [\w./]+\.py")

Row = dict[str, Any]


def docstring(name: str) -> str:
    """The docstring of a training, without importing torch."""
    spec = find_spec(f"bugs.{name}")
    text = Path(spec.origin).read_text()  # type: ignore[union-attr,arg-type]
    return text.split('"""')[1].strip()


def title(name: str) -> str:
    """The first line of the docstring."""
    return docstring(name).splitlines()[0]


def parts(name: str) -> dict[str, str]:
    """The named parts of a docstring, each as one line."""
    found = re.split(r"\n([A-Z][a-z ]+): ", docstring(name))
    return {key: " ".join(text.split()) for key, text in zip(found[1::2], found[2::2], strict=True)}


def references(name: str) -> str:
    """The sources of a docstring as links."""
    source = parts(name).get("Source", "")
    links = [f"[{code}](https://github.com/{code})" for code in _CODE.findall(source)]
    repository = ""
    for owner, number, paper in _REFERENCE.findall(source):
        if paper:
            links.append(f"[arXiv {paper}](https://arxiv.org/abs/{paper})")
            continue
        repository = owner or repository
        links.append(f"[{repository} #{number}](https://github.com/{repository}/issues/{number})")
    return ", ".join(links) or "planted by a reviewer"


def page(rows: list[Row]) -> str:
    """The whole page, as Markdown."""
    wrong = [row for row in rows if not row["name"].startswith("correct.")]
    right = [row for row in rows if row["name"].startswith("correct.")]
    seen = [row for row in wrong if "until" in row]
    unseen = [row for row in wrong if "until" not in row]
    slowest = max(max(one["seconds"] for one in row["until"]) for row in seen)
    return "\n".join(
        [
            INTRODUCTION.format(
                wrong=len(wrong), right=len(right), seen=len(seen), old=OLD if _old(rows) else ""
            ),
            SEEN.format(most=f"{_most_runs(seen):,}", slowest=f"{slowest:.0f}"),
            _seen_table(seen),
            GROSS.format(**_gross(seen)),
            "## Bugs that the output does not reveal\n",
            _unseen_table(unseen),
            UNSEEN,
            "## Correct trainings\n",
            CORRECT.format(**_alarms(right)),
            _correct_table(right),
            _checks_of_correct(right),
            "## What is wrong in each\n",
            _descriptions(wrong),
        ]
    )


INTRODUCTION = """\
<!-- Written by benchmarks/bugs.py; do not edit. -->
# A catalogue of real bugs

`examples/bugs` has {wrong} wrong DP-SGD trainings, each a small file that follows a reported
bug or one that a reviewer planted, and {right} correct ones, some of them unusual. All train the
same network (8-48-48-2, 2,882 parameters) on California Housing for 8 to 16 steps, in 5 to 40 ms,
and differ from `bugs/correct/plain.py` in one or two lines. {seen} of the wrong ones leak into
their output.{old} To run one:

```bash
cd examples
python -m bugs.variance_for_deviation
dpaudit audit bugs.variance_for_deviation:train --noise-multiplier 3 --steps 9 \\
  --canary bugs.variance_for_deviation:canary --until-violation
dpaudit check bugs.variance_for_deviation:train --clip-norm 1 --noise-multiplier 3 --parameters 2882
```
"""

OLD = """ The audits of rows marked ¹ were run before the test of claims was sharpened, and were not
repeated; numbers of runs and p-values may differ."""

SEEN = """\
## Bugs that an audit detects

- "Runs" is the number of trainings that `audit(…, until_violation=True)` needed to prove a
  violation at 95 % confidence: the median of five audits, and the largest.
- "Seconds" is the time of the slowest of them on one core.
- "200 runs" is the verdict of an audit of fixed size, with its p-value.
- "One training" is the verdict for a single training with 1,000 canaries, each along its own
  axis. It assumes independent canaries and cannot detect noise that is the same in every run. A
  dash means that the bug needs a canary of another kind, or the iterates, and that such a
  training has one canary.
- "Check" lists the rules that `dpaudit check` reports as broken, from about 240 short
  trainings and without statistics of scores.

The largest number of runs is {most}, and the slowest audit took {slowest} s.
"""

GROSS = """\
Large bugs (no noise, no clipping, the mean of the batch clipped, noise scaled by 1/B) are
detected with {runs} trainings, and with one training of 1,000 canaries if these are assumed to
be independent. The bound that is valid under any dependence of the canaries (`one-run`) proves
epsilon {bounds} from one training with 2,800 canaries (each value is the median of five such
trainings); the claim is {claimed}. For the clipped mean it proves {mean}, because there the
canaries share one clip norm.
"""

UNSEEN = """\
Each was audited once. A violation with a p-value just below 0.05 is no detection: one audit in
twenty of a correct training gives it by chance.

Similar bugs that are not in the catalogue: floating-point noise whose low bits reveal the data
(Mironov 2012), hyperparameters chosen on the private data without accounting for the choice
([arXiv 2110.03620](https://arxiv.org/abs/2110.03620)), and a privacy unit that readers
misunderstand (examples instead of people). A code review can find these; no audit of the trained
model does.

Early stopping, a learning rate or a checkpoint that is chosen by the loss of the training data is
found only if the canary takes part in that loss, as in `checkpoint_chosen_on_training_data`. A
canary that is only a gradient has no loss: the choice then looks at the other examples, which the
adversary of an audit knows anyway. `dpaudit check --pipeline` finds such
a choice: the released models of two data sets are then equal unless the data are read once more.
"""

CORRECT = """\
Each was audited {repetitions} times with {runs} trainings and, if it supports many canaries,
{repetitions} times with one training of 1,000 canaries. At 95 % confidence one audit in 20 may
be a false alarm, so more than {limit} false alarms in {repetitions} audits would be too many
(probability {tail} %). There were {alarms} false alarms in {audits} audits, {share} %.
"""


def _age(row: Row) -> str:
    """A mark on audits that were not repeated with this version."""
    return "" if row.get("audited_with") == __version__ else " ¹"


def _old(rows: list[Row]) -> bool:
    return any(_age(row) for row in rows)


def _most_runs(rows: list[Row]) -> int:
    return max(one["runs"] for row in rows for one in row["until"])


def _seen_table(rows: list[Row]) -> str:
    lines = [
        "| bug | source | runs: median, largest | seconds | 200 runs | one training | check |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda row: (_median(row), row["name"])):
        seconds = max(one["seconds"] for one in row["until"])
        largest = max(one["runs"] for one in row["until"])
        lines.append(
            f"| `{row['name']}`{_age(row)} | {references(row['name'])} "
            f"| {_median(row):,}, {largest:,} "
            f"| {seconds:.1f} | {_verdict(row['fixed'])} | {_verdict(row.get('many'))} "
            f"| {_broken(row)} |"
        )
    return "\n".join(lines) + "\n"


def _unseen_table(rows: list[Row]) -> str:
    lines = ["| bug | source | 200 runs | check | what finds it |", "|---|---|---|---|---|"]
    for row in rows:
        name = row["name"]
        lines.append(
            f"| `{name}`{_age(row)} | {references(name)} | {_verdict(row['fixed'])} "
            f"| {_broken(row)} | {parts(name)['Found by']} |"
        )
    return "\n".join(lines) + "\n"


def _correct_table(rows: list[Row]) -> str:
    lines = [
        f"| training | why it is correct | false alarms, {rows[0]['runs']} runs "
        "| false alarms, one training |",
        "|---|---|---|---|",
    ]
    for row in rows:
        name = row["name"]
        many = _count(row["many_p_values"]) if "many_p_values" in row else "-"
        lines.append(
            f"| `{name.removeprefix('correct.')}`{_age(row)} | {parts(name)['Right because']} "
            f"| {_count(row['p_values'])} | {many} |"
        )
    return "\n".join(lines) + "\n"


def _checks_of_correct(rows: list[Row]) -> str:
    flagged = [row for row in rows if row.get("check", {}).get("broken")]
    if not flagged:
        return "`dpaudit check` reports no broken rule in any of them.\n"
    words = "; ".join(
        f"`{row['name'].removeprefix('correct.')}`: {_broken(row)}" for row in flagged
    )
    return (
        f"`dpaudit check` reports a broken rule in {len(flagged)} of them: {words}. For the "
        "trainings with Opacus this is correct: Opacus 1.6 does not remove a NaN gradient, and an "
        "audit with finite canaries does not test this.\n"
    )


def _gross(rows: list[Row]) -> dict[str, str]:
    gross = [row for row in rows if "assuming_nothing" in row]
    epsilons = {row["name"]: median(row["assuming_nothing"]["epsilons"]) for row in gross}
    mean = epsilons.pop("batch_mean_clipped")
    return {
        "runs": f"at most {_most_runs(gross)}",
        "bounds": ", ".join(f"{epsilon:.2f}" for epsilon in sorted(epsilons.values())),
        "claimed": f"{gross[0]['claimed_epsilon']:.2f}",
        "mean": f"{mean:.2f}",
    }


def _alarms(rows: list[Row]) -> dict[str, str]:
    series = [row[key] for row in rows for key in ("p_values", "many_p_values") if key in row]
    repetitions = len(series[0])
    limit = next(k for k in range(repetitions) if _tail(repetitions, k) < NOMINAL)
    alarms, audits = sum(_count(one) for one in series), sum(len(one) for one in series)
    return {
        "repetitions": str(repetitions),
        "runs": str(rows[0]["runs"]),
        "limit": str(limit),
        "tail": f"{100 * _tail(repetitions, limit):.1f}",
        "alarms": str(alarms),
        "audits": f"{audits:,}",
        "share": f"{100 * alarms / audits:.1f}",
    }


def _tail(trials: int, most: int) -> float:
    """Probability of more than ``most`` alarms, if each audit has one with probability 5 %."""
    return float(special.bdtrc(most, trials, NOMINAL))


def _count(p_values: list[float]) -> int:
    return sum(p_value <= NOMINAL for p_value in p_values)


def _median(row: Row) -> int:
    return int(median(one["runs"] for one in row["until"]))


def _verdict(result: Row | None) -> str:
    if result is None:
        return "-"
    return f"{result['verdict']}, {result['p_value']:.1g}"


def _broken(row: Row) -> str:
    if "check" not in row:
        return "not applicable: the check inserts gradients"
    warnings = [f"{rule} (warning)" for rule in row["check"].get("warnings", ())]
    return ", ".join([*row["check"]["broken"], *warnings]) or "nothing"


def _descriptions(rows: list[Row]) -> str:
    """A row for each bug; its file says more: the leak, and what finds it."""
    lines = ["| file in `examples/bugs` | what is wrong | fix |", "|---|---|---|"]
    for name in sorted(row["name"] for row in rows):
        wrong, fix = title(name).removesuffix("."), parts(name)["Fix"].removesuffix(".")
        lines.append(f"| `{name}.py` | {wrong} | {fix.replace('|', chr(92) + '|')} |")
    return "\n".join(lines) + "\n"
