"""docs/field.md from the results. What is not public yet is named by its class only."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "field.md"

INTRODUCTION = """\
# The field, audited

Do the libraries that people use for differential privacy keep what they claim? Each row is one way of using one
library. `make field` runs them all, with the adapters in `field/adapters`.

- *Kept*: the rules of `dpaudit check` passed, or an audit is consistent with the claim. This is no proof.
- *Broken*: a rule is broken or the claim is refuted, and the library's code shows why.
- *Cannot tell*: neither.

Where nothing is said, the evidence is `dpaudit check`, whose rules passed, and noise multiplier 1 and clip norm 1 are claimed.

Until its maintainers have answered or 90 days have passed, a cause that is not public appears without the library's name.
"""

ADD = """
## Add a library

One table in `field/libraries.toml` says how the library is installed into a folder of its own. One file in
`field/adapters`, named like the table, holds its cases. A library that takes per-example gradients, or a model and a
batch, needs ten lines:

```python
import torch
from mylibrary import PrivateOptimizer

from field.kit import case
from field.parts import CLIP, SIGMA, check_step, flat, linear_model, seed_everything


@case("private SGD", claims="noise multiplier 1, clip norm 1")
def private_sgd():
    def step(gradients, seed):
        seed_everything(seed)
        model = linear_model()  # the gradient of its output is the example itself
        optimizer = PrivateOptimizer(model.parameters(), SIGMA, CLIP)
        model(torch.as_tensor(gradients, dtype=torch.float32)).sum().backward()
        optimizer.step()
        return flat(model.parameters())

    return check_step(step)
```

A case may also return the result of `dpaudit.audit`, `dpaudit.live_audit` or `dpaudit.test_claim`. If it should be broken, give
`expected="broken"`, the `cause` with file and line for the maintainers, and the `class_of_bug` for this page.

A run writes `field/receipts/NAME.receipt.json` with all findings: `dpaudit verify` checks it ([receipts](receipts.md)).
"""

OTHERS = """
## Other tools

When to use other open-source tools in place of dpaudit or beside it, to the best of our knowledge. Their own documentation is
the reference. All of them have more users, and more people have read their code.

