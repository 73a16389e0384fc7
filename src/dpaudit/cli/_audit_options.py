"""The options of commands that play or read audits: settings, and where trainings run."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json as json_module
from collections.abc import Callable, Mapping
from typing import Annotated, Any, get_args, get_type_hints

import typer

from dpaudit.cli._options import option, option_name, optional
from dpaudit.configuration import Settings
from dpaudit.errors import InvalidInput
from dpaudit.executors import EXECUTORS, Executor

_FIELDS = {field.name: field.metadata for field in dataclasses.fields(Settings)}

Training = Annotated[
    str | None,
    typer.Argument(
        metavar="TRAINING",
        help="What to audit: a preset such as housing or convnet, or your function train(canary, "
        "inserted, seed) as FILE.py:function or module:function.",
        show_default="housing",
    ),
]


def split(training: str | None, settings: Settings) -> tuple[Settings, str | None]:
    """The settings with what TRAINING says about them, and the training function that it names."""
    if training is None:
        return settings, None
    if ":" in training:
        return settings, training
    if settings.preset not in (None, training):
        raise InvalidInput(
            f"--preset must be left out beside TRAINING, got {settings.preset!r} and {training!r}"
        )
    return dataclasses.replace(settings, preset=training), None


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


StoreToRead = Annotated[str | None, _option_of("store", help="File in which the audits are kept.")]

SETTINGS: dict[str, Any] = {
    name: Annotated[kind, _option_of(name)] for name, kind in get_type_hints(Settings).items()
}
"""The options that fill the fields of `Settings`, in the order of the help."""


FUNCTION: dict[str, Any] = {
    "canary": optional(
        str,
        "Object passed to your function as its canary.",
        "MODULE:OBJECT",
        "'canary' of the function or of its module, if there is one",
    ),
    "neighbours": optional(
        str,
        "Audit a pipeline train(data, seed) on two data sets: a function that returns them, (D, "
        "D1). The adversary is then learned (the default), length, or a function.",
        "FILE:FUNCTION",
    ),
    "unit": optional(
        str,
        "What the claim is about, as the canary or the two data sets: a user or a client, with all "
        "records.",
        "UNIT",
        "record",
    ),
    "workers": optional(int, "Number of trainings of your function at the same time.", "N", "1"),
    "timeout": optional(
        float, "Seconds after which a training of your function counts as failed.", "S"
    ),
    "on_error": optional(
        str, "What to do when a training of your function fails.", "record|stop", "record"
    ),
}
"""Options of audits of a training function."""

# --- Where trainings run. ------------------------------------------------------------------------

_LOCAL = "local"

EXECUTION: dict[str, Any] = {
    "executor": optional(
        str,
        "Where trainings run: in processes of this machine (local), in this process, on a Ray "
        "cluster, or as SLURM jobs. A tile is a group of trainings that run together.",
        "|".join(EXECUTORS),
        _LOCAL,
    ),
    "ray_address": optional(
        str,
        "Ray cluster: auto for the running one, local for a new one on this machine, or "
        "ray://HOST:PORT.",
        "ADDRESS",
        "auto",
    ),
    "ray_runtime_env": optional(str, "Ray's runtime environment of the workers.", "JSON"),
    "cpus_per_tile": optional(float, "CPUs reserved for a tile on a cluster.", "N", "1"),
    "gpus_per_tile": optional(
        float,
        "GPUs reserved for a tile on a cluster; with Ray, 0.5 lets two tiles share one.",
        "N",
        "0",
    ),
    "accelerator": optional(str, "Type of GPU on a Ray cluster, such as H100.", "TYPE"),
    "slurm_folder": optional(
        str,
        "Folder on the shared file system for the results of SLURM jobs.",
        "DIR",
        "dpaudit-slurm",
    ),
    "slurm_partition": optional(str, "Partition of the SLURM jobs.", "NAME"),
}
"""Option by its name in `make_executor`."""


def takes_executor(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the parameter ``executor`` of a command by the options above.

    A ``timeout`` of the command also applies to the executor.
    """
    hints = get_type_hints(command, localns={"Executor": object}, include_extras=True)
    own = inspect.signature(command).parameters

    @functools.wraps(command)
    def with_options(**given: Any) -> None:
        chosen = {name: given.pop(name) for name in EXECUTION}
        command(**given, executor=make_executor(**chosen, timeout=given.get("timeout")))

    return with_signature(
        with_options,
        {
            name: option
            for parameter in own
            for name, option in (
                EXECUTION.items() if parameter == "executor" else [(parameter, hints[parameter])]
            )
        },
        {name: parameter.default for name, parameter in own.items()},
    )


def with_signature(
    command: Callable[..., None],
    options: Mapping[str, Any],
    defaults: Mapping[str, Any] | None = None,
) -> Callable[..., None]:
    """Give a command the signature that typer reads.

    Without a default of its own a flag is `False`, and any other option `None`.
    """

    def default_of(name: str, annotation: Any) -> Any:
        return (defaults or {}).get(name, False if bool in get_args(annotation)[:1] else None)

    command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=default_of(name, annotation),
                annotation=annotation,
            )
            for name, annotation in options.items()
        ]
    )
    command.__annotations__ = {**options, "return": None}
    return command


def make_executor(
    *, executor: str | None = None, timeout: float | None = None, **options: Any
) -> Executor | None:
    """The executor that the options describe; `None` for processes of this machine.

    An executor receives the options that its class has arguments for. Other options are refused.
    """
    chosen = executor or _LOCAL
    kind, arguments, unused = EXECUTORS[chosen], dict[str, Any](), list[str]()
    taken = inspect.signature(kind).parameters
    for name, value in {**options, "timeout": timeout}.items():
        owner, argument, read = _OF_ONE_EXECUTOR.get(name, (chosen, name, _number))
        if value is None:
            continue
        if owner == chosen and argument in taken:
            arguments[argument] = read(value)
        else:
            unused.append(option_name(name))
    if unused:
        raise InvalidInput(
            f"--executor {chosen} does not use {', '.join(unused)}; leave out what it does not use"
        )
    return None if chosen == _LOCAL else kind(**arguments)


def _number(value: Any) -> Any:
    """A whole number as an int, since some executors take no other."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _json(text: str) -> dict[str, Any]:
    try:
        content = json_module.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"--ray-runtime-env must be a JSON object: {error}") from None
    if not isinstance(content, dict):
        raise InvalidInput(f"--ray-runtime-env must be a JSON object, got {text[:80]!r}")
    return content


_OF_ONE_EXECUTOR: dict[str, tuple[str, str, Callable[[Any], Any]]] = {
    "ray_address": ("ray", "address", str),
    "ray_runtime_env": ("ray", "runtime_env", _json),
    "slurm_folder": ("slurm", "folder", str),
    "slurm_partition": ("slurm", "parameters", lambda name: {"slurm_partition": name}),
}
"""Options of one executor: its name, the argument of its class, and how the value is read."""
