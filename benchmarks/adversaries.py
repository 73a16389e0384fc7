"""Audit Housing with every adversary of the registry, and write docs/adversaries.md.

    python benchmarks/adversaries.py [--runs N] [--periods 1,5] [--adversaries a,b] [--write-docs]

Audits are kept in a store, so that the script can be interrupted and resumed. It adds the
numbers to adversaries.json beside this file. ``--write-docs`` writes docs/adversaries.md from
these numbers and the registry, and audits nothing.
"""

from __future__ import annotations

import argparse
import itertools
import json
from pathlib import Path
from typing import Any

from dpaudit.adversaries import (
    ADVERSARIES,
    AdaptiveAdversary,
    Adversary,
    ChoosesData,
    ChoosesStart,
)
from dpaudit.audits import audit
from dpaudit.audits.assessment import AS_GOOD_AS_IT_GETS
from dpaudit.engine import Speed
from dpaudit.mechanisms.dpsgd import Insertion
from dpaudit.presets import INSERTIONS, preset
from dpaudit_paper.figures.tables import PRIOR_WORK
from dpaudit_paper.table import Row

HERE = Path(__file__).parent
RESULTS = HERE / "adversaries.json"
PAGE = HERE.parent / "docs" / "adversaries.md"
SEED = 1

_INTRODUCTION = """\
All adversaries that ship with dpaudit, under their names for `dpaudit audit --adversary NAME`.
The threat model is a Python type. An adversary of the *standard* threat model receives a view
with every iterate and cannot be used in the *hidden state* threat model, whose view has no
iterates. A *black box* adversary receives the outputs of the final model and no parameters.
*Adaptive* adversaries also see each iterate during training and choose the next canary from it.
See [Writing an adversary](writing-an-adversary.md)."""

_READING = """\
Measured on Housing (FCNN 8-6-2, σ = 4, 250 steps, a canary at every step, in half of the runs;
seed 1; the numbers are in `benchmarks/adversaries.json`). The upper bound is ε = 23.995 at δ =
1e-5, which corresponds to μ = 3.953. The column μ is the difference between the mean scores with
and without the canary, in standard deviations. *gaussian-dp* and *clopper-pearson* are lower
bounds at 95 % confidence, with thresholds from pilot scores. *Tight* means that the gaussian-dp
bound is at least 90 % of the expected bound for this many scores of a training that leaks the
whole upper bound. The clopper-pearson bound has no assumptions; with so few runs it cannot come
near ε = 24 for any adversary.

The settings in which `worst-case-start` (6.95 of ε = 10 on 1,000 records of CIFAR-10) and
`adversarial-sample` (4.914 of 10) were published have not been measured here;
`benchmarks/black_box.py` plays the first on a GPU."""

_RARE = """\
A canary at every k-th of 250 k steps. The upper bound does not change: 250 insertions, μ =
3.953. An adversary that sees the iterates can ignore the noise of the other steps and loses
nothing. In the hidden state threat model the noise of all steps adds up, and a canary that is
not disturbed by the training data keeps μ = 1.768 at k = 5."""

_PRIOR = """\
The columns "hidden state", "tight" and "canary" are those of the paper's table; the others are
from this project. The upper bound is the same for all rows: the accountant composes the
insertion steps, which are public.

The original papers of these adversaries were not available when the adversaries were
implemented. They follow the descriptions in Cebere et al. and, for Nasr et al. (2021) and
ClipBKD, public reimplementations and notes. Known differences are in the last column or in the
docstring."""


def one(adversary: str, period: int, runs: int, store: str) -> dict[str, Any]:
    """The bounds of one audit."""
    result = audit(
        preset("housing").training(steps=INSERTIONS * period, seed=SEED),
        ADVERSARIES[adversary],
        runs=runs,
        insertion=Insertion(period=period),
        seed=SEED,
        name=f"{adversary} k={period} runs={runs}",
        store=store,
        # Adversaries that compute on every iterate are faster for many runs at once.
        speed=Speed(device="cpu", workers=1, tile_size=250),
    )
    fit = result.lower["gaussian-fit"]
    return {
        "adversary": adversary,
        "period": period,
        "seed": SEED,
        "runs": runs,
        "gaussian_dp": round(result.lower["gaussian-dp"].epsilon, 4),
        "clopper_pearson": round(result.lower["clopper-pearson"].epsilon, 4),
        "mu": round(float(fit.details["mu_estimate"]), 4),
        "upper": round(result.final.least_upper.epsilon, 4),
        "attainable": round(result.final.attainable or 0.0, 4),
        "verdict": result.verdict,
        "seconds": None if result.resumed else round(result.seconds, 1),
    }


def measurements() -> list[dict[str, Any]]:
    """What was measured so far."""
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else []


def keep(row: dict[str, Any]) -> None:
    """Add one audit to the file, in the order of the registry; read again, others may write too."""
    order = list(ADVERSARIES)
    rows = {(known["period"], known["adversary"]): known for known in measurements()}
    rows[row["period"], row["adversary"]] = row
    found = sorted(rows.values(), key=lambda one: (one["period"], order.index(one["adversary"])))
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")


