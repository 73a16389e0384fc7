"""Trainings of the paper's networks with canaries, kept in a store.

Figures that need the same trainings use the same name, so that they are played once.
"""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, final

from dpaudit import _validate
from dpaudit.mechanisms.batches import FixedBatches
from dpaudit.mechanisms.dpsgd import DPSGD, FixedInitialisation, FreshInitialisation, Insertion
from dpaudit.presets import INSERTIONS, alexnet_features_of, preset
from dpaudit.threat_models import Adversary

if TYPE_CHECKING:
    from dpaudit.audits import AuditResult
    from dpaudit.engine import Speed
    from dpaudit.engine.speed import Precision
    from dpaudit_paper.setting import Setting

Weights = Literal["default", "xavier", "kaiming"]

SHARES = (0.04, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0)
"""The horizons of a curve over training, as shares of all steps."""

_ON_GPU: dict[str, Precision] = {"convnet": "tf32", "resnet18": "bfloat16"}
"""Precisions on a GPU of the networks that take minutes; of ResNet18 the one that takes half of the
time. All others use float32."""

_ON_CPU = frozenset({"housing"})
"""Networks that two CPU cores train about as fast as a GPU, by a fused step in C++: F1c takes 61 s
in full on two cores and 54 to 80 s on an H200, which is then free for other networks."""


@final
@dataclass(frozen=True, kw_only=True)
class Trainings:
    """The trainings behind one curve.

    Arguments:
        preset: Model, data and hyperparameters.
        adversary: The adversary.
        runs: Number of trainings.
        canaries: Canaries per training.
        period: Insertion period k.
        clip_norm: Clipping norm C.
        seed: Random seed.
        insertions: Number of insertions; T is this times the period.
        weights: Initialisation of the weights.
        known_start: Whether all runs start at one known model; otherwise each draws its own.
        examples: Number of training images, 0 for all; only for `alexnet-head`, whose
            features take long to make.
        shares: The horizons, as shares of all steps.

    Example:
        >>> from dpaudit.adversaries import RandomDimension
        >>> Trainings(preset="convnet", adversary=RandomDimension(), runs=1, period=5).steps
        1250
    """

    preset: str
    adversary: Adversary
    runs: int
    canaries: int = 1
    period: int = 1
    clip_norm: float = 1.0
    seed: int = 0
    insertions: int = INSERTIONS
    weights: Weights = "default"
    known_start: bool = True
    examples: int = 0
    shares: tuple[float, ...] = SHARES

    def __post_init__(self) -> None:
        _validate.one_of("weights", self.weights, ("default", "xavier", "kaiming"))
        _validate.integer("insertions", self.insertions, at_least=1)

    @property
    def steps(self) -> int:
        """The number of steps T."""
        return self.insertions * self.period

    @property
    def horizons(self) -> tuple[int, ...]:
        """The numbers of steps at which the curve has a point."""
        counts = (max(1, round(share * self.insertions)) for share in self.shares)
        return tuple(sorted({count * self.period for count in counts}))

    @property
    def protocol(self) -> str:
        """The protocol in words."""
        if self.canaries == 1:
            return f"{self.runs:,} trainings, one canary each"
        if self.runs == 1:
            return f"one training, {self.canaries:,} canaries"
        return f"{self.runs:,} trainings, {self.canaries:,} canaries each"

    def name_at(self, precision: str) -> str:
        """The name of the audit in the store; equal names mean equal audits."""
        start = "" if self.known_start else " fresh"
        start += f" of {self.examples}" if self.examples else ""
        return (
            f"{self.preset} {self.adversary!r} k={self.period} C={self.clip_norm:g} "
            f"T={self.steps} {self.weights}{start} seed={self.seed} "
            f"{self.runs}x{self.canaries} {precision}"
        )

    def name_in(self, setting: Setting) -> str:
        """The name of the audit in the store of a setting."""
        return self.name_at(speed_for(self.preset, setting).precision)

    def mechanism(self, data_dir: str | None) -> DPSGD:
        """The mechanism; the data are read once for all trainings."""
        base = _base(self.preset, data_dir, self.examples)
        build = base.build_model
        if self.weights != "default":
            from dpaudit.models import drawn_by

            build = functools.partial(drawn_by, self.weights, base.build_model)
        known = FixedInitialisation(seed=self.seed)
        return dataclasses.replace(
            base,
            build_model=build,
            batches=FixedBatches(batch_size=preset(self.preset).batch_size, seed=self.seed),
            steps=self.steps,
            clip_norm=self.clip_norm,
            initialisation=known if self.known_start else FreshInitialisation(),
        )

    def play(self, setting: Setting) -> AuditResult:
        """Play the trainings, or read them from the store."""
        from dpaudit.audits import audit

        speed = speed_for(self.preset, setting)
        name = self.name_in(setting)
        if setting.progress is not None:
            setting.progress.notice(
                f"{self.preset} by {self.adversary.name}, k = {self.period}, {self.steps:,} steps, "
                f"seed {self.seed}: {self.protocol}"
            )
        with setting.playing(name):
            result = audit(
                self.mechanism(setting.data_dir),
                self.adversary,
                runs=self.runs,
                canaries=self.canaries,
                insertion=Insertion(period=self.period),
                seed=self.seed,
                horizons=self.horizons,
                name=name,
                store=setting.store,
                speed=speed,
                progress=setting.progress,
                executor=setting.executor,
                reuse=True,
            )
        setting.ledger.add(name, result)
        return result


def speed_for(preset_name: str, setting: Setting) -> Speed:
    """Speed settings: on a GPU the CIFAR networks compute in lower precision.

    The device ``auto`` is the CPU for networks that its fused step trains about as fast.
    """
    from dpaudit.engine import Speed
    from dpaudit.engine.fused import can_build

    choosing = setting.device == "auto" and setting.executor is None
    if choosing and preset_name in _ON_CPU and can_build():
        return Speed(device="cpu")
    precision = _ON_GPU.get(preset_name, "float32") if setting.on_gpu else "float32"
    return Speed(device=setting.device, precision=precision)


@functools.cache
def _base(preset_name: str, data_dir: str | None, examples: int) -> DPSGD:
    """The mechanism of the preset; cached, because reading the data takes long."""
    chosen = preset(preset_name)
    if examples:
        chosen = dataclasses.replace(
            chosen, read=functools.partial(alexnet_features_of, examples=examples)
        )
    return chosen.training(data_dir=data_dir)
