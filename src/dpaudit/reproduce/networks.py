"""The trainings of the CIFAR networks, by either protocol: shared by most figures.

Where the paper trains 5,000 models with one canary, one training with thousands of canaries, each
with a dimension and a coin of its own, gives as many scores. P1 shows that both agree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpaudit.adversaries import FlippedLabel, RandomDimension
from dpaudit.presets import INSERTIONS
from dpaudit.reproduce.trainings import Trainings

if TYPE_CHECKING:
    from dpaudit.adversaries import Adversary
    from dpaudit.reproduce.setting import Setting

TITLES = {"convnet": "ConvNet", "resnet18": "ResNet18"}

_CANARIES = {"convnet": 20_000, "resnet18": 100_000}
_QUICK_STEPS = 100
"""Steps of a quick ConvNet training; 250 k in full."""

_FLIPPED_RUNS = {("convnet", 1): 5000, ("convnet", 5): 2500, ("convnet", 25): 500}
_FLIPPED_RUNS |= {("resnet18", 1): 16, ("resnet18", 5): 4}
"""A_L has one data point a training, so it takes many; of ResNet18 as many as minutes allow."""


def insertions(setting: Setting, period: int) -> int:
    """250, or as many as a quick training has room for."""
    return setting.choose(quick=max(4, _QUICK_STEPS // period), full=INSERTIONS)


def one_training(
    setting: Setting,
    model: str,
    *,
    adversary: Adversary | None = None,
    period: int = 1,
    clip_norm: float = 1.0,
) -> Trainings:
    """One training with many canaries, by A_GC-R unless said otherwise."""
    return Trainings(
        preset=model,
        adversary=RandomDimension() if adversary is None else adversary,
        runs=1,
        canaries=_CANARIES[model],
        period=period,
        clip_norm=clip_norm,
        seed=setting.seed,
        insertions=insertions(setting, period),
    )


def many_trainings(setting: Setting, model: str, *, runs: int) -> Trainings:
    """The paper's protocol for A_GC-R at k = 1: one canary in each of many trainings."""
    return Trainings(
        preset=model,
        adversary=RandomDimension(),
        runs=runs,
        seed=setting.seed,
        insertions=insertions(setting, 1),
    )


def flipped_label(
    setting: Setting, model: str, *, period: int = 1, clip_norm: float = 1.0
) -> Trainings | None:
    """A_L: one mislabelled image in each of many trainings; `None` where even few take too long."""
    runs = setting.choose(quick=6 if model == "convnet" else 0, full=_full_runs(model, period))
    if runs == 0:
        return None
    return Trainings(
        preset=model,
        adversary=FlippedLabel(),
        runs=runs,
        period=period,
        clip_norm=clip_norm,
        seed=setting.seed,
        insertions=insertions(setting, period),
    )


def _full_runs(model: str, period: int) -> int:
    return _FLIPPED_RUNS.get((model, period), 0)
