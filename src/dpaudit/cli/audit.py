"""``dpaudit audit``: train many models and compute bounds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from dpaudit._loading import uncollected
from dpaudit.cli import _audit_options as option
from dpaudit.cli._ci import Junit, Sarif, check_outcome_files, outcome_of_audit, write_outcomes
from dpaudit.cli._exit import VERDICT_CODES
from dpaudit.cli._playing import print_audit, progress_shown
from dpaudit.cli._render import console
from dpaudit.configuration import Settings, store_path

if TYPE_CHECKING:
    from dpaudit.executors import Executor

Strict = Annotated[
    bool,
    typer.Option("--strict", help="Exit with 3 unless the verdict is consistent or violation."),
]


@option.takes_settings(strict=Strict, junit=Junit, sarif=Sarif)
def audit(
    settings: Settings,
    *,
    json: bool,
    executor: Executor | None,
    strict: bool | None,
    junit: Path | None,
    sarif: Path | None,
) -> None:
    """Audit a DP-SGD training: a lower bound on epsilon, beside the accountant's upper bound.

    Without options: a small network on California Housing, trained 5,000 times.
    Half of the trainings have a crafted gradient at every step.

    Canary at every fifth step, by another adversary:
    [bold]dpaudit audit --period 5 --adversary random-direction[/]

    One training with 20,000 canaries:
    [bold]dpaudit audit --preset convnet --runs 1 --canaries 20000 --data-dir ~/data[/]

    After an interruption, the same command resumes the audit.
    Exit code 1: a violation is proven. Exit code 0: none is proven, although
    the audit may be inconclusive; with --strict that is exit code 3.
    """
    check_outcome_files(junit=junit, sarif=sarif)
    where = store_path(settings.store)
    with progress_shown(store=where, quiet=json) as progress:
        with uncollected():
            from dpaudit.audits import audit as play

            arguments = settings.arguments()
        result = play(
            **arguments,
            horizons=settings.horizons or (),
            name=settings.name,
            store=where,
            executor=executor,
            progress=progress,
        )
    print_audit(result, store=where, scores_out=settings.scores_out, json=json)
    write_outcomes([outcome_of_audit(result)], junit=junit, sarif=sarif)
    if result.verdict == "violation":
        raise typer.Exit(VERDICT_CODES["violation"])
    if result.verdict != "consistent":
        if strict:
            raise typer.Exit(VERDICT_CODES["inconclusive"])
        if not json:
            told = f"Exit code 0, although the verdict is {result.verdict}; --strict makes it 3."
            console().print(Text(told))
