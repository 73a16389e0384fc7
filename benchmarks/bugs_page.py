"""What bugs.py measured and the docstrings of examples/bugs, as the catalogue of the docs."""

from __future__ import annotations

import re
import sys
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

from scipy import special

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
    _, *pieces = re.split(r"\n([A-Z][a-z ]+): ", docstring(name))
    return {
        key: " ".join(text.split()) for key, text in zip(pieces[::2], pieces[1::2], strict=True)
    }


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


def catalogue(rows: list[Row]) -> str:
    """The catalogue, as Markdown."""
    wrong = [row for row in rows if not row["name"].startswith("correct.")]
    right = [row for row in rows if row["name"].startswith("correct.")]
    detected = [row for row in wrong if "until" in row]
    undetected = [row for row in wrong if "until" not in row]
    slowest = max(audit["seconds"] for row in detected for audit in row["until"])
    return "\n".join(
        [
            INTRODUCTION.format(wrong=len(wrong), right=len(right), detected=len(detected)),
            DETECTED.format(
                most=f"{_most_runs(detected):,}",
                slowest=f"{slowest:.0f}",
                fixed=_flagged(detected, "fixed"),
                many=_flagged(detected, "many"),
            ),
            _detected_table(detected),
            GROSS.format(**_gross(detected)),
            "### Bugs that the output does not reveal\n",
            _undetected_table(undetected),
            UNDETECTED,
            "### Correct trainings\n",
            CORRECT.format(**_alarms(right)),
            _correct_table(right),
            _checks_of_correct(right),
        ]
    )


INTRODUCTION = """\
`examples/bugs` has {wrong} wrong DP-SGD trainings, each a small file that follows a reported bug or
one that a reviewer planted, and {right} correct ones, some of them unusual. {detected} of the wrong
ones leak into their output. All train the same network (8-48-48-2, 2,882 parameters) on California
Housing for 8 to 16 steps, and differ from `bugs/correct/plain.py` in one or two lines. Each file
says what leaks, and how to correct it. To run one:

```bash
cd examples
python -m bugs.variance_for_deviation
dpaudit audit bugs.variance_for_deviation:train --noise-multiplier 3 --steps 9 \\
  --canary bugs.variance_for_deviation:canary --until-violation --runs 1000
dpaudit check bugs.variance_for_deviation:train --clip-norm 1 --noise-multiplier 3 --parameters 2882
```
"""

DETECTED = """\
### Bugs that an audit detects

- "Runs": how many trainings `audit(…, until_violation=True)` needed to refute the claim at a level
  of 5 %, the median of five audits and the largest. At most {most} runs and {slowest} s. The
  default level of 0.1 % needs more.
- "Check": the rules that `dpaudit check` reports as broken, from about 240 short trainings.

An audit of 200 trainings has a p-value of at most 0.05 for {fixed}. One training with 1,000
canaries, which are assumed to be independent, has one for {many}; noise that is the same in every
run does not show in one run. The other bugs need a canary of another kind, or the iterates.
"""

GROSS = """\
Large bugs (no noise, no clipping, the mean of the batch clipped, noise scaled by 1/B) are detected
with {runs} trainings. From one training with 2,800 canaries, `one-run`, which is valid under any
dependence of the canaries, proves epsilon {bounds} (medians of five trainings) of a claimed
{claimed}; for the clipped mean {mean}, because there the canaries share one clip norm.
"""

UNDETECTED = """\
Not in the catalogue, and not found by any audit of the trained model: floating-point noise whose
low bits reveal the data (Mironov 2012), hyperparameters chosen on the private data
([arXiv 2110.03620](https://arxiv.org/abs/2110.03620)), examples in place of people as the unit.

Early stopping, or a checkpoint that is chosen by the loss of the training data, is found if the
canary takes part in that loss, as in `checkpoint_chosen_on_training_data`, and by
`dpaudit check --pipeline`.
"""

CORRECT = """\
Each was audited {repetitions} times with {runs} trainings and, if it supports many canaries,
{repetitions} times with one training of 1,000 canaries. One audit in 20 may be a false alarm, so
more than {limit} in {repetitions} would be too many (probability {tail} %). There were {alarms}
false alarms in {audits} audits, {share} %, at most {worst} in a series of {repetitions}.
"""


def _most_runs(rows: list[Row]) -> int:
    return max(audit["runs"] for row in rows for audit in row["until"])


def _detected_table(rows: list[Row]) -> str:
    lines = [
        "| bug | what is wrong | source | runs | check |",
        "|---|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda row: (_median(row), row["name"])):
        largest = max(audit["runs"] for audit in row["until"])
        lines.append(f"| {_named(row)} | {_median(row):,}, {largest:,} | {_broken(row)} |")
    return "\n".join(lines) + "\n"


def _undetected_table(rows: list[Row]) -> str:
    lines = [
        "| bug | what is wrong | source | check | what finds it |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        found_by = parts(row["name"])["Found by"]
        lines.append(f"| {_named(row)} | {_broken(row)} | {found_by} |")
    return "\n".join(lines) + "\n"


def _named(row: Row) -> str:
    """The first cells of a row: the bug, what is wrong, and where it was reported."""
    name = row["name"]
    return f"`{name}` | {title(name).removesuffix('.')} | {references(name)}"


def _correct_table(rows: list[Row]) -> str:
    lines = ["| training | why it is correct |", "|---|---|"]
    for row in rows:
        name = row["name"]
        why = parts(name)["Right because"]
        lines.append(f"| `{name.removeprefix('correct.')}` | {why} |")
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
    alarms, audits = sum(map(_count, series)), sum(map(len, series))
    return {
        "repetitions": str(repetitions),
        "runs": str(rows[0]["runs"]),
        "limit": str(limit),
        "tail": f"{100 * _tail(repetitions, limit):.1f}",
        "alarms": str(alarms),
        "audits": f"{audits:,}",
        "share": f"{100 * alarms / audits:.1f}",
        "worst": str(max(map(_count, series))),
    }


def _tail(trials: int, most: int) -> float:
    """Probability of more than ``most`` alarms, if each audit has one with probability 5 %."""
    return float(special.bdtrc(most, trials, NOMINAL))


def _count(p_values: list[float]) -> int:
    return sum(p_value <= NOMINAL for p_value in p_values)


def _median(row: Row) -> int:
    return int(median(audit["runs"] for audit in row["until"]))


def _flagged(rows: list[Row], key: str) -> str:
    """For how many bugs an audit has a p-value of at most 5 %, and for which it has not."""
    audited = [row for row in rows if row.get(key)]
    missed = [row["name"] for row in audited if row[key]["p_value"] > NOMINAL]
    names = ", ".join(f"`{name}`" for name in missed)
    return f"{len(audited) - len(missed)} of {len(audited)}" + (f" (not {names})" if names else "")


def _broken(row: Row) -> str:
    if "check" not in row:
        return "not applicable: the check inserts gradients"
    warnings = [f"{rule} (warning)" for rule in row["check"].get("warnings", ())]
    return ", ".join([*row["check"]["broken"], *warnings]) or "nothing"
