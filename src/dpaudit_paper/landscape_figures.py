"""Figures of the landscape process. They render results that are handed to them, nothing more.

Colours are Okabe and Ito's and the map is cividis, so every figure survives a colour-blind reader
and a grey printer; line styles and labels say the same thing again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpaudit.errors import InvalidInput, MissingExtra
from dpaudit.landscapes import ChainLandscape, DensityPair, ExactPrivacy, Sweep, ThresholdSearch
from dpaudit.mechanisms.landscape import LandscapeProcess
from dpaudit.tradeoff import gaussian_delta

Array = NDArray[np.float64]

BLUE, ORANGE, GREEN, RED, PURPLE, SKY = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#D55E00",
    "#CC79A7",
    "#56B4E9",
)
GREY = "#666666"
WIDTH = 7.0  # inches: the text width of a page


def draw_process(
    result: ExactPrivacy, densities: Sequence[tuple[int, DensityPair]], path: str
) -> None:
    """One process at a glance: its landscape, both densities over time, epsilon over steps.

    Arguments:
        result: What the process leaks.
        densities: Steps and their densities; where there are none, the privacy profile is drawn.
        path: Where to write; the suffix decides the format.
    """
    with _figure(path, columns=3, height=2.5) as (_, (left, middle, right)):
        _shape(left, result.process)
        if densities:
            _ridges(middle, densities)
        else:
            _profile(middle, result)
        steps = np.arange(1, result.process.steps + 1)
        right.plot(steps, result.gdp_rule, color=ORANGE, linestyle="--", label="GDP rule")
        right.plot(steps, result.epsilon, color=BLUE, label="exact")
        right.axhline(result.accountant, color=GREY, linestyle=":", label="accountant")
        right.set(
            xlabel="step",
            ylabel=f"epsilon at delta = {result.delta:g}",
            ylim=(0, 1.12 * result.accountant),
        )
        right.legend(frameon=False)


def draw_landscapes(processes: Sequence[tuple[str, LandscapeProcess]], path: str) -> None:
    """Loss landscapes side by side."""
    with _figure(path, columns=len(processes), height=2.2) as (_, axes):
        for axis, (title, process) in zip(axes, processes, strict=True):
            _loss(axis, process)
            axis.set_title(title)
        for axis in axes[1:]:
            axis.set_ylabel("")


def draw_densities(
    columns: Sequence[tuple[str, Sequence[tuple[int, DensityPair]]]], path: str
) -> None:
    """Both densities over time, one column for each landscape."""
    with _figure(path, columns=len(columns), height=3.2) as (_, axes):
        for axis, (title, densities) in zip(axes, columns, strict=True):
            _ridges(axis, densities)
            axis.set_title(title)


def draw_epsilon_over_steps(grid: Sweep, rows: Sequence[float], path: str) -> None:
    """Epsilon over steps for several noise multipliers: exact, GDP rule, accountant."""
    import matplotlib as mpl

    shades = mpl.colormaps["cividis"](np.linspace(0.0, 0.85, len(grid.batch_sizes)))
    with _figure(path, columns=len(rows), height=2.8) as (figure, axes):
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
    """What is left of the first step's epsilon: exact beside the GDP rule."""
    steps = grid.exact.shape[-1]
    with _figure(path, columns=2, height=3.4) as (figure, axes):
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
    """Epsilon at T = 2 over the threshold's place; the decision point is marked."""
    lowest = min(float(search.exact.min()) for _, search, _ in panels)
    with _figure(path, columns=len(panels), height=2.6) as (figure, axes):
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
        "staircase": (SKY, "v"),
        "searched": (BLUE, "s"),
    }
    with _figure(path, columns=len(panels), height=2.6) as (_, axes):
        for axis, (title, series) in zip(axes, panels, strict=True):
            for name, (ratio, kept) in series.items():
                colour, marker = looks[name]
                axis.plot(ratio, kept, marker, color=colour, ms=4, label=name, mfc="none", mew=1.1)
            axis.axhline(1, color=GREY, linestyle=":")
            axis.set(title=title, xlabel="B / sigma", xscale="log", ylim=(0, 1.05))
        axes[0].set_ylabel("epsilon(25) / accountant")
        axes[0].legend(frameon=False)


