"""Every adversary of the registry on Housing: what it proves, against what the accountant promises.

    python benchmarks/adversaries.py [--runs N] [--periods 1,5] [--adversaries a,b] [--write-docs]

Audits are kept in a store, so that the script can be stopped and goes on where it stopped. It adds
the numbers to adversaries.json beside this file; ``--write-docs`` makes docs/adversaries.md of them
and of the code, and audits nothing.
"""

from __future__ import annotations

import argparse
import itertools
import json
from pathlib import Path
from typing import Any

from dpaudit.adversaries import (
    ADVERSARIES,
    PRIOR_WORK,
    AdaptiveAdversary,
    Adversary,
    ChoosesData,
    PriorAdversary,
)
from dpaudit.audits import audit
from dpaudit.audits.assessment import AS_GOOD_AS_IT_GETS
from dpaudit.engine import Speed
from dpaudit.mechanisms.dpsgd import Insertion
from dpaudit.presets import INSERTIONS, preset

HERE = Path(__file__).parent
RESULTS = HERE / "adversaries.json"
PAGE = HERE.parent / "docs" / "adversaries.md"
SEED = 1

_INTRODUCTION = """\
Every adversary that ships, under the name that `dpaudit audit --adversary NAME` knows it by. The
threat model is a type: an adversary of the *standard* model takes a view with every iterate and
cannot be run in the *hidden state*, whose view has none; one of the *black box* is handed what the
final model answers and no parameter at all. *Adaptive* ones also see each iterate when it is made,
and choose the next canary by it. See [Writing an adversary](writing-an-adversary.md)."""

_READING = """\
Measured on Housing (FCNN 8-6-2, σ = 4, 250 steps, a canary at every step, in half of the runs;
seed 1; the numbers are those of `benchmarks/adversaries.json`). The accountant allows ε = 23.995
at δ = 1e-5, that is μ = 3.953. μ is the distance of the two worlds' scores in standard deviations,
by moments; *gaussian-dp* and *clopper-pearson* are the lower bounds at 95 %, thresholds chosen on a
pilot. *Tight* means: the gaussian-dp bound is at least 90 % of what that many perfect scores would
be expected to prove. The clopper-pearson bound assumes nothing, and with so few runs cannot come
near ε = 24 whatever the adversary."""

_RARE = """\
A canary at every k-th of 250 k steps. The upper bound stays: 250 insertions, μ = 3.953. Whoever
sees the iterates leaves the other steps' noise out and loses nothing; in the hidden state the noise
of all steps has added up, and a canary that training leaves alone keeps μ = 1.768 at k = 5."""

_PRIOR = """\
Hidden state, tight and canary are what the paper's table says; the rest is ours. The upper bound is
the same for all: the accountant composes the insertion steps, which everybody knows.

The original papers of these adversaries were not at hand when they were written: they follow the
descriptions in Cebere et al. and, for Nasr et al. (2021) and ClipBKD, public reimplementations and
notes. Where one departs from its source knowingly, the last column or its docstring says so."""


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
        # Who computes for every iterate, in plain torch, does it faster for many runs together.
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
        row = found.get(prior.adversary or "")
        measured = "" if row is None else _tight(row)
        said = (_yes(prior.hidden_state), _yes(prior.tight), prior.canary)
        cells = (f"{prior.paper} {prior.year}", prior.label, *said, _player(prior), measured)
        lines.append("| " + " | ".join((*cells, prior.note)) + " |")
    return lines


def _threat(adversary: Adversary) -> str:
    powers = [adversary.threat_model.value]
    powers += ["adaptive"] if isinstance(adversary, AdaptiveAdversary) else []
    powers += ["chooses the data"] if isinstance(adversary, ChoosesData) else []
    return ", ".join(powers)


def _player(prior: PriorAdversary) -> str:
    if prior.adversary is None:
        return f"estimator `{prior.estimator}`" if prior.estimator else "out of reach"
    threat = ADVERSARIES[prior.adversary].threat_model.value
    return f"`{prior.adversary}` ({threat})"


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
