"""A9: what is left of A_GC-R when the adversary does not know the initialisation."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import ndtr

from dpaudit.adversaries import RandomDimension
from dpaudit.adversaries.contract import (
    Canaries,
    CraftedDimensions,
    HiddenStateAdversary,
    HiddenStateView,
)
from dpaudit.adversaries.crafting import check_room, generator, move_along_dimensions
from dpaudit.reproduce import style
from dpaudit.reproduce.contract import Cost, Figure, Need
from dpaudit.reproduce.curves import draw_curves
from dpaudit.reproduce.networks import insertions
from dpaudit.reproduce.readings import DELTA, Line, curves, final_rows, spread, standard_error
from dpaudit.reproduce.table import Table
from dpaudit.reproduce.trainings import Trainings, Weights
from dpaudit.tradeoff import gaussian_epsilon

if TYPE_CHECKING:
    import torch
    from matplotlib.figure import Figure as Drawing

    from dpaudit.mechanisms.dpsgd import DPSGD, Insertion
    from dpaudit.reproduce.setting import Setting

Array = NDArray[np.float64]

ETA, CLIP_NORM, BATCH, SIGMA = 0.01, 1.0, 128, 4
RULES: tuple[Weights, ...] = ("xavier", "kaiming")
KNOWN, UNKNOWN, BIASES = "known start", "unknown start", "unknown start, biases only"
MANY, BY_LAW = "unknown start, many trainings", "unknown start, known law"
FANS = (400, 120)
"""Of the ConvNet's largest layer, which has 77 % of its weights."""


def half_width(rule: Weights, fan_in: int, fan_out: int) -> float:
    """Both rules draw weights evenly from minus to plus this.

    Example:
        >>> round(half_width("xavier", 400, 120), 3), round(half_width("kaiming", 400, 120), 3)
        (0.107, 0.122)
    """
    return math.sqrt(6 / (fan_in + fan_out if rule == "xavier" else fan_in))


@final
@dataclass(frozen=True, kw_only=True)
class RandomBias(HiddenStateAdversary):
    """A_GC-R on biases alone: they start at zero, so that not knowing the start costs nothing."""

    name: ClassVar[str] = "random-bias"
    paper: ClassVar[str] = "ours, beside A_GC-R of Cebere, Bellet, Papernot (ICLR 2025)"

    def craft(
        self, mechanism: DPSGD, insertion: Insertion, *, canaries: int, seed: int
    ) -> CraftedDimensions:
        """Draw ``canaries`` distinct biases."""
        import torch

        biases = np.flatnonzero(half_widths(mechanism, "xavier") == 0)
        check_room(canaries, len(biases))
        chosen = generator(seed).choice(biases, size=canaries, replace=False)
        return CraftedDimensions(dimensions=torch.from_numpy(chosen), norm=mechanism.clip_norm)

    def score(self, view: HiddenStateView, canaries: Canaries) -> torch.Tensor:
        """As A_GC-R scores."""
        return move_along_dimensions(view, canaries)


@final
@dataclass(frozen=True, kw_only=True)
class KnownLaw(HiddenStateAdversary):
    """A_GC-R that does not know the start, but the law that it was drawn from.

    Its score is the logarithm of how much likelier the final weight is with the canary than
    without, where nothing but the noise disturbs it. Weights are drawn evenly between two edges: a
    weight far beyond one of them proves the canary, and all others say next to nothing.
    """

    name: ClassVar[str] = "known-law"
    paper: ClassVar[str] = "ours, beside A_GC-R of Cebere, Bellet, Papernot (ICLR 2025)"
    rule: Weights

    def craft(
        self, mechanism: DPSGD, insertion: Insertion, *, canaries: int, seed: int
    ) -> CraftedDimensions:
        """The canaries of A_GC-R."""
        return RandomDimension().craft(mechanism, insertion, canaries=canaries, seed=seed)

    def score(self, view: HiddenStateView, canaries: Canaries) -> torch.Tensor:
        """The log-likelihood ratio of each canary under each model."""
        import torch

        weights = move_along_dimensions(view, canaries).double()
        assert isinstance(canaries, CraftedDimensions)  # or the line above had refused them
        widths = half_widths(view.mechanism, self.rule)[canaries.dimensions.numpy()]
        edges = torch.from_numpy(widths).to(weights.device)
        moved, noise = _moved_and_noise(view.steps)
        return _log_density(weights - moved, edges, noise) - _log_density(weights, edges, noise)


def half_widths(mechanism: DPSGD, rule: Weights) -> Array:
    """Of the law of each parameter, in linear and convolutional layers; 0 for biases."""
    from dpaudit.games.starting_points import known_model

    widths = []
    for name, value in known_model(mechanism).named_parameters():
        fan_out, fan_in = value.shape[0], math.prod(value.shape[1:])
        fan_out *= math.prod(value.shape[2:])
        width = 0.0 if name.endswith("bias") else half_width(rule, fan_in, fan_out)
        widths.append(np.full(value.numel(), width))
    return np.concatenate(widths)


def _moved_and_noise(steps: int) -> tuple[float, float]:
    """How far a canary at every step moves its weight, and the deviation of what noise adds."""
    per_step = ETA * CLIP_NORM / BATCH
    return steps * per_step, math.sqrt(steps) * SIGMA * per_step


def _log_density(weights: torch.Tensor, edges: torch.Tensor, noise: float) -> torch.Tensor:
    """Up to a constant, of a weight drawn evenly between the edges plus normal noise."""
    import torch

    outside = weights.abs()  # the law is even
    upper = torch.special.log_ndtr((edges - outside) / noise)
    lower = torch.special.log_ndtr((-edges - outside) / noise)
    even = upper + torch.log1p(-torch.exp(lower - upper))
    return torch.where(edges > 0, even, -((outside / noise) ** 2) / 2)


