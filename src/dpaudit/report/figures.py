"""Figures of an audit for papers: the charts of its page, in the same colours, in matplotlib.

Figures are 3.3 inches wide (one column) or 7 (two columns); line styles and labels repeat what
colours say.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtr, ndtri

from dpaudit import _validate
from dpaudit._numbers import decimals
from dpaudit.audits.evidence import AuditEvidence
from dpaudit.errors import MissingExtra
from dpaudit.privacy import Bound
from dpaudit.report import charts
from dpaudit.report.palette import CLAIMED, PROVEN, ROLES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMN, DOUBLE = 3.3, 7.0
"""Inches: one column of a two-column paper, and both."""

_COLOURS = {role.name: role.light for role in ROLES} | {"forbidden": CLAIMED.light}
_STYLES = {"claimed": "--", "fitted": ":"}


def draw(chart: charts.Chart, *, ax: Any) -> None:
    """Draw a chart into axes of one's own."""
    for mark in chart.marks:
        colour, style = _COLOURS[mark.role], _STYLES.get(mark.role, "-")
        points = chart.x.inside(mark.curve.x), chart.y.inside(mark.curve.y)
        if mark.filled:
            ax.fill_between(*points, chart.y.low, color=colour, alpha=0.2, lw=0)
        if mark.label:
            marker = "o" if mark.dotted else ""
            ax.plot(*points, color=colour, ls=style, marker=marker, ms=3, label=mark.label)
    for reference in chart.references:
        ax.axhline(reference.value, color="black", lw=0.6)
    for axis, scale, own, ticks in (
        (ax.xaxis, ax.set_xscale, chart.x, chart.x_ticks),
        (ax.yaxis, ax.set_yscale, chart.y, chart.y_ticks),
    ):
        if own.scale == "log":
            scale("log")
        elif own.scale == "normal":
            scale("function", functions=(_quantile, ndtr))
            axis.set_ticks([tick.value for tick in ticks], [tick.label for tick in ticks])
            axis.set_ticks([], minor=True)
    ax.set(xlim=(chart.x.low, chart.x.high), ylim=(chart.y.low, chart.y.high))
    ax.set(xlabel=chart.x_label, ylabel=chart.y_label)
    _legend_above(ax, columns=2)


def draw_bounds(lower: Iterable[Bound], *, ax: Any, upper: Bound | None = None) -> None:
    """Every lower bound as a bar, beside the upper bound as a line."""
    bounds = list(lower)
    names = [
        "\n".join(filter(None, (bound.method, bound.details.get("threshold_rule"))))
        for bound in bounds
    ]
    places = np.arange(len(names))[::-1]
    epsilons = [bound.epsilon for bound in bounds]
    bars = ax.barh(places, epsilons, color=PROVEN.light, alpha=0.6, height=0.6)
    ax.set_yticks(places, names)
    furthest = max([*epsilons, 0.1])
    if upper is not None and math.isfinite(upper.epsilon):
        furthest = max(furthest, upper.epsilon)
        label = f"claimed: {decimals(upper.epsilon, 2)}"
        ax.axvline(upper.epsilon, color=CLAIMED.light, linestyle="--", label=label)
        _legend_above(ax, columns=1)
    ax.set_xlim(0, 1.2 * furthest)
    inside = [epsilon > 0.3 * furthest for epsilon in epsilons]  # short bars have no room
    for kind, padding, chosen in (("center", 0, True), ("edge", 3, False)):
        labels = [
            decimals(e, 2) if i is chosen else "" for e, i in zip(epsilons, inside, strict=True)
        ]
        ax.bar_label(bars, labels=labels, label_type=kind, padding=padding)
    if bounds:
        ax.set(xlabel=f"epsilon at delta = {bounds[0].delta:g}")


def audit_figure(evidence: AuditEvidence, *, title: str = "") -> Figure:
    """The scores, the error rates beside the claimed trade-off function, and the bounds."""
    with figure_style():
        made = _new_figure(10.0, 3.6)
        if title:
            made.suptitle(title)
        for picture, ax in zip(("scores", "tradeoff", "bounds"), made.subplots(1, 3), strict=True):
            _draw(evidence, picture, ax)
    return made


def figure(evidence: AuditEvidence, picture: str, *, width: float = COLUMN) -> Figure:
    """One picture as a figure of its own.

    Arguments:
        evidence: The numbers to draw; `dpaudit.AuditResult.evidence` returns them.
        picture: One of scores, tradeoff, profile, bounds.
        width: The width in inches, for example `COLUMN` or `DOUBLE`.
    """
    _validate.one_of("picture", picture, ("scores", "tradeoff", "profile", "bounds"))
    _validate.positive("width", width)
    with figure_style():
        made = _new_figure(width, min(width, 3.6) if picture == "tradeoff" else 2.7)
        _draw(evidence, picture, made.subplots())
    return made


def _draw(evidence: AuditEvidence, picture: str, ax: Any) -> None:
    """Draw one picture; the axes stay empty without scores to draw."""
    match picture:
        case "scores" if evidence.histogram is not None:
            draw(charts.histogram_chart(evidence.histogram), ax=ax)
            threshold = evidence.leading.details.get("threshold")
            if threshold is not None:
                ax.axvline(threshold, color="black", lw=0.8, linestyle=":", label="threshold")
                _legend_above(ax, columns=3)
        case "tradeoff":
            draw(charts.tradeoff_chart(evidence.tradeoff), ax=ax)
        case "profile":
            draw(charts.profile_chart(evidence.profile), ax=ax)
        case "bounds":
            draw_bounds(evidence.lower, ax=ax, upper=evidence.least_upper)


def _new_figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    # Not from pyplot: a library must not change the user's current figure.
    return Figure(figsize=(width, height), layout="constrained")


def figure_style(*, line_width: float = 1.3) -> Any:
    """The style of all figures, as a context."""
    try:
        import matplotlib as mpl
    except ImportError:
        raise MissingExtra("drawing figures", "plot") from None
    small = {f"{part}.labelsize": 7 for part in ("xtick", "ytick")}
    style: Any = {
        "font.size": 8,
        "axes.titlesize": 8,
        "axes.labelsize": 8,
        "legend.fontsize": 7,
        **small,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.linewidth": 0.6,
        "lines.linewidth": line_width,
    }
    return mpl.rc_context(style)


def _quantile(rates: Any) -> Any:
    """Normal quantiles that stay finite at 0 and 1, where matplotlib evaluates them too."""
    return ndtri(np.clip(rates, 1e-12, 1 - 1e-12))


def _legend_above(ax: Any, *, columns: int) -> None:
    """Put the legend above the axes, where it hides nothing."""
    ax.legend(
        frameon=False,
        ncols=columns,
        loc="lower center",
        bbox_to_anchor=(0.5, 1.0),
        columnspacing=1.0,
        handlelength=1.8,
        fontsize="small",
    )
