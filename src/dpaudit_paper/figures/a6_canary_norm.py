"""A6: the gradient norm of A_L's canary along training: does it fill the clipping norm?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, final

import numpy as np

from dpaudit.adversaries import FlippedLabel
from dpaudit.errors import InvalidInput
from dpaudit.threat_models import Canaries, CanaryPoints, HiddenStateAdversary
from dpaudit_paper import style
from dpaudit_paper.base import Cost, Figure, Need
from dpaudit_paper.networks import TITLES, insertions
from dpaudit_paper.table import Row, Table
from dpaudit_paper.trainings import Trainings

if TYPE_CHECKING:
    import torch
    from matplotlib.figure import Figure as Drawing

    from dpaudit.adversaries import HiddenStateView
    from dpaudit.mechanisms.dpsgd import DPSGD, Insertion
    from dpaudit_paper.setting import Setting

SHARES = (0.004, 0.02, 0.04, 0.08, 0.12, 0.16, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


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


def measure(setting: Setting) -> Table:
    """Mean and deviation over runs, with the canary inserted and without."""
    rows: list[Row] = []
    for model, runs in _runs(setting):
        trainings = Trainings(
            preset=model,
            adversary=CanaryNorm(),
            runs=runs,
            seed=setting.seed,
            insertions=insertions(setting, 1),
            shares=SHARES,
        )
        for assessment in trainings.play(setting).horizons:
            scores = assessment.scores
            for world, norms in (
                ("inserted", scores.inserted_scores),
                ("not inserted", scores.other_scores),
            ):
                rows.append(
                    {
                        "model": TITLES[model],
                        "world": world,
                        "runs": len(norms),
                        "steps": assessment.horizon,
                        "mean": float(norms.mean()),
                        "deviation": float(norms.std(ddof=1)) if len(norms) > 1 else None,
                    }
                )
    return Table.of(rows)


def _runs(setting: Setting) -> Iterator[tuple[str, int]]:
    """Twice the paper's 30, because half of them have no canary; fewer without a GPU."""
    if not setting.on_gpu:
        few = setting.choose(quick=6, full=12)
        setting.ledger.leave_out(f"ResNet18; and 60 trainings of the ConvNet, {few} played instead")
        yield "convnet", few
        return
    yield "convnet", setting.choose(quick=12, full=60)
    yield "resnet18", setting.choose(quick=4, full=30)


def draw(table: Table) -> Drawing:
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


def findings(table: Table) -> str:
    """The norm at the start and at the end."""
    parts = []
    for model in table.words("model"):
        rows = table.where(model=model, world="inserted")
        mean = rows.numbers("mean")
        low, high = min(mean), max(mean)
        parts.append(
            f"{model}: {mean[0]:.2f} after the first step, between {low:.2f} and {high:.2f} in "
            f"between, {mean[-1]:.2f} after {int(rows.numbers('steps')[-1])} steps (mean of "
            f"{int(rows.numbers('runs')[0])} runs with the canary)"
        )
    return (
        "The norm of the mislabelled image's gradient before clipping. "
        + "; ".join(parts)
        + ". If it is below C, the canary of A_L has a smaller norm than the accountant assumes; "
        "a crafted gradient has norm C at every step."
    )


FIGURE = Figure(
    id="A6",
    title="gradient norm of A_L's canary along training",
    label="fig:sensitivity_of_anomalies",
    needs=frozenset({Need.CIFAR10}),
    quick=Cost(cpu=70, gpu=25),
    full=Cost(cpu=220, gpu=150),
    measure=measure,
    draw=draw,
    findings=findings,
)
