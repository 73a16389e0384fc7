"""A9: what is left of A_GC-R when the adversary does not know the initialisation."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, final

import numpy as np

from dpaudit.adversaries import RandomDimension
from dpaudit.adversaries.contract import (
    Canaries,
    CraftedDimensions,
    HiddenStateAdversary,
    HiddenStateView,
)
from dpaudit.adversaries.crafting import check_room, generator, move_along_dimensions
from dpaudit.reproduce.contract import Cost, Figure, Need
from dpaudit.reproduce.curves import draw_curves
from dpaudit.reproduce.networks import insertions
from dpaudit.reproduce.readings import Line, curves, final_rows, spread, standard_error
from dpaudit.reproduce.table import Table
from dpaudit.reproduce.trainings import Trainings, Weights

if TYPE_CHECKING:
    import torch

    from dpaudit.mechanisms.dpsgd import DPSGD, Insertion
    from dpaudit.reproduce.setting import Setting

RULES: tuple[Weights, ...] = ("xavier", "kaiming")
KNOWN, UNKNOWN, BIASES = "known start", "unknown start", "unknown start, biases only"
MANY = "unknown start, many trainings"


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

        biases = np.flatnonzero(_is_bias(mechanism))
        check_room(canaries, len(biases))
        chosen = generator(seed).choice(biases, size=canaries, replace=False)
        return CraftedDimensions(dimensions=torch.from_numpy(chosen), norm=mechanism.clip_norm)

    def score(self, view: HiddenStateView, canaries: Canaries) -> torch.Tensor:
        """As A_GC-R scores."""
        return move_along_dimensions(view, canaries)


def _is_bias(mechanism: DPSGD) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    from dpaudit.games.starting_points import known_model

    named = known_model(mechanism).named_parameters()
    return np.concatenate([np.full(value.numel(), name.endswith("bias")) for name, value in named])


def measure(setting: Setting) -> Table:
    """Both rules, start known or not; the unknown one also for biases, and training by training."""
    return curves(setting, _lines(setting))


def _lines(setting: Setting) -> Iterator[Line]:
    few = setting.choose(quick=2, full=20)
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
        biases = dataclasses.replace(unknown, adversary=RandomBias(), runs=few, canaries=200)
        # The paper's protocol: a start drawn anew in each of many trainings.
        many = dataclasses.replace(unknown, runs=2000, canaries=1)
        yield Line(panel=panel, series=KNOWN, trainings=known)
        yield Line(panel=panel, series=UNKNOWN, trainings=unknown)
        yield Line(panel=panel, series=BIASES, trainings=biases)
        if setting.full:
            yield Line(panel=panel, series=MANY, trainings=many, gpu=True)


def findings(table: Table) -> str:
    """Known against unknown, and why."""
    last = final_rows(table)
    parts = []
    for panel in last.words("panel"):
        told = []
        for series in (KNOWN, UNKNOWN, MANY, BIASES):
            row = last.where(panel=panel, series=series)
            if len(row):
                told.append(
                    f"{series} {spread(row.numbers('gaussian_dp'))} "
                    f"(mu {row.number('mu'):.2f} ± {standard_error(row):.2f})"
                )
        parts.append(f"{panel}: " + ", ".join(told))
    return (
        "; ".join(parts)
        + ". A canary moves its weight by T eta C / B = 0.02 in 250 steps; both rules draw weights "
        "with a deviation several times that, so a start that is drawn anew in every training "
        "hides the canary of a weight. Biases start at zero by both rules, and canaries there "
        "keep most of their mu. An unknown start that is the same in all trainings of an audit "
        "would only shift every score, and a threshold chosen on the scores would not notice."
    )


FIGURE = Figure(
    id="A9",
    title="unknown initialisation: Xavier and Kaiming",
    label="fig:unknown_init",
    needs=frozenset({Need.CIFAR10}),
    quick=Cost(cpu=75, gpu=30),
    full=Cost(cpu=300, gpu=150),
    measure=measure,
    draw=draw_curves,
    findings=findings,
)
