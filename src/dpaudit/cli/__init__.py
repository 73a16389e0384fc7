"""The command line. One thin file a command; commands parse and render, they never compute.

Only `typer` is imported here. Each command imports what it needs when it runs, so that
``dpaudit account`` starts without numpy's friends and never with torch.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from dpaudit._version import __version__
from dpaudit.errors import DpauditError

# The rooms of the command line: command name -> (module, function, one line of help).
COMMANDS: dict[str, tuple[str, str, str]] = {
    "estimate": (
        "dpaudit.cli.estimate",
        "estimate",
        "A lower bound on epsilon from scores or counts.",
    ),
    "account": ("dpaudit.cli.account", "account", "Upper bounds on epsilon from the accountants."),
    "audit": ("dpaudit.cli.audit", "audit", "Audit a DP-SGD training: play the game."),
    "audit-training": (
        "dpaudit.cli.audit_training",
        "audit_training",
        "Audit your own training: is its promise kept?",
    ),
    "plan": ("dpaudit.cli.plan", "plan", "What an audit will find and cost, before training."),
    "check": ("dpaudit.cli.check", "check", "Check your own training for broken rules."),
    "list": ("dpaudit.cli.audits", "list_audits", "List the audits in the store."),
    "show": ("dpaudit.cli.audits", "show", "Show one audit in the store."),
    "report": ("dpaudit.cli.report", "report", "Write an audit as a page to open or send."),
    "landscape": ("dpaudit.cli.landscape", "landscape", "Crafted loss landscapes, exactly."),
    "reproduce": (
        "dpaudit.cli.reproduce",
        "reproduce",
        "The paper's figures and tables, made here.",
    ),
}

# The base of typer's usage errors: no such option, value missing, not a number. New versions of
# typer carry a click of their own, so this is not always `click.UsageError`.
_UsageError: type[Exception] = typer.BadParameter.__bases__[0]


class _LazyCommands(TyperGroup):
    """A group that imports a command's module only when that command is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        module, function, _ = COMMANDS[cmd_name]
        one = typer.Typer(add_completion=False, rich_markup_mode="rich")
        one.command(cmd_name, context_settings=_HELP)(getattr(import_module(module), function))
        return get_command(one)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, _, line) in COMMANDS.items()])


_HELP = {"help_option_names": ["-h", "--help"]}

app = typer.Typer(
    cls=_LazyCommands,
    add_completion=False,
    # Help with rich would import every command for its first line.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=_HELP,
)


def _version(asked: bool) -> None:
    if asked:
        print(f"dpaudit, version {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """What differentially private training really leaks: epsilon from below and from above."""
    if context.invoked_subcommand is None:
        print(context.get_help())


def main() -> None:
    """Entry point: a mistake of the user's is one line and exit code 2, never a traceback."""
    try:
        sys.exit(app(prog_name="dpaudit", standalone_mode=False))
    except DpauditError as error:
        print(f"dpaudit: {error}", file=sys.stderr)
    except _UsageError as error:
        context = getattr(error, "ctx", None)
        command = context.command_path if context is not None else "dpaudit"
        message = getattr(error, "format_message", error.__str__)().rstrip(".")
        print(f"dpaudit: {message}; see '{command} --help'", file=sys.stderr)
    except (typer.Abort, KeyboardInterrupt):
        print("dpaudit: interrupted", file=sys.stderr)
        sys.exit(130)
    sys.exit(2)