def exact_epsilon(rule: Weights, steps: int) -> float:
    """What a weight of the largest layer leaks, at best, where only noise disturbs it.

    Example:
        >>> round(exact_epsilon("xavier", 250), 2)
        19.58
    """
    moved, noise = _moved_and_noise(steps)
    width = half_width(rule, *FANS)
    grid = np.linspace(-width - 12 * noise, width + moved + 12 * noise, 200_001)

    def density(weights: Array) -> Array:
        upper, lower = (ndtr((side - np.abs(weights)) / noise) for side in (width, -width))
        return np.asarray((upper - lower) / (2 * width))

    with_canary, without = density(grid - moved), density(grid)

    def excess(epsilon: float) -> float:
        over = np.clip(with_canary - math.exp(epsilon) * without, 0, None)
        return float(over.sum() * (grid[1] - grid[0])) - DELTA

    return float(brentq(excess, 0, 60)) if excess(0) > 0 else 0.0


def measure(setting: Setting) -> Table:
    """Both rules, start known or not; the unknown one also for biases, and training by training."""
    return curves(setting, _lines(setting))


def _lines(setting: Setting) -> Iterator[Line]:
    for rule in RULES:
        panel = f"{rule.title()} weights"
        known = Trainings(
            preset="convnet",
            adversary=RandomDimension(),
            runs=1,
            canaries=20_000,
            seed=setting.seed,
            insertions=insertions(setting, 1),
            weights=rule,
        )
        unknown = dataclasses.replace(known, known_start=False)
        by_law = dataclasses.replace(
            unknown, adversary=KnownLaw(rule=rule), runs=setting.choose(quick=1, full=20)
        )
        biases = dataclasses.replace(
            unknown, adversary=RandomBias(), runs=setting.choose(quick=2, full=20), canaries=200
        )
        # The paper's protocol: a start drawn anew in each of many trainings.
        many = dataclasses.replace(unknown, runs=2000, canaries=1)
        yield Line(panel=panel, series=KNOWN, trainings=known)
        yield Line(panel=panel, series=UNKNOWN, trainings=unknown)
        yield Line(panel=panel, series=BY_LAW, trainings=by_law)
        yield Line(panel=panel, series=BIASES, trainings=biases)
        if setting.full:
            yield Line(panel=panel, series=MANY, trainings=many, gpu=True)


def draw(table: Table) -> Drawing:
    """The curves, and what is true of a weight that only noise disturbs."""
    drawing = draw_curves(table, height=3.2)
    for axis, rule in zip(drawing.axes, RULES, strict=True):
        steps = sorted(set(table.numbers("steps")))
        exact = [exact_epsilon(rule, int(step)) for step in steps]
        axis.plot(steps, exact, color=style.GREY, lw=1.0, linestyle=(0, (1, 1)))
        axis.annotate(
            "exact, one weight,\nunknown start",
            (steps[-3], exact[-3]),
            xytext=(6, -6),
            textcoords="offset points",
            va="top",
            color=style.GREY,
            fontsize="small",
        )
    return drawing


def findings(table: Table) -> str:
    """Known against unknown, and why."""
    last = final_rows(table)
    parts = []
    for panel in last.words("panel"):
        told = []
        for series in (KNOWN, UNKNOWN, MANY, BIASES, BY_LAW):
            row = last.where(panel=panel, series=series)
            if len(row):
                told.append(
                    f"{series} {spread(row.numbers('gaussian_dp'))} (paper's rule "
                    f"{spread(row.numbers('paper_rule'))}, assumption-free "
                    f"{spread(row.numbers('clopper_pearson'))}, mu {row.number('mu'):.3f} ± "
                    f"{standard_error(row):.3f})"
                )
        parts.append(f"{panel}: " + ", ".join(told))
    steps = int(max(last.numbers("steps")))
    moved, _ = _moved_and_noise(steps)
    exact, normal = (
        ", ".join(f"{value:.2f}" for value in values)
        for values in (
            [exact_epsilon(rule, steps) for rule in RULES],
            [_normal_epsilon(rule, steps) for rule in RULES],
        )
    )
    return (
        "; ".join(parts)
        + f". A canary moves its weight by T eta C / B = {moved:.3f} in {steps} steps; both rules "
        "draw weights with a deviation several times that, so A_GC-R's score says little where "
        "the start is drawn anew in every training. Biases start at zero by both rules, and "
        "canaries there keep most of their mu. The canary of a weight is not hidden for all that: "
        "both rules draw evenly between two edges, and a weight beyond them gives its canary away. "
        f"Exactly, a weight of the largest layer that only noise disturbs leaks epsilon {exact} "
        "(Xavier, Kaiming), and a score that knows the law of the start finds part of it. Drawn "
        f"from a normal law of the same deviation it would leak {normal}. An unknown start that "
        "is the same in all trainings of an audit would only shift every score, and a threshold "
        "chosen on the scores would not notice."
    )


def _normal_epsilon(rule: Weights, steps: int) -> float:
    moved, noise = _moved_and_noise(steps)
    deviation = math.hypot(noise, half_width(rule, *FANS) / math.sqrt(3))
    return gaussian_epsilon(DELTA, moved / deviation)


FIGURE = Figure(
    id="A9",
    title="unknown initialisation: Xavier and Kaiming",
    label="fig:unknown_init",
    needs=frozenset({Need.CIFAR10}),
    quick=Cost(cpu=85, gpu=35),
    full=Cost(cpu=650, gpu=170),
    measure=measure,
    draw=draw,
    findings=findings,
)
