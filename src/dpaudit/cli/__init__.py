"""The command line: one thin file per command. Commands parse and render; they never compute.

Only `typer` is imported here, and the module of a command when that command is run, so that
``dpaudit account`` starts fast and never imports torch. Another package adds a command with an
entry point of the group ``dpaudit.commands``: a function with typer's annotations, whose first
docstring line is its line in ``dpaudit --help``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from dpaudit._loading import uncollected
from dpaudit._registry import Registry
from dpaudit._version import __version__
from dpaudit.errors import DpauditError

# command -> (module and function, one line of help). The lines stand here, so that
# ``dpaudit --help`` imports none of these modules.
_SHIPPED: dict[str, tuple[str, str]] = {
    "estimate": ("estimate:estimate", "Compute lower bounds on epsilon from scores or counts."),
    "account": ("account:account", "Compute upper bounds on epsilon with the accountants."),
    "audit": ("audit:audit", "Audit a training: does it keep its privacy claim?"),
    "plan": ("plan:plan", "Predict the bounds and the cost of an audit."),
    "check": ("check:check", "Check your own training against the rules of DP-SGD."),
    "collect": ("audits:collect", "Copy the results of SLURM jobs into the store."),
    "list": ("audits:list_audits", "List the audits in the store."),
    "show": ("audits:show", "Show one audit in the store."),
    "report": ("report:report", "Write the report page of one audit or of several."),
    "combine": ("receipts:combine", "Combine the receipts of several audits of one claim."),
    "document": ("receipts:document", "Make a document from a receipt, such as a model card."),
    "verify": ("receipts:verify", "Check a receipt: compute bounds and verdict again."),
}

COMMANDS: Registry[Callable[..., None]] = Registry(
    "command",
    "dpaudit.commands",
    {name: f"dpaudit.cli.{where}" for name, (where, _) in _SHIPPED.items()},
)
"""Every command: those above, and the entry points ``dpaudit.commands`` of other packages."""


def _help_line(name: str) -> str:
    """One line of help; of another package's command, the first line of its docstring."""
    if name in _SHIPPED:
        return _SHIPPED[name][1]
    try:
        return (COMMANDS[name].__doc__ or "").strip().partition("\n")[0]
    except DpauditError as error:  # a broken package must not hide the other commands
        return str(error)


class _LazyCommands(TyperGroup):
    """A group that imports a command's module only when that command is run."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        group = typer.Typer(add_completion=False, rich_markup_mode="rich")
        group.command(cmd_name, context_settings=_HELP)(COMMANDS[cmd_name])
        command = get_command(group)
        options: list[Any] = [*command.params]
        if ctx is not None:
            options.append(command.get_help_option(ctx))
        for option in options:
            if getattr(option, "is_flag", False):
                option.metavar = ""  # a flag takes no value, so the help shows no type
            if option.default is None and not option.required and option.show_default is True:
                option.show_default = "none"  # every option shows its default
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] not in COMMANDS and not args[0].startswith("-") and not ctx.resilient_parsing:
            COMMANDS[args[0]]  # raises the error with the commands and the closest name
        with uncollected():
            return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, _help_line(name)) for name in COMMANDS])


_HELP = {"help_option_names": ["-h", "--help"]}
_COMPLETING = "_DPAUDIT_COMPLETE"  # set by the shell's completion script

app = typer.Typer(
    cls=_LazyCommands,
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
    """Audit differentially private training.

    dpaudit computes lower bounds on epsilon beside the upper bounds of the accountants.
    """
    if context.invoked_subcommand is None:
        print(context.get_help())


def main() -> None:
    """Run the command line."""
    if _COMPLETING in os.environ or sys.argv[1:2] in (
        ["--install-completion"],
        ["--show-completion"],
    ):
        app(prog_name="dpaudit")  # a shell reads the output; typer exits by itself
    run_app(app, "dpaudit")


def run_app(app: typer.Typer, name: str) -> None:
    """Run an app and exit. Every exit code has one meaning, see `dpaudit.cli._exit`."""
    from dpaudit.cli._exit import run_and_exit

    if "COLUMNS" in os.environ:
        from dpaudit.cli._output import console

        os.environ["COLUMNS"] = str(console().width)  # typer prints no help in 0 columns
    run_and_exit(lambda: app(prog_name=name, standalone_mode=False))
