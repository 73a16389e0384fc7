"""The trainings of the small network on Housing: shared by F1c, A1 and A5."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpaudit_paper.trainings import Trainings

if TYPE_CHECKING:
    from dpaudit.adversaries import Adversary
    from dpaudit_paper.setting import Setting


def seeds(setting: Setting) -> range:
    """The seeds of the whole audit: five as in the paper, two in the quick version."""
    return range(setting.seed, setting.seed + setting.choose(quick=2, full=5))


def housing(adversary: Adversary, setting: Setting, seed: int) -> Trainings:
    """The audit with one seed: 5,000 trainings, or 1,000 in the quick version."""
    return Trainings(
        preset="housing",
        adversary=adversary,
        runs=setting.choose(quick=1000, full=5000),
        seed=seed,
    )
