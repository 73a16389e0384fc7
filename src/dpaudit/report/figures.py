"""Figures of an audit for papers: one function per picture, each drawing into given axes.

They draw the same numbers as the page, in the same colours. Figures are 3.3 inches wide (one
column) or 7 (two columns); line styles and labels repeat what colours say.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtr, ndtri

from dpaudit import _validate
from dpaudit._numbers import decimals, percent
from dpaudit.audits.curves import (
    SMALLEST_DELTA,
    SMALLEST_RATE,
    Histogram,
    ProfileCurves,
    TradeoffCurves,
)
from dpaudit.audits.evidence import AuditEvidence
from dpaudit.errors import MissingExtra
from dpaudit.privacy import Bound
from dpaudit.report.charts import staircase
from dpaudit.report.palette import CLAIMED, FITTED, INSERTED, OTHERS, PROVEN

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMN, DOUBLE = 3.3, 7.0
"""Inches: one column of a two-column paper, and both."""


def draw_scores(shown: Histogram, *, ax: Any, threshold: float | None = None) -> None:
    """The scores with and without the canary, and the threshold of the leading bound."""
    for share, role, label in (
        (shown.others, OTHERS, "not inserted"),
        (shown.inserted, INSERTED, "inserted"),
    ):
        ax.stairs(share, shown.edges, color=role.light, fill=True, alpha=0.3, lw=0)
        ax.stairs(share, shown.edges, color=role.light, lw=1.0, label=label)
    if threshold is not None:
        ax.axvline(threshold, color="black", lw=0.8, linestyle=":", label="threshold")
    ax.set(xlabel="score", ylabel="share of the runs", ylim=(0, None))
    ax.set_xlim(shown.edges[0], shown.edges[-1])
    _legend_above(ax, columns=3)


def draw_tradeoff(shown: TradeoffCurves, *, ax: Any) -> None:
    """Error rates on normal quantiles, where a Gaussian trade-off function is a straight line."""
    smallest = SMALLEST_RATE
    if shown.claimed is not None:
        claimed = np.maximum(shown.claimed.y, smallest)
        ax.fill_between(shown.claimed.x, smallest, claimed, color=CLAIMED.light, alpha=0.14, lw=0)
        ax.plot(shown.claimed.x, claimed, color=CLAIMED.light, ls="--", label="claimed")
    if shown.fitted is not None:
        fitted = np.maximum(shown.fitted.y, smallest)
        ax.plot(shown.fitted.x, fitted, color=FITTED.light, ls=":", label="Gaussian fit")
    for curve, role, label in (
        (shown.seen, OTHERS, "observed"),
        (shown.proven, PROVEN, f"proven ({percent(shown.confidence)} %)"),
    ):
        steps = staircase(curve)
        inside = [np.clip(rate, smallest, 1 - smallest) for rate in (steps.x, steps.y)]
        ax.plot(*inside, color=role.light, label=label)
    for axis, scale in ((ax.xaxis, ax.set_xscale), (ax.yaxis, ax.set_yscale)):
        scale("function", functions=(_quantile, ndtr))
        axis.set_ticks([0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999])
        axis.set_ticklabels(["0.1", "1", "10", "50", "90", "99", "99.9"])
        axis.set_ticks([], minor=True)
    ax.set_xlim(smallest, 1 - smallest)
    ax.set_ylim(smallest, 1 - smallest)
    ax.set(xlabel="false-positive rate (%)", ylabel="false-negative rate (%)")
    _legend_above(ax, columns=2)


def draw_profile(shown: ProfileCurves, *, ax: Any) -> None:
    """Delta against epsilon: proven and claimed."""
    for curve, role, style, label in (
        (shown.claimed, CLAIMED, "--", "claimed: at most"),
        (shown.gaussian, FITTED, ":", "shown, if Gaussian"),
        (shown.proven, PROVEN, "-", f"proven ({percent(shown.confidence)} %)"),
    ):
        if curve is not None:
            height = np.where(curve.y > 0, curve.y, SMALLEST_DELTA / 10)
            ax.plot(curve.x, height, color=role.light, ls=style, label=label)
    if shown.delta > 0:
        ax.axhline(shown.delta, color="black", lw=0.6)
    ax.set(xlabel="epsilon", ylabel="delta", yscale="log", ylim=(SMALLEST_DELTA, 1.5))
    ax.set_xlim(0, shown.proven.x[-1])
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
    """The scores, the error rates beside the claimed trade-off function, and the bounds.

    See also: `dpaudit.AuditResult.plot`; `figure`, for the other pictures.

    Arguments:
        evidence: The numbers to draw.
        title: The title above the figure.
    """
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
    upper = evidence.least_upper
    match picture:
        case "scores" if evidence.histogram is not None:
            draw_scores(
                evidence.histogram, ax=ax, threshold=evidence.leading.details.get("threshold")
            )
        case "tradeoff":
            draw_tradeoff(evidence.tradeoff, ax=ax)
        case "profile":
            draw_profile(evidence.profile, ax=ax)
        case "bounds":
            draw_bounds(evidence.lower, ax=ax, upper=upper)


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
