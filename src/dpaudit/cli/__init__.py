"""The command line. One thin file a command; commands parse and render, they never compute.

Only `typer` and `rich` are imported here. Each command imports what it needs when it runs, so that
``dpaudit account`` starts without numpy's friends and never with torch.
"""

from __future__ import annotations

import sys
from importlib import import_module

import click
import typer
from typer.main import get_command

from dpaudit import __version__
from dpaudit.errors import DpauditError

# The rooms of the command line: command name -> (module, function, one line of help).
COMMANDS: dict[str, tuple[str, str, str]] = {
    "estimate": (
        "dpaudit.cli.estimate",
        "estimate",
        "A lower bound on epsilon from scores or counts.",
    ),
    "account": ("dpaudit.cli.account", "account", "Upper bounds on epsilon from the accountants."),
}


class _LazyCommands(click.Group):
    """A group that imports a command's module only when that command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, function, _ = COMMANDS[cmd_name]
        app = typer.Typer(add_completion=False, rich_markup_mode="rich")
        app.command(cmd_name)(getattr(import_module(module), function))
        return get_command(app)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, _, line) in COMMANDS.items()])


@click.command(
    "dpaudit", cls=_LazyCommands, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, prog_name="dpaudit")
def cli() -> None:
    """What differentially private training really leaks: epsilon from below and from above."""


def main() -> None:
    """Entry point: a mistake of the user's is one line and exit code 2, never a traceback."""
    try:
        cli.main(standalone_mode=True)
    except DpauditError as error:
        print(f"dpaudit: {error}", file=sys.stderr)
        sys.exit(2)
