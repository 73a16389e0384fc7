"""``dpaudit audit-training``: the game played by your own training."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpaudit import _validate
from dpaudit.cli._audit_options import Json, Name, ScoresOut, StoreFile
from dpaudit.configuration import DEFAULT_STORE
from dpaudit.errors import InvalidInput

if TYPE_CHECKING:
    from rich.console import Console

    from dpaudit.claims import Claim
    from dpaudit.scores import AuditRecord
    from dpaudit.trainings import TrainingAudit

EXIT_CODES = {"consistent": 0, "violation": 1, "inconclusive": 3}


def audit_training(
    train: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:FUNCTION",
            help="Your train(canary, inserted, seed), which returns the final parameters, "
            "dpaudit.Predictions or a score; also path/to/file.py:function.",
        ),
    ],
    runs: Annotated[int, typer.Option(metavar="N", help="Trainings.")] = 200,
    claimed_epsilon: Annotated[
        float | None, typer.Option(metavar="E", help="The claim: epsilon at --delta.")
    ] = None,
    delta: Annotated[float, typer.Option(help="Of the claim, and of the lower bounds.")] = 1e-5,
    noise_multiplier: Annotated[
        float | None,
        typer.Option(metavar="s", help="The claim in place of epsilon: noise over clip norm."),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(metavar="T", help="Steps that the canary may take part in.")
    ] = None,
    sampling_rate: Annotated[
        float | None, typer.Option(metavar="q", help="Poisson sampling rate, if there is sampling.")
    ] = None,
    pair_only: Annotated[
        bool,
        typer.Option(
            "--pair-only",
            help="Claim the bare (epsilon, delta) pair, and assume nothing of the curve it is "
            "from; takes many more runs.",
        ),
    ] = False,
    until_violation: Annotated[
        bool,
        typer.Option(
            "--until-violation",
            help="Stop as soon as a violation is proven; --runs is then the most.",
        ),
    ] = False,
    canary: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:OBJECT",
            help="What is handed to the training.",
            show_default="'canary' of the function or of its module, if there is one",
        ),
    ] = None,
    adversary: Annotated[
        str | None,
        typer.Option(
            metavar="score|parameters|predictions",
            help="What to score; or MODULE:FUNCTION of (canary, returned).",
            show_default="what fits what is returned",
        ),
    ] = None,
    workers: Annotated[int, typer.Option(metavar="N", help="Trainings at a time.")] = 1,
    confidence: Annotated[float, typer.Option(help="Of the verdict and the bounds.")] = 0.95,
    seed: Annotated[int, typer.Option(metavar="S", help="Of everything that is drawn.")] = 0,
    on_error: Annotated[
        str, typer.Option(metavar="record|stop", help="What to do when a training fails.")
    ] = "record",
    store: StoreFile = None,
    name: Name = None,
    scores_out: ScoresOut = None,
    json: Json = False,
) -> None:
    """Audit your own training: is what it promises kept?

    Exit code 0: consistent with the claim; 1: a violation is proven;
    3: inconclusive, too few runs or too many failures; 2: a mistake in the call.

    [bold]dpaudit audit-training my_training:train --claimed-epsilon 8 --delta 1e-5[/]

    With the training's settings, nothing has to be assumed about the claim:
    [bold]dpaudit audit-training my_training.py:train --noise-multiplier 1.1 --steps 1000[/]
    [bold]  --sampling-rate 0.01 --until-violation --runs 1000 --workers 2[/]

    Interrupted? The same command goes on where it stopped.
    """
    from dpaudit.trainings.importing import canary_beside, load

    claim = _claim(claimed_epsilon, delta, noise_multiplier, steps, sampling_rate, pair_only)
    where = store or os.environ.get("DPAUDIT_STORE") or DEFAULT_STORE
    if scores_out is not None:
        _validate.file_to_write("scores_out", Path(scores_out))  # before hours of training
    function = load("MODULE:FUNCTION", train)
    result = _play(
        function,
        where=where,
        quiet=json,
        canary=canary_beside(function) if canary is None else load("--canary", canary),
        adversary=load("--adversary", adversary) if adversary and ":" in adversary else adversary,
        claim=claim,
        delta=delta,
        runs=runs,
        confidence=confidence,
        seed=seed,
        workers=workers,
        name=name,
        on_error=on_error,
        until_violation=until_violation,
    )
    if scores_out is not None:
        from dpaudit.scores import write_scores

        write_scores(result.scores, scores_out)
    if json:
        from dpaudit.cli._render import print_json

        print_json({**result.to_dict(), "store": where})
    else:
        _print(result, where)
    raise typer.Exit(EXIT_CODES[result.verdict])


def _claim(
    claimed_epsilon: float | None,
    delta: float,
    noise_multiplier: float | None,
    steps: int | None,
    sampling_rate: float | None,
    pair_only: bool,
) -> Claim:
    from dpaudit.claims import Claim

    if noise_multiplier is not None or steps is not None or sampling_rate is not None:
        if claimed_epsilon is not None or pair_only:
            raise InvalidInput(
                "give --claimed-epsilon, or --noise-multiplier and --steps, not both; the second "
                "says more"
            )
        if noise_multiplier is None or steps is None:
            missing = "--noise-multiplier" if noise_multiplier is None else "--steps"
            raise InvalidInput(f"{missing} is needed too for a claim from the training's settings")
        return Claim.from_dpsgd(
            noise_multiplier=noise_multiplier, steps=steps, sampling_rate=sampling_rate
        )
    if claimed_epsilon is None:
        raise InvalidInput(
            "what does the training promise? Give --claimed-epsilon and --delta, or "
            "--noise-multiplier, --steps and --sampling-rate"
        )
    if pair_only:
        return Claim.from_points([(claimed_epsilon, delta)])
    return Claim.from_epsilon(claimed_epsilon, delta)


def _play(train: Any, *, where: str, quiet: bool, **options: Any) -> TrainingAudit:
    from dpaudit.audits import Bar, Silent
    from dpaudit.trainings import audit_training

    progress = Silent() if quiet else Bar()
    try:
        # What the training prints must not end up in what the command prints.
        with contextlib.redirect_stdout(sys.stderr):
            return audit_training(train, store=where, progress=progress, **options)
    except KeyboardInterrupt:
        if isinstance(progress, Bar) and progress.runs:
            print(
                f"dpaudit: {progress.done:,} of {progress.runs:,} runs are kept in {where}; the "
                "same command goes on from there",
                file=sys.stderr,
            )
        raise


def _print(result: TrainingAudit, where: str) -> None:
    from rich.text import Text

    from dpaudit.cli._render import console

    screen = console()
    _print_bounds(screen, result, took=f", in {result.seconds:.1f} s")
    for failure in result.failures[:3]:
        screen.print(Text(f"run {failure.run} failed: {failure.error}", style="dim"))
    screen.print()
    screen.print(Text(result.sentence, style="bold"))
    screen.print(Text(f"Audit {result.audit[:8]} in {where}.", style="dim"))


def _print_bounds(screen: Console, result: TrainingAudit, *, took: str = "") -> None:
    """The claim and the bounds side by side, and what there is to say about them."""
    from rich.text import Text

    from dpaudit.cli._audit_table import print_side_by_side

    canaries = "" if result.canaries == 1 else f" with {result.canaries:,} canaries"
    # Whoever reads an audit back has all of it from the store.
    stored = f", {result.resumed:,} from the store" if result.resumed and took else ""
    failed = f", {len(result.failures):,} failed" if result.failures else ""
    title = f"{result.training}: {result.runs:,} runs{canaries}{stored}{failed}"
    screen.print(Text(f"{title}{took}", style="bold"))
    screen.print(Text(f"Claim: {result.test.claim.description}. {_seen(result)}"))
    print_side_by_side(screen, (result.least_upper, *result.lower), leading=result.leading)
    for missing in result.lower.unavailable:
        screen.print(Text(f"{missing.method}: no number. {missing.reason}", style="dim"))
    for note in (*result.test.notes, *result.notes):
        screen.print(Text(note, style="dim"))


def show_stored(
    record: AuditRecord,
    entry: Mapping[str, Any],
    *,
    json: bool,
    delta: float | None = None,
    confidence: float | None = None,
) -> None:
    """What ``dpaudit show`` says of an audit of a user's training: settings, bounds, failures.

    The verdict is the one it came to; the bounds are read again at the delta and the confidence
    asked, or at those of the audit.
    """
    from dpaudit.trainings.auditing import read_training_audit

    summary, failures = record.summary or {}, record.failures()
    result = read_training_audit(record, delta=delta, confidence=confidence)
    if json:
        from dpaudit.cli._render import print_json

        print_json(
            {
                **summary.get("result", {}),
                **entry,
                **_bounds(result),
                "sentence": summary.get("sentence"),
                "failures": [failure.to_dict() for failure in failures],
                "configuration": dict(record.configuration),
            }
        )
        return
    from rich.text import Text

    from dpaudit.cli._render import console
    from dpaudit.cli.audits import setting_lines

    screen = console()
    for line in setting_lines(record.configuration):
        screen.print(Text(line, style="dim"))
    for failure in failures:
        screen.print(Text(f"run {failure.run} failed: {failure.error}\n{failure.traceback}"))
    if result is not None:
        _print_bounds(screen, result)
        screen.print()
    unfinished = (
        f"Unfinished: {entry['runs']:,} of {entry['runs_asked']:,} runs are done; the command that "
        "began it goes on with it."
    )
    screen.print(Text(str(summary.get("sentence", unfinished)), style="bold"))


def _bounds(result: TrainingAudit | None) -> dict[str, Any]:
    """The bounds as asked; none while the audit is not finished."""
    if result is None:
        return {"lower": []}
    return {
        "claimed": result.least_upper.to_dict(),
        "upper": result.least_upper.to_dict()["epsilon"],
        "lower": [bound.to_dict() for bound in result.lower],
        "unavailable": [missing.to_dict() for missing in result.lower.unavailable],
        "delta": result.delta,
    }


def _seen(result: TrainingAudit) -> str:
    if result.threat_model is None:
        return "Threat model: whatever the training's own score was made of."
    return f"Threat model: {result.threat_model.value}, scored by {result.adversary}."
