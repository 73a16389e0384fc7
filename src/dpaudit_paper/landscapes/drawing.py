"""The figure of ``dpaudit landscape --plot``: the landscape, the densities, epsilon over steps."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dpaudit._outputs import MARKER, write_whole
from dpaudit.errors import InvalidInput
from dpaudit.report.palette import BLUE, GREY, INSERTED, ORANGE, OTHERS
from dpaudit_paper import style
from dpaudit_paper.landscapes.exact import ExactPrivacy
from dpaudit_paper.landscapes.pair import DensityPair
from dpaudit_paper.landscapes.process import LandscapeProcess


def draw_process(
    result: ExactPrivacy, densities: Sequence[tuple[int, DensityPair]], path: str
) -> None:
    """One process at a glance: its landscape, both densities over time, epsilon over steps.

    Arguments:
        result: What the process leaks.
        densities: Steps and their densities; empty for a chain, which has none.
        path: Where to write; the suffix decides the format.
    """
    with style.styled():
        columns = 3 if densities else 2
        figure, axes = style.new_figure(columns=columns, width=style.PAGE, height=2.5)
        _draw_loss(axes[0], result.process)
        if densities:
            _draw_densities(axes[1], densities)
        steps = np.arange(1, result.process.steps + 1)
        axes[-1].plot(steps, result.gdp_rule, color=ORANGE, linestyle="--", label="GDP rule")
        axes[-1].plot(steps, result.epsilon, color=BLUE, label="exact")
        axes[-1].axhline(result.accountant, color=GREY, linestyle=":", label="accountant")
        axes[-1].set(xlabel="step", ylabel=f"epsilon at delta = {result.delta:g}")
        axes[-1].set(ylim=(0, 1.12 * result.accountant))
        axes[-1].legend()
        kind = Path(path).suffix[1:].lower()
        written = {"Software" if kind == "png" else "Creator": MARKER}
        try:
            save = partial(figure.savefig, format=kind, dpi=200, metadata=written)
            write_whole(Path(path), save)
        except OSError as error:
            raise InvalidInput(
                f"cannot write the figure {path}: {error.strerror or error}; "
                "choose a file in a folder you can write to"
            ) from error


def _draw_loss(axis: Any, process: LandscapeProcess) -> None:
    """The loss whose descent is the drift of step 2, above the densities of the first step."""
    noise = process.noise_multiplier
    x = np.linspace(-4.5 * noise, 1 + 4.5 * noise, 4001)
    drift = process.drift(x)
    loss = -np.concatenate([[0.0], np.cumsum((drift[1:] + drift[:-1]) / 2 * np.diff(x))])
    axis.plot(x, (loss - loss.min()) / max(float(np.ptp(loss)), 1e-9), color="black")
    for mean, colour in ((0.0, OTHERS.light), (1.0, INSERTED.light)):
        bell = np.exp(-0.5 * ((x - mean) / noise) ** 2)
        axis.fill_between(x, -0.6, -0.6 + 0.4 * bell, color=colour, alpha=0.35, lw=0)
    axis.set(xlabel="position / C", ylabel="loss", yticks=[], ylim=(-0.62, 1.06))


def _draw_densities(axis: Any, densities: Sequence[tuple[int, DensityPair]]) -> None:
    """Densities with and without the canary, one row for each step, scaled to the same height."""
    left = right = 0.5
    for row, (step, pair) in enumerate(densities):
        x, peak = pair.panels.nodes.ravel(), max(pair.without.max(), pair.canary.max())
        shown = np.maximum(pair.without, pair.canary).ravel() > 1e-5 * peak
        left, right = min(left, x[shown].min()), max(right, x[shown].max())
        for density, label, colour in (
            (pair.without, "without", OTHERS.light),
            (pair.canary, "with canary", INSERTED.light),
        ):
            y = 0.8 * density.ravel() / peak - row
            axis.fill_between(x, -row, y, color=colour, alpha=0.35, lw=0)
            axis.plot(x, y, color=colour, lw=0.9, label=label if row == 0 else None)
        axis.annotate(f"t = {step}", (1.01, 0.1 - row), xycoords=("axes fraction", "data"))
    axis.set(xlabel="position / C", yticks=[], xlim=(left, right))
    axis.set_ylim(0.9 - len(densities), 1.35)
    axis.legend(loc="upper center", ncols=2)
