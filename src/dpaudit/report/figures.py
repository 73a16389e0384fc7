"""Figures of an audit for papers: one function for each picture, each drawing into axes of yours.

They draw the numbers of `dpaudit.report.curves`, as the page does, in the same colours. Figures are
3.3 inches wide (a column) or 7 (both); line styles and labels repeat what colours say.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from scipy.special import ndtr, ndtri

from dpaudit.errors import MissingExtra
from dpaudit.privacy import Bound, Bounds
from dpaudit.report import curves
from dpaudit.report.growth import Growth
from dpaudit.report.page_data import Evidence, fitted_mu
from dpaudit.report.palette import FITTED, INSERTED, OTHERS, PROMISED, PROVEN

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dpaudit.claims import ClaimTest
    from dpaudit.lower_bounds.profile import ProvenCurve
    from dpaudit.scores import Scores

COLUMN, DOUBLE = 3.3, 7.0
"""Inches: one column of a two-column paper, and both."""


class Drawable(Protocol):
    """What `audit_figure` needs of an assessment, or of the audit of a user's own training."""

    @property
    def scores(self) -> Scores: ...
    @property
    def proven(self) -> ProvenCurve: ...
    @property
    def test(self) -> ClaimTest | None: ...
    @property
    def lower(self) -> Bounds: ...
    @property
    def leading(self) -> Bound: ...
    @property
    def least_upper(self) -> Bound: ...


def draw_scores(shown: curves.Histogram, *, ax: Any, threshold: float | None = None) -> None:
    """The scores of both worlds, and the threshold that a bound was read at."""
    for share, role, label in (
        (shown.others, OTHERS, "not inserted"),
        (shown.inserted, INSERTED, "inserted"),
    ):
        ax.stairs(share, shown.edges, color=role.light, fill=True, alpha=0.3, lw=0)
        ax.stairs(share, shown.edges, color=role.light, lw=1.0, label=label)
    if threshold is not None:
        ax.axvline(threshold, color="black", lw=0.8, linestyle=":", label="threshold")
    ax.set(xlabel="score", ylabel="share of each world", ylim=(0, None))
    ax.set_xlim(shown.edges[0], shown.edges[-1])
    _legend_above(ax, columns=3)


def draw_tradeoff(shown: curves.TradeoffCurves, *, ax: Any) -> None:
    """Error rates on normal quantiles, where every Gaussian trade-off curve is straight."""
    smallest = curves.SMALLEST_RATE
    if shown.promised is not None:
        promised = np.maximum(shown.promised.y, smallest)
        ax.fill_between(
            shown.promised.x, smallest, promised, color=PROMISED.light, alpha=0.14, lw=0
        )
        ax.plot(shown.promised.x, promised, color=PROMISED.light, ls="--", label="promised")
    if shown.fitted is not None:
        fitted = np.maximum(shown.fitted.y, smallest)
        ax.plot(shown.fitted.x, fitted, color=FITTED.light, ls=":", label="Gaussian fit")
    for curve, role, label in (
        (shown.seen, OTHERS, "seen"),
        (shown.proven, PROVEN, f"proven ({100 * shown.confidence:g} %)"),
    ):
        steps = curves.staircase(curve)
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


def draw_profile(shown: curves.ProfileCurves, *, ax: Any) -> None:
    """Delta against epsilon, from below and from above."""
    for curve, role, style, label in (
        (shown.promised, PROMISED, "--", "promised: at most"),
        (shown.gaussian, FITTED, ":", "shown, if Gaussian"),
        (shown.proven, PROVEN, "-", f"proven ({100 * shown.confidence:g} %)"),
    ):
        if curve is not None:
            height = np.where(curve.y > 0, curve.y, curves.SMALLEST_DELTA / 10)
            ax.plot(curve.x, height, color=role.light, ls=style, label=label)
    if shown.delta > 0:
        ax.axhline(shown.delta, color="black", lw=0.6)
    ax.set(xlabel="epsilon", ylabel="delta", yscale="log", ylim=(curves.SMALLEST_DELTA, 1.5))
    ax.set_xlim(0, shown.proven.x[-1])
    _legend_above(ax, columns=2)


def draw_growth(shown: Growth, *, ax: Any, promised: float | None = None) -> None:
    """The bound against the number of runs, and what to expect of more."""
    if promised is not None:
        ax.axhline(promised, color="black", lw=0.6)
    for curve, role, style, label in (
        (shown.attainable, PROMISED, "--", "as far apart as promised"),
        (shown.expected, FITTED, ":", "as far apart as they look"),
    ):
        if curve is not None:
            ax.plot(curve.x, curve.y, color=role.light, ls=style, label=label)
    bounds, free = shown.bounds, shown.free
    ax.plot(bounds.x, bounds.y, color=PROVEN.light, marker="o", ms=3, label="shown")
    ax.plot(
        free.x, free.y, color=OTHERS.light, marker="o", ms=3, mfc="none", label="any shape of curve"
    )
    ax.set(xlabel=shown.unit, ylabel="epsilon", xscale="log", ylim=(0, None))
    _legend_above(ax, columns=2)


