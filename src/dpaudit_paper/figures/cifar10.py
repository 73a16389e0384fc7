"""Figures from trainings on CIFAR-10: F1a, F1b, F2a, F2b, A2, A3a, A6, A8, A9, A10, P1."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np

from dpaudit.adversaries import FlippedLabel, RandomDimension, SimulatedDimension, StartDistribution
from dpaudit.curves import gaussian_delta, gaussian_tradeoff
from dpaudit.errors import InvalidInput
from dpaudit.lower_bounds import estimate, proven_curve
from dpaudit.scores import Scores
from dpaudit.threat_models import Canaries, CanaryPoints, HiddenStateAdversary
from dpaudit_paper import style
from dpaudit_paper.base import Cost, Figure, Need
from dpaudit_paper.drawing import curve_figure, draw_curves, draw_tradeoffs, thinned_errors
from dpaudit_paper.start_distributions import RandomBias, exact_epsilon, normal_epsilon
from dpaudit_paper.table import Row, Table, Value
from dpaudit_paper.trainings import (
    DELTA,
    NAMES,
    TITLES,
    Line,
    Trainings,
    Weights,
    flipped_labels,
    insertions,
    mu_by_moments,
    one_training,
)

if TYPE_CHECKING:
    import torch
    from matplotlib.figure import Figure as Drawing

    from dpaudit.adversaries import Adversary, HiddenStateView
    from dpaudit.mechanisms.dpsgd import DPSGD, Insertion
    from dpaudit_paper.base import Setting

PERIODS = (1, 5, 25)

_SMALLEST = 1e-9

SIGMA = 4
CLIP_NORMS = (1.0, 2.0, 4.0)

RULES: tuple[Weights, ...] = ("xavier", "kaiming")

NORM_SHARES = (0.004, 0.02, 0.04, 0.08, 0.12, 0.16, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


# F1a, F1b: a canary at every step, at three clipping norms.


def clip_norm_lines(model: str, setting: Setting) -> Iterator[Line]:
    """A_GC-R in one training with many canaries; A_L by the protocols that take minutes."""
    for clip_norm in CLIP_NORMS:
        panel = f"C = {clip_norm:g}"
        crafted = one_training(setting, model, clip_norm=clip_norm)
        yield Line(panel=panel, series="A_GC-R", trainings=crafted, gpu=model == "resnet18")
        # The quick version has A_L at one C only.
        if setting.full or clip_norm == 1.0:
            for series, flipped in flipped_labels(setting, model, clip_norm=clip_norm):
                yield Line(panel=panel, series=series, trainings=flipped, gpu=setting.full)


F1A = curve_figure(
    partial(clip_norm_lines, "convnet"),
    id="F1a",
    title="ConvNet on CIFAR-10, k = 1, C = 1, 2, 4",
    label="fig:k1_sub1",
    needs=frozenset({Need.CIFAR10}),
    quick=Cost(cpu=110, gpu=40),
    full=Cost(cpu=120, gpu=190),
)


F1B = curve_figure(
    partial(clip_norm_lines, "resnet18"),
    id="F1b",
    title="ResNet18 on CIFAR-10, k = 1, C = 1, 2, 4",
    label="fig:k1_sub2",
    needs=frozenset({Need.CIFAR10}),
    quick=Cost(cpu=None, gpu=40),
    full=Cost(cpu=None, gpu=1700),
)


# F2a, F2b: both networks with the canary at every k-th step.


def period_lines(period: int, setting: Setting) -> Iterator[Line]:
    """A_GC-R and A_L on the ConvNet and the ResNet18 at C = 1."""
    for model, title in TITLES.items():
        crafted = one_training(setting, model, period=period)
        yield Line(series=f"{title}, A_GC-R", trainings=crafted, gpu=model == "resnet18")
        for name, flipped in flipped_labels(setting, model, period=period):
            heavy = setting.full or model == "resnet18"
            yield Line(series=f"{title}, {name}", trainings=flipped, gpu=heavy)


F2A = curve_figure(
    partial(period_lines, 5),
    id="F2a",
    title="ConvNet and ResNet18, k = 5",
    label="fig:k5_sub1",
    needs=frozenset({Need.CIFAR10}),
    quick=Cost(cpu=90, gpu=30),
    full=Cost(cpu=150, gpu=190),
)


F2B = curve_figure(
    partial(period_lines, 25),
    id="F2b",
    title="ConvNet and ResNet18, k = 25",
    label="fig:k25_sub2",
    needs=frozenset({Need.CIFAR10}),
    quick=Cost(cpu=90, gpu=30),
    full=Cost(cpu=750, gpu=470),
)


# A2: does simulating help A_GC on the large networks?


def lines_a2(setting: Setting) -> Iterator[Line]:
    """One training with many canaries for each network, adversary and period."""
    adversaries: tuple[Adversary, ...] = (RandomDimension(), SimulatedDimension())
    for period in (1, 5):
        for model, title in TITLES.items():
            for adversary in adversaries:
                yield Line(
                    panel=f"k = {period}",
                    series=f"{title}, {NAMES[adversary.name]}",
                    trainings=one_training(setting, model, adversary=adversary, period=period),
                    gpu=model == "resnet18",
                )


A2 = curve_figure(
    lines_a2,
    id="A2",
    title="A_GC-S against A_GC-R on the large networks, k = 1 and 5",
    label="fig:a_gc_s_vs_a_gc_r",
    needs=frozenset({Need.CIFAR10}),
    quick=Cost(cpu=60, gpu=30),
    full=Cost(cpu=220, gpu=180),
)


# A3a: the trade-off curve at k = 5, beside its Gaussian approximation.


def trainings_a3a(setting: Setting) -> list[Trainings]:
    """One training with many canaries."""
    return [one_training(setting, "convnet", period=5)]


def measure_a3a(setting: Setting) -> Table:
    """Observed error rates, and the Gaussian curve through the scores' means and variance."""
    (trainings,) = trainings_a3a(setting)
    period = trainings.period
    scores = trainings.play(setting).scores
    rule = estimate(scores, delta=DELTA, method="gaussian-dp", threshold="best")
    fit = estimate(scores, delta=DELTA, method="gaussian-fit")
    mu = mu_by_moments(scores) or 0.0
    facts: dict[str, Value] = {
        "panel": f"ConvNet, k = {period}, T = {trainings.steps:,}",
        "scores": len(scores),
        "mu": mu,
        "epsilon_rule": rule.epsilon,
        "epsilon_fit": fit.epsilon,
        "normality_p_value": fit.details.get("normality_p_value"),
        "gap": _gap(scores, mu),
        "usual_gap": _usual_gap(scores, mu, seed=setting.seed),
    }
    alpha, beta = thinned_errors(scores)
    rows: list[Row] = [
        {**facts, "curve": "observed", "alpha": a, "beta": b}
        for a, b in zip(alpha, beta, strict=True)
    ]
    grid = np.concatenate([np.geomspace(1e-7, 0.02, 60), np.linspace(0.03, 0.99, 60)])
    rows += [
        {**facts, "curve": "Gaussian", "alpha": a, "beta": float(b)}
        for a, b in zip(grid, gaussian_tradeoff(grid, mu), strict=True)
    ]
    return Table.of(rows)


