"""``python -m dpaudit_paper``: the same as ``dpaudit reproduce``, without an installation."""

import typer

from dpaudit.cli import run_app
from dpaudit_paper.command import reproduce

app = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)
app.command(context_settings={"help_option_names": ["-h", "--help"]})(reproduce)

if __name__ == "__main__":
    run_app(app, "python -m dpaudit_paper")
