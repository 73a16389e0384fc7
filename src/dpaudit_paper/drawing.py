"""The drawings that several figures share; `style` has the widths, colours and fonts."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dpaudit._arrays import Array
from dpaudit.lower_bounds import ErrorCounts
from dpaudit.report.palette import ADVERSARIES
from dpaudit.scores import Scores
from dpaudit_paper import style
from dpaudit_paper.base import Figure
from dpaudit_paper.table import Table
from dpaudit_paper.trainings import NAMES, Line, curves

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing
    from matplotlib.lines import Line2D

    from dpaudit_paper.base import Setting

VALID, PAPER, FREE = "gaussian_dp", "paper_rule", "clopper_pearson"

LINES: dict[str, tuple[Any, str]] = {
    VALID: ("-", "GDP, pilot threshold"),
    PAPER: ("--", "GDP, best threshold (paper)"),
    FREE: (":", "assumption-free"),
}


def draw_curves(
    table: Table,
    *,
    height: float = 2.9,
    width: float | None = None,
    bounds: Sequence[str] = (VALID, PAPER, FREE),
    further: Sequence[Line2D] = (),
) -> Drawing:
    """Curves over training: bounds on epsilon of a training that stops after T steps.

    One panel for each value of ``panel``, one line for each value of ``series``. Marker shows the
    series, line style shows the bound. A series that is named after its adversary has the colour of
    that adversary, any other a colour that no adversary has. Of two series of the same colour the
    second has hollow markers. Several seeds are drawn as their mean with a band from the smallest
    to the largest value.

    Arguments:
        table: Rows of `dpaudit_paper.trainings.curves`.
        height: Height in inches.
        width: Width in inches; depends on the number of panels by default.
        bounds: The columns to draw.
        further: Entries of the legend for lines that the caller draws.
    """
    from matplotlib.lines import Line2D

    panels = table.words("panel") or [""]
    names = table.words("series")
    colours = series_colours(names)
    looks = [_markers(place, colours) for place in range(len(names))]
    if width is None:
        width = style.COLUMN if len(panels) == 1 else style.PAGE
    figure, axes = style.new_figure(columns=len(panels), width=width, height=height)
    for axis, panel in zip(axes, panels, strict=True):
        shown = table.where(panel=panel) if panel else table
        for place, name in enumerate(names):
            _series(axis, shown.where(series=name), colours[place], looks[place], bounds)
        _accountant(axis, shown)
        axis.set(title=panel, xlabel="steps T", ylim=(0, None))
        axis.margins(x=0.03)
    axes[0].set_ylabel("epsilon at delta = 1e-5")
    series = [
        Line2D([], [], color=colour, label=name, **look)
        for name, colour, look in zip(names, colours, looks, strict=True)
    ]
    lines = [
        Line2D([], [], color="black", linestyle=LINES[bound][0], label=LINES[bound][1])
        for bound in bounds
    ]
    lines.append(Line2D([], [], color=style.GREY, linestyle="-.", label="accountant"))
    groups = [[*series, *further], lines]
    style.grouped_legend_below(figure, groups, columns=2 if width < style.PAGE else 4)
    return figure


def curve_figure(
    lines: Callable[[Setting], Iterable[Line]],
    *,
    draw: Callable[[Table], Drawing] = draw_curves,
    finish: Callable[[Table], Table] = lambda table: table,
    **facts: Any,
) -> Figure:
    """A figure of curves over training.

    Arguments:
        lines: The lines in a setting.
        draw: The function that draws the table.
        finish: Applied to the table of `curves`.
        facts: The other arguments of `Figure`.
    """
    return Figure(
        trainings=lambda setting: [line.trainings for line in lines(setting) if line.can(setting)],
        measure=lambda setting: finish(curves(setting, lines(setting))),
        draw=draw,
        **facts,
    )


def _accountant(axis: Any, shown: Table) -> None:
    points = sorted(set(zip(shown.numbers("steps"), shown.numbers("accountant"), strict=True)))
    steps, epsilon = zip(*points, strict=True)
    axis.plot(steps, epsilon, color=style.GREY, linestyle="-.", lw=1.0, zorder=3)


def _series(
    axis: Any, rows: Table, colour: str, look: dict[str, Any], bounds: Sequence[str]
) -> None:
    if not len(rows):
        return
    for bound in bounds:
        by_step: dict[float, list[float]] = {}
        for step, value in zip(rows.numbers("steps"), rows.numbers(bound), strict=True):
            if not np.isnan(value):
                by_step.setdefault(step, []).append(value)
        if not by_step:
            continue
        steps = sorted(by_step)
        leading = bound == bounds[0]
        axis.plot(
            steps,
            [float(np.mean(by_step[step])) for step in steps],
            color=colour,
            linestyle=LINES[bound][0],
            lw=1.3 if leading else 0.9,
            clip_on=False,  # markers at 0 are shown whole
            **(look if leading else {}),
        )
        if leading and any(len(values) > 1 for values in by_step.values()):
            axis.fill_between(
                steps,
                [min(by_step[step]) for step in steps],
                [max(by_step[step]) for step in steps],
                color=colour,
                alpha=0.18,
                lw=0,
            )


def series_colours(names: Sequence[str]) -> list[str]:
    """A colour for every series: that of its adversary, if the name ends with it.

    If some do, the other series have colours that belong to none of the paper's adversaries.

    Example:
        >>> series_colours(["ConvNet, A_GC-R", "ResNet18, A_GC-R", "unknown start"])
        ['#E69F00', '#E69F00', '#D55E00']
        >>> series_colours(["known start", "unknown start"])
        ['#0072B2', '#E69F00']
    """
    colours = {NAMES[name]: colour for name, colour in ADVERSARIES.items() if name in NAMES}
    chosen = [colours.get(name.rsplit(", ", maxsplit=1)[-1]) for name in names]
    taken = set(colours.values()) if any(chosen) else set()
    left = iter([colour for colour in style.COLOURS if colour not in taken] * len(names))
    return [next(left) if colour is None else colour for colour in chosen]


def _markers(place: int, colours: Sequence[str]) -> dict[str, Any]:
    """The marker of a series; hollow if an earlier series has the same colour."""
    look: dict[str, Any] = {"marker": style.MARKERS[place % len(style.MARKERS)]}
    if colours[place] in colours[:place]:
        look |= {"markerfacecolor": "white", "markersize": 4.0, "markeredgewidth": 0.9}
    return look


_DOTS = {
    VALID: (style.BLUE, "o", -0.18, "GDP, pilot threshold"),
    PAPER: (style.ORANGE, "s", 0.0, "GDP, best threshold (paper)"),
    FREE: (style.GREEN, "^", 0.18, "assumption-free"),
}


def draw_seed_dots(table: Table) -> Drawing:
    """One column per series; the three bounds side by side."""
    from matplotlib.lines import Line2D

    figure, (axis,) = style.new_figure(width=style.COLUMN, height=3.1)
    names = table.words("series")
    for place, name in enumerate(names):
        rows = table.where(series=name)
        for column, (colour, marker, shift, _) in _DOTS.items():
            values = np.array(rows.numbers(column))
            axis.plot(
                np.full(len(values), place + shift), values, marker, color=colour, ms=3, alpha=0.7
            )
            if not np.isnan(values).all():
                mean = np.nanmean(values)
                axis.hlines(mean, place + shift - 0.09, place + shift + 0.09, color=colour, lw=1.4)
    accountant = table.numbers("accountant")[0]
    axis.axhline(accountant, color=style.GREY, linestyle="-.", lw=1.0)
    axis.set_xticks(range(len(names)), [name.replace(", ", ",\n") for name in names])
    if len(names) > 4:
        axis.tick_params(axis="x", labelrotation=35, labelsize=6.5)
    axis.set(ylabel="epsilon at delta = 1e-5", ylim=(0, max(1.08 * accountant, axis.get_ylim()[1])))
    axis.grid(visible=False, axis="x")
    handles = [
        Line2D([], [], color=colour, marker=marker, ls="", label=label)
        for colour, marker, _, label in _DOTS.values()
    ]
    handles.append(Line2D([], [], color="black", lw=1.4, label="mean over the seeds"))
    handles.append(Line2D([], [], color=style.GREY, linestyle="-.", label="accountant"))
    style.legend_below(figure, handles, columns=2)
    return figure


_TRADEOFFS: dict[str, tuple[str, Any, float]] = {
    "observed": (style.BLUE, "-", 2.2),
    "exact": (style.GREEN, "-", 1.3),
    "Gaussian": (style.ORANGE, "--", 1.2),
}

_SMALLEST = 1e-7

_FEWEST = 30  # errors; rates from fewer errors are not drawn


def thinned_errors(scores: Scores) -> tuple[Array, Array]:
    """Both error rates over the thresholds, thinned to about 240, denser in the tails.

    Example:
        >>> alpha, beta = thinned_errors(Scores.from_samples([2.0, 3.0], [0.0, 1.0]))
        >>> alpha.tolist(), beta.tolist()
        ([0.0, 0.0, 0.5], [0.5, 0.0, 0.0])
    """
    counts = ErrorCounts.sweep(scores.inserted_scores, scores.other_scores)
    alpha = counts.false_positives / counts.negatives
    beta = counts.false_negatives / counts.positives
    order = np.lexsort((-beta, alpha))
    alpha, beta = np.asarray(alpha[order], dtype=float), np.asarray(beta[order], dtype=float)
    size = len(alpha)
    tail = np.geomspace(1, max(size, 1), 80) - 1
    keep = np.unique(
        np.concatenate([tail, size - 1 - tail, np.linspace(0, size - 1, 80)]).astype(int)
    )
    return alpha[keep], beta[keep]


def _steady(alpha: Array, curve: str) -> float:
    """The smallest observed rate that is drawn; 0 for computed curves."""
    if curve != "observed" or not (alpha > 0).any():
        return 0.0
    return _FEWEST * float(alpha[alpha > 0].min())


def draw_tradeoffs(table: Table) -> Drawing:
    """For each panel: both error rates, and the logarithm of power over rate at small rates."""
    from matplotlib.lines import Line2D

    panels = table.words("panel")
    figure, axes = style.new_figure(
        columns=2, rows=len(panels), width=style.PAGE, height=0.5 + 2.5 * len(panels)
    )
    for place, panel in enumerate(panels):
        left, right = axes[2 * place : 2 * place + 2]
        for curve, (colour, line, width) in _TRADEOFFS.items():
            rows = table.where(panel=panel, curve=curve)
            alpha, beta = np.array(rows.numbers("alpha")), np.array(rows.numbers("beta"))
            left.plot(alpha, beta, color=colour, linestyle=line, lw=width)
            visible = (alpha > _steady(alpha, curve)) & (beta < 1)
            ratio = np.log((1 - beta[visible]) / alpha[visible])
            right.plot(alpha[visible], ratio, color=colour, linestyle=line, lw=width)
        left.set(title=panel, xlabel="false-positive rate", ylabel="false-negative rate")
        right.set(xscale="log", xlim=(_SMALLEST, 1), ylim=(0, None))
        right.set(title="how much likelier a rejection is with the canary")
        right.set(xlabel="false-positive rate", ylabel="log(power / rate)")
        right.axvline(1e-5, color=style.GREY, linestyle=":", lw=0.8)
    handles = [
        Line2D([], [], color=colour, linestyle=line, lw=width, label=name)
        for name, (colour, line, width) in _TRADEOFFS.items()
        if name in table.words("curve")
    ]
    handles.append(Line2D([], [], color=style.GREY, linestyle=":", lw=0.8, label="delta = 1e-5"))
    style.legend_below(figure, handles, columns=4)
    return figure


def draw_over_steps(
    table: Table, sigmas: Sequence[float], *, columns: int, height: float
) -> Drawing:
    """One panel per noise multiplier, one shade per batch size, one line style per bound.

    Arguments:
        table: Rows of `figures.landscapes.measure_grid`; the paper's scaling is drawn.
        sigmas: Noise multipliers, one panel each.
        columns: Number of panels per row.
        height: Height in inches.
    """
    import matplotlib as mpl
    from matplotlib.lines import Line2D

    shown = table.where(scaling="paper")
    batches = sorted(set(shown.numbers("batch_size")))
    shades = mpl.colormaps["cividis"](np.linspace(0.0, 0.85, len(batches)))
    figure, axes = style.new_figure(
        columns=columns, rows=-(-len(sigmas) // columns), width=style.PAGE, height=height
    )
    for place, (axis, sigma) in enumerate(zip(axes, sigmas, strict=True)):
        rows = shown.where(sigma=sigma)
        for batch, shade in zip(batches, shades, strict=True):
            line = rows.where(batch_size=int(batch))
            steps = line.numbers("steps")
            axis.plot(steps, line.numbers("gdp_rule"), color=shade, linestyle="--", lw=0.8)
            axis.plot(steps, line.numbers("exact"), color=shade)
            for column, marker in (("paper_rule", "o"), ("clopper_pearson", "x")):
                axis.plot(
                    steps, line.numbers(column), marker, color=shade, ms=3, mfc="none", mew=0.8
                )
        axis.axhline(rows.numbers("accountant")[0], color=style.GREY, linestyle="-.", lw=1.0)
        axis.set(title=f"sigma = {sigma:g}", xlabel="steps T", ylim=(0, None))
        if place % columns == 0:
            axis.set_ylabel("epsilon at delta = 1e-5")
    handles = [
        Line2D([], [], color=shade, label=f"B = {int(batch)}")
        for batch, shade in zip(batches, shades, strict=True)
    ]
    handles += [
        Line2D([], [], color="black", label="exact"),
        Line2D([], [], color="black", linestyle="--", lw=0.8, label="GDP rule, no error"),
        Line2D([], [], color="black", marker="o", ls="", mfc="none", label="audit, paper's rule"),
        Line2D([], [], color="black", marker="x", ls="", label="audit, assumption-free"),
        Line2D([], [], color=style.GREY, linestyle="-.", label="accountant"),
    ]
    style.legend_below(figure, handles, columns=5)
    return figure


_CHARACTERS_AN_INCH = 15.0

_ROW = 0.135  # inches


def draw_table(table: Table, *, widths: Sequence[float]) -> Drawing:
    """Draw a table with horizontal rules; long cells wrap.

    Arguments:
        table: The table to draw.
        widths: Relative widths of the columns.
    """
    total = sum(widths)
    inches = [style.PAGE * width / total for width in widths]
    rows = [list(table.columns), *[[_cell(v) for v in row] for row in table.rows]]
    wrapped = [
        [
            textwrap.wrap(cell, max(4, int(room * _CHARACTERS_AN_INCH))) or [""]
            for cell, room in zip(row, inches, strict=True)
        ]
        for row in rows
    ]
    heights = [_ROW * (max(len(cell) for cell in row) + 0.7) for row in wrapped]
    height = sum(heights)
    figure, (axis,) = style.new_figure(width=style.PAGE, height=height + 0.25)
    axis.set(xlim=(0, style.PAGE), ylim=(height, 0))
    axis.axis("off")
    top = 0.0
    for number, (row, tall) in enumerate(zip(wrapped, heights, strict=True)):
        left = 0.0
        for cell, room in zip(row, inches, strict=True):
            axis.text(
                left + 0.03,
                top + tall / 2,
                "\n".join(cell),
                va="center",
                fontsize=6.5,
                fontweight="bold" if number == 0 else "normal",
            )
            left += room
        if number <= 1:
            axis.axhline(top, color="black", lw=0.8)
        top += tall
    axis.axhline(top, color="black", lw=0.8)
    return figure


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
