"""``dpaudit plan``: what an audit will find and cost, before it is run."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from dpaudit._loading import uncollected
from dpaudit._numbers import decimals
from dpaudit.cli import _audit_options as option
from dpaudit.cli._child import in_child
from dpaudit.cli._options import (
    Json,
    Overwrite,
    check_files,
    claim_from,
    option_name,
    optional,
)
from dpaudit.cli._output import console, print_json, print_then_write, user_code
from dpaudit.configuration import Settings
from dpaudit.errors import InvalidInput
from dpaudit.privacy import DETECT, LEAST_POWER

if TYPE_CHECKING:
    from dpaudit.audits import TrainingPlan
    from dpaudit.receipts import RegisteredPlan

OWN: dict[str, Any] = {
    "detect": optional(
        str,
        "For a function: noise of this fraction of the claimed noise must be found.",
        "noise=F",
        f"noise={DETECT}",
    ),
    "power": optional(
        float,
        "For a function: probability with which such noise must be found.",
        "P",
        str(LEAST_POWER),
    ),
    "pilot": optional(int, "For a function: number of pilot seeds, each trained twice.", "N", "6"),
    "canary": optional(
        str,
        "For a function: object passed to the training as its canary.",
        "MODULE:OBJECT",
        "'canary' of the function or of its module",
    ),
    "claimed_epsilon": optional(float, "For a function: claimed epsilon at --delta.", "E"),
    "sampling_rate": optional(float, "For a function: claimed Poisson sampling rate, if any.", "q"),
}
REGISTER = optional(Path, "Write the planned audit to this file before its first run.", "PLAN.json")
_TAKEN_OVER = ("store", "name", "scores_out")
"""Options that change nothing in a plan, but only in the command that it prints."""

_OUTPUT = ("register", "overwrite", "json")
_SHARED = ("noise_multiplier", "steps", "delta", "seed", *_TAKEN_OVER, *_OUTPUT)
"""Options of a preset's plan that also describe the plan of a user's training."""


def plan(**given: Any) -> None:
    """Predict an audit: its bounds, the runs it takes, its time and memory.

    The prediction holds if genuine gradients do not change the canary's
    dimension. Other canaries give smaller bounds, and crafted data (preset
    crafted-network) larger ones. A few steps are timed; nothing is stored. The
    last line is the command of the planned audit.

    [bold]dpaudit plan --period 5 --runs 1000[/]

    For your own training: how many runs detect half of the claimed noise?
    [bold]dpaudit plan train.py:train --detect noise=0.5[/]
    [bold]  --noise-multiplier 1.1 --steps 200 --sampling-rate 0.1[/]

    Decide beforehand, and show later that the audit is the planned one:
    [bold]dpaudit plan --runs 5000 --register plan.json[/]
    [bold]dpaudit audit --runs 5000 --registered plan.json --receipt a.json[/]
    """
    check_files(given, "register")
    settings = Settings(**{name: given[name] for name in option.SETTINGS})
    settings, function = option.split(given["training"], settings)
    show, registered = (
        _of_preset(settings, given) if function is None else _of_function(function, given)
    )
    files = {}
    if registered is not None:
        path, overwrite = given["register"], given["overwrite"]
        files["--register"] = lambda: registered.write(path, overwrite=overwrite)
    print_then_write(show, files)


Planned = tuple[Callable[[], None], "RegisteredPlan | None"]
"""What prints a plan, and the audit to register, if it is asked for."""


def _of_preset(settings: Settings, given: dict[str, Any]) -> Planned:
    """The plan for a preset."""
    _refuse(given, OWN, "is for a function, FILE.py:function as TRAINING")
    executor = option.make_executor(**{name: given[name] for name in option.EXECUTION})
    registered = None
    with user_code():  # the module of an adversary
        settings = settings.resolved()
        with uncollected():
            from dpaudit.audits import plan as predict

            arguments = settings.arguments()
        prediction = predict(**arguments, executor=executor)
        if given["register"] is not None:
            from dpaudit.receipts import register

            training = arguments.pop("mechanism")
            registered = register(training, horizons=settings.horizons or None, **arguments)
    command = _command(given)

    def show() -> None:
        if given["json"]:
            print_json({**prediction.to_dict(), "command": command})
        else:
            _print_plan(prediction, f"{settings.preset} by {settings.adversary}")
            _print_command(command)

    return show, registered


def _of_function(training: str, given: dict[str, Any]) -> Planned:
    """The plan for a user's training function."""
    from dpaudit._numbers import duration

    others = [name for name in given if name not in ("training", *OWN, *_SHARED)]
    _refuse(given, others, f"cannot be used with the function {training}")
    given["detect"] = _fraction(given["detect"])
    claim = claim_from(
        given["claimed_epsilon"],
        1e-5 if given["delta"] is None else given["delta"],
        given["noise_multiplier"],
        given["steps"],
        given["sampling_rate"],
        pair_only=False,
    )
    asked = {name: given[name] for name in ("detect", "power", "seed") if given[name] is not None}
    pilot = {} if given["pilot"] is None else {"pilot": given["pilot"]}
    call = partial(_planned, training, given["canary"], claim=claim, **asked, **pilot)
    prediction, registered = in_child(training, call), None
    if given["register"] is not None:
        from dpaudit.receipts import register
        from dpaudit.trainings.importing import Named

        if prediction.runs is None:
            raise InvalidInput(
                "--register needs a number of runs to plan, and no number of runs makes this audit "
                f"powerful enough; got {str(given['register'])!r}"
            )
        asked |= {} if given["delta"] is None else {"delta": given["delta"]}
        canary = None if given["canary"] is None else Named("--canary", given["canary"])
        function = Named("TRAINING", training)
        registered = register(function, canary=canary, claim=claim, runs=prediction.runs, **asked)
    command = None
    if prediction.runs is not None:
        command = _command({**given, "runs": prediction.runs, "pilot": None})

    def show() -> None:
        if given["json"]:
            described = {"training": training, "claim": claim.description}
            print_json({**described, **prediction.to_dict(), "command": command})
            return
        screen = console()
        screen.print(f"{training}: {claim.description}", style="bold", markup=False)
        screen.print(prediction.sentence, markup=False)
        if prediction.seconds is not None:
            screen.print(
                f"About {duration(max(prediction.seconds, 1))}, one training after the other."
            )
        _print_command(command)

    return show, registered


