"""Trade-off curves, as in the paper and at small false-positive rates: A3a and A3b."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dpaudit._arrays import Array
from dpaudit.lower_bounds.counts import ErrorCounts
from dpaudit.scores import Scores
from dpaudit_paper import style
from dpaudit_paper.table import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing


_LOOKS: dict[str, tuple[str, Any, float]] = {
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
        for curve, (colour, line, width) in _LOOKS.items():
            rows = table.where(panel=panel, curve=curve)
            alpha, beta = np.array(rows.numbers("alpha")), np.array(rows.numbers("beta"))
            left.plot(alpha, beta, color=colour, linestyle=line, lw=width)
            seen = (alpha > _steady(alpha, curve)) & (beta < 1)
            ratio = np.log((1 - beta[seen]) / alpha[seen])
            right.plot(alpha[seen], ratio, color=colour, linestyle=line, lw=width)
        left.set(title=panel, xlabel="false-positive rate", ylabel="false-negative rate")
        right.set(xscale="log", xlim=(_SMALLEST, 1), ylim=(0, None))
        right.set(title="how much likelier a rejection is with the canary")
        right.set(xlabel="false-positive rate", ylabel="log(power / rate)")
        right.axvline(1e-5, color=style.GREY, linestyle=":", lw=0.8)
    handles = [
        Line2D([], [], color=colour, linestyle=line, lw=width, label=name)
        for name, (colour, line, width) in _LOOKS.items()
        if name in table.words("curve")
    ]
    handles.append(Line2D([], [], color=style.GREY, linestyle=":", lw=0.8, label="delta = 1e-5"))
    style.legend_below(figure, handles, columns=4)
    return figure
