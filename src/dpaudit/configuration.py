"""The settings of ``dpaudit audit`` and ``dpaudit plan``: options over those of the preset.

A setting that was not given is `None` until `Settings.resolved` fills it in.
"""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

from dpaudit import _validate
from dpaudit._outputs import check_output
from dpaudit.adversaries import ADVERSARIES, adversary
from dpaudit.errors import InvalidInput
from dpaudit.mechanisms.dpsgd import DPSGD, Insertion
from dpaudit.presets import INSERTIONS, PRESETS, preset
from dpaudit.threat_models import Adversary
from dpaudit.trainings.importing import load


def store_path(given: str | None) -> str:
    """The file in which audits are kept: as given, of the environment, or the default."""
    return given or os.environ.get("DPAUDIT_STORE") or "dpaudit.sqlite"


COMPILE: dict[str, Any] = {"auto": "auto", "torch": True, "fused": "fused", "none": False}
"""The values of ``compile``, as `dpaudit.engine.Speed` has them."""


def _setting(help: str, metavar: str | None = None, default: str = "") -> Any:
    """A field of `Settings`, with what the help of its option shows.

    Arguments:
        help: What the setting is, in sentences that stand alone.
        metavar: Name of the value; by default its type.
        default: What leaving it out means.
    """
    shown = {"help": help, "metavar": metavar, "default": default or True}
    return field(default=None, metadata=shown)


