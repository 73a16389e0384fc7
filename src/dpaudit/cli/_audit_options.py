"""The options that several commands share."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from dpaudit.cli._executors import takes_executor, with_signature
from dpaudit.cli._option import Json, option
from dpaudit.configuration import Settings, read_settings

if TYPE_CHECKING:
    from dpaudit.executors import Executor

_FIELDS = {one.name: one.metadata for one in dataclasses.fields(Settings)}

Config = Annotated[
    Path | None,
    typer.Argument(
        metavar="CONFIG.toml",
        help="File with settings: the options below by name, and "
        + ", ".join(name for name, shown in _FIELDS.items() if not shown["option"])
        + ". Options on the command line take precedence over the file, and the file over the "
        "preset.",
    ),
]
ReadDelta = Annotated[
    float | None, option("Delta at which all bounds are computed.", default="that of the audit")
]
ReadConfidence = Annotated[
    float | None, option("Confidence of each lower bound.", default="that of the audit")
]


def _option_of(name: str, **changed: Any) -> Any:
    """The option of a setting, as its field of `Settings` declares it, except for changes."""
    shown = {**_FIELDS[name], **changed}
    return option(shown["help"], shown["metavar"], shown["default"])


def taken_over(name: str) -> Any:
    """The option of a setting that a plan only takes over into the printed command."""
    help = f"{_FIELDS[name]['help']} Only taken over into the printed command."
    return Annotated[str | None, _option_of(name, help=help)]


StoreFile = Annotated[str | None, _option_of("store")]
StoreToRead = Annotated[str | None, _option_of("store", help="File in which the audits are kept.")]
Name = Annotated[str | None, _option_of("name")]
ScoresOut = Annotated[str | None, _option_of("scores_out")]

SETTINGS: dict[str, Any] = {
    name: Annotated[kind, _option_of(name)]
    for name, kind in get_type_hints(Settings).items()
    if _FIELDS[name]["option"]
}
"""The options that fill the fields of `Settings`, in the order of the help."""


def takes_settings(**further: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Turn a command that takes complete settings into one that takes all options above.

    The command receives checked settings (options over the file over the preset), ``json``, the
    executor, and the further options.

    Arguments:
        further: Options of this command only, each `None` by default.
    """
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