def draw_periodic(
    panels: Sequence[tuple[str, float, Mapping[str, tuple[Array, Array]]]],
    accountant: float,
    path: str,
) -> None:
    """Epsilon kept at an insertion period, over the batch size that the landscape needs."""
    looks = {"clock": (ORANGE, "-"), "escalator": (BLUE, "-")}
    with _figure(path, columns=len(panels), height=2.7) as (_, axes):
        for axis, (title, flat, series) in zip(axes, panels, strict=True):
            axis.axhline(accountant, color=GREY, linestyle=":", label="accountant")
            for name, (batch, epsilon) in series.items():
                colour, style = looks[name]
                # What a batch size allows, every larger one allows too.
                last = np.append(batch, 10_000), np.append(epsilon, epsilon[-1])
                axis.step(*last, where="post", color=colour, linestyle=style, label=name)
            axis.axhline(flat, color="black", linestyle="--", lw=0.9, label="flat landscape")
            axis.set(title=title, xlabel="batch size B", xscale="log")
            axis.set(xlim=(140, 8000), ylim=(0, 1.06 * accountant))
            ticks = (200, 500, 1000, 2000, 5000)
            axis.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
            axis.set_xticks([], minor=True)
        axes[0].set_ylabel("epsilon at delta = 1e-5")
        axes[-1].legend(frameon=False, loc="center right")


def _shape(axis: Any, process: LandscapeProcess) -> None:
    if isinstance(process.landscape, ChainLandscape):
        _jumps(axis, process)
    else:
        _loss(axis, process)


def _loss(axis: Any, process: LandscapeProcess) -> None:
    """The loss whose descent is the drift, above the densities of the first step."""
    noise = process.noise_multiplier
    low, high = -4.5 * noise, 1 + 4.5 * noise
    x = np.linspace(low, high, 4001)
    drift = process.drift(x)
    loss = -np.concatenate([[0.0], np.cumsum((drift[1:] + drift[:-1]) / 2 * np.diff(x))])
    depth = max(float(np.ptp(loss)), 1e-9)
    axis.plot(x, (loss - loss.min()) / depth, color="black")
    for mean, colour, side in ((0.0, ORANGE, "without\ncanary"), (1.0, BLUE, "with\ncanary")):
        bell = np.exp(-0.5 * ((x - mean) / noise) ** 2)
        axis.fill_between(x, -0.6, -0.6 + 0.4 * bell, color=colour, alpha=0.35, lw=0)
        place = mean + (1.6 if mean else -1.6) * noise
        axis.annotate(
            side,
            (place, -0.4),
            color=colour,
            fontsize=7,
            ha="left" if mean else "right",
            va="center",
        )
    axis.set(xlabel="position / C", ylabel="loss", xlim=(low, high), yticks=[], ylim=(-0.62, 1.06))
    axis.yaxis.set_label_coords(-0.03, 0.65)


def _jumps(axis: Any, process: LandscapeProcess) -> None:
    """Where a step lands before its noise, over a stretch that shows reading and cleaning."""
    noise = process.noise_multiplier
    x = np.linspace(-15 * noise, 40 * noise, 8001)
    landing = x + process.drift(x)
    steps = np.flatnonzero(np.abs(np.diff(landing)) > 1e-6)
    axis.plot(np.insert(x, steps + 1, np.nan), np.insert(landing, steps + 1, np.nan), color="black")
    axis.set(xlabel="position / C", ylabel="where the step lands / C", xlim=(x[0], x[-1]))


