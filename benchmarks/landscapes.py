"""Every table about landscapes in the documentation, from one command.

    python benchmarks/landscapes.py                # all sections, some minutes on two cores
    python benchmarks/landscapes.py sweep moving   # only these

Numbers go to ``benchmarks/landscapes.json``, tables between their markers in pages of
``docs/``.
"""

from __future__ import annotations

import json
import math
import sys
import time
from itertools import product
from pathlib import Path
from typing import Any

from dpaudit.curves import gaussian_epsilon
from dpaudit.lower_bounds import estimate
from dpaudit.upper_bounds import HiddenState, upper_bound
from dpaudit_paper.landscapes import (
    BatchLandscapes,
    Constant,
    Landscape,
    LandscapeProcess,
    Threshold,
    decision_point,
    exact_privacy,
    fitted_moving_threshold,
    fitted_reading_wells,
    fitted_wells,
    simulate,
    threshold_search,
    wells,
)
from dpaudit_paper.landscapes.one_insertion import composed_at_most, lasts
from dpaudit_paper.table import Table, Value

ROOT = Path(__file__).parent.parent
NUMBERS = ROOT / "benchmarks" / "landscapes.json"
NAMES = ("landscapes.md", "reproduction-numbers.md", "does-hiding-help.md")
PAGES = [ROOT / "docs" / name for name in NAMES]

DELTA = 1e-5
BATCHES = (1, 2, 4, 8, 16)
SIGMAS = (1, 2, 4, 8)
INSERTIONS = 250
SIGMA = 4.0  # of the periodic insertions


def process(
    sigma: float,
    batch: int,
    steps: int,
    scaling: str = "paper",
    landscape: Landscape | BatchLandscapes | None = None,
    period: int | None = None,
) -> LandscapeProcess:
    return LandscapeProcess(
        noise_multiplier=sigma,
        batch_size=batch,
        steps=steps,
        scaling=scaling,  # type: ignore[arg-type]
        landscape=landscape or Constant(),
        period=period,
    )


def run_sweep(numbers: dict[str, Any]) -> None:
    """The paper's figure 3, forty cells: what F3b reads."""
    rows = []
    for sigma in range(1, 9):
        cells = [
            exact_privacy(process(sigma, batch, 25, "paper", Threshold())) for batch in BATCHES
        ]
        exact = [f"{cell.epsilon[-1]:.4f}" for cell in cells]
        rule = [f"{cell.gdp_rule[-1]:.4f}" for cell in cells]
        rows += [[str(sigma), "exact", *exact, f"{cells[0].accountant:.4f}"]]
        rows += [[str(sigma), "GDP rule", *rule, ""]]
    numbers["sweep"] = rows
    shown = [row for row in rows if int(row[0]) in SIGMAS]
    write_table("sweep", ["sigma", "", *(f"B={b}" for b in BATCHES), "accountant"], shown)


def run_signs(numbers: dict[str, Any]) -> None:
    """Sign and scaling: the same adversary read in four ways."""
    rows = []
    for scaling, batch in product(("paper", "dpsgd"), (1, 4, 16)):
        cells = []
        for shape in (Threshold(away=False), Threshold()):
            result = exact_privacy(process(1, batch, 25, scaling, shape))
            cells += [f"{result.epsilon[1]:.4f}", f"{result.epsilon[-1]:.4f}"]
        rows.append([scaling, str(batch), *cells, f"{result.gdp_rule[-1]:.4f}"])
    numbers["signs"] = rows
    header = ["scaling", "B", "literal, T=2", "literal, T=25", "corrected, T=2"]
    write_table("signs", [*header, "corrected, T=25", "GDP rule, T=25"], rows)


def run_thresholds(numbers: dict[str, Any]) -> None:
    """The paper's appendix: is h = C/2 the best threshold at T = 2?"""
    rows = []
    settings = (("paper", 1, 1), ("paper", 1, 4), ("dpsgd", 1, 4), ("paper", 4, 4), ("dpsgd", 4, 4))
    for scaling, sigma, batch in settings:
        base = process(sigma, batch, 2, scaling)
        # After one step without the canary the moving threshold is the best place.
        best = fitted_moving_threshold(base).places[0]
        exact, rule = threshold_search(base, [0.5, best])
        upper = gaussian_epsilon(DELTA, 1 / sigma)
        cells = f"{exact[0]:.4f}", f"{exact[1]:.4f} at {best:.2f} C", f"{rule[0]:.4f}"
        rows.append([scaling, str(sigma), str(batch), *cells, f"{upper:.4f}"])
    numbers["thresholds"] = rows
    header = ["scaling", "sigma", "B", "exact, C/2", "exact, best", "GDP, C/2", "accountant"]
    write_table("thresholds", header, rows)


