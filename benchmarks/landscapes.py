"""Every table and figure about landscapes in the documentation, from one command.

    python benchmarks/landscapes.py                # all sections, some ten minutes on two cores
    python benchmarks/landscapes.py sweep search   # only these

Numbers go to ``benchmarks/landscapes.json``, tables between their markers in two pages of
``docs/``, figures to ``docs/figures/landscape_*.png``. The last section, ``checks``, holds the
numbers against what was promised and fails if one is missed.
"""

from __future__ import annotations

import json
import math
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from dpaudit.curves import gaussian_epsilon
from dpaudit.landscapes import (
    Clock,
    Constant,
    DensityPair,
    Escalator,
    Literal,
    Threshold,
    Wells,
    best_threshold,
    decision_point,
    exact_privacy,
    fitted_escalator,
    fitted_staircase,
    pairs,
    search_landscape,
    simulate,
    threshold_search,
)
from dpaudit.landscapes.clock import rounding_unit
from dpaudit.lower_bounds import estimate
from dpaudit.mechanisms.landscape import Landscape, LandscapeProcess
from dpaudit.scores import Scores
from dpaudit_paper import landscape_drawing as figures
from dpaudit_paper.landscape_sweep import sweep

ROOT = Path(__file__).parent.parent
NUMBERS = ROOT / "benchmarks" / "landscapes.json"
PAGES = [ROOT / "docs" / name for name in ("landscapes.md", "differences-from-the-paper.md")]
FIGURES = ROOT / "docs" / "figures"

DELTA = 1e-5
BATCHES = (1, 2, 4, 8, 16)
INSERTIONS = 250
SIGMA = 4.0  # of the periodic insertions


