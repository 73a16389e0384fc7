"""Every table and figure about landscapes in the documentation, from one command.

    python benchmarks/landscapes.py                # all sections, some minutes on two cores
    python benchmarks/landscapes.py sweep moving   # only these

Numbers go to ``benchmarks/landscapes.json``, tables between their markers in two pages of
``docs/``, figures to ``docs/figures/landscape_*.png``.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from dpaudit._arrays import Array
from dpaudit.curves import gaussian_epsilon
from dpaudit.lower_bounds import estimate
from dpaudit.report.palette import BLUE, GREEN, GREY, ORANGE
from dpaudit.scores import Scores
from dpaudit_paper.landscapes import (
    BatchLandscapes,
    Constant,
    DensityPair,
    ExactPrivacy,
    Landscape,
    LandscapeProcess,
    Literal,
    MovingThreshold,
    Scaling,
    Threshold,
    ThresholdSearch,
    Wells,
    decision_point,
    exact_privacy,
    fitted_moving_threshold,
    fitted_reading_wells,
    fitted_wells,
    named_landscape,
    pairs,
    simulate,
    threshold_search,
)
from dpaudit_paper.landscapes.drawing import draw_densities, draw_loss, figure_file

ROOT = Path(__file__).parent.parent
NUMBERS = ROOT / "benchmarks" / "landscapes.json"
PAGES = [ROOT / "docs" / name for name in ("landscapes.md", "differences-from-the-paper.md")]
FIGURES = ROOT / "docs" / "figures"

DELTA = 1e-5
BATCHES = (1, 2, 4, 8, 16)
INSERTIONS = 250
SIGMA = 4.0  # of the periodic insertions


@dataclass(frozen=True, kw_only=True, eq=False)
class Sweep:
    """Epsilon at every step for a grid of processes.

    Arguments:
        noise_multipliers: Noise multipliers, the rows of the grid.
        batch_sizes: Batch sizes, the columns of the grid.
        exact: Exact epsilon, shape (rows, columns, steps).
        gdp_rule: What the GDP rule reports with infinitely many runs, same shape.
        accountant: The upper bound for each row.
        error: Largest relative numerical error of all cells.
    """

    noise_multipliers: tuple[float, ...]
    batch_sizes: tuple[int, ...]
    exact: Array
    gdp_rule: Array
    accountant: Array
    error: float

    @property
    def exact_ratio(self) -> Array:
        """Epsilon after the last step over epsilon after the first; 1 means no amplification."""
        return np.asarray(self.exact[..., -1] / self.exact[..., 0])

    @property
    def gdp_rule_ratio(self) -> Array:
        """The same ratio by the GDP rule."""
        return np.asarray(self.gdp_rule[..., -1] / self.gdp_rule[..., 0])


def sweep(
    noise_multipliers: Sequence[float],
    batch_sizes: Sequence[int],
    *,
    steps: int = 25,
    shape: str = "threshold",
    scaling: Scaling = "paper",
    delta: float = 1e-5,
) -> Sweep:
    """Exact privacy of a named landscape over a grid.

    Arguments:
        noise_multipliers: Noise multipliers, the rows of the grid.
        batch_sizes: Batch sizes, the columns of the grid.
        steps: Number of steps.
        shape: A name that `dpaudit_paper.landscapes.named_landscape` knows.
        scaling: ``"paper"`` or ``"dpsgd"``.
        delta: Delta at which epsilon is computed.

    Example:
        >>> grid = sweep([1, 4], [1, 16], steps=3)
        >>> grid.exact.shape, bool((grid.exact_ratio <= 1).all())
        ((2, 2, 3), True)
    """

    def cell(sigma: float, batch: int) -> ExactPrivacy:
        process = LandscapeProcess(
            noise_multiplier=float(sigma),
            batch_size=int(batch),
            steps=steps,
            scaling=scaling,
            landscape=Constant(),
        )
        fitted = named_landscape(shape, process, delta=delta)
        return exact_privacy(process.with_landscape(fitted), delta=delta)

    results = [cell(*pair) for pair in product(noise_multipliers, batch_sizes)]
    shape_ = (len(noise_multipliers), len(batch_sizes), steps)
    return Sweep(
        noise_multipliers=tuple(float(sigma) for sigma in noise_multipliers),
        batch_sizes=tuple(int(batch) for batch in batch_sizes),
        exact=np.array([result.epsilon for result in results]).reshape(shape_),
        gdp_rule=np.array([result.gdp_rule for result in results]).reshape(shape_),
        accountant=np.array([gaussian_epsilon(delta, 1 / sigma) for sigma in noise_multipliers]),
        error=max(result.error for result in results),
    )


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
    """The paper's figure 3: forty cells, exact and GDP rule, timed on one core."""
    begin, cpu = time.perf_counter(), time.process_time()
    grid = sweep(range(1, 9), BATCHES)
    seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
    draw_heat_maps(grid, str(FIGURES / "landscape_heat_map.png"))
    draw_epsilon_over_steps(grid, (1, 8), str(FIGURES / "landscape_epsilon.png"))
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
        # After one step without the canary the moving threshold is the best place.
        best = fitted_moving_threshold(base).places[0]
        at_best = threshold_search(base, thresholds=[best])
        half = int(np.flatnonzero(found.thresholds == 0.5)[0])
        rows.append(
            [
                scaling,
                str(sigma),
                str(batch),
                f"{found.exact[half]:.4f}",
                f"{at_best.exact[0]:.4f} at {best:.2f} C",
                f"{found.gdp_rule[half]:.4f}",
                f"{found.gdp_rule.max():.4f} at {found.best_gdp_rule:.2f} C",
                f"{gaussian_epsilon(DELTA, 1 / sigma):.4f}",
            ]
        )
        if (sigma, batch) == (1, 4) or (scaling, sigma, batch) == ("paper", 1, 1):
            panels.append((f"{scaling}, B = {batch}", found, decision_point(base)))
    draw_threshold_search(
        panels, gaussian_epsilon(DELTA, 1.0), str(FIGURES / "landscape_thresholds.png")
    )
    numbers["thresholds"] = rows
    header = ["scaling", "sigma", "B", "exact, C/2", "exact, best", "GDP, C/2", "GDP, best"]
    write_table("thresholds", [*header, "accountant"], rows)


