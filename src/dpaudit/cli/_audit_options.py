"""The options that ``dpaudit audit`` and ``dpaudit plan`` share, and what they come to."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from dpaudit.adversaries.registry import ADVERSARIES
from dpaudit.configuration import CompleteSettings, Settings, read_settings

Config = Annotated[
    Path | None,
    typer.Argument(
        metavar="CONFIG.toml",
        help="Settings from a file: the options below by name, and delta, confidence, horizons, "
        "precision, tile_size, simulation, ranking, simulations. Options on the command line go "
        "before it, and it before the preset.",
    ),
]
Preset = Annotated[
    str | None,
    typer.Option(
        metavar="housing|convnet|resnet18|alexnet-head",
        help="One of the paper's trainings.",
        show_default="housing",
    ),
]
Adversary = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help=f"Who crafts the canary and scores the models: {', '.join(ADVERSARIES)}.",
        show_default="simulated-dimension",
    ),
]
ReadDelta = Annotated[
    float | None, typer.Option(help="Of all bounds.", show_default="that of the audit")
]
ReadConfidence = Annotated[
    float | None,
    typer.Option(help="Probability that a lower bound holds.", show_default="that of the audit"),
]
Runs = Annotated[int | None, typer.Option(metavar="N", help="Trainings.", show_default="5000")]
CanaryCount = Annotated[
    int | None,
    typer.Option(metavar="M", help="Canaries in each training, a coin for each.", show_default="1"),
]
Steps = Annotated[
    int | None,
    typer.Option(metavar="T", help="Steps of a training.", show_default="250 times the period"),
]
Period = Annotated[
    int | None, typer.Option(metavar="k", help="Insert at every k-th step.", show_default="1")
]
NoiseMultiplier = Annotated[
    float | None,
    typer.Option(
        metavar="s", help="Standard deviation of the noise over the clip norm.", show_default="4"
    ),
]
ClipNorm = Annotated[
    float | None,
    typer.Option(metavar="C", help="Largest norm of one example's gradient.", show_default="1"),
]
BatchSize = Annotated[
    int | None,
    typer.Option(metavar="B", help="Examples in a batch.", show_default="400; 128 on CIFAR-10"),
]
LearningRate = Annotated[
    float | None, typer.Option(metavar="e", help="Step size.", show_default="0.1; 0.01 on CIFAR-10")
]
Delta = Annotated[float | None, typer.Option(help="Of all bounds.", show_default="1e-5")]
Seed = Annotated[
    int | None, typer.Option(metavar="S", help="Of everything that is drawn.", show_default="1")
]
DataDir = Annotated[
    str | None,
    typer.Option(
        metavar="D", help="Folder with CIFAR-10.", show_default="the environment's DPAUDIT_DATA"
    ),
]
Device = Annotated[
    str | None,
    typer.Option(
        metavar="auto|cpu|cuda", help="Where to train.", show_default="auto, a GPU if there is one"
    ),
]
StoreFile = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="FILE",
        help="Where audits are kept, and from which the same command goes on.",
        show_default="the environment's DPAUDIT_STORE, or dpaudit.sqlite",
    ),
]
Name = Annotated[
    str | None,
    typer.Option(
        help="What to call the audit in the store; the same name with other settings is refused."
    ),
]
ScoresOut = Annotated[
    str | None, typer.Option(metavar="FILE.csv", help="Write the scores to this file too.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]

# The field of `Settings` that each option fills, in the order of the help.
SETTINGS: dict[str, Any] = {
    "preset": Preset,
    "adversary": Adversary,
    "runs": Runs,
    "canaries": CanaryCount,
    "steps": Steps,
    "period": Period,
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


def takes_settings(command: Callable[[CompleteSettings, bool], None]) -> Callable[..., None]:
    """A command of settings and ``--json``, as a command of CONFIG.toml and every option above.

    Typer reads a command's signature, so the options are written once, here, and the commands take
    what the options come to: options over the file over the preset, checked.
    """
    options = {"config": Config, **SETTINGS}
    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=option)
        for name, option in options.items()
    ]
    json = inspect.Parameter("json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Json)

    @functools.wraps(command)
    def with_options(*, config: Path | None, json: bool, **given: Any) -> None:
        from_file = Settings() if config is None else read_settings(config)
        command(Settings(**given).over(from_file).resolved(), json)

    unknown = set(SETTINGS) - {field.name for field in dataclasses.fields(Settings)}
    if unknown:
        raise TypeError(f"no field of Settings: {', '.join(sorted(unknown))}")
    with_options.__signature__ = inspect.Signature([*parameters, json])  # type: ignore[attr-defined]
    with_options.__annotations__ = {**options, "json": Json, "return": None}
    return with_options