@final
@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of an audit of a preset; `None` for those that were not given."""

    preset: str | None = _setting(
        f"Preset to audit, the same as TRAINING: {', '.join(PRESETS)}.", "NAME", "housing"
    )
    adversary: str | None = _setting(
        f"Adversary that crafts the canary and scores the models: {', '.join(ADVERSARIES)}; or "
        "FILE.py:MyAdversary. For a function, how returned values are scored: score, parameters, "
        "predictions, or FILE.py:function of (canary, returned).",
        "NAME",
        "simulated-dimension; for a function, chosen by the type of the returned value",
    )
    runs: int | None = _setting(
        "Number of trainings. It must be an even number if there is a single canary. Another "
        "number is a new sample.",
        "N",
        "5000; 200 of a function",
    )
    canaries: int | None = _setting("Canaries per training.", "M", "1")
    steps: int | None = _setting(
        "Number of steps of a training. For a function, those that may contain the canary.",
        "T",
        "250 times the period",
    )
    period: int | None = _setting("Insert the canary once in every k steps.", "k", "1")
    phase: str | None = _setting(
        "Step of each period of k steps at which the canary is inserted. The paper uses the last.",
        "first|last",
        "first",
    )
    noise_multiplier: float | None = _setting(
        "Noise multiplier: standard deviation of the noise over the clip norm. For a function, "
        "what it claims.",
        "s",
        "4",
    )
    clip_norm: float | None = _setting(
        "Norm to which the gradient of each example is clipped.", "C", "1"
    )
    batch_size: int | None = _setting("Examples per batch.", "B", "400; 128 on CIFAR-10")
    learning_rate: float | None = _setting("Learning rate.", "e", "0.1; 0.01 on CIFAR-10")
    delta: float | None = _setting("Delta at which all bounds are computed.", default="1e-5")
    confidence: float | None = _setting("Confidence of each lower bound.", "c", "0.95")
    seed: int | None = _setting("Random seed.", "S", "0")
    data_dir: str | None = _setting(
        "Folder with CIFAR-10, or with the text and the model of a language model.",
        "D",
        "the environment's DPAUDIT_DATA",
    )
    device: str | None = _setting("Device used.", "auto|cpu|cuda", "auto, a GPU if there is one")
    precision: str | None = _setting(
        "Precision of products of matrices. tf32 needs an NVIDIA GPU. Parameters, noise and "
        "updates are in float32.",
        "auto|float32|tf32|bfloat16",
        "auto: tf32 on a GPU, float32 on a CPU",
    )
    compile: str | None = _setting(
        "How the training step is compiled. fused: a C++ function for small fully connected "
        "networks on a CPU, several times faster than torch.",
        "auto|torch|fused|none",
        "auto, for long audits fused where possible, otherwise torch",
    )
    store: str | None = _setting(
        "File in which audits are kept. The same command resumes an interrupted audit; a finished "
        "one is played again.",
        "FILE",
        "the environment's DPAUDIT_STORE, or dpaudit.sqlite",
    )
    name: str | None = _setting(
        "Name of the audit in the store; the newest with this name is shown."
    )
    scores_out: str | None = _setting("Also write the scores to this file.", "FILE.csv")

    def over(self, other: Settings) -> Settings:
        """These settings, completed by the other's.

        Example:
            >>> Settings(runs=10).over(Settings(runs=20, seed=3)).seed
            3
        """
        given = {name: value for name, value in vars(self).items() if value is not None}
        return dataclasses.replace(other, **given)

    def resolved(self) -> Settings:
        """These settings checked, and completed by the defaults of their preset.

        No data is read and no model is built.

        Example:
            >>> Settings(period=5).resolved().steps
            1250
        """
        chosen = preset(self.preset or "housing")
        of_preset = ("adversary", "noise_multiplier", "clip_norm", "batch_size", "learning_rate")
        complete = self.over(
            Settings(
                preset=chosen.name,
                runs=5000,
                canaries=1,
                steps=INSERTIONS * (1 if self.period is None else self.period),
                period=1,
                phase="first",
                delta=1e-5,
                confidence=0.95,
                seed=0,
                device="auto",
                precision="auto",
                compile="auto",
                store=store_path(None),
                **{name: getattr(chosen, name) for name in of_preset},
            )
        )
        complete._check()
        complete.crafter()  # raises for an adversary that is not known
        return complete

    def _check(self) -> None:
        """Raise for a complete setting that is not in its range."""
        canaries = _validate.integer("canaries", self.canaries, at_least=1)
        runs = _validate.runs(self.runs, canaries=canaries)
        if canaries == 1 and runs % 2:
            raise InvalidInput(
                f"runs must be even, for half of them to have the canary, got {runs}"
            )
        period = self.insertion().period
        steps = _validate.integer("steps", self.steps, at_least=1)
        if period > steps:
            raise InvalidInput(
                f"period must be at most the number of steps ({steps}), got {period}; insert more "
                "often or train longer"
            )
        _validate.non_negative("noise_multiplier", self.noise_multiplier)
        _validate.positive("clip_norm", self.clip_norm)
        _validate.integer("batch_size", self.batch_size, at_least=1)
        _validate.positive("learning_rate", self.learning_rate)
        _validate.delta(self.delta)
        _validate.confidence(self.confidence)
        _validate.integer("seed", self.seed)
        _validate.one_of("compile", self.compile, tuple(COMPILE))
        if self.scores_out is not None:
            check_output("scores_out", Path(self.scores_out), overwrite=True)  # its place

    def insertion(self) -> Insertion:
        """The steps at which the canary is inserted."""
        return Insertion.in_phase(self.phase or "first", period=self.period)  # type: ignore[arg-type]  # checked there

    def crafter(self) -> Adversary:
        """The adversary."""
        name = self.adversary or ""
        if ":" not in name:
            return adversary(name)
        registered = load("adversary", name)
        chosen = registered() if isinstance(registered, type) else registered
        if not isinstance(chosen, Adversary):
            raise InvalidInput(f"adversary must be an Adversary, got {name}, which is {chosen!r}")
        return chosen

    def training(self) -> DPSGD:
        """The training. Reads its data and imports torch."""
        names = (
            "steps", "batch_size", "learning_rate", "clip_norm", "noise_multiplier", "seed",
            "data_dir", "period", "phase",
        )  # fmt: skip
        return preset(self.preset or "").training(**{name: getattr(self, name) for name in names})

    def arguments(self) -> dict[str, Any]:
        """The arguments that `dpaudit.audit` and `dpaudit.plan` share. Imports torch."""
        from dpaudit.engine import Speed

        precision: Any = self.precision  # checked by Speed
        speed = Speed(
            device=self.device or "auto",
            precision=precision,
            compile=COMPILE[self.compile or "auto"],
        )
        given = {
            name: getattr(self, name)
            for name in ("runs", "canaries", "delta", "confidence", "seed")
        }
        return {
            "mechanism": self.training(),
            "adversary": self.crafter(),
            "insertion": self.insertion(),
            "speed": speed,
            **given,
        }