def run_moving(numbers: dict[str, Any]) -> None:
    """The moving threshold beside fixed landscapes, in both scalings."""
    numbers["moving"] = cells = []
    for scaling, sigma, batch in product(("paper", "dpsgd"), SIGMAS, BATCHES):
        base = process(sigma, batch, 25, scaling)
        shapes: dict[str, Landscape | BatchLandscapes] = {
            "constant": Constant(),
            "threshold": Threshold(),
            "wells": fitted_wells(base),
            "moving": fitted_moving_threshold(base),
        }
        results = {name: exact_privacy(base.with_landscape(s)) for name, s in shapes.items()}
        cells.append(
            {"scaling": scaling, "sigma": sigma, "batch": batch}
            | {name: float(result.epsilon[-1]) for name, result in results.items()}
            | {"accountant": results["moving"].accountant, "error": results["moving"].error}
        )
    write_moving(cells)


def write_moving(cells: list[dict[str, Any]]) -> None:
    """The table of the page: six settings in each scaling; the file has all forty."""
    rows = [
        [cell["scaling"], str(cell["sigma"]), str(cell["batch"])]
        + [f"{cell[name]:.4f}" for name in ("constant", "threshold", "wells")]
        + [f"**{cell['moving']:.4f}**", f"{cell['accountant']:.4f}"]
        for cell in cells
        if cell["sigma"] in (1, 4) and cell["batch"] in (1, 4, 16)
    ]
    header = ["scaling", "sigma", "B", "constant", "threshold at C/2", "wells", "moving threshold"]
    write_table("moving", [*header, "accountant"], rows)


def run_long(numbers: dict[str, Any]) -> None:
    """Long runs: what is left after 100 and more steps."""
    rows = []
    cases: list[tuple[str, str, int, int, int]] = [
        ("paper", "wells", 2, 8, 100),
        ("paper", "wells", 1, 8, 100),
        ("dpsgd", "decision", 1, 4, 100),
        ("dpsgd", "decision", 1, 8, 1000),
        ("dpsgd", "moving", 1, 2, 100),
        ("dpsgd", "moving", 1, 1, 25),
        ("dpsgd", "moving", 1, 1, 100),
    ]
    for scaling, shape, sigma, batch, steps in cases:
        base = process(sigma, batch, steps, scaling)
        landscape: Landscape | BatchLandscapes = Threshold(at=decision_point(base))
        if shape == "wells":
            landscape = wells(4.0 if sigma == 2 else 1.5)
        elif shape == "moving":
            landscape = fitted_moving_threshold(base)
        result = exact_privacy(base.with_landscape(landscape))
        setting = [scaling, shape, str(sigma), str(batch), str(steps)]
        values = [f"{result.epsilon[-1]:.4f}", f"{result.accountant:.4f}", f"{result.error:.0e}"]
        rows.append([*setting, *values])
    numbers["long"] = rows
    header = ["scaling", "landscape", "sigma", "B", "T", "exact epsilon", "accountant", "error"]
    write_table("long", header, rows)


def run_simulation(numbers: dict[str, Any]) -> None:
    """A million runs, audited: the GDP rule claims more than the truth, valid bounds do not."""
    rows = []
    for scaling, batch in (("paper", 16), ("dpsgd", 16)):
        chosen = process(1, batch, 25, scaling, Threshold())
        exact = exact_privacy(chosen)
        scores = simulate(chosen, runs=1_000_000)
        for method, rule in (
            ("gaussian-dp", "best"),
            ("gaussian-dp", "pilot"),
            ("clopper-pearson", "pilot"),
            ("profile", "pilot"),
        ):
            bound = estimate(scores, delta=DELTA, method=method, threshold=rule)
            name = f"{method}, {rule} threshold" if method != "profile" else "whole curve"
            rows.append([scaling, name, f"{bound.epsilon:.4f}", f"{exact.epsilon[-1]:.4f}"])
    numbers["simulation"] = rows
    write_table("simulation", ["scaling", "bound", "lower bound on epsilon", "exact"], rows)


def run_lasts(numbers: dict[str, Any]) -> None:
    """What the moving threshold keeps for ever: a lower end that is rounded outwards."""
    rows = []
    for sigma, batch in ((1, 1), (1, 2), (2, 2), (4, 4)):
        base = process(sigma, batch, 25, "dpsgd")
        now = exact_privacy(base.with_landscape(fitted_moving_threshold(base))).epsilon[-1]
        ever = math.floor(1e4 * lasts(base)) / 1e4
        rows.append([str(sigma), str(batch), f"{now:.4f}", f"{ever:.4f}"])
    numbers["lasts"] = rows
    write_table("lasts", ["σ", "B", "ε at T = 25", "ε at every T ≥ 25, at least"], rows)


