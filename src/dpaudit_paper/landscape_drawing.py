"""Figures of the documentation's page on landscapes, drawn from results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dpaudit._arrays import Array
from dpaudit.report.palette import BLUE, GREEN, GREY, ORANGE
from dpaudit_paper.landscape_sweep import Sweep
from dpaudit_paper.landscapes import DensityPair, LandscapeProcess, ThresholdSearch
from dpaudit_paper.landscapes.drawing import draw_densities, draw_loss, figure_file


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
