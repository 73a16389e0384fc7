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
from dpaudit.cli._option import Json, option, optional
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
ReadDelta = Annotated[
    float | None, option("Delta at which all bounds are computed.", default="that of the audit")
]
ReadConfidence = Annotated[
    float | None, option("Confidence of each lower bound.", default="that of the audit")
]
_USUAL_STORE = "the environment's DPAUDIT_STORE, or dpaudit.sqlite"
StoreFile = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="FILE",
        help="File in which audits are kept. The same command resumes an interrupted audit.",
        show_default=_USUAL_STORE,
    ),
]
StoreToRead = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="FILE",
        help="File in which the audits are kept.",
        show_default=_USUAL_STORE,
    ),
]
Name = Annotated[
    str | None,
    option("Name of the audit in the store. The same name with other settings is refused."),
]
ScoresOut = Annotated[str | None, option("Also write the scores to this file.", "FILE.csv")]

SETTINGS: dict[str, Any] = {
    "preset": optional(str, f"Training to audit: {', '.join(PRESETS)}.", "NAME", "housing"),
    "adversary": optional(
        str,
        f"Adversary that crafts the canary and scores the models: {', '.join(ADVERSARIES)}.",
        "NAME",
        "simulated-dimension",
    ),
    "runs": optional(int, "Number of trainings.", "N", "5000"),
    "canaries": optional(int, "Canaries per training.", "M", "1"),
    "steps": optional(int, "Number of steps of a training.", "T", "250 times the period"),
    "period": optional(int, "Insert the canary once in every k steps.", "k", "1"),
    "phase": optional(
        str,
        "Step of each period of k steps at which the canary is inserted. The paper uses the last.",
        "first|last",
        "first",
    ),
    "noise_multiplier": optional(
        float, "Noise multiplier: standard deviation of the noise over the clip norm.", "s", "4"
    ),
    "clip_norm": optional(
        float, "Norm to which the gradient of each example is clipped.", "C", "1"
    ),
    "batch_size": optional(int, "Examples per batch.", "B", "400; 128 on CIFAR-10"),
    "learning_rate": optional(float, "Learning rate.", "e", "0.1; 0.01 on CIFAR-10"),
    "delta": Annotated[
        float | None, option("Delta at which all bounds are computed.", default="1e-5")
    ],
    "seed": optional(int, "Random seed.", "S", "1"),
    "data_dir": optional(
        str, "Folder with the data set CIFAR-10.", "D", "the environment's DPAUDIT_DATA"
    ),
    "device": optional(str, "Device used.", "auto|cpu|cuda", "auto, a GPU if there is one"),
    "compile": optional(
        str,
        "How the training step is compiled. fused: a C++ function for small fully connected "
        "networks on a CPU, several times faster than torch.",
        "auto|torch|fused|none",
        "auto, for long audits fused where possible, otherwise torch",
    ),
    "store": StoreFile,
    "name": Name,
    "scores_out": ScoresOut,
}
"""The options that fill the fields of `Settings`, in the order of the help."""


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
