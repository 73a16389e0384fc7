"""The options that choose where an audit is played."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, get_type_hints

from dpaudit.cli._option import optional
from dpaudit.errors import InvalidInput

if TYPE_CHECKING:
    from dpaudit.executors import Executor

OPTIONS: dict[str, Any] = {
    "executor": optional(
        str,
        "Where trainings run: on this machine, on a Ray cluster, or as SLURM jobs. A tile is a "
        "group of trainings that run together.",
        "local|ray|slurm",
        "local",
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
        chosen = {name: given.pop(name) for name in OPTIONS}
        command(**given, executor=make_executor(**chosen, timeout=given.get("timeout")))

    return with_signature(
        with_options,
        {
            name: option
            for parameter in own
            for name, option in (
                OPTIONS.items() if parameter == "executor" else [(parameter, hints[parameter])]
            )
        },
        {name: one.default for name, one in own.items()},
    )


def with_signature(
    command: Callable[..., None], options: Mapping[str, Any], defaults: Mapping[str, Any]
) -> Callable[..., None]:
    """Give a command the signature that typer reads; options without a default have `None`."""
    command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=defaults.get(name),
                annotation=annotation,
            )
            for name, annotation in options.items()
        ]
    )
    command.__annotations__ = {**options, "return": None}
    return command


_OPTION_OF = {
    "address": "ray_address",
    "runtime_env": "ray_runtime_env",
    "folder": "slurm_folder",
    "parameters": "slurm_partition",
}
"""The options of those arguments of executors whose names differ."""


def make_executor(
    *,
    executor: str | None = None,
    ray_address: str | None = None,
    ray_runtime_env: str | None = None,
    cpus_per_tile: float | None = None,
    gpus_per_tile: float | None = None,
    accelerator: str | None = None,
    slurm_folder: str | None = None,
    slurm_partition: str | None = None,
    timeout: float | None = None,
) -> Executor | None:
    """The executor that the options describe; `None` for processes of this machine."""
    from dpaudit.executors import EXECUTORS

    chosen = executor or "local"
    given: dict[str, Any] = {
        "cpus_per_tile": cpus_per_tile,
        "gpus_per_tile": gpus_per_tile,
        "timeout": timeout,
    }
    of_ray = {
        "address": ray_address,
        "accelerator": accelerator,
        "runtime_env": None if ray_runtime_env is None else _json(ray_runtime_env),
    }
    of_slurm = {
        "folder": slurm_folder,
        "parameters": None if slurm_partition is None else {"slurm_partition": slurm_partition},
    }
    if chosen == "ray":
        given, others = given | of_ray, of_slurm
    elif chosen == "slurm":
        given, others = given | of_slurm, of_ray
        for name in ("cpus_per_tile", "gpus_per_tile"):
            if given[name] is not None:
                given[name] = _whole(name, given[name])
    else:
        others = {**given, **of_ray, **of_slurm, "timeout": None}
    unused = [name for name, value in others.items() if value is not None]
    if unused:
        options = ", ".join(f"--{_OPTION_OF.get(name, name).replace('_', '-')}" for name in unused)
        raise InvalidInput(f"--executor {chosen} does not use {options}; leave it out")
    if chosen == "local":
        return None
    return EXECUTORS[chosen](**{name: value for name, value in given.items() if value is not None})


def _whole(name: str, value: float) -> int:
    if value != int(value):
        raise InvalidInput(f"{name} must be a whole number for SLURM, got {value:g}")
    return int(value)


def _json(text: str) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"--ray-runtime-env must be a JSON object: {error}") from None
    if not isinstance(content, dict):
        raise InvalidInput(f"--ray-runtime-env must be a JSON object, got {text[:80]!r}")
    return content
