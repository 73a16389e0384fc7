"""How a command declares an option."""

from __future__ import annotations

from typing import Annotated, Any

import typer


def option(help: str, metavar: str | None = None, default: str | bool = True) -> Any:
    """An option that takes a value.

    Arguments:
        help: One sentence that stands alone.
        metavar: Name of the value in the help; by default its type.
        default: The default as the help shows it; by default the parameter's own.
    """
    return typer.Option(metavar=metavar, help=help, show_default=default)


def optional(kind: type, help: str, metavar: str, default: str | bool = True) -> Any:
    """The annotation of an option that may be left out, for tables of options.

    Arguments:
        kind: Type of the value.
        help: One sentence that stands alone.
        metavar: Name of the value in the help.
        default: What an option that is left out means, as the help shows it.
    """
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