def _refuse(given: Mapping[str, Any], names: Iterable[str], why: str) -> None:
    for name in names:
        if given[name] is not None and given[name] is not False:
            raise InvalidInput(f"{option_name(name)} {why}, got {given[name]!r}")


def _planned(training: str, canary: str | None, **asked: Any) -> TrainingPlan:
    """The plan for a training, in a process that imports it."""
    from dpaudit.audits import plan_training
    from dpaudit.trainings.importing import canary_beside, load

    function = load("TRAINING", training)
    inserted = canary_beside(function) if canary is None else load("--canary", canary)
    return plan_training(function, canary=inserted, **asked)


def _fraction(detect: str | None) -> float | None:
    """The number in ``noise=0.5``."""
    try:
        return None if detect is None else float(detect.removeprefix("noise="))
    except ValueError:
        raise InvalidInput(
            f"--detect must be noise=F with a number F between 0 and 1, got {detect!r}"
        ) from None


def _command(options: Mapping[str, Any]) -> str:
    """The command of the planned audit, with all options that have a value."""
    given = {name: str(value) for name, value in options.items() if value is not None}
    words = [given.pop("training")] if "training" in given else []
    named = ((option_name(name), value) for name, value in given.items() if name not in _OUTPUT)
    return shlex.join(["dpaudit", "audit", *words, *itertools.chain(*named)])


def _print_command(command: str | None) -> None:
    if command is not None:
        console().print(Text(f"To run it: {command}"), soft_wrap=True)


def _print_plan(prediction: Any, title: str) -> None:
    from dpaudit._numbers import duration
    from dpaudit.audits.planning import PREDICTION
    from dpaudit.cli._output import print_side_by_side

    screen = console()
    canaries = "" if prediction.canaries == 1 else f" with {prediction.canaries:,} canaries each"
    heading = f"{title}: what {prediction.runs:,} runs{canaries} should prove"
    screen.print(Text(heading, style="bold"))
    workers = prediction.speed.workers
    processes = "1 process" if workers == 1 else f"{workers} processes"
    expected = (*prediction.uppers, *prediction.lower)
    print_side_by_side(screen, expected, leading=prediction.lower.bounds[0])
    lines = [
        f"Infinitely many runs should prove {decimals(prediction.epsilon, 2)} "
        f"(mu = {prediction.mu:.3f}), if "
        f"{PREDICTION}.",
        *(
            f"{100 * share:.0f} % of that takes "
            + ("more than a million scores." if runs is None else f"{runs:,} runs.")
            for share, runs in prediction.runs_needed.items()
        ),
        f"About {duration(prediction.seconds)} on {prediction.device}: "
        f"{prediction.speed.tile_size:,} runs at a time in {processes}, "
        f"{_size(prediction.bytes)} beside torch itself.",
        *prediction.notices,
    ]
    screen.print()
    for line in lines:
        screen.print(Text(line))


def _size(count: int) -> str:
    mebibytes = count / 2**20
    return f"{mebibytes:.0f} MiB" if mebibytes < 1024 else f"{mebibytes / 1024:.1f} GiB"


_OPTIONS = {
    "training": option.Training,
    **OWN,
    **option.SETTINGS,
    **{name: option.taken_over(name) for name in _TAKEN_OVER},
    "register": REGISTER,
    "overwrite": Overwrite,
    **option.EXECUTION,
    "json": Json,
}
option.with_signature(plan, _OPTIONS)
