"""The figure of an audit. It renders an assessment that is handed to it, nothing more.

Colours are Okabe and Ito's; line styles and labels say the same thing again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dpaudit.errors import MissingExtra

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from dpaudit.audits.assessment import Assessment

BLUE, ORANGE, GREEN, GREY = "#0072B2", "#E69F00", "#009E73", "#666666"
_SMALLEST_RATE = 1e-5


def audit_figure(assessment: Assessment, *, title: str = "") -> Figure:
    """Scores of both worlds, error rates beside the promised curve, and the bounds.

    See also: `dpaudit.audits.AuditResult.plot`.

    Arguments:
        assessment: What to draw.
        title: What was audited.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtra("drawing an audit", "plot") from None
    # Not pyplot's: a library must not touch the user's current figure.
    figure = Figure(figsize=(10.0, 3.4), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    if title:
        figure.suptitle(title)
    _draw_scores(left, assessment)
    _draw_errors(middle, assessment)
    _draw_bounds(right, assessment)
    return figure


def _draw_scores(axes: Any, assessment: Assessment) -> None:
    scores = assessment.scores
    finite = scores.score[np.isfinite(scores.score)]
    edges = np.histogram_bin_edges(finite, bins=min(60, max(5, len(finite) // 20)))
    axes.hist(scores.other_scores, edges, color=BLUE, alpha=0.6, label="not inserted")
    axes.hist(scores.inserted_scores, edges, color=ORANGE, alpha=0.6, label="inserted")
    axes.set(xlabel="score", ylabel="canaries")
    _legend_above(axes, columns=2)


def _draw_errors(axes: Any, assessment: Assessment) -> None:
    """Both error rates on logarithmic axes; below the promised curve nobody may be."""
    curve = assessment.proven
    axes.step(
        np.maximum(curve.false_positive_rate, _SMALLEST_RATE),
        np.maximum(curve.false_negative_rate, _SMALLEST_RATE),
        color=BLUE,
        where="post",
        label="seen",
    )
    axes.plot(
        curve.false_positive_upper,
        curve.false_negative_upper,
        color=GREEN,
        linestyle="-.",
        label=f"proven ({curve.confidence:.0%})",
    )
    if assessment.test is not None:
        alpha = np.geomspace(_SMALLEST_RATE, 1.0, 400)
        promised = assessment.test.claim.tradeoff(alpha)
        axes.plot(alpha, promised, color=GREY, linestyle="--", label="promised")
    limits = (_SMALLEST_RATE, 1.2)
    axes.set(
        xscale="log",
        yscale="log",
        xlim=limits,
        ylim=limits,
        xlabel="false-positive rate",
        ylabel="false-negative rate",
    )
    _legend_above(axes, columns=3)


def _draw_bounds(axes: Any, assessment: Assessment) -> None:
    bounds = list(assessment.lower)
    names = [
        "\n".join(filter(None, (bound.method, bound.details.get("threshold_rule"))))
        for bound in bounds
    ]
    places = np.arange(len(bounds))[::-1]
    bars = axes.barh(places, [bound.epsilon for bound in bounds], color=ORANGE, height=0.6)
    axes.bar_label(bars, fmt="%.2f", padding=3, label_type="center")
    axes.set_yticks(places, names)
    upper = assessment.least_upper.epsilon
    if np.isfinite(upper):
        axes.axvline(upper, color=GREY, linestyle="--", label=f"accountant: {upper:.2f}")
        _legend_above(axes, columns=1)
    axes.set(xlabel=f"epsilon at delta = {assessment.leading.delta:g}")


def _legend_above(axes: Any, *, columns: int) -> None:
    """Over the axes, where it hides nothing."""
    axes.legend(
        frameon=False,
        ncols=columns,
        loc="lower center",
        bbox_to_anchor=(0.5, 1.0),
        columnspacing=1.0,
        handlelength=1.6,
        fontsize="small",
    )
