"""The truth on Housing: four adversaries, five seeds, 5,000 runs, a canary every or every 5th step.

    python benchmarks/housing_truth.py [--runs N] [--seeds N] [--periods 1,5] [--minutes M]

Audits are kept in a store, so an interrupted script resumes. It adds
the numbers to housing_truth.json beside this file, and prints all of them as a table in Markdown.
An audit takes 3 s at k = 1 and 15 s at k = 5 on two CPU cores.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from dpaudit.adversaries import ADVERSARIES
from dpaudit.audits import Bar, audit
from dpaudit.curves import gaussian_epsilon
from dpaudit.lower_bounds.prediction import predicted_mu
from dpaudit.mechanisms.dpsgd import Insertion
from dpaudit.presets import INSERTIONS, preset

HERE = Path(__file__).parent
RESULTS = HERE / "housing_truth.json"
ORDER = ("simulated-dimension", "random-dimension", "random-direction", "flipped-label")


def one(adversary: str, period: int, seed: int, runs: int, store: str) -> dict[str, Any]:
    """The bounds of one audit."""
    result = audit(
        preset("housing").training(steps=INSERTIONS * period, seed=seed),
        ADVERSARIES[adversary],
        runs=runs,
        insertion=Insertion(period=period),
        seed=seed,
        name=f"{adversary} k={period} seed={seed} runs={runs}",
        store=store,
        progress=Bar(),
    )
    fit = result.lower["gaussian-fit"]
    return {
        "adversary": adversary,
        "period": period,
        "seed": seed,
        "runs": runs,
        "gaussian_dp_pilot": result.lower["gaussian-dp"].epsilon,
        "clopper_pearson_pilot": result.lower["clopper-pearson"].epsilon,
        "gaussian_fit": fit.epsilon,
        "mu": fit.details.get("mu_estimate"),
        "upper": result.final.least_upper.epsilon,
        "claim_p_value": None if result.final.test is None else result.final.test.p_value,
        "verdict": result.verdict,
        "device": result.device,
        "seconds": None if result.resumed else round(result.seconds, 1),
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Lower bounds by seed, in Markdown."""
    seeds = sorted({row["seed"] for row in rows})
    lines = []
    for period in sorted({row["period"] for row in rows}):
        steps = INSERTIONS * period
        mu = predicted_mu(noise_multiplier=4.0, steps=steps, insertions=INSERTIONS)
        lines += [
            f"k = {period}, T = {steps}: upper bound {rows[0]['upper']:.3f}, linear prediction "
            f"{gaussian_epsilon(1e-5, mu):.3f}",
            "",
            f"| adversary | {' | '.join(f'seed {seed}' for seed in seeds)} | mean | mean mu |",
            f"|---|{'---|' * (len(seeds) + 2)}",
        ]
        for adversary in ORDER:
            by_seed = {
                row["seed"]: row
                for row in rows
                if (row["adversary"], row["period"]) == (adversary, period)
            }
            if not by_seed:
                continue
            cells = [
                f"{by_seed[seed]['gaussian_dp_pilot']:.2f}" if seed in by_seed else ""
                for seed in seeds
            ]
            mean = statistics.mean(row["gaussian_dp_pilot"] for row in by_seed.values())
            mean_mu = statistics.mean(row["mu"] for row in by_seed.values())
            lines.append(f"| {adversary} | {' | '.join(cells)} | {mean:.2f} | {mean_mu:.3f} |")
        lines.append("")
    above = [row for row in rows if row["gaussian_dp_pilot"] > row["upper"]]
    broken = [row for row in rows if row["verdict"] == "violation"]
    lines.append(
        f"Of {len(rows)} audits, {len(above)} have a gaussian-dp (pilot) bound above the upper "
        f"bound, and {len(broken)} have the verdict violation (each at 95 %)."
    )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=5000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--periods", default="1,5")
    parser.add_argument("--adversaries", default=",".join(ORDER))
    parser.add_argument("--store", default=str(HERE / "housing_truth.sqlite"))
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin none later")
    chosen = parser.parse_args()
    began = time.monotonic()
    stored = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    rows = {_key(row): row for row in stored if row["runs"] == chosen.runs}
    periods = [int(period) for period in chosen.periods.split(",")]
    cases = itertools.product(periods, range(chosen.seeds), chosen.adversaries.split(","))
    for period, seed, adversary in cases:
        if time.monotonic() - began > 60 * chosen.minutes:
            print("out of time; the same command resumes", file=sys.stderr)
            break
        row = one(adversary, period, seed, chosen.runs, chosen.store)
        rows[_key(row)] = row | {"seconds": row["seconds"] or rows.get(_key(row), row)["seconds"]}
        bound = f"{row['gaussian_dp_pilot']:.3f} (mu {row['mu']:.3f}) in {row['seconds']} s"
        print(f"{adversary:20} k={period} seed={seed}: {bound}", file=sys.stderr, flush=True)
    ordered = [rows[key] for key in sorted(rows)]
    RESULTS.write_text(json.dumps(ordered, indent=1) + "\n")
    print(table(ordered))


def _key(row: dict[str, Any]) -> tuple[int, int, str]:
    return row["period"], row["seed"], row["adversary"]


if __name__ == "__main__":
    main()