| tool | what it is for | use it in place of dpaudit if |
|---|---|---|
| jax-privacy | training in JAX, and auditing from canary scores (`CanaryScoreAuditor`): Clopper-Pearson, Gaussian DP, one run, f-DP, thresholds by Bonferroni or a split. The Gaussian bound of 2.0.0 is wrong and repaired on its main branch | you train with it and already have canary scores |
| tensorflow-privacy | training in TensorFlow, membership inference tests, Clopper-Pearson and ratio intervals (Katz, Bailey, inverse sinh) | you train in TensorFlow and want an attack report for an existing model |
| Opacus | training in PyTorch | you want to *train*; dpaudit audits an [Opacus training](libraries.md#opacus) without editing it |
| ml_privacy_meter | membership inference for trained models, with reports; one-run audits | your model claims no differential privacy |
| PrivacyGuard (Meta) | privacy attacks and analyses, one-run f-DP audits, plots | you need attacks on models without a privacy claim |
| privacy-estimates (Microsoft) | Bayesian and Clopper-Pearson estimates of epsilon from attack results; runs on one vendor's cluster | you need its pipelines on that cluster; dpaudit has its estimators |
| bb-audit-dpsgd | black-box audits of DP-SGD that train the models and can be resumed; Gaussian DP | you want to repeat the experiments of its paper |
| opake-auditing (JetBrains) | Gaussian DP and one-run audits | your audit is part of that project |
| dp_auditorium (Google) | testing of mechanisms for violations of differential privacy | your mechanism is a query or a small function |
| dp-recorder | finding bugs in differential privacy libraries | you develop such a library and test its primitives |
| onerun, dpsgd-auditbench | one-run audits of DP-SGD, and benchmarks of them | you compare one-run audits with the published ones |
| memaudit | canaries and memorisation in language models | your question is what a language model repeats |
| LeakPro | membership inference and reconstruction attacks with reports | your model claims no differential privacy |
| sequential f-DP auditing (arXiv 2602.06518, 2509.07055) | stopping as soon as a violation is shown | your mechanism is cheap to call again and again |

We know of no other tool that audits the final model with crafted gradients and landscapes, trains thousands of models at once,
computes the exact privacy of crafted landscapes, or goes from a training function to a verdict in one call.

**Scores move between tools.** `dpaudit estimate` reads `memaudit-report.json`, and as JSON files the output of PrivacyGuard's
`ScoreAnalysisNode` and the arguments of jax-privacy's `CanaryScoreAuditor`. All three are canaries of one training, whose
independence the bounds then name as an assumption. Other scores are a CSV file with the columns `score` and `inserted`, and counts are enough, too:

```
dpaudit estimate --true-positives 420 --false-negatives 80 --false-positives 60 --true-negatives 440 --delta 1e-5
```
"""


USUAL_EVIDENCE, USUAL_CLAIM = "`check`: rules passed", "noise multiplier 1, clip norm 1"


def results() -> list[dict[str, Any]]:
    """All stored results, in the order of libraries.toml."""
    from field.run import libraries

    files = [HERE / "results" / f"{name}.json" for name in libraries()]
    return [json.loads(file.read_text()) for file in files if file.is_file()]


def shown(case: dict[str, Any]) -> str:
    """What the evidence is, in a few words."""
    if "shown_epsilon" in case:
        claimed = f" of {case['claimed_epsilon']:g}" if "claimed_epsilon" in case else ""
        return f"epsilon >= {case['shown_epsilon']:.2f}{claimed}"
    if "p_value" in case:
        return f"p = {case['p_value']:.2g}"
    if case.get("broken"):
        return "; ".join(finding["rule"] for finding in case["broken"])
    untested = len(case.get("not_tested", []))
    return f"rules passed{f', {untested} not tested' if untested else ''}"


def hidden(case: dict[str, Any]) -> bool:
    return case["status"] == "broken" and not case["public"]


def table(libraries: list[dict[str, Any]]) -> list[str]:
    """A row for each case that may be named, then the classes of the others."""
    rows = [
        "| library | way of using it | status | evidence | claimed |",
        "|---|---|---|---|---|",
    ]
    classes = []
    for library in libraries:
        name = " ".join([library["library"], *library.get("version", "").split()])
        for case in library["cases"]:
            if hidden(case):
                classes.append(
                    f"| {case['class_of_bug']} | {case.get('by', '')} | {shown(case)} | not yet |"
                )
                continue
            status = case["status"]
            if case["public"]:
                status = f"**{status}**: {case['cause']} ({case['public']})"
            elif case.get("error"):
                status = f"{status}: {case['error']}"
            evidence = f"{case['by']}: {shown(case)}" if case.get("by") else shown(case)
            evidence = "" if evidence == USUAL_EVIDENCE else evidence
            claims = "" if case["claims"] == USUAL_CLAIM else case["claims"]
            cells = (name, case["way"], status, evidence, claims)
            rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    if classes:
        rows += [
            "",
            "## Broken, not public yet",
            "",
            "A text for the maintainers is ready for each of them.",
            "",
            "| what | asked by | evidence | reported |",
            "|---|---|---|---|",
            *sorted(classes),
        ]
    absent = [library for library in libraries if "does_not_run" in library]
    if absent:
        rows += ["", "## Not run here", ""]
        rows += [f"- {library['library']}: {library['does_not_run']}." for library in absent]
    return rows


def summary(libraries: list[dict[str, Any]]) -> str:
    cases = [case for library in libraries for case in library["cases"]]
    by = {s: sum(c["status"] == s for c in cases) for s in ("kept", "broken", "cannot tell")}
    ran = sum(bool(library["cases"]) for library in libraries)
    surprises = sum(c["status"] not in (c["expected"], "cannot tell") for c in cases)
    return (
        f"\n{ran} libraries, {len(cases)} ways of using them: {by['kept']} kept, {by['broken']} "
        f"broken, {by['cannot tell']} cannot tell. Results that differ from what we understand of the "
        f"code: {surprises}.\n"
    )


TOOLS = """
## Tools against bugs

Each tool gets the same scores (`field/tools.py`), {sizes} a side. A cell has two parts, at 95 % confidence and delta 1e-5:

1. From how many scores a side the violation is found in at least four of {repetitions} repetitions. For correct mechanisms: the
   number of false alarms; one in twenty is allowed.
2. The largest median of the shown epsilon. The Gaussian mechanisms claim epsilon {gaussian:.2f}, the Laplace ones 1, the mean 0.1.

Methods marked ¹ assume a Gaussian mechanism and ran on those only. The joint-beta interval is Bayesian and takes its threshold from
half of the scores. DP-Auditorium tests a claim and shows no epsilon; dp-recorder trains a classifier on half of the outputs.
opake's bounds are for canaries of one training and shrink when there are thousands. jax-privacy is 2.0.0, whose Gaussian bound
is repaired on its main branch. Seconds are those of {largest} scores a side.

"""

SEQUENTIAL = """
## Pairs until a claim is refuted

How many pairs of scores the anytime test needs to refute a claim, on {streams} streams each, at 95 % confidence. The mechanisms are
those of DP-Auditorium. The last two columns are the numbers that two other sequential auditors published.

"""

PUBLISHED = {
    "NonDPGaussian1, epsilon 0.01": "264 | 59",
    "NonDPGaussian1, epsilon 0.1": "562 | 68",
    "NonDPLaplace1, epsilon 0.01": "331 | 86",
    "NonDPLaplace1, epsilon 0.1": "920 | 114",
}
"""Pairs that two other sequential auditors need, as published."""


def tools() -> str:
    """The comparison of tools and the sequential one, from field/tools.json."""
    stored = json.loads((HERE / "tools.json").read_text())
    cells: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for row in stored["tools"]:
        cells.setdefault(row["tool"], {}).setdefault(row["mechanism"], []).append(row)
    mechanisms = stored["mechanisms"]
    sizes = stored["sizes"]
    lines = [
        "| tool | " + " | ".join(mechanisms) + " | seconds |",
        "|---" * (len(mechanisms) + 2) + "|",
    ]
    for tool, rows in cells.items():
        of_all = [row for repeated in rows.values() for row in repeated]
        seconds = median(row[str(sizes[-1])]["seconds"] for row in of_all)
        mark = "" if len(rows) == len(mechanisms) else " ¹"
        contents = [
            _cell(rows[title], sizes, violates) if title in rows else ""
            for title, violates in mechanisms.items()
        ]
        lines.append(f"| {tool}{mark} | " + " | ".join(contents) + f" | {seconds:.2g} |")
    lines += [f"\n{tool} did not run: {why}." for tool, why in stored["missing"].items()]
    introduction = TOOLS.format(
        sizes=", ".join(f"{size:,}" for size in sizes),
        repetitions=stored["repetitions"],
        largest=f"{sizes[-1]:,}",
        gaussian=stored["gaussian_epsilon"],
    )
    streams = [
        f"| {row['stream']} | {row['rejected']} of {row['of']} "
        f"| {row['mean_pairs']:g} ± {row['standard_error']:g} "
        f"| {PUBLISHED.get(row['stream'], ' | ')} |"
        for row in stored["sequential"]
    ]
    head = [
        "| stream | refuted | mean pairs | arXiv 2509.07055 | arXiv 2602.06518 |",
        "|---|---|---|---|---|",
    ]
    second = SEQUENTIAL.format(streams=stored["sequential"][0]["of"])
    return introduction + "\n".join(lines) + "\n" + second + "\n".join(head + streams) + "\n"


def _cell(rows: list[dict[str, Any]], sizes: list[int], violates: bool) -> str:
    """At which sizes the violation is found, or how many false alarms there were."""
    shown = [
        median(row[str(size)]["shown"] for row in rows)
        for size in sizes
        if all(row[str(size)]["shown"] is not None for row in rows)
    ]
    epsilon = f"; {max(shown):.2f}" if shown else ""
    if not violates:
        alarms = sum(row[str(size)]["found"] for row in rows for size in sizes)
        return f"{alarms} of {len(rows) * len(sizes)} alarms{epsilon}"
    often = [size for size in sizes if sum(row[str(size)]["found"] for row in rows) >= 4]
    if not often:
        return f"not found{epsilon}"
    if often[-1] == sizes[-1]:
        return f"{often[0]:,}{epsilon}"
    span = " to ".join(f"{size:,}" for size in sorted({often[0], often[-1]}))
    return f"{span} only{epsilon}"


def write() -> None:
    """Write the page."""
    stored = results()
    parts = [
        INTRODUCTION,
        summary(stored),
        "\n",
        "\n".join(table(stored)),
        "\n",
        tools(),
        OTHERS,
        ADD,
    ]
    text = "".join(parts)
    PAGE.write_text(text)
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    import sys

    sys.path.insert(0, str(HERE.parent))
    write()