def page(rows: list[dict[str, Any]]) -> str:
    """docs/adversaries.md: the table of the registry, and the paper's table beside it."""
    return "\n".join(
        [
            "# The adversaries",
            "",
            "<!-- Made by: python benchmarks/adversaries.py --write-docs -->",
            "",
            _INTRODUCTION,
            "",
            *registry_table(rows),
            "",
            _READING,
            "",
            *rare_table(rows),
            "## The paper's table of prior work",
            "",
            _PRIOR,
            "",
            *prior_table(rows),
            "",
        ]
    )


def registry_table(rows: list[dict[str, Any]]) -> list[str]:
    """Every adversary, what it may see, and what it proved on Housing."""
    found = {(row["adversary"], row["period"]): row for row in rows}
    head = ("name", "paper", "year", "threat model", "canary", "many canaries")
    lines = [
        "| "
        + " | ".join((*head, "runs", "μ", "ε, gaussian-dp", "ε, clopper-pearson", "tight"))
        + " |",
        "|" + "---|" * (len(head) + 5),
    ]
    for adversary in ADVERSARIES.values():
        row = found.get((adversary.name, 1))
        numbers = ("", "", "", "", "not measured")
        if row is not None:
            bounds = f"{row['gaussian_dp']:.2f}", f"{row['clopper_pearson']:.2f}"
            numbers = (f"{row['runs']:,}", f"{row['mu']:.2f}", *bounds, _tight(row))
        many = "yes" if adversary.many else "no"
        cells = (f"`{adversary.name}`", adversary.paper, str(adversary.year))
        described = (_threat(adversary), adversary.canary or "", many)
        lines.append("| " + " | ".join((*cells, *described, *numbers)) + " |")
    return lines


def rare_table(rows: list[dict[str, Any]]) -> list[str]:
    """Those that were measured at longer insertion periods, if any."""
    rare = [row for row in rows if row["period"] > 1]
    if not rare:
        return []
    lines = [
        "## Rare insertions",
        "",
        _RARE,
        "",
        "| name | threat model | k | runs | μ | ε, gaussian-dp |",
        "|---|---|---|---|---|---|",
    ]
    for row in rare:
        threat = _threat(ADVERSARIES[row["adversary"]])
        numbers = (f"{row['runs']:,}", f"{row['mu']:.2f}", f"{row['gaussian_dp']:.2f}")
        cells = (f"`{row['adversary']}`", threat, str(row["period"]), *numbers)
        lines.append("| " + " | ".join(cells) + " |")
    return [*lines, ""]


def prior_table(rows: list[dict[str, Any]]) -> list[str]:
    """The paper's rows, who plays each of them, and what was measured."""
    found = {row["adversary"]: row for row in rows if row["period"] == 1}
    lines = [
        "| paper | adversary | hidden state | tight | canary | here | tight on Housing | note |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for prior in PRIOR_WORK:
        row = found.get(prior["adversary"] or "")
        measured = "" if row is None else _tight(row)
        said = (f"{prior['paper']} {prior['year']}", prior["label"], prior["hidden_state"])
        cells = (*said, prior["tight"], prior["canary"], _player(prior), measured, prior["note"])
        lines.append("| " + " | ".join(str(cell or "") for cell in cells) + " |")
    return lines


def _threat(adversary: Adversary) -> str:
    powers = [adversary.threat_model.value]
    powers += ["adaptive"] if isinstance(adversary, AdaptiveAdversary) else []
    powers += ["chooses the data"] if isinstance(adversary, ChoosesData) else []
    powers += ["chooses the start"] if isinstance(adversary, ChoosesStart) else []
    return ", ".join(powers)


def _player(prior: Row) -> str:
    name = prior["adversary"]
    if name is None:
        return f"estimator `{prior['estimator']}`"
    return f"`{name}` ({ADVERSARIES[str(name)].threat_model.value})"


def _tight(row: dict[str, Any]) -> str:
    return _yes(row["gaussian_dp"] >= AS_GOOD_AS_IT_GETS * row["attainable"])


def _yes(answer: bool) -> str:
    return "yes" if answer else "no"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--periods", default="1")
    parser.add_argument("--adversaries", default=",".join(ADVERSARIES))
    parser.add_argument("--store", default=":memory:")
    parser.add_argument("--write-docs", action="store_true")
    chosen = parser.parse_args()
    if chosen.write_docs:
        PAGE.write_text(page(measurements()))
        return
    periods = [int(period) for period in chosen.periods.split(",")]
    for period, adversary in itertools.product(periods, chosen.adversaries.split(",")):
        row = one(adversary, period, chosen.runs, chosen.store)
        keep(row)
        print(
            f"{adversary:24} k={period}: gaussian-dp {row['gaussian_dp']:.3f}, clopper-pearson "
            f"{row['clopper_pearson']:.3f}, mu {row['mu']:.3f}, {row['verdict']}, "
            f"{row['seconds']} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