def process(
    sigma: float,
    batch: int,
    steps: int,
    scaling: str = "paper",
    landscape: Landscape | None = None,
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
    """The paper's figure 3: forty cells, exact and GDP rule, timed on one core."""
    begin, cpu = time.perf_counter(), time.process_time()
    grid = sweep(range(1, 9), BATCHES)
    seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
    figures.draw_heat_maps(grid, str(FIGURES / "landscape_heat_map.png"))
    figures.draw_epsilon_over_steps(grid, (1, 8), str(FIGURES / "landscape_epsilon.png"))
    rows = []
    for row, sigma in enumerate(grid.noise_multipliers):
        for name, values in (("exact", grid.exact), ("GDP rule", grid.gdp_rule)):
            above = f"{grid.accountant[row]:.4f}" if name == "exact" else ""
            rows.append([f"{sigma:g}", name, *(f"{e:.4f}" for e in values[row, :, -1]), above])
    numbers["sweep"] = {
        "seconds_on_one_core": seconds,
        "cpu_seconds": cpu,
        "error": grid.error,
        "rows": rows,
    }
    write_table("sweep", ["sigma", "", *(f"B={b}" for b in BATCHES), "accountant"], rows)


def run_signs(numbers: dict[str, Any]) -> None:
    """Sign and scaling: the same adversary read in four ways."""
    rows = []
    for scaling, batch in product(("paper", "dpsgd"), (1, 4, 16)):
        cells = []
        for shape in (Literal(), Threshold()):
            result = exact_privacy(process(1, batch, 25, scaling, shape))
            cells += [f"{result.epsilon[1]:.4f}", f"{result.epsilon[-1]:.4f}"]
        rows.append([scaling, str(batch), *cells, f"{result.gdp_rule[-1]:.4f}"])
    numbers["signs"] = rows
    header = ["scaling", "B", "literal, T=2", "literal, T=25", "corrected, T=2"]
    write_table("signs", [*header, "corrected, T=25", "GDP rule, T=25"], rows)


def run_thresholds(numbers: dict[str, Any]) -> None:
    """The paper's appendix: is h = C/2 the best threshold at T = 2?"""
    panels, rows = [], []
    settings = (("paper", 1, 1), ("paper", 1, 4), ("dpsgd", 1, 4), ("paper", 4, 4), ("dpsgd", 4, 4))
    for scaling, sigma, batch in settings:
        base = process(sigma, batch, 2, scaling)
        found = threshold_search(base)
        best = best_threshold(base)
        at_best = threshold_search(base, thresholds=[best.at])
        half = int(np.flatnonzero(found.thresholds == 0.5)[0])
        rows.append(
            [
                scaling,
                str(sigma),
                str(batch),
                f"{found.exact[half]:.4f}",
                f"{at_best.exact[0]:.4f} at {best.at:.2f} C",
                f"{found.gdp_rule[half]:.4f}",
                f"{found.gdp_rule.max():.4f} at {found.best_gdp_rule:.2f} C",
                f"{gaussian_epsilon(DELTA, 1 / sigma):.4f}",
            ]
        )
        if (sigma, batch) == (1, 4) or (scaling, sigma, batch) == ("paper", 1, 1):
            panels.append((f"{scaling}, B = {batch}", found, decision_point(base)))
    figures.draw_threshold_search(
        panels, gaussian_epsilon(DELTA, 1.0), str(FIGURES / "landscape_thresholds.png")
    )
    numbers["thresholds"] = rows
    header = ["scaling", "sigma", "B", "exact, C/2", "exact, best", "GDP, C/2", "GDP, best"]
    write_table("thresholds", [*header, "accountant"], rows)


def search_cell(cell: tuple[str, int, int]) -> dict[str, Any]:
    scaling, sigma, batch = cell
    found = search_landscape(process(sigma, batch, 25, scaling, Threshold()))
    named = {shape.name: shape.epsilon for shape in found.named}
    return {
        "scaling": scaling,
        "sigma": sigma,
        "batch": batch,
        **named,
        "moved_threshold": found.moved_threshold.epsilon,
        "at": found.moved_threshold.landscape.at,  # type: ignore[attr-defined]
        "searched": found.epsilon,
        "winner": found.name,
        "accountant": found.privacy.accountant,
        "error": found.privacy.error,
        "starts": [[start.name, start.before, start.after] for start in found.starts],
    }


def run_search(numbers: dict[str, Any]) -> None:
    """The landscape search in every cell, both scalings."""
    cells = list(product(("paper", "dpsgd"), (1, 2, 4, 8), BATCHES))
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        results = list(pool.map(search_cell, cells))
    numbers["search"] = results
    header = ["sigma", "B", "constant", "threshold", "wells", "staircase", "searched", "at h"]
    for scaling in ("paper", "dpsgd"):
        rows = [
            [str(r["sigma"]), str(r["batch"])]
            + [f"{r[name]:.4f}" for name in ("constant", "threshold", "wells", "staircase")]
            + [f"**{r['searched']:.4f}**", f"{r['at']:.2f}", f"{r['accountant']:.4f}"]
            for r in results
            if r["scaling"] == scaling
        ]
        write_table(f"search_{scaling}", [*header, "accountant"], rows)
    draw_search(numbers)


def draw_search(numbers: dict[str, Any]) -> None:
    panels = []
    names = {"threshold": "threshold at C/2", "wells": "wells", "searched": "searched"}
    for scaling, title in (("paper", "the paper's scaling"), ("dpsgd", "DP-SGD's scaling")):
        chosen = [r for r in numbers["search"] if r["scaling"] == scaling]
        ratio = np.array([r["batch"] / r["sigma"] for r in chosen])
        series = {
            label: (ratio, np.array([r[name] / r["accountant"] for r in chosen]))
            for name, label in names.items()
        }
        panels.append((title, series))
    figures.draw_kept_over_ratio(panels, str(FIGURES / "landscape_search.png"))


def run_long(numbers: dict[str, Any]) -> None:
    """Long runs: what is left after 100 and 1,000 steps."""
    rows = []
    cases: list[tuple[str, str, int, int, int]] = [
        ("paper", "wells", 2, 8, 100),
        ("paper", "wells", 1, 8, 100),
        ("dpsgd", "staircase", 1, 128, 100),
        ("dpsgd", "staircase", 1, 512, 100),
        ("dpsgd", "decision", 1, 4, 100),
        ("dpsgd", "decision", 1, 8, 100),
        ("dpsgd", "decision", 1, 8, 1000),
        ("dpsgd", "moved", 1, 2, 100),
        ("dpsgd", "moved", 1, 1, 25),
        ("dpsgd", "moved", 1, 1, 100),
        ("dpsgd", "moved", 1, 1, 400),
    ]
    for scaling, shape, sigma, batch, steps in cases:
        base = process(sigma, batch, steps, scaling)
        if shape == "wells":
            landscape: Landscape = Wells(width=4.0 if sigma == 2 else 1.5)
        elif shape == "staircase":
            landscape = fitted_staircase(base)
        elif shape == "decision":
            landscape = Threshold(at=decision_point(base))
        else:
            landscape = best_threshold(base)
        result = exact_privacy(base.with_landscape(landscape))
        setting = [scaling, shape, str(sigma), str(batch), str(steps)]
        found = [f"{result.epsilon[-1]:.4f}", f"{result.accountant:.4f}", f"{result.error:.0e}"]
        rows.append([*setting, *found])
    numbers["long"] = rows
    header = ["scaling", "landscape", "sigma", "B", "T", "exact epsilon", "accountant", "error"]
    write_table("long", header, rows)


def run_deltas(numbers: dict[str, Any]) -> None:
    """The same landscapes at other deltas: one bit, or most of the trade-off curve?"""
    deltas = (1e-1, 1e-2, 1e-3, 1e-5, 1e-7)
    large, small = process(1, 512, 100, "dpsgd"), process(1, 128, 100, "dpsgd")
    cases = [
        ("staircase, B=512", large.with_landscape(fitted_staircase(large))),
        ("staircase, B=128", small.with_landscape(fitted_staircase(small))),
        ("decision, B=128", small.with_landscape(Threshold(at=decision_point(small)))),
        ("threshold at C/2, B=128", small.with_landscape(Threshold())),
    ]
    rows = []
    for name, chosen in cases:
        *_, last = pairs(chosen, delta=min(deltas))
        rows.append([name, *(f"{last.epsilon(delta):.3f}" for delta in deltas)])
    rows.append(["accountant", *(f"{gaussian_epsilon(delta, 1.0):.3f}" for delta in deltas)])
    numbers["deltas"] = rows
    write_table("deltas", ["σ=1, T=100, `dpsgd`", *(f"δ={delta:g}" for delta in deltas)], rows)


def run_simulation(numbers: dict[str, Any]) -> None:
    """A million runs, audited: the GDP rule claims more than the truth, valid bounds do not."""
    rows = []
    for scaling, batch in (("paper", 16), ("dpsgd", 16)):
        chosen = process(1, batch, 25, scaling, Threshold())
        exact = exact_privacy(chosen)
        scores = simulate(chosen, runs=1_000_000)
        table = Scores.from_samples(scores.inserted, scores.not_inserted)
        for method, rule in (
            ("gaussian-dp", "best"),
            ("gaussian-dp", "pilot"),
            ("clopper-pearson", "pilot"),
            ("profile", "pilot"),
        ):
            bound = estimate(table, delta=DELTA, method=method, threshold=rule)
            name = f"{method}, {rule} threshold" if method != "profile" else "whole curve"
            rows.append([scaling, name, f"{bound.epsilon:.4f}", f"{exact.epsilon[-1]:.4f}"])
    numbers["simulation"] = rows
    write_table("simulation", ["scaling", "bound", "lower bound on epsilon", "exact"], rows)


def clock_value(clock: Clock) -> tuple[float, float]:
    base = process(
        SIGMA, math.ceil(clock.least_reach), INSERTIONS * clock.phases, "dpsgd", clock, clock.phases
    )
    for pair in clock.pairs(base):
        last = pair
    return clock.least_reach, last.epsilon(DELTA)


def clocks(period: int) -> list[Clock]:
    levels = (1, 2, 3, 4, 5, 6, 8, 12, 16) if period < 10 else (1, 2, 3, 4, 6)
    return [
        Clock(phases=period, node=node * SIGMA, unit=SIGMA * rounding_unit(2 * m + 1), most=m)
        for m, node in product(levels, (7.0, 7.5, 8.0, 8.5, 9.0, 10.0, 12.0))
    ]


def frontier(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Smallest batch first, only those that keep more than every smaller one."""
    kept: list[tuple[float, float]] = []
    for batch, epsilon in sorted(points):
        if epsilon > (kept[-1][1] if kept else 0.0):
            kept.append((batch, epsilon))
    return kept


def escalator_value(cell: tuple[int, int]) -> tuple[float, float]:
    period, batch = cell
    base = process(SIGMA, batch, INSERTIONS * period, "dpsgd", period=period)
    escalator = fitted_escalator(base, delta=DELTA)
    pair = escalator.after(INSERTIONS, noise_multiplier=SIGMA)
    return float(math.ceil(escalator.least_reach)), pair.epsilon(DELTA)


def run_periodic(numbers: dict[str, Any]) -> None:
    """How much a landscape keeps at periods 5 and 25, and how small the batch can be."""
    batches = sorted({round(b) for b in np.geomspace(220, 4000, 26)})
    curves: dict[str, dict[str, list[tuple[float, float]]]] = {}
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        for period in (5, 25):
            curves[str(period)] = {
                "clock": frontier(list(pool.map(clock_value, clocks(period)))),
                "escalator": frontier(
                    list(pool.map(escalator_value, [(period, b) for b in batches]))
                ),
            }
        for period in (100, 1000):
            curves[str(period)] = {
                "escalator": frontier(
                    list(pool.map(escalator_value, [(period, b) for b in batches]))
                )
            }
    numbers["periodic"] = curves
    rows = []
    for period, series in curves.items():
        flat = gaussian_epsilon(DELTA, math.sqrt(INSERTIONS / int(period)) / SIGMA)
        for name, points in series.items():
            cells = []
            for target in (20.0, 21.0, 22.0, 23.0):
                enough = [b for b, epsilon in points if epsilon >= target]
                cells.append(f"{math.ceil(min(enough)):,}" if enough else "")
            rows.append([period, name, *cells, f"{points[-1][1]:.2f}", f"{flat:.2f}"])
    header = ["k", "landscape", "ε ≥ 20", "ε ≥ 21", "ε ≥ 22", "ε ≥ 23", "largest ε", "flat"]
    write_table("periodic", header, rows)
    draw_periods(numbers)


def draw_periods(numbers: dict[str, Any]) -> None:
    panels = []
    for period in ("5", "25"):
        flat = gaussian_epsilon(DELTA, math.sqrt(INSERTIONS / int(period)) / SIGMA)
        curves = numbers["periodic"][period]
        series = {name: tuple(np.array(points).T) for name, points in curves.items()}
        panels.append((f"canary at every {period}th step", flat, series))
    accountant = gaussian_epsilon(DELTA, math.sqrt(INSERTIONS) / SIGMA)
    figures.draw_periodic(panels, accountant, str(FIGURES / "landscape_periodic.png"))


def confirmed() -> list[Clock | Escalator]:
    """The issue's clock at period 5, a small one, their like at period 25, and an escalator."""
    unit = SIGMA * rounding_unit(7)
    return [
        Clock(phases=5, node=48.0, unit=1.0, most=16),
        Clock(phases=5, node=36.0, unit=unit, most=3),
        Clock(phases=25, node=48.0, unit=SIGMA * rounding_unit(13), most=6),
        Clock(phases=25, node=36.0, unit=unit, most=3),
        fitted_escalator(process(SIGMA, 700, INSERTIONS * 25, "dpsgd", period=25)),
    ]


def run_confirm(numbers: dict[str, Any]) -> None:
    """The chains against raw simulation: the same distributions, and what an audit proves."""
    rows, tails = [], []
    runs = 20_000
    for landscape in confirmed():
        batch, period = math.ceil(landscape.least_reach), landscape.phases
        chosen = process(SIGMA, batch, INSERTIONS * period, "dpsgd", landscape, period)
        setting = [type(landscape).__name__.lower(), str(period), f"{batch:,}"]
        # At the end nearly all escalator runs are in the pit: compare it after ten insertions.
        insertions = INSERTIONS if isinstance(landscape, Clock) else 10
        early = process(SIGMA, batch, insertions * period, "dpsgd", landscape, period)
        for pair in landscape.pairs(early):
            last = pair
        scores = simulate(early, runs=runs)
        distance = 0.0
        for sample, masses in ((scores.not_inserted, last.without), (scores.inserted, last.canary)):
            nodes = node_of(landscape, sample, masses.size, early.steps)
            counts = np.bincount(nodes, minlength=masses.size)
            gap = np.abs(np.cumsum(counts) / counts.sum() - np.cumsum(masses)).max()
            distance = max(distance, gap * math.sqrt(counts.sum()))
        cells = [str(insertions), f"{distance:.2f}", "", ""]
        if isinstance(landscape, Clock):
            table = Scores.from_samples(scores.inserted, scores.not_inserted)
            bound = estimate(table, delta=DELTA, method="gaussian-dp")
            spread = scores.not_inserted.std()
            mu = (scores.inserted.mean() - scores.not_inserted.mean()) / spread
            cells[2:] = [f"{mu:.3f}", f"{bound.epsilon:.2f}"]
        rows.append([*setting, *cells])
        tails.append([*setting, *tail_cells(chosen, runs)])
        print(rows[-1], tails[-1], flush=True)
    numbers["confirm"], numbers["tails"] = rows, tails
    header = ["landscape", "k", "B", "insertions", "Kolmogorov distance × √runs"]
    write_table("confirm", [*header, "μ by moments", "audited (GDP, pilot)"], rows)
    header = ["landscape", "k", "B", "ε on the chain", "P₁(A), chain", "P₁(A), sampled"]
    write_table("tails", [*header, "P₀(A), chain", "P₀(A), sampled"], tails)


def tail_cells(chosen: LandscapeProcess, runs: int) -> list[str]:
    """Both probabilities of the rejection region, on the chain and by importance sampling.

    The region is hit once in 10^15 runs without the canary. Runs of the raw process whose
    insertions carry a larger canary, at the speed of the decision point, hit it often; each counts
    with its likelihood ratio.
    """
    landscape = chosen.landscape
    assert isinstance(landscape, Clock | Escalator)
    for pair in landscape.pairs(chosen):
        last = pair
    epsilon = last.epsilon(DELTA)
    with np.errstate(divide="ignore", invalid="ignore"):
        rejected = np.log(last.canary) - np.log(last.without) > epsilon
    speed = 0.5 + epsilon * SIGMA**2 / INSERTIONS
    generator = np.random.default_rng(5)
    total = np.zeros(runs)  # of canary and noise over all insertions
    position = np.zeros(runs)
    for step in range(1, chosen.steps + 1):
        noise = SIGMA * generator.standard_normal(runs)
        if chosen.inserts(step):
            noise += speed
            total += noise
        position = noise if step == 1 else position + chosen.drift(position) + noise
    hit = rejected[node_of(landscape, position, rejected.size, chosen.steps)]
    cells = [f"{epsilon:.3f}"]
    for world, masses in ((1.0, last.canary), (0.0, last.without)):
        # log N(total; world) - log N(total; speed), insertion by insertion.
        log_weight = (world - speed) * (total - INSERTIONS * (world + speed) / 2) / SIGMA**2
        weights = np.where(hit, np.exp(log_weight), 0.0)
        mean, error = weights.mean(), weights.std() / math.sqrt(runs)
        exponent = math.floor(math.log10(mean))
        scale = 10.0**exponent
        cells.append(f"{masses[rejected].sum():.3g}")
        cells.append(f"({mean / scale:.2f} ± {error / scale:.2f})e{exponent}")
    return cells


def node_of(landscape: Clock | Escalator, sample: Any, size: int, steps: int) -> Any:
    """The chain's node of every position after the last step."""
    if isinstance(landscape, Clock):
        cell = np.floor(sample / landscape.node + 0.5)
        return (np.floor(cell / landscape.phases) + (size - 1) / 2).astype(int)
    here = sample + landscape.start * landscape.lane - (steps - 1) * landscape.height
    lane = np.clip(np.floor(here / landscape.lane + 0.5), 1, landscape.lanes)
    alive = (here >= landscape.lane / 2) & (here < landscape.height + landscape.bottom)
    return np.where(alive, lane, 0).astype(int)


def run_pictures(numbers: dict[str, Any]) -> None:
    """Landscapes and densities, without numbers."""
    base = process(1, 8, 25)
    wells = Wells(width=2.19)
    figures.draw_landscapes(
        [
            ("literal (as printed)", base.with_landscape(Literal())),
            ("threshold (sign corrected)", base.with_landscape(Threshold())),
            ("wells", base.with_landscape(wells)),
        ],
        str(FIGURES / "landscape_shapes.png"),
    )
    columns = []
    for title, shape in (("literal", Literal()), ("threshold", Threshold()), ("wells", wells)):
        shown = []
        for step, pair in enumerate(pairs(base.with_landscape(shape)), start=1):
            if step in (1, 2, 5, 25) and isinstance(pair, DensityPair):
                shown.append((step, pair))
        columns.append((title, shown))
    figures.draw_density_columns(columns, str(FIGURES / "landscape_densities.png"))


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


def run_checks(numbers: dict[str, Any]) -> None:
    """Every number that the landscapes were to reach; exits with an error if one is missed."""
    cells = {
        (row[0], row[1]): [float(cell) for cell in row[2:7]] for row in numbers["sweep"]["rows"]
    }
    long = {tuple(row[:5]): float(row[5]) for row in numbers["long"]}
    signs = {tuple(row[:2]): row for row in numbers["signs"]}
    tails = [
        (row[0], int(row[1]), int(row[2].replace(",", "")), float(row[3]))
        for row in numbers["tails"]
    ]

    def oracle(sigma: str, kind: str, values: list[float]) -> bool:
        return bool(np.allclose(cells[sigma, kind], values, atol=1e-3))

    def kept(period: int, batch: int, epsilon: float) -> bool:
        return any(k == period and b <= batch and e >= epsilon for _, k, b, e in tails)

    checks = {
        "oracle sigma=1 exact": oracle("1", "exact", [1.0846, 1.5659, 2.5953, 3.6438, 4.1562]),
        "oracle sigma=1 GDP": oracle("1", "GDP rule", [3.9850, 4.3698, 4.3771, 4.3771, 4.3771]),
        "oracle sigma=4 exact": oracle("4", "exact", [0.2105, 0.3480, 0.5620, 0.7781, 0.8819]),
        "oracle sigma=4 GDP": oracle("4", "GDP rule", [0.4243, 0.7970, 0.9186, 0.9262, 0.9263]),
        "forty cells, error": numbers["sweep"]["error"] < 1e-3,
        "forty cells, 20 s of one core": numbers["sweep"]["cpu_seconds"] < 20,
        "literal forgets": all(float(signs["paper", b][3]) < 0.02 for b in ("1", "4", "16")),
        "dpsgd threshold 2.943": abs(float(signs["dpsgd", "4"][4]) - 2.943) < 1e-3,
        "dpsgd threshold 1.104": abs(float(signs["dpsgd", "16"][5]) - 1.104) < 1e-3,
        "staircase B=128": long["dpsgd", "staircase", "1", "128", "100"] >= 4.32,
        "staircase B=512": long["dpsgd", "staircase", "1", "512", "100"] >= 4.37,
        "wells": long["paper", "wells", "2", "8", "100"] >= 1.99,
        "search, every cell": len(numbers["search"]) == 40
        and all(
            cell["searched"]
            >= max(cell[n] for n in ("constant", "threshold", "wells", "staircase"))
            for cell in numbers["search"]
        ),
        "period 5, B <= 4,000": kept(5, 4000, 23.0),
        "period 25, B <= 8,000": kept(25, 8000, 21.0),
        "simulated nodes agree": all(float(row[4]) < 1.95 for row in numbers["confirm"]),
    }
    for name, passed in checks.items():
        print(f"{'reached' if passed else 'MISSED '}  {name}")
    if not all(checks.values()):
        sys.exit(1)


SECTIONS = {
    "pictures": run_pictures,
    "sweep": run_sweep,
    "signs": run_signs,
    "thresholds": run_thresholds,
    "simulation": run_simulation,
    "long": run_long,
    "deltas": run_deltas,
    "search": run_search,
    "periodic": run_periodic,
    "confirm": run_confirm,
    "checks": run_checks,
}


def main(chosen: list[str]) -> None:
    FIGURES.mkdir(parents=True, exist_ok=True)
    numbers = json.loads(NUMBERS.read_text()) if NUMBERS.exists() else {}
    for name in chosen or list(SECTIONS):
        begin = time.perf_counter()
        SECTIONS[name](numbers)
        print(f"{name}: {time.perf_counter() - begin:.1f} s", flush=True)
        NUMBERS.write_text(json.dumps(numbers, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
