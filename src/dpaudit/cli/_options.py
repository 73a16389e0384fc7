"""How commands declare options, and the options that several commands share."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpaudit._outputs import ROOM, check_outputs
from dpaudit._validate import shown
from dpaudit.configuration import store_path
from dpaudit.errors import InvalidInput
from dpaudit.privacy import DETECT, LEAST_POWER

if TYPE_CHECKING:
    from dpaudit.claims import Claim


def option(help: str, metavar: str | None = None, default: str | bool = True) -> Any:
    """An option that takes a value."""
    return typer.Option(metavar=metavar, help=help, show_default=default)


def optional(kind: type, help: str, metavar: str, default: str | bool = True) -> Any:
    """The annotation of an option that may be left out, for tables of options."""
    return Annotated[kind | None, option(help, metavar, default)]


def option_name(parameter: str) -> str:
    """The option that fills a parameter of a command.

    Example:
        >>> option_name("batch_size")
        '--batch-size'
    """
    return f"--{parameter.replace('_', '-')}"


Json = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")]
AllBounds = Annotated[
    bool,
    typer.Option("--all-bounds", help="Print all bounds with what each assumes, and all notes."),
]
Junit = Annotated[
    Path | None, option("Also write the verdict as JUnit XML to this file.", "FILE.xml")
]
Sarif = Annotated[
    Path | None, option("Also write the verdict as SARIF to this file.", "FILE.sarif")
]
Overwrite = Annotated[
    bool,
    typer.Option(
        "--overwrite", help="Replace existing files also where dpaudit did not write them."
    ),
]


def check_files(given: Mapping[str, Any], *outputs: str, room: int = ROOM) -> None:
    """Raise `InvalidInput` for outputs of a command that could not be written, or destroy a file.

    Every other value that names a file is an input, which is never replaced.
    """
    inputs = {"the store": store_path(given["store"])} if "store" in given else {}
    for name, value in given.items():
        if name not in outputs:
            inputs |= {f"the input {shown(str(file))}": file for file in _files_in(value)}
    check_outputs(
        {option_name(name): given[name] for name in outputs},
        inputs=inputs,
        overwrite=given["overwrite"],
        room=room,
    )


def _files_in(value: Any) -> Iterator[str]:
    """The files that a value names, also as ``FILE.py:function`` or ``module:object``."""
    if isinstance(value, list | tuple):
        for item in value:
            yield from _files_in(item)
    elif isinstance(value, str | Path):
        module = str(value).rpartition(":")[0]
        for file in (str(value), module, module.replace(".", "/") + ".py"):
            if os.path.isfile(file):  # noqa: PTH113 - a value may be too long for a name
                yield file


# --- The claim. ----------------------------------------------------------------------------------

ClaimedEpsilon = Annotated[
    float | None,
    option(
        "Claimed epsilon at --delta. It is read as one point of a Gaussian trade-off function, "
        "which holds for DP-SGD but not for every mechanism; see --pair-only.",
        "E",
    ),
]
SamplingRate = Annotated[
    float | None, option("Claimed Poisson sampling rate of your function, if any.", "q")
]
PairOnly = Annotated[
    bool,
    typer.Option(
        "--pair-only",
        help="Test only the pair of --claimed-epsilon and --delta, without an assumption about the "
        "trade-off function. This needs many more runs.",
    ),
]
Detect = Annotated[
    float | None,
    option(
        "'consistent' requires that noise of this fraction of the claim is detectable.",
        "F",
        str(DETECT),
    ),
]
LeastPower = Annotated[
    float | None,
    option(
        "Probability with which noise of the fraction --detect must be detected.",
        "P",
        str(LEAST_POWER),
    ),
]


def claim_from(given: Mapping[str, Any], delta: float) -> Claim:
    """The claim by the options of a command: an epsilon at delta, or the training's settings."""
    from dpaudit.claims import Claim

    settings = {name: given[name] for name in ("noise_multiplier", "steps", "sampling_rate")}
    epsilon, pair_only = given["claimed_epsilon"], given["pair_only"]
    if any(value is not None for value in settings.values()):
        if epsilon is not None or pair_only:
            raise InvalidInput(
                "give --claimed-epsilon, or --noise-multiplier and --steps, not both; the second "
                "needs no assumption"
            )
        for name in ("noise_multiplier", "steps"):
            if settings[name] is None:
                raise InvalidInput(
                    f"{option_name(name)} is needed too for a claim from the training's settings"
                )
        return Claim.from_dpsgd(**settings)
    if epsilon is None:
        raise InvalidInput(
            "a claim is needed: give --claimed-epsilon and --delta, or --noise-multiplier, --steps "
            "and --sampling-rate"
        )
    return (
        Claim.from_points([(epsilon, delta)]) if pair_only else Claim.from_epsilon(epsilon, delta)
    )
