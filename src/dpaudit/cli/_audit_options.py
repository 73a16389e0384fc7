"""The options that several commands share."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpaudit.adversaries.registry import ADVERSARIES
from dpaudit.cli._executors import takes_executor, with_signature
from dpaudit.configuration import Settings, read_settings
from dpaudit.presets import PRESETS

if TYPE_CHECKING:
    from dpaudit.executors import Executor

Config = Annotated[
    Path | None,
    typer.Argument(
        metavar="CONFIG.toml",
        help="File with settings: the options below by name, and confidence, horizons, precision, "
        "tile_size, simulation, ranking, simulations. Options on the command line take "
        "precedence over the file, and the file over the preset.",
    ),
]
Preset = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help=f"Training to audit: {', '.join(PRESETS)}.",
        show_default="housing",
    ),
]
Adversary = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help=f"Adversary that crafts the canary and scores the models: {', '.join(ADVERSARIES)}.",
        show_default="simulated-dimension",
    ),
]
ReadDelta = Annotated[
    float | None,
    typer.Option(help="Delta at which all bounds are computed.", show_default="that of the audit"),
]
ReadConfidence = Annotated[
    float | None,
    typer.Option(help="Confidence of each lower bound.", show_default="that of the audit"),
]
Runs = Annotated[
    int | None, typer.Option(metavar="N", help="Number of trainings.", show_default="5000")
]
CanaryCount = Annotated[
    int | None,
    typer.Option(metavar="M", help="Canaries per training.", show_default="1"),
]
Steps = Annotated[
    int | None,
    typer.Option(
        metavar="T", help="Number of steps of a training.", show_default="250 times the period"
    ),
]
Period = Annotated[
    int | None,
    typer.Option(metavar="k", help="Insert the canary once in every k steps.", show_default="1"),
]
Phase = Annotated[
    str | None,
    typer.Option(
        metavar="first|last",
        help="Step of each period of k steps at which the canary is inserted. "
        "The paper uses the last.",
        show_default="first",
    ),
]
NoiseMultiplier = Annotated[
    float | None,
    typer.Option(
        metavar="s",
        help="Noise multiplier: standard deviation of the noise over the clip norm.",
        show_default="4",
    ),
]
ClipNorm = Annotated[
    float | None,
    typer.Option(
        metavar="C", help="Norm to which the gradient of each example is clipped.", show_default="1"
    ),
]
BatchSize = Annotated[
    int | None,
    typer.Option(metavar="B", help="Examples per batch.", show_default="400; 128 on CIFAR-10"),
]
LearningRate = Annotated[
    float | None,
    typer.Option(metavar="e", help="Learning rate.", show_default="0.1; 0.01 on CIFAR-10"),
]
Delta = Annotated[
    float | None, typer.Option(help="Delta at which all bounds are computed.", show_default="1e-5")
]
Seed = Annotated[int | None, typer.Option(metavar="S", help="Random seed.", show_default="1")]
DataDir = Annotated[
    str | None,
    typer.Option(
        metavar="D",
        help="Folder with the data set CIFAR-10.",
        show_default="the environment's DPAUDIT_DATA",
    ),
]
Device = Annotated[
    str | None,
    typer.Option(
        metavar="auto|cpu|cuda", help="Device used.", show_default="auto, a GPU if there is one"
    ),
]
StoreFile = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="FILE",
        help="File in which audits are kept. The same command resumes an interrupted audit.",
        show_default="the environment's DPAUDIT_STORE, or dpaudit.sqlite",
    ),
]
StoreToRead = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="FILE",
        help="File in which the audits are kept.",
        show_default="the environment's DPAUDIT_STORE, or dpaudit.sqlite",
    ),
]
Name = Annotated[
    str | None,
    typer.Option(
        help="Name of the audit in the store. The same name with other settings is refused."
    ),
]
ScoresOut = Annotated[
    str | None, typer.Option(metavar="FILE.csv", help="Also write the scores to this file.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")]

# The field of `Settings` that each option fills, in the order of the help.
SETTINGS: dict[str, Any] = {
    "preset": Preset,
    "adversary": Adversary,
    "runs": Runs,
    "canaries": CanaryCount,
    "steps": Steps,
    "period": Period,
    "phase": Phase,
    "noise_multiplier": NoiseMultiplier,
    "clip_norm": ClipNorm,
    "batch_size": BatchSize,
    "learning_rate": LearningRate,
    "delta": Delta,
    "seed": Seed,
    "data_dir": DataDir,
    "device": Device,
    "store": StoreFile,
    "name": Name,
    "scores_out": ScoresOut,
}


def takes_settings(**further: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Turn a command that takes complete settings into one that takes all options above.

    The options are defined once, here; the command receives checked settings (options over the
    file over the preset), ``json``, the executor, and the further options.

    Arguments:
        further: Options of this command only, each `None` by default.
    """
    unknown = set(SETTINGS) - {field.name for field in dataclasses.fields(Settings)}
    if unknown:
        raise TypeError(f"no field of Settings: {', '.join(sorted(unknown))}")
    options = {"config": Config, **SETTINGS, **further, "executor": None, "json": Json}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def with_options(
            *, config: Path | None, json: bool, executor: Executor | None, **given: Any
        ) -> None:
            from_file = Settings() if config is None else read_settings(config)
            others = {name: given.pop(name) for name in further}
            settings = Settings(**given).over(from_file).resolved()
            command(settings, json=json, executor=executor, **others)

        return takes_executor(with_signature(with_options, options, {"json": False}))

    return decorate
