"""``dpaudit audit-training``: audit your own training."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpaudit import _validate
from dpaudit.cli._audit_options import Name, ScoresOut, StoreFile
from dpaudit.cli._ci import Junit, Sarif, check_outcome_files, outcome_of_audit, write_outcomes
from dpaudit.cli._claims import claim_from
from dpaudit.cli._executors import takes_executor
from dpaudit.cli._exit import VERDICT_CODES
from dpaudit.cli._option import Json, option
from dpaudit.cli._playing import print_audit, progress_shown
from dpaudit.configuration import store_path
from dpaudit.privacy import DETECT, LEAST_POWER

if TYPE_CHECKING:
    from dpaudit.executors import Executor


@takes_executor
def audit_training(
    train: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:FUNCTION",
            help="Your function train(canary, inserted, seed), which returns the final parameters, "
            "dpaudit.Predictions or a score. path/to/file.py:function works, too.",
        ),
    ],
    runs: Annotated[int, option("Number of trainings.", "N")] = 200,
    claimed_epsilon: Annotated[
        float | None,
        option(
            "Claimed epsilon at --delta. It is read as one point of a Gaussian trade-off "
            "function, which holds for DP-SGD but not for every mechanism; see --pair-only.",
            "E",
        ),
    ] = None,
    delta: Annotated[float, option("Delta of the claimed epsilon and of the lower bounds.")] = 1e-5,
    noise_multiplier: Annotated[
        float | None,
        option("Claimed noise multiplier (noise over clip norm), instead of an epsilon.", "s"),
    ] = None,
    steps: Annotated[
        int | None, option("Claimed number of steps that may contain the canary.", "T")
    ] = None,
    sampling_rate: Annotated[
        float | None, option("Claimed Poisson sampling rate, if any.", "q")
    ] = None,
    pair_only: Annotated[
        bool,
        typer.Option(
            "--pair-only",
            help="Test only the pair of --claimed-epsilon and --delta, without an assumption "
            "about the trade-off function. This needs many more runs.",
        ),
    ] = False,
    until_violation: Annotated[
        bool,
        typer.Option(
            "--until-violation",
            help="Stop as soon as a violation is proven; --runs is then the largest number.",
        ),
    ] = False,
    canary: Annotated[
        str | None,
        option(
            "Object passed to the training as its canary.",
            "MODULE:OBJECT",
            "'canary' of the function or of its module, if there is one",
        ),
    ] = None,
    adversary: Annotated[
        str | None,
        option(
            "How returned values are scored; or MODULE:FUNCTION of (canary, returned).",
            "score|parameters|predictions",
            "chosen by the type of the returned value",
        ),
    ] = None,
    workers: Annotated[int, option("Number of trainings at the same time.", "N")] = 1,
    timeout: Annotated[
        float | None, option("Seconds after which a training counts as failed.", "S")
    ] = None,
    confidence: Annotated[
        float, option("Confidence of the verdict and of each lower bound.")
    ] = 0.95,
    detect: Annotated[
        float,
        option(
            "'consistent' requires that noise of this fraction of the claim is detectable.", "F"
        ),
    ] = DETECT,
    power: Annotated[
        float,
        option("Probability with which noise of the fraction --detect must be detected.", "P"),
    ] = LEAST_POWER,
    seed: Annotated[int, option("Random seed.", "S")] = 0,
    on_error: Annotated[str, option("What to do when a training fails.", "record|stop")] = "record",
    store: StoreFile = None,
    name: Name = None,
    scores_out: ScoresOut = None,
    junit: Junit = None,
    sarif: Sarif = None,
    executor: Executor | None = None,
    json: Json = False,
) -> None:
    """Audit your own training: do its scores contradict its privacy claim?

    Exit code 0: consistent with the claim; 1: a violation is proven;
    3: inconclusive; 2: an error in the call or in the training.

    --claimed-epsilon is read as a Gaussian curve through the pair. Exactly
    epsilon-DP mechanisms (randomised response, Laplace) violate that curve
    although they satisfy the pair; the result also has the verdict on the
    bare pair, and --pair-only tests only that.

    [bold]dpaudit audit-training my_training:train --claimed-epsilon 8 --delta 1e-5[/]

    A claim from the training's settings needs no assumption:
    [bold]dpaudit audit-training my_training.py:train --noise-multiplier 1.1[/]
    [bold]  --steps 1000 --sampling-rate 0.01 --until-violation --runs 1000[/]

    After an interruption, the same command resumes the audit. If the code has
    changed, a new audit is started.
    """
    from dpaudit.audits import audit_training as play
    from dpaudit.trainings.importing import canary_beside, load
    from dpaudit.trainings.player import executor_of

    workers = _validate.integer("workers", workers, at_least=1)
    claim = claim_from(claimed_epsilon, delta, noise_multiplier, steps, sampling_rate, pair_only)
    where = store_path(store)
    if scores_out is not None:
        _validate.file_to_write("scores_out", Path(scores_out))  # before hours of training
    check_outcome_files(junit=junit, sarif=sarif)
    with progress_shown(store=where, quiet=json) as progress:
        function = load("MODULE:FUNCTION", train)
        inserted = canary_beside(function) if canary is None else load("--canary", canary)
        scorer = adversary
        if adversary is not None and ":" in adversary:
            scorer = load("--adversary", adversary)
        if executor is None and _can_be_sent(function, inserted, scorer):
            # In a process of its own: a training that exits cannot end the command with its code.
            executor = executor_of(workers, timeout=timeout, isolated=True)
        result = play(
            function,
            canary=inserted,
            adversary=scorer,
            executor=executor,
            claim=claim,
            delta=delta,
            runs=runs,
            confidence=confidence,
            seed=seed,
            workers=workers,
            timeout=timeout,
            detect=detect,
            power=power,
            name=name,
            on_error=on_error,
            until_violation=until_violation,
            store=where,
            progress=progress,
        )
    print_audit(result, store=where, scores_out=scores_out, json=json)
    write_outcomes([outcome_of_audit(result, function)], junit=junit, sarif=sarif)
    raise typer.Exit(VERDICT_CODES[result.verdict])


def _can_be_sent(*objects: object) -> bool:
    try:
        pickle.dumps(objects)
    except Exception:  # pickle may raise anything
        return False
    return True