def draw_bounds(lower: Iterable[Bound], *, ax: Any, upper: Bound | None = None) -> None:
    """Every lower bound as a bar, beside the accountant's line."""
    bounds = list(lower)
    names = [
        "\n".join(filter(None, (bound.method, bound.details.get("threshold_rule"))))
        for bound in bounds
    ]
    places = np.arange(len(names))[::-1]
    epsilons = [bound.epsilon for bound in bounds]
    bars = ax.barh(places, epsilons, color=PROVEN.light, alpha=0.6, height=0.6)
    ax.bar_label(bars, fmt="%.2f", label_type="center")
    ax.set_yticks(places, names)
    furthest = max([*epsilons, 0.1])
    if upper is not None and math.isfinite(upper.epsilon):
        furthest = max(furthest, upper.epsilon)
        label = f"promised: {upper.epsilon:.2f}"
        ax.axvline(upper.epsilon, color=PROMISED.light, linestyle="--", label=label)
        _legend_above(ax, columns=1)
    ax.set_xlim(0, 1.2 * furthest)
    if bounds:
        ax.set(xlabel=f"epsilon at delta = {bounds[0].delta:g}")


def audit_figure(assessment: Drawable, *, title: str = "") -> Figure:
    """Scores of both worlds, error rates beside the promised curve, and the bounds.

    See also: `dpaudit.AuditResult.plot`; `figure`, for the other pictures.

    Arguments:
        assessment: What to draw: the bounds of one horizon, or anything with the same parts.
        title: What was audited.
    """
    scores, test = assessment.scores, assessment.test
    histogram = curves.histogram(scores)
    tradeoff = curves.tradeoff_curves(
        assessment.proven,
        claim=None if test is None else test.claim,
        fitted_mu=fitted_mu(scores),
    )
    with _style():
        made = _new_figure(10.0, 3.6)
        left, middle, right = made.subplots(1, 3)
        if title:
            made.suptitle(title)
        if histogram is not None:
            threshold = assessment.leading.details.get("threshold")
            draw_scores(histogram, ax=left, threshold=threshold)
        draw_tradeoff(tradeoff, ax=middle)
        draw_bounds(assessment.lower, ax=right, upper=assessment.least_upper)
    return made


def figure(found: Evidence, picture: str, *, width: float = COLUMN) -> Figure:
    """One picture as a figure of its own.

    Arguments:
        found: What to draw; `dpaudit.report.audit_page` of a result has it.
        picture: scores, tradeoff, profile, growth or bounds.
        width: `COLUMN` or `DOUBLE`, in inches.
    """
    from dpaudit import _validate

    _validate.one_of("picture", picture, ("scores", "tradeoff", "profile", "growth", "bounds"))
    _validate.positive("width", width)
    with _style():
        made = _new_figure(width, min(width, 3.6) if picture == "tradeoff" else 2.7)
        ax = made.subplots()
        if picture == "scores" and found.histogram is not None:
            draw_scores(found.histogram, ax=ax, threshold=found.leading.details.get("threshold"))
        elif picture == "tradeoff":
            draw_tradeoff(found.tradeoff, ax=ax)
        elif picture == "profile":
            draw_profile(found.profile, ax=ax)
        elif picture == "growth" and found.growth is not None:
            upper = None if found.least_upper is None else found.least_upper.epsilon
            draw_growth(found.growth, ax=ax, promised=upper)
        elif picture == "bounds":
            draw_bounds(found.lower, ax=ax, upper=found.least_upper)
    return made


def _new_figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    # Not pyplot's: a library must not touch the user's current figure.
    return Figure(figsize=(width, height), layout="constrained")


def _style() -> Any:
    """The house's style, for as long as a figure is drawn."""
    try:
        import matplotlib as mpl
    except ImportError:
        raise MissingExtra("drawing an audit", "plot") from None
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
        "lines.linewidth": 1.3,
    }
    return mpl.rc_context(style)


def _quantile(rates: Any) -> Any:
    """Normal quantiles that stay finite: matplotlib also asks at the ends."""
    return ndtri(np.clip(rates, 1e-12, 1 - 1e-12))


def _legend_above(ax: Any, *, columns: int) -> None:
    """Over the axes, where it hides nothing."""
    ax.legend(
        frameon=False,
        ncols=columns,
        loc="lower center",
        bbox_to_anchor=(0.5, 1.0),
        columnspacing=1.0,
        handlelength=1.8,
        fontsize="small",
    )
