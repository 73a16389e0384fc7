"""docs/field.md from the results. What is not public yet is named by its class only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "field.md"

INTRODUCTION = """\
# The field, audited

What do the libraries that people use for differential privacy keep of what they claim? Each row is one way of using one
library, run by `make field` with the adapter in `field/adapters`. *Kept* means that the rules of `dpaudit check` passed or
that the claim is consistent with what an audit could have found; it is not a proof. *Broken* means that a rule is broken or
that the claim is refuted, and that we understand why from the library's code. *Cannot tell* is neither.

A cause that is not public yet appears by its class, without the library's name, until its maintainers have answered or
90 days have passed.
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

A case may also return the result of `dpaudit.audit`, `dpaudit.live_audit` or `dpaudit.test_claim`. If you expect it to be
broken, say so with `expected="broken"`, and why: `cause` with file and line for the maintainers, `class_of_bug` for this
page. Put a correct use beside it.
"""


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


def table(found: list[dict[str, Any]]) -> list[str]:
    """A row for each case that may be named, then the classes of the others."""
    rows = [
        "| library | version | way of using it | claimed | evidence | status |",
        "|---|---|---|---|---|---|",
    ]
    classes = []
    for library in found:
        name, version = library["library"], library.get("version", "")
        for case in library["cases"]:
            if hidden(case):
                classes.append(f"| {case['class_of_bug']} | {shown(case)} |")
                continue
            status = case["status"]
            if case["public"]:
                status = f"**{status}**: {case['cause']} ({case['public']})"
            elif case.get("error"):
                status = f"{status}: {case['error']}"
            cells = (name, version, case["way"], case["claims"], shown(case), status)
            rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    if classes:
        rows += [
            "",
            "## Broken, not public yet",
            "",
            "| what | evidence |",
            "|---|---|",
            *sorted(classes),
        ]
    absent = [library for library in found if "does_not_run" in library]
    if absent:
        rows += ["", "## Not run here", ""]
        rows += [f"- {library['library']}: {library['does_not_run']}." for library in absent]
    return rows


def summary(found: list[dict[str, Any]]) -> str:
    cases = [case for library in found for case in library["cases"]]
    by = {s: sum(c["status"] == s for c in cases) for s in ("kept", "broken", "cannot tell")}
    ran = sum(bool(library["cases"]) for library in found)
    surprises = sum(c["status"] not in (c["expected"], "cannot tell") for c in cases)
    return (
        f"\n{ran} libraries, {len(cases)} ways of using them: {by['kept']} kept, {by['broken']} "
        f"broken, {by['cannot tell']} cannot tell. In {surprises} of them the result differs from "
        f"what we understand from the code.\n"
    )


def write() -> None:
    """Write the page."""
    found = results()
    text = INTRODUCTION + summary(found) + "\n" + "\n".join(table(found)) + "\n" + ADD
    PAGE.write_text(text)
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    import sys

    sys.path.insert(0, str(HERE.parent))
    write()