def run_moving(numbers: dict[str, Any]) -> None:
    """The moving threshold beside fixed landscapes, in both scalings."""
    numbers["moving"] = cells = []
    for scaling, sigma, batch in product(("paper", "dpsgd"), (1, 2, 4, 8), BATCHES):
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
    header = ["sigma", "B", "constant", "threshold at C/2", "wells", "moving threshold"]
    panels = []
    for scaling, title in (("paper", "the paper's scaling"), ("dpsgd", "DP-SGD's scaling")):
        chosen = [cell for cell in cells if cell["scaling"] == scaling]
        rows = [
            [str(cell["sigma"]), str(cell["batch"])]
            + [f"{cell[name]:.4f}" for name in ("constant", "threshold", "wells")]
            + [f"**{cell['moving']:.4f}**", f"{cell['accountant']:.4f}"]
            for cell in chosen
        ]
        write_table(f"moving_{scaling}", [*header, "accountant"], rows)
        ratio = np.array([cell["batch"] / cell["sigma"] for cell in chosen])
        names = {"threshold at C/2": "threshold", "wells": "wells", "moving threshold": "moving"}
        series = {
            label: (ratio, np.array([cell[name] / cell["accountant"] for cell in chosen]))
            for label, name in names.items()
        }
        panels.append((title, series))
    draw_kept_over_ratio(panels, str(FIGURES / "landscape_kept.png"))


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
        landscape: Landscape | MovingThreshold = Threshold(at=decision_point(base))
        if shape == "wells":
            landscape = Wells(width=4.0 if sigma == 2 else 1.5)
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


def run_periodic(numbers: dict[str, Any]) -> None:
    """Reading wells: the smallest batch size for each epsilon, and epsilon at B = 128."""
    rows = []
    for period in (5, 25):

        def kept(batch: int, period: int = period) -> float:
            base = process(SIGMA, batch, INSERTIONS * period, "dpsgd", period=period)
            wells = fitted_reading_wells(base, delta=DELTA)
            return wells.after(INSERTIONS, noise_multiplier=SIGMA).epsilon(DELTA)

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


