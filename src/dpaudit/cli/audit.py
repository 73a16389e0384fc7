"""``dpaudit audit``: train many models, and test the privacy claim of the training."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpaudit._loading import uncollected
from dpaudit._outputs import ROOM
from dpaudit.cli import _audit_options as option
from dpaudit.cli._audit_options import takes_executor, with_signature
from dpaudit.cli._ci import outcome_files, outcome_of_audit
from dpaudit.cli._exit import decided
from dpaudit.cli._options import (
    AllBounds,
    ClaimedEpsilon,
    Detect,
    Json,
    Junit,
    LeastPower,
    Overwrite,
    PairOnly,
    SamplingRate,
    Sarif,
    check_files,
    claim_from,
    option_name,
    optional,
)
from dpaudit.cli._output import (
    print_json,
    print_result,
    print_then_write,
    progress_shown,
    user_code,
)
from dpaudit.cli.receipts import IncludeScores, PlanToName, ReceiptOut, plan_of, write_receipt
from dpaudit.configuration import Settings, store_path
from dpaudit.errors import InvalidInput
from dpaudit.scores import Store, write_scores
from dpaudit.scores.files import ROOM_OF_A_ROW

if TYPE_CHECKING:
    from dpaudit.executors import Executor


def _flag(name: str, help: str) -> Any:
    return Annotated[bool, typer.Option(name, help=help)]


CLAIM: dict[str, Any] = {
    "claimed_epsilon": ClaimedEpsilon,
    "sampling_rate": SamplingRate,
    "pair_only": PairOnly,
    "until_violation": _flag(
        "--until-violation",
        "Stop as soon as a violation is proven; --runs is then the largest number.",
    ),
    "no_confirm": _flag(
        "--no-confirm",
        "Let one test at 5 % decide, without fresh runs that confirm it. A correct training is "
        "then accused in up to 5 % of the audits, not 0.1 %.",
    ),
    "max_runs": optional(int, "Largest number of runs, fresh ones included.", "N"),
    "time_limit": optional(float, "Seconds after which no fresh runs are played.", "S"),
    "no_check": _flag(
        "--no-check",
        "Do not run dpaudit check on your function first, which is done where its canary and its "
        "claim allow it.",
    ),
    "anyway": _flag(
        "--anyway", "Train even if this many runs cannot refute the claim, whatever their scores."
    ),
    "detect": Detect,
    "power": LeastPower,
}
"""Options of the claim and of its test."""

FOR_ALL = ("runs", "delta", "confidence", "seed", "store", "name", "scores_out", "adversary")
"""Settings of a preset that a training function has, too."""

AS_CLAIM = ("noise_multiplier", "steps")
"""Settings of a preset that a training function claims."""


def audit(
    *,
    training: str | None,
    json: bool,
    junit: Path | None,
    sarif: Path | None,
    receipt: Path | None,
    registered: Path | None,
    include_scores: bool | None,
    overwrite: bool,
    executor: Executor | None,
    **given: Any,
) -> None:
    """Audit a training: does it keep its privacy claim?

    Many models are trained, half of them with a canary. The result is a lower
    bound on epsilon, beside the upper bound, and a verdict on the claim.

    A preset, with a canary at every fifth step and another adversary:
    [bold]dpaudit audit housing --period 5 --adversary random-direction[/]

    Your own training, with the claim of its settings, or an epsilon:
    [bold]dpaudit audit my_training.py:train --noise-multiplier 1.1[/]
    [bold]  --steps 200 --sampling-rate 0.1[/]
    [bold]dpaudit audit my_module:train --claimed-epsilon 8 --delta 1e-5[/]

    A pipeline train(data, seed), on data with and without a record:
    [bold]dpaudit audit my_training.py:pipeline --neighbours[/]
    [bold]  my_training.py:neighbours --claimed-epsilon 8[/]

    After an interruption, the same command resumes the audit, if the code is
    the same. Exit code 0: consistent with the claim; 1: a violation is proven;
    3: inconclusive; 2: an error in the call or in the training; 5: an output
    could not be written.
    """
    if receipt is None and registered is not None:
        raise InvalidInput(f"--registered needs --receipt, got {str(registered)!r} alone")
    settings = Settings(**{name: given.pop(name) for name in option.SETTINGS})
    settings, function = option.split(training, settings)
    if function is not None:
        _refuse(option.SETTINGS, settings, f"the function {function}")
    else:
        with user_code():  # the module of an adversary
            settings = settings.resolved()
        for name in (*option.FUNCTION, "sampling_rate"):
            if given[name] is not None:
                raise InvalidInput(
                    f"{option_name(name)} is an option for a training function, got "
                    f"{given[name]!r} for the preset {settings.preset}; leave it out"
                )
    scores_out, where = settings.scores_out, store_path(settings.store)
    files = {"junit": junit, "sarif": sarif, "scores_out": scores_out, "receipt": receipt}
    read = {**vars(settings), **given, "training": training, "registered": registered}
    check_files(  # before hours of training
        {**read, **files, "overwrite": overwrite},
        *files,
        room=ROOM + ROOM_OF_A_ROW * (settings.runs or 0) * (settings.canaries or 1),
    )
    with progress_shown(store=where, quiet=json) as progress:
        with uncollected():
            from dpaudit.audits import audit as play

            arguments = (
                _preset(settings) if function is None else _function(function, settings, given)
            )
        arguments |= {
            "claim": _claim(settings, given, function=function is not None),
            "until_violation": given["until_violation"],
            "confirm": not given["no_confirm"],
            **{name: given[name] for name in ("detect", "power") if given[name] is not None},
        }
        planned = None if registered is None else _as_planned(registered, arguments)
        result = play(
            **arguments,
            anyway=given["anyway"],
            check=not given["no_check"],
            **{
                name: given[name]
                for name in ("max_runs", "time_limit", "timeout")
                if given[name] is not None
            },
            name=settings.name,
            store=where,
            executor=executor,
            progress=progress,
            call=shlex.join(["dpaudit", *sys.argv[1:]]),
        )
    code = decided(result.verdict)
    writers = outcome_files(
        lambda: [outcome_of_audit(result, function)], junit=junit, sarif=sarif, overwrite=overwrite
    )
    if scores_out is not None:
        writers["--scores-out"] = lambda: write_scores(
            result.scores, scores_out, overwrite=overwrite
        )
    if receipt is not None:
        asked = {"include_scores": include_scores, "plan": planned, "overwrite": overwrite}
        writers["--receipt"] = lambda: _write_receipt(result.audit, where, receipt, **asked)
    print_then_write(
        lambda: (
            print_json({**result.to_dict(), "store": where})
            if json
            else print_result(result, where=where, all_bounds=given["all_bounds"])
        ),
        writers,
    )
    raise typer.Exit(code)


def _write_receipt(audit: str, store: str, path: Path, **asked: Any) -> None:
    with Store.open(store, create=False) as opened:
        write_receipt(opened.audit(audit), path, **asked)


def _as_planned(path: Path, arguments: dict[str, Any]) -> str:
    """The digest of the plan; refuses, before anything is trained, an audit that is another one."""
    from dpaudit.receipts import register

    if "neighbours" in arguments:
        raise InvalidInput(
            f"--registered cannot be used with --neighbours, got {str(path)!r}: the score is "
            "learned from pilot runs"
        )
    own = dict(arguments)
    for name in ("workers", "on_error", "isolated"):
        own.pop(name, None)
    played = register(**own)
    return plan_of(path, played.configuration, played.question)


def _refuse(names: Any, settings: Settings, what: str) -> None:
    """Raise for a setting that only a preset has."""
    for name in names:
        value = getattr(settings, name)
        if value is not None and name not in (*FOR_ALL, *AS_CLAIM):
            raise InvalidInput(f"{option_name(name)} cannot be used with {what}, got {value!r}")


def _preset(settings: Settings) -> dict[str, Any]:
    """The arguments of `dpaudit.audit` for a preset."""
    arguments = settings.arguments()
    return {"training": arguments.pop("mechanism"), **arguments}


def _function(training: Any, settings: Settings, given: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `dpaudit.audit` for a training function."""
    from dpaudit.trainings.importing import Named, load

    asked = {name: getattr(settings, name) for name in ("runs", "delta", "confidence", "seed")}
    asked |= {name: given[name] for name in ("workers", "on_error")}
    canary, neighbours = given["canary"], given["neighbours"]
    data: dict[str, Any] = {}
    if neighbours is not None:
        from dpaudit.pipelines import neighbours_of

        pair = load("--neighbours", neighbours)
        data["neighbours"] = neighbours_of(pair, unit=given["unit"] or "record")
    return {
        "training": Named("TRAINING", training),
        "adversary": settings.adversary,
        "canary": None if canary is None else Named("--canary", canary),
        **data,
        "isolated": True,  # a training that exits cannot end the command with its code
        **{name: value for name, value in asked.items() if value is not None},
    }


def _claim(settings: Settings, given: dict[str, Any], *, function: bool) -> Any:
    """The claim that the options name; `None` for that of a preset's settings."""
    named = {name: getattr(settings, name) if function else None for name in AS_CLAIM}
    if not function and given["claimed_epsilon"] is None and not given["pair_only"]:
        return None
    claim = claim_from({**given, **named}, 1e-5 if settings.delta is None else settings.delta)
    return claim if given["unit"] is None else claim.per(given["unit"])


_OPTIONS = {
    "training": option.Training,
    **option.SETTINGS,
    **CLAIM,
    **option.FUNCTION,
    "all_bounds": AllBounds,
    "junit": Junit,
    "sarif": Sarif,
    "receipt": ReceiptOut,
    "registered": PlanToName,
    "include_scores": IncludeScores,
    "overwrite": Overwrite,
    "executor": None,
    "json": Json,
}
audit = takes_executor(with_signature(audit, _OPTIONS))