def _ridges(axis: Any, densities: Sequence[tuple[int, DensityPair]]) -> None:
    """Densities of both worlds, one row for each step, scaled to the same height."""
    for row, (step, pair) in enumerate(densities):
        x, base = pair.panels.nodes.ravel(), -row
        peak = max(pair.without.max(), pair.canary.max())
        for density, colour in ((pair.without, ORANGE), (pair.canary, BLUE)):
            x_, y_ = _with_gaps(x, 0.8 * density.ravel() / peak, pair)
            axis.fill_between(x_, base, base + y_, color=colour, alpha=0.35, lw=0)
            axis.plot(x_, base + y_, color=colour, lw=0.9)
        axis.annotate(
            f"t = {step}", (1.01, base + 0.1), xycoords=("axes fraction", "data"), fontsize=7
        )
    left = min(p.panels.left[_matters(p, 1e-6)].min() for _, p in densities)
    right = max(p.panels.right[_matters(p, 1e-6)].max() for _, p in densities)
    axis.set(
        xlabel="position / C", yticks=[], xlim=(left, right), ylim=(0.9 - len(densities), 1.35)
    )
    axis.spines["left"].set_visible(False)
    axis.plot([], [], color=ORANGE, label="without")
    axis.plot([], [], color=BLUE, label="with canary")
    axis.legend(frameon=False, loc="upper center", ncols=2, columnspacing=1, handlelength=1)


def _matters(pair: DensityPair, mass: float) -> NDArray[np.bool_]:
    return np.asarray(
        np.maximum(pair.panels.masses(pair.without), pair.panels.masses(pair.canary)) > mass
    )


def _with_gaps(x: Array, y: Array, pair: DensityPair) -> tuple[Array, Array]:
    """Cut the line where panels are missing, so that nothing is drawn across empty space."""
    order = pair.panels.rule.order
    gaps = np.flatnonzero(pair.panels.left[1:] - pair.panels.right[:-1] > 1e-9) + 1
    return np.insert(x, gaps * order, np.nan), np.insert(y, gaps * order, np.nan)


def _profile(axis: Any, result: ExactPrivacy) -> None:
    """The privacy profile after the last step, beside the accountant's."""
    epsilon = np.linspace(0.0, 1.3 * result.accountant, 120)
    mu = result.process.accountant_mu(result.process.steps)
    axis.plot(epsilon, gaussian_delta(epsilon, mu), color=GREY, linestyle=":", label="accountant")
    axis.plot(epsilon, [result.last.delta(float(e)) for e in epsilon], color=BLUE, label="exact")
    axis.plot(result.epsilon[-1], result.delta, "o", color=BLUE, ms=3.5)
    axis.set(xlabel="epsilon", ylabel="delta", yscale="log", ylim=(1e-9, 2))
    axis.legend(frameon=False)


@contextmanager
def _figure(path: str, *, columns: int, height: float) -> Iterator[tuple[Any, Any]]:
    """A figure with one row of axes in the house's style, saved on the way out."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine
    except ImportError:
        raise MissingExtra("drawing figures", "plot") from None

    style: Any = {
        "font.size": 8,
        "axes.titlesize": 8,
        "axes.labelsize": 8,
        "legend.fontsize": 7,
        "xtick.labelsize": 7,
        "ytick.labelsize": 7,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.linewidth": 0.6,
        "lines.linewidth": 1.4,
    }
    with mpl.rc_context(style):
        # A Figure of its own, not pyplot's: no global state, no display needed.
        layout = ConstrainedLayoutEngine(w_pad=0.08, wspace=0.04)
        figure = Figure(figsize=(WIDTH, height), layout=layout)
        axes = figure.subplots(1, columns, squeeze=False)[0]
        yield figure, axes
        try:
            figure.savefig(path, dpi=200)
        except OSError as error:
            raise InvalidInput(
                f"cannot write the figure {path}: {error.strerror or error}; "
                "choose a file in a folder you can write to"
            ) from error