def run_pictures(numbers: dict[str, Any]) -> None:
    """Landscapes and densities, without numbers."""
    base = process(1, 8, 25)
    wells = Wells(width=2.19)
    draw_landscapes(
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
    draw_density_columns(columns, str(FIGURES / "landscape_densities.png"))


def draw_landscapes(processes: Sequence[tuple[str, LandscapeProcess]], path: str) -> None:
    """Loss landscapes side by side."""
    with figure_file(path, columns=len(processes), height=2.2) as (_, axes):
        for axis, (title, process) in zip(axes, processes, strict=True):
            draw_loss(axis, process)
            axis.set_title(title)
        for axis in axes[1:]:
            axis.set_ylabel("")


def draw_density_columns(
    columns: Sequence[tuple[str, Sequence[tuple[int, DensityPair]]]], path: str
) -> None:
    """Both densities over time, one column for each landscape."""
    with figure_file(path, columns=len(columns), height=3.2) as (_, axes):
        for axis, (title, densities) in zip(axes, columns, strict=True):
            draw_densities(axis, densities)
            axis.set_title(title)


def draw_epsilon_over_steps(grid: Sweep, rows: Sequence[float], path: str) -> None:
    """Epsilon over steps for several noise multipliers: exact, GDP rule, accountant."""
    import matplotlib as mpl

    shades = mpl.colormaps["cividis"](np.linspace(0.0, 0.85, len(grid.batch_sizes)))
    with figure_file(path, columns=len(rows), height=2.8) as (figure, axes):
        steps = np.arange(1, grid.exact.shape[-1] + 1)
        for axis, sigma in zip(axes, rows, strict=True):
            row = grid.noise_multipliers.index(float(sigma))
            for column, shade in enumerate(shades):
                axis.plot(steps, grid.gdp_rule[row, column], color=shade, linestyle="--", lw=0.9)
                axis.plot(steps, grid.exact[row, column], color=shade)
            axis.axhline(grid.accountant[row], color=GREY, linestyle=":")
            axis.set(title=f"sigma = {sigma:g}", xlabel="step T", ylim=(0, None))
        axes[0].set_ylabel("epsilon at delta = 1e-5")
        handles = [
            mpl.lines.Line2D([], [], color=shade, label=f"B = {batch}")
            for shade, batch in zip(shades, grid.batch_sizes, strict=True)
        ]
        handles += [
            mpl.lines.Line2D([], [], color="black", label="exact"),
            mpl.lines.Line2D([], [], color="black", linestyle="--", lw=0.9, label="GDP rule"),
            mpl.lines.Line2D([], [], color=GREY, linestyle=":", label="accountant"),
        ]
        figure.legend(handles=handles, loc="outside right center", frameon=False)


def draw_heat_maps(grid: Sweep, path: str) -> None:
    """Epsilon after the last step over epsilon after the first: exact and by the GDP rule."""
    steps = grid.exact.shape[-1]
    with figure_file(path, columns=2, height=3.4) as (figure, axes):
        for axis, title, ratio in zip(
            axes, ("exact", "GDP rule"), (grid.exact_ratio, grid.gdp_rule_ratio), strict=True
        ):
            image = axis.imshow(ratio, cmap="cividis", vmin=0, vmax=1, aspect="auto")
            axis.set(title=title, xlabel="batch size B")
            axis.set_xticks(range(len(grid.batch_sizes)), [str(b) for b in grid.batch_sizes])
            axis.set_yticks(
                range(len(grid.noise_multipliers)), [f"{s:g}" for s in grid.noise_multipliers]
            )
            axis.spines[:].set_visible(False)
            for (row, column), value in np.ndenumerate(ratio):
                axis.text(
                    column,
                    row,
                    f"{value:.2f}",
                    ha="center",
                    va="center",
                    fontsize=7,
                    color="white" if value < 0.55 else "black",
                )
        axes[0].set_ylabel("noise multiplier sigma")
        figure.colorbar(image, ax=axes, label=f"epsilon(T={steps}) / epsilon(T=1)", shrink=0.9)


def draw_threshold_search(
    panels: Sequence[tuple[str, ThresholdSearch, float]], accountant: float, path: str
) -> None:
    """Epsilon at T = 2 over the threshold; the decision point is marked."""
    lowest = min(float(search.exact.min()) for _, search, _ in panels)
    with figure_file(path, columns=len(panels), height=2.6) as (figure, axes):
        for axis, (title, search, decision) in zip(axes, panels, strict=True):
            axis.axhline(accountant, color=GREY, linestyle=":", label="accountant")
            axis.plot(
                search.thresholds, search.gdp_rule, color=ORANGE, linestyle="--", label="GDP rule"
            )
            axis.plot(search.thresholds, search.exact, color=BLUE, label="exact")
            axis.axvline(0.5, color=GREY, lw=0.6, label="C/2")
            for place in (decision, 1 - decision):
                axis.axvline(place, color=GREEN, lw=0.8, linestyle="-.", label="decision point")
            axis.set(title=title, xlabel="threshold h / C")
            axis.set_ylim(lowest - 0.06 * accountant, 1.03 * accountant)
        axes[0].set_ylabel("epsilon at T = 2")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles[:-1], labels[:-1], loc="outside lower center", ncols=5, frameon=False)


def draw_kept_over_ratio(
    panels: Sequence[tuple[str, Mapping[str, tuple[Array, Array]]]], path: str
) -> None:
    """Share of the accountant's epsilon kept, over B / sigma, for several landscapes."""
    looks = {
        "threshold at C/2": (ORANGE, "o"),
        "wells": (GREEN, "^"),
        "moving threshold": (BLUE, "s"),
    }
    with figure_file(path, columns=len(panels), height=2.6) as (_, axes):
        for axis, (title, series) in zip(axes, panels, strict=True):
            for name, (ratio, kept) in series.items():
                colour, marker = looks[name]
                axis.plot(ratio, kept, marker, color=colour, ms=4, label=name, mfc="none", mew=1.1)
            axis.axhline(1, color=GREY, linestyle=":")
            axis.set(title=title, xlabel="B / sigma", xscale="log", ylim=(0, 1.05))
        axes[0].set_ylabel("epsilon(25) / accountant")
        axes[0].legend(frameon=False)


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
    "pictures": run_pictures,
    "sweep": run_sweep,
    "signs": run_signs,
    "thresholds": run_thresholds,
    "simulation": run_simulation,
    "long": run_long,
    "moving": run_moving,
    "periodic": run_periodic,
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
