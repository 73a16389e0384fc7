"""The trainings of the CIFAR networks, by both protocols; shared by most figures.

The paper trains 5,000 models with one canary each. One training with thousands of canaries, each
with its own dimension and coin, gives as many scores. P1 shows that both agree.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dpaudit.adversaries import FlippedLabel, OneRunBlackBox, RandomDimension
from dpaudit.presets import INSERTIONS
from dpaudit_paper.trainings import Trainings

if TYPE_CHECKING:
    from dpaudit.adversaries import Adversary
    from dpaudit_paper.setting import Setting

TITLES = {"convnet": "ConvNet", "resnet18": "ResNet18"}

_CANARIES = {"convnet": 20_000, "resnet18": 100_000}
_QUICK_STEPS = 100
"""Steps of a quick ConvNet training; 250 k in full."""

A_L, A_L_TOGETHER = "A_L", "A_L, many canaries"

_ALONE = {("convnet", 1, c): 5000 for c in (1.0, 2.0, 4.0)}
_ALONE |= {("convnet", k, 1.0): 5000 for k in (5, 25)}
_ALONE |= {("resnet18", 1, 1.0): 500, ("resnet18", 1, 2.0): 32, ("resnet18", 1, 4.0): 32}
"""Trainings for A_L with one image each, by model, period and clipping norm; of ResNet18 as many as
take minutes, and none where so few could prove nothing."""

_QUICK_TOGETHER = {("convnet", 1): 4}
_TOGETHER = {("convnet", 1): 16, ("resnet18", 1): 8}
"""Trainings for A_L with many images each, at k = 1 only: they prove little there already."""

_IMAGES = 64
"""Mislabelled images in one training: half of them join a batch of 128."""


def insertions(setting: Setting, period: int) -> int:
    """The number of insertions: 250, or fewer in a quick training."""
    return setting.choose(quick=max(4, _QUICK_STEPS // period), full=INSERTIONS)


def one_training(
    setting: Setting,
    model: str,
    *,
    adversary: Adversary | None = None,
    period: int = 1,
    clip_norm: float = 1.0,
) -> Trainings:
    """One training with many canaries, by A_GC-R by default."""
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


def flipped_labels(
    setting: Setting, model: str, *, period: int = 1, clip_norm: float = 1.0
) -> Iterator[tuple[str, Trainings]]:
    """A_L by the protocols that take minutes, each with the name of its line.

    One mislabelled image in each of many trainings, as in the paper; and 64 in each of a few
    trainings, scored by the decrease of their loss, because images start at different losses.
    The second is much faster but proves much less.
    """
    alone = Trainings(
        preset=model,
        adversary=FlippedLabel(),
        runs=setting.choose(quick=0, full=_ALONE.get((model, period, clip_norm), 0)),
        period=period,
        clip_norm=clip_norm,
        seed=setting.seed,
        insertions=insertions(setting, period),
    )
    together = dataclasses.replace(
        alone,
        adversary=OneRunBlackBox(),
        runs=setting.choose(quick=_QUICK_TOGETHER, full=_TOGETHER).get((model, period), 0),
        canaries=_IMAGES,
    )
    for name, trainings in ((A_L, alone), (A_L_TOGETHER, together)):
        if trainings.runs:
            yield name, trainings
