"""The settings of ``dpaudit audit`` and ``dpaudit plan``: options over CONFIG.toml over the preset.

A setting that was not given is `None` until `Settings.resolved` fills it in.
"""

from __future__ import annotations

import dataclasses
import os
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from dpaudit import _validate
from dpaudit.adversaries.registry import adversary
from dpaudit.adversaries.simulated_dimension import SimulatedDimension
from dpaudit.errors import InvalidInput
from dpaudit.mechanisms.dpsgd import DPSGD, Insertion, Phase
from dpaudit.presets import INSERTIONS, preset
from dpaudit.scores.files import check_replaceable
from dpaudit.threat_models import Adversary

OWN_SETTINGS = ("simulation", "ranking", "simulations")
"""Settings of the adversary simulated-dimension."""


def store_path(given: str | None) -> str:
    """The file in which audits are kept: as given, of the environment, or the default."""
    return given or os.environ.get("DPAUDIT_STORE") or "dpaudit.sqlite"


COMPILE: dict[str, Any] = {"auto": "auto", "torch": True, "fused": "fused", "none": False}
"""The values of ``compile``, as `dpaudit.engine.Speed` has them."""


@final
@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings that the user gave; `None` for all others.

    Arguments:
        preset: Name of the training.
        adversary: Name of the adversary.
        simulation: Kind of simulations of the adversary simulated-dimension.
        ranking: How the adversary simulated-dimension ranks dimensions.
        simulations: Number of simulations of the adversary simulated-dimension.
        runs: Number of trainings; even for a single canary.
        canaries: Canaries per run.
        steps: Number of steps T; 250 times the period by default.
        period: The canary is inserted once in every k steps.
        phase: Whether it is inserted at the first or at the last step of each period.
        noise_multiplier: Standard deviation of the noise over the clip norm (sigma).
        clip_norm: Norm to which the gradient of each example is clipped (C).
        batch_size: Examples per batch (B); by default that of the preset.
        learning_rate: Learning rate (eta); by default that of the preset.
        delta: Delta at which all bounds are computed.
        confidence: Confidence of each lower bound.
        horizons: Further numbers of steps to assess, each as a training that stops there.
        seed: Random seed.
        data_dir: Folder with CIFAR-10; by default the environment's DPAUDIT_DATA.
        device: Device used; auto is a GPU if there is one.
        precision: Precision of the arithmetic.
        tile_size: Number of runs that are played together; by default chosen by memory.
        compile: How the training step is compiled: ``auto``, ``torch``, ``fused`` or ``none``.
        store: File in which audits are kept.
        name: Name of the audit in the store; by default that of this file.
        scores_out: File to which the scores are written.
    """

    preset: str | None = None
    adversary: str | None = None
    simulation: str | None = None
    ranking: str | None = None
    simulations: int | None = None
    runs: int | None = None
    canaries: int | None = None
    steps: int | None = None
    period: int | None = None
    phase: str | None = None
    noise_multiplier: float | None = None
    clip_norm: float | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    delta: float | None = None
    confidence: float | None = None
    horizons: tuple[int, ...] | None = None
    seed: int | None = None
    data_dir: str | None = None
    device: str | None = None
    precision: str | None = None
    tile_size: int | None = None
    compile: str | None = None
    store: str | None = None
    name: str | None = None
    scores_out: str | None = None

    def over(self, other: Settings) -> Settings:
        """These settings, completed by the other's.

        Example:
            >>> Settings(runs=10).over(Settings(runs=20, seed=3)).seed
            3
        """
        given = {name: value for name, value in vars(self).items() if value is not None}
        return dataclasses.replace(other, **given)

    def resolved(self) -> CompleteSettings:
        """All settings, checked and completed; no data is read and no model is built.

        Example:
            >>> Settings(period=5).resolved().steps
            1250
        """
        chosen = preset("housing" if self.preset is None else self.preset)
        period = 1 if self.period is None else self.period
        phase: Phase = _or(self.phase, "first")
        insertion = Insertion.in_phase(phase, period=period)
        steps = INSERTIONS * period if self.steps is None else self.steps
        _validate.integer("steps", steps, at_least=1)
        if period > steps:
            raise InvalidInput(
                f"period must be at most the number of steps ({steps}), got {period}; insert more "
                "often or train longer"
            )
        return CompleteSettings(
            preset=chosen.name,
            adversary=self._adversary(chosen.adversary),
            runs=_or(self.runs, 5000),
            canaries=_or(self.canaries, 1),
            steps=steps,
            insertion=insertion,
            noise_multiplier=_or(self.noise_multiplier, chosen.noise_multiplier),
            clip_norm=_or(self.clip_norm, chosen.clip_norm),
            batch_size=_or(self.batch_size, chosen.batch_size),
            learning_rate=_or(self.learning_rate, chosen.learning_rate),
            delta=_or(self.delta, 1e-5),
            confidence=_or(self.confidence, 0.95),
            horizons=_or(self.horizons, ()),
            seed=_or(self.seed, 1),
            data_dir=self.data_dir,
            device=_or(self.device, "auto"),
            precision=_or(self.precision, "float32"),
            compile=_or(self.compile, "auto"),
            tile_size=self.tile_size,
            store=store_path(self.store),
            name=self.name,
            scores_out=self.scores_out,
        )

    def _adversary(self, default: str) -> Adversary:
        chosen = adversary(_or(self.adversary, default))
        own = {name: value for name in OWN_SETTINGS if (value := getattr(self, name)) is not None}
        if not own:
            return chosen
        if not isinstance(chosen, SimulatedDimension):
            raise InvalidInput(
                f"{next(iter(own))} is a setting of simulated-dimension only, and the adversary is "
                f"{chosen.name}; leave it out"
            )
        return dataclasses.replace(chosen, **own)


@final
@dataclass(frozen=True, kw_only=True)
class CompleteSettings:
    """An audit with all settings complete and in their range."""

    preset: str
    adversary: Adversary
    runs: int
    canaries: int
    steps: int
    insertion: Insertion
    noise_multiplier: float
    clip_norm: float
    batch_size: int
    learning_rate: float
    delta: float
    confidence: float
    horizons: tuple[int, ...]
    seed: int
    data_dir: str | None
    device: str
    precision: str
    tile_size: int | None
    compile: str
    store: str
    name: str | None
    scores_out: str | None

    def __post_init__(self) -> None:
        _validate.integer("canaries", self.canaries, at_least=1)
        _validate.runs(self.runs, canaries=self.canaries)
        if self.canaries == 1 and self.runs % 2:
            raise InvalidInput(
                f"runs must be even, for half of them to have the canary, got {self.runs}"
            )
        _validate.non_negative("noise_multiplier", self.noise_multiplier)
        _validate.positive("clip_norm", self.clip_norm)
        _validate.integer("batch_size", self.batch_size, at_least=1)
        _validate.positive("learning_rate", self.learning_rate)
        _validate.delta(self.delta)
        _validate.confidence(self.confidence)
        _validate.integer("seed", self.seed)
        _validate.one_of("compile", self.compile, tuple(COMPILE))
        for horizon in self.horizons:
            _validate.integer("horizons", horizon, at_least=1)
        if self.scores_out is not None:
            _validate.file_to_write("scores_out", Path(self.scores_out))
            check_replaceable(Path(self.scores_out))

    def training(self) -> DPSGD:
        """The training. Reads its data and imports torch."""
        return preset(self.preset).training(
            steps=self.steps,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            clip_norm=self.clip_norm,
            noise_multiplier=self.noise_multiplier,
            seed=self.seed,
            data_dir=self.data_dir,
            period=self.insertion.period,
            phase=self.insertion.phase or "first",
        )

    def arguments(self) -> dict[str, Any]:
        """The arguments that `dpaudit.audit` and `dpaudit.plan` share. Imports torch."""
        from dpaudit.engine import Speed

        names = ("adversary", "runs", "canaries", "insertion", "delta", "confidence", "seed")
        precision: Any = self.precision  # checked by Speed
        speed = Speed(
            device=self.device,
            precision=precision,
            tile_size=self.tile_size,
            compile=COMPILE[self.compile],
        )
        given = {name: getattr(self, name) for name in names}
        return {"mechanism": self.training(), "speed": speed, **given}


def read_settings(path: str | os.PathLike[str]) -> Settings:
    """The settings in a CONFIG.toml: the fields of `Settings` by name.

    Relative paths start at the folder of the file. An audit is named after the file unless the
    file gives a name, so that a changed file is refused instead of becoming another audit.
    """
    file = Path(path)
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(f"cannot read {file}: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"{file} is not TOML: {error}") from None
    fields = {field.name: str(field.type) for field in dataclasses.fields(Settings)}
    for key, value in content.items():
        name = key.replace("-", "_")
        if name != key and name in content:
            raise InvalidInput(f"{file} gives {key!r} and {name!r}, which are the same key")
        if name not in fields:
            raise InvalidInput(
                f"{file} has an unknown key {key!r}; the known ones are {', '.join(fields)}"
            )
        _check_type(file, key, value, fields[name])
    given = {key.replace("-", "_"): value for key, value in content.items()}
    if "horizons" in given:
        given["horizons"] = tuple(given["horizons"])
    for key in ("data_dir", "store", "scores_out"):
        if key in given and given[key] != ":memory:":
            given[key] = str(file.parent / Path(given[key]).expanduser())
    return Settings(**({"name": file.stem} | given))


def _check_type(file: Path, key: str, value: Any, declared: str) -> None:
    """Raise unless a TOML value has the type that the field declares."""
    kind = declared.removesuffix(" | None").partition("[")[0]
    expected = {
        "str": "text",
        "int": "a whole number",
        "float": "a number",
        "tuple": "a list of whole numbers",
    }[kind]
    fits = {
        "str": isinstance(value, str),
        "int": type(value) is int,
        "float": type(value) in (int, float),
        "tuple": isinstance(value, list) and all(type(item) is int for item in value),
    }[kind]
    if not fits:
        raise InvalidInput(f"{key} in {file} must be {expected}, got {value!r}")


def _or(value: Any, default: Any) -> Any:
    return default if value is None else value
