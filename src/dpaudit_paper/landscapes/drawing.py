"""Figures of the landscape process: they draw results and compute none.

Line styles and labels repeat what the colours say, so that a figure can be read in grey.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpaudit._arrays import Array
from dpaudit._outputs import MARKER, write_whole
from dpaudit.curves import gaussian_delta
from dpaudit.errors import InvalidInput
from dpaudit.report.figures import figure_style
from dpaudit.report.palette import BLUE, GREY, INSERTED, ORANGE, OTHERS
from dpaudit_paper.landscapes.exact import ExactPrivacy
from dpaudit_paper.landscapes.pair import DensityPair
from dpaudit_paper.landscapes.process import LandscapeProcess, accountant_mu

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
    with figure_file(path, columns=3, height=2.5) as (_, (left, middle, right)):
        draw_loss(left, result.process)
        if densities:
            draw_densities(middle, densities)
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


def draw_loss(axis: Any, process: LandscapeProcess) -> None:
    """The loss whose descent is the drift, above the densities of the first step."""
    noise = process.noise_multiplier
    low, high = -4.5 * noise, 1 + 4.5 * noise
    x = np.linspace(low, high, 4001)
    drift = process.drift(x)
    loss = -np.concatenate([[0.0], np.cumsum((drift[1:] + drift[:-1]) / 2 * np.diff(x))])
    depth = max(float(np.ptp(loss)), 1e-9)
    axis.plot(x, (loss - loss.min()) / depth, color="black")
    for mean, colour, side in (
        (0.0, OTHERS.light, "without\ncanary"),
        (1.0, INSERTED.light, "with\ncanary"),
    ):
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


def draw_densities(axis: Any, densities: Sequence[tuple[int, DensityPair]]) -> None:
    """Densities with and without the canary, one row for each step, scaled to the same height."""
    for row, (step, pair) in enumerate(densities):
        x, base = pair.panels.nodes.ravel(), -row
        peak = max(pair.without.max(), pair.canary.max())
        for density, colour in ((pair.without, OTHERS.light), (pair.canary, INSERTED.light)):
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
    axis.plot([], [], color=OTHERS.light, label="without")
    axis.plot([], [], color=INSERTED.light, label="with canary")
    axis.legend(frameon=False, loc="upper center", ncols=2, columnspacing=1, handlelength=1)


@contextmanager
def figure_file(path: str, *, columns: int, height: float) -> Iterator[tuple[Any, Any]]:
    """A figure with one row of axes in the house's style, saved on the way out."""
    with figure_style(line_width=1.4):
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine

        # A Figure of its own, not pyplot's: no global state, no display needed.
        layout = ConstrainedLayoutEngine(w_pad=0.08, wspace=0.04)
        figure = Figure(figsize=(WIDTH, height), layout=layout)
        axes = figure.subplots(1, columns, squeeze=False)[0]
        yield figure, axes
        try:
            target = Path(path) if Path(path).suffix else Path(f"{path}.png")
            kind = target.suffix[1:].lower()
            written = {"Software" if kind == "png" else "Creator": MARKER}
            save = partial(figure.savefig, format=kind, dpi=200, metadata=written)
            write_whole(target, save)
        except OSError as error:
            raise InvalidInput(
                f"cannot write the figure {path}: {error.strerror or error}; "
                "choose a file in a folder you can write to"
            ) from error


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
    mu = accountant_mu(result.process, result.process.steps)
    axis.plot(epsilon, gaussian_delta(epsilon, mu), color=GREY, linestyle=":", label="accountant")
    axis.plot(epsilon, [result.last.delta(float(e)) for e in epsilon], color=BLUE, label="exact")
    axis.plot(result.epsilon[-1], result.delta, "o", color=BLUE, ms=3.5)
    axis.set(xlabel="epsilon", ylabel="delta", yscale="log", ylim=(1e-9, 2))
    axis.legend(frameon=False)