def run_composed(numbers: dict[str, Any]) -> None:
    """Upper bounds for an insertion in every k-th step, with clipping as the only assumption."""
    rows = []
    for batch in (1, 2, 4, 8):
        hidden = HiddenState(period=2, batch_size=batch)
        # For one clean step the accountant is sharper; it is valid for more of them.
        most = upper_bound(
            noise_multiplier=SIGMA,
            steps=2 * INSERTIONS,
            delta=DELTA,
            hidden_state=hidden,
            accountant="hidden-state-clipping",
        ).epsilon
        composed = [most]
        for period in (5, 25):
            clean = process(SIGMA, batch, INSERTIONS * period, "dpsgd", period=period)
            composed.append(min(most, composed_at_most(clean)))
        rows.append(
            [str(batch), *(f"{math.ceil(100 * epsilon) / 100:.2f}" for epsilon in composed)]
        )
    numbers["composed"] = rows
    write_table("composed", ["B", "k = 2", "k = 5", "k = 25"], rows)


def run_ends(numbers: dict[str, Any]) -> None:
    """Both ends over all landscapes, from the table of figure H3; upper ends are rounded up."""
    table = Table.read(ROOT / "results" / "H3.csv")

    def ends(**setting: Value) -> str:
        row = table.where(**setting)
        low, high = round(1e4 * row.number("lower")), math.ceil(1e4 * row.number("upper"))
        if high - low <= 1:
            return f"{row.number('upper'):.4f}"
        return f"{low / 1e4:.4f} … {high / 1e4:.4f}"

    for scaling in ("dpsgd", "paper"):
        rows = []
        for sigma in range(1, 9):
            cells = [
                ends(scaling=scaling, sigma=sigma, batch_size=batch, steps=25) for batch in BATCHES
            ]
            rows.append([str(sigma), *cells, f"{gaussian_epsilon(DELTA, 1 / sigma):.4f}"])
        write_table(
            f"ends_{scaling}", ["σ", *(f"B = {batch}" for batch in BATCHES), "accountant"], rows
        )
    steps, settings = (2, 3, 5, 10, 25), ((1, 1), (2, 1), (4, 1), (4, 4))
    rows = []
    for sigma, batch in settings:
        setting: dict[str, Value] = {"scaling": "dpsgd", "sigma": sigma, "batch_size": batch}
        name = f"σ = {sigma}, B = {batch}"
        rows.append([name, *(ends(**setting, steps=count) for count in steps)])
        gained = [table.where(**setting, steps=count).number("advantage") for count in steps]
        rows.append([f"advantage, {name}", *(f"{value:.4f}" for value in gained)])
    write_table("ends_steps", ["T", *map(str, steps)], rows)


def run_periodic(numbers: dict[str, Any]) -> None:
    """Reading wells: the smallest batch size for each epsilon, and epsilon at B = 128."""
    rows = []
    for period in (5, 25):

        def kept(batch: int, period: int = period) -> float:
            base = process(SIGMA, batch, INSERTIONS * period, "dpsgd", period=period)
            fitted = fitted_reading_wells(base, delta=DELTA)
            return fitted.after(INSERTIONS, noise_multiplier=SIGMA).epsilon(DELTA)

        smallest = [
            next(batch for batch in range(18, 129) if kept(batch) >= least)
            for least in (20, 21, 22, 23)
        ]
        flat = gaussian_epsilon(DELTA, math.sqrt(INSERTIONS / period) / SIGMA)
        rows.append(
            [str(period), *(f"B = {b}" for b in smallest), f"{kept(128):.2f}", f"{flat:.2f}"]
        )
    numbers["periodic"] = rows
    header = ["k", "ε ≥ 20", "ε ≥ 21", "ε ≥ 22", "ε ≥ 23", "ε at B = 128", "flat"]
    write_table("periodic", header, rows)


def write_table(name: str, header: list[str], rows: list[list[str]]) -> None:
    """Print a table, and put it between its markers in the pages that have them."""
    lines = ["| " + " | ".join(row) + " |" for row in (header, ["---"] * len(header), *rows)]
    table = "\n".join(lines)
    print(f"\n{name}\n{table}", flush=True)
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    for path in PAGES:
        page = path.read_text(encoding="utf-8") if path.exists() else ""
        if begin in page and end in page:
            before, rest = page.split(begin, 1)
            _, after = rest.split(end, 1)
            path.write_text(f"{before}{begin}\n\n{table}\n\n{end}{after}", encoding="utf-8")


SECTIONS = {
    "sweep": run_sweep,
    "signs": run_signs,
    "thresholds": run_thresholds,
    "simulation": run_simulation,
    "long": run_long,
    "moving": run_moving,
    "periodic": run_periodic,
    "composed": run_composed,
    "lasts": run_lasts,
    "ends": run_ends,
}


def main(chosen: list[str]) -> None:
    numbers = json.loads(NUMBERS.read_text()) if NUMBERS.exists() else {}
    for name in chosen or list(SECTIONS):
        begin = time.perf_counter()
        SECTIONS[name](numbers)
        print(f"{name}: {time.perf_counter() - begin:.1f} s", flush=True)
        NUMBERS.write_text(json.dumps(numbers, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