def _gap(scores: Scores, mu: float) -> float:
    """How far, at most, the observed error rates are from the Gaussian curve."""
    alpha, beta = thinned_errors(scores)
    inside = (alpha > 0) & (alpha < 1)
    return float(np.max(np.abs(beta[inside] - gaussian_tradeoff(alpha[inside], mu))))


def _usual_gap(scores: Scores, mu: float, *, seed: int) -> float:
    """The 95 % quantile of this distance for Gaussian samples of this size."""
    random, inserted = np.random.default_rng(seed), len(scores.inserted_scores)
    gaps = []
    for _ in range(200):
        sample = Scores.from_samples(
            random.normal(mu, 1, inserted), random.normal(0, 1, len(scores) - inserted)
        )
        gaps.append(_gap(sample, mu_by_moments(sample) or 0.0))
    return float(np.quantile(gaps, 0.95))


A3A = Figure(
    id="A3a",
    title="trade-off curve of A_GC-R on the ConvNet at k = 5",
    label="fig:ourapproximationsection5",
    needs=frozenset({Need.CIFAR10}),
    quick=Cost(cpu=20, gpu=5),
    full=Cost(cpu=152, gpu=20),
    trainings=trainings_a3a,
    measure=measure_a3a,
    draw=draw_tradeoffs,
)


# A6: the gradient norm of A_L's canary along training: does it fill the clipping norm?


@final
@dataclass(frozen=True, kw_only=True)
class CanaryNorm(HiddenStateAdversary):
    """Not an attack: its score is the norm of the canary's gradient before clipping.

    It is written as an adversary to use the engine, its horizons and its store.
    """

    name: ClassVar[str] = "canary-norm"
    paper: ClassVar[str] = "Cebere et al. (ICLR 2025), figure on the canary's gradient norm"

    def craft(
        self, mechanism: DPSGD, insertion: Insertion, *, canaries: int, seed: int
    ) -> CanaryPoints:
        """The baseline's canary: a training point with a wrong label."""
        return FlippedLabel().craft(mechanism, insertion, canaries=canaries, seed=seed)

    def score(self, view: HiddenStateView, canaries: Canaries) -> torch.Tensor:
        """The norm of each canary's gradient under each model."""
        if not isinstance(canaries, CanaryPoints):
            raise InvalidInput(
                f"canaries must be CanaryPoints to have a gradient, got {type(canaries).__name__}"
            )
        return gradient_norms(view.mechanism, view.final, canaries)


def gradient_norms(
    mechanism: DPSGD, parameters: torch.Tensor, canaries: CanaryPoints
) -> torch.Tensor:
    """Unclipped norms, shape (runs, canaries)."""
    import torch

    from dpaudit.engine.starting_points import known_model, trainable

    model = known_model(mechanism).to(parameters.device, parameters.dtype)
    names = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    shapes = [parameter.shape for parameter in trainable(model)]
    sizes = [parameter.numel() for parameter in trainable(model)]

    def loss(flat: torch.Tensor, feature: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        pieces = zip(torch.split(flat, sizes), shapes, strict=True)
        given = dict(zip(names, (piece.view(shape) for piece, shape in pieces), strict=True))
        outputs = torch.func.functional_call(model, given, (feature[None],))
        return mechanism.loss(outputs, target[None])[0]

    features = canaries.features.to(parameters.device, parameters.dtype)
    targets = canaries.targets.to(parameters.device)
    norms = [
        torch.func.vmap(
            lambda flat, x=x, y=y: torch.func.grad(loss)(flat, x, y).norm(), chunk_size=16
        )(parameters)
        for x, y in zip(features, targets, strict=True)
    ]
    return torch.stack(norms, dim=1)


def trainings_a6(setting: Setting) -> list[Trainings]:
    """Twice the paper's 30, because half of them have no canary; fewer without a GPU."""
    runs = {"convnet": setting.choose(quick=6, full=12)}
    if setting.on_gpu:
        runs = setting.choose(
            quick={"convnet": 12, "resnet18": 4}, full={"convnet": 60, "resnet18": 30}
        )
    return [
        Trainings(
            preset=model,
            adversary=CanaryNorm(),
            runs=count,
            seed=setting.seed,
            insertions=insertions(setting, 1),
            shares=NORM_SHARES,
        )
        for model, count in runs.items()
    ]


def measure_a6(setting: Setting) -> Table:
    """Mean and deviation over runs, with the canary inserted and without."""
    rows: list[Row] = []
    for trainings in trainings_a6(setting):
        if not setting.on_gpu:
            left_out = f"ResNet18; and 60 trainings of the ConvNet, {trainings.runs} played instead"
            setting.ledger.leave_out(left_out)
        for assessment in trainings.play(setting).horizons:
            scores = assessment.scores
            for world, norms in (
                ("inserted", scores.inserted_scores),
                ("not inserted", scores.other_scores),
            ):
                rows.append(
                    {
                        "model": TITLES[trainings.preset],
                        "world": world,
                        "runs": len(norms),
                        "steps": assessment.horizon,
                        "mean": float(norms.mean()),
                        "deviation": float(norms.std(ddof=1)) if len(norms) > 1 else None,
                    }
                )
    return Table.of(rows)


def draw_a6(table: Table) -> Drawing:
    """Mean and a band of two deviations, one panel per network."""
    models = table.words("model")
    width = style.COLUMN if len(models) == 1 else style.PAGE
    figure, axes = style.new_figure(columns=len(models), width=width, height=2.6)
    looks = {"inserted": (style.ORANGE, "-"), "not inserted": (style.BLUE, "--")}
    for axis, model in zip(axes, models, strict=True):
        for world, (colour, line) in looks.items():
            rows = table.where(model=model, world=world)
            steps, mean = rows.numbers("steps"), np.array(rows.numbers("mean"))
            spread = 2 * np.nan_to_num(np.array(rows.numbers("deviation")))
            axis.plot(steps, mean, color=colour, linestyle=line, label=f"canary {world}")
            axis.fill_between(
                steps, np.maximum(mean - spread, 0), mean + spread, color=colour, alpha=0.2, lw=0
            )
        for clip_norm in (1, 2, 4):
            label = "C = 1, 2, 4" if clip_norm == 1 else None
            axis.axhline(clip_norm, color=style.GREY, linestyle=":", lw=0.8, label=label)
        axis.set(title=model, xlabel="steps", ylim=(0, None))
    axes[0].set_ylabel("gradient norm of the canary")
    axes[0].legend(loc="best")
    return figure


A6 = Figure(
    id="A6",
    title="gradient norm of A_L's canary along training",
    label="fig:sensitivity_of_anomalies",
    needs=frozenset({Need.CIFAR10}),
    quick=Cost(cpu=70, gpu=25),
    full=Cost(cpu=220, gpu=150),
    trainings=trainings_a6,
    measure=measure_a6,
    draw=draw_a6,
)


# A8: delta over epsilon at k = 1, 5 and 25.


def at_periods(setting: Setting) -> list[Trainings]:
    """One training with many canaries for each period."""
    return [one_training(setting, "convnet", period=period) for period in PERIODS]


def measure_a8(setting: Setting) -> Table:
    """One training with many canaries for each period, read at every epsilon."""
    rows: list[Row] = []
    for trainings in at_periods(setting):
        scores = trainings.play(setting).scores
        rule = estimate(scores, delta=DELTA, method="gaussian-dp", threshold="best")
        pilot = estimate(scores, delta=DELTA, method="gaussian-dp", seed=setting.seed)
        composed = math.sqrt(trainings.insertions) / SIGMA
        proven = proven_curve(scores)
        for epsilon in np.linspace(0, 30, 121):
            rows.append(
                {
                    "period": trainings.period,
                    "steps": trainings.steps,
                    "epsilon": float(epsilon),
                    "accountant": float(gaussian_delta(float(epsilon), composed)),
                    "paper_rule": float(gaussian_delta(float(epsilon), rule.mu or 0.0)),
                    "gaussian_dp": float(gaussian_delta(float(epsilon), pilot.mu or 0.0)),
                    "proven": float(proven.delta_at(float(epsilon))),
                    "mu_accountant": composed,
                    "mu_paper_rule": rule.mu,
                    "mu_gaussian_dp": pilot.mu,
                }
            )
    return Table.of(rows)


def draw_a8(table: Table) -> Drawing:
    """One panel per period, delta on a logarithmic axis."""
    from matplotlib.lines import Line2D

    looks = {
        "accountant": (style.GREY, "-.", "accountant"),
        "paper_rule": (style.ORANGE, "--", "GDP, best threshold (paper)"),
        "gaussian_dp": (style.BLUE, "-", "GDP, pilot threshold"),
        "proven": (style.GREEN, ":", "assumption-free"),
    }
    figure, axes = style.new_figure(columns=len(PERIODS), width=style.PAGE, height=2.7)
    for axis, period in zip(axes, PERIODS, strict=True):
        rows = table.where(period=period)
        for column, (colour, line, _) in looks.items():
            delta = np.array(rows.numbers(column))
            delta[delta < _SMALLEST] = np.nan
            axis.plot(rows.numbers("epsilon"), delta, color=colour, linestyle=line)
        axis.axhline(DELTA, color=style.GREY, lw=0.5)
        axis.set(yscale="log", ylim=(_SMALLEST, 1.5), xlabel="epsilon", title=f"k = {period}")
    axes[0].set_ylabel("delta")
    handles = [
        Line2D([], [], color=colour, linestyle=line, label=label)  # type: ignore[arg-type]
        for colour, line, label in looks.values()
    ]
    handles.append(Line2D([], [], color=style.GREY, lw=0.5, label="delta = 1e-5"))
    style.legend_below(figure, handles, columns=5)
    return figure


A8 = Figure(
    id="A8",
    title="privacy profiles of the ConvNet, k = 1, 5, 25",
    label="fig:privacy_profile",
    needs=frozenset({Need.CIFAR10}),
    quick=Cost(cpu=45, gpu=10),
    full=Cost(cpu=760, gpu=85),
    trainings=at_periods,
    measure=measure_a8,
    draw=draw_a8,
)


# A9: what is left of A_GC-R when the adversary does not know the initialisation.


def with_exact(table: Table) -> Table:
    """Each row with the exact epsilon of a weight that only noise disturbs."""

    def exact(row: Row) -> Row:
        rule = next(rule for rule in RULES if rule == row["weights"])
        steps = round(float(row["steps"] or 0))
        known = {"exact": exact_epsilon(rule, steps)}
        return {**row, **known, "exact_if_normal": normal_epsilon(rule, steps)}

    return Table.of(map(exact, table))


def lines_a9(setting: Setting) -> Iterator[Line]:
    """Five lines for each rule of drawing weights."""
    for rule in RULES:
        panel = f"{rule.title()} weights"
        public_start = Trainings(
            preset="convnet",
            adversary=RandomDimension(),
            runs=1,
            canaries=20_000,
            seed=setting.seed,
            insertions=insertions(setting, 1),
            weights=rule,
        )
        unknown = dataclasses.replace(public_start, known_start=False)
        by_ratio = dataclasses.replace(
            unknown, adversary=StartDistribution(), runs=setting.choose(quick=1, full=20)
        )
        biases = dataclasses.replace(
            unknown, adversary=RandomBias(), runs=setting.choose(quick=2, full=20), canaries=200
        )
        # The paper's protocol: a start drawn anew in each of many trainings.
        many = dataclasses.replace(unknown, runs=2000, canaries=1)
        yield Line(panel=panel, series="known start", trainings=public_start)
        yield Line(panel=panel, series="unknown start", trainings=unknown)
        yield Line(panel=panel, series="unknown start, known distribution", trainings=by_ratio)
        yield Line(panel=panel, series="unknown start, biases only", trainings=biases)
        if setting.full:
            yield Line(
                panel=panel, series="unknown start, many trainings", trainings=many, gpu=True
            )


def draw_a9(table: Table) -> Drawing:
    """The curves, and the exact epsilon of a weight that only noise disturbs."""
    from matplotlib.lines import Line2D

    look: dict[str, Any] = {"color": style.GREY, "lw": 1.3, "linestyle": (0, (1, 1))}
    label = "exact, one weight, unknown start"
    drawing = draw_curves(table, height=3.2, further=[Line2D([], [], label=label, **look)])
    for axis, panel in zip(drawing.axes, table.words("panel"), strict=True):
        unknown = table.where(panel=panel, series="unknown start")
        steps, exact = unknown.numbers("steps"), unknown.numbers("exact")
        axis.plot(steps, exact, **look)
    return drawing


A9 = curve_figure(
    lines_a9,
    draw=draw_a9,
    finish=with_exact,
    id="A9",
    title="unknown initialisation: Xavier and Kaiming",
    label="fig:unknown_init",
    needs=frozenset({Need.CIFAR10}),
    quick=Cost(cpu=85, gpu=35),
    full=Cost(cpu=650, gpu=170),
)


# A10: fine-tuning: the head of a frozen AlexNet, beside a ConvNet trained from scratch.


def lines_a10(setting: Setting) -> Iterator[Line]:
    """The head by both protocols, and the ConvNet."""
    common = Trainings(
        preset="alexnet-head",
        adversary=RandomDimension(),
        runs=1,
        canaries=20_000,
        seed=setting.seed,
        insertions=insertions(setting, 1),
        examples=setting.choose(quick=2000, full=0),
    )
    many = dataclasses.replace(common, runs=setting.choose(quick=200, full=5000), canaries=1)
    yield Line(series="AlexNet head", trainings=common)
    yield Line(series="AlexNet head, many trainings", trainings=many)
    yield Line(series="ConvNet from scratch", trainings=one_training(setting, "convnet"))


A10 = curve_figure(
    lines_a10,
    id="A10",
    title="fine-tuning the head of a frozen AlexNet, k = 1",
    label="fig:finetuning",
    needs=frozenset({Need.CIFAR10, Need.WEIGHTS}),
    quick=Cost(cpu=80, gpu=30),
    full=Cost(cpu=1200, gpu=30),
)


# P1 (ours): many trainings with one canary, or one training with many: do both agree?


def lines_p1(setting: Setting) -> Iterator[Line]:
    """The ConvNet at k = 1 by both protocols; the faster one with several seeds."""
    runs = setting.choose(quick=8, full=5000)
    training = one_training(setting, "convnet")
    for seed in range(setting.seed, setting.seed + setting.choose(quick=1, full=5)):
        same = dataclasses.replace(training, seed=seed)
        yield Line(series="one training, many canaries", trainings=same)
    many = dataclasses.replace(training, runs=runs, canaries=1)
    yield Line(series="many trainings, one canary", trainings=many)


P1 = curve_figure(
    lines_p1,
    id="P1",
    title="one canary or many in a training, on the ConvNet",
    label="",
    needs=frozenset({Need.CIFAR10}),
    quick=Cost(cpu=80, gpu=20),
    full=Cost(cpu=None, gpu=100),
)
