"""``dpaudit plan``: what an audit will find and cost, before it is run."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from dpaudit._loading import uncollected
from dpaudit._numbers import decimals, duration
from dpaudit.cli import _audit_options as option
from dpaudit.cli._child import in_child
from dpaudit.cli._options import (
    ClaimedEpsilon,
    Detect,
    Json,
    LeastPower,
    Overwrite,
    PairOnly,
    SamplingRate,
    check_files,
    claim_from,
    option_name,
    optional,
)
from dpaudit.cli._output import (
    console,
    print_bounds,
    print_json,
    print_then_write,
    user_code,
)
from dpaudit.configuration import Settings
from dpaudit.errors import InvalidInput

if TYPE_CHECKING:
    from dpaudit.audits import Plan, TrainingPlan
    from dpaudit.receipts import RegisteredPlan

_OF_FUNCTION: dict[str, Any] = {
    "claimed_epsilon": ClaimedEpsilon,
    "sampling_rate": SamplingRate,
    "pair_only": PairOnly,
    "canary": option.FUNCTION["canary"],
    "detect": Detect,
    "power": LeastPower,
    "pilot": optional(int, "Number of pilot seeds of your function, each trained twice.", "N", "6"),
}
_SETTINGS = {
    name: kind
    for name, kind in option.SETTINGS.items()
    if name not in ("store", "name", "scores_out")  # a plan stores nothing
}
_OF_BOTH = ("noise_multiplier", "steps", "delta", "seed", "adversary")
"""Settings of a preset that the plan for a function has, too."""

_OUTPUT = {
    "register": optional(
        Path, "Write the planned audit to this file before its first run.", "PLAN.json"
    ),
    "overwrite": Overwrite,
    "json": Json,
}


def plan(*, training: str | None, **given: Any) -> None:
    """Predict an audit: its bounds, the runs it takes, its time and memory.

    The prediction holds if genuine gradients do not change the canary's
    dimension. Other canaries give smaller bounds, and crafted data (preset
    crafted-network) larger ones. A few steps are timed on this machine;
    nothing is stored. The last line is the command of the planned audit.

    [bold]dpaudit plan --period 5 --runs 1000[/]

    For your own training: how many runs detect half of the claimed noise?
    [bold]dpaudit plan train.py:train --noise-multiplier 1.1[/]
    [bold]  --steps 200 --sampling-rate 0.1[/]

    Decide beforehand, and show later that the audit is the planned one:
    [bold]dpaudit plan --runs 5000 --register plan.json[/]
    [bold]dpaudit audit --runs 5000 --registered plan.json --receipt a.json[/]
    """
    check_files({**given, "training": training}, "register")
    settings = Settings(**{name: given[name] for name in _SETTINGS})
    settings, function = option.split(training, settings)
    registering = given["register"] is not None
    command = {name: value for name, value in given.items() if name not in _OUTPUT}
    described: dict[str, Any] = {}
    prediction: Plan | TrainingPlan
    if function is None:
        _refuse(given, _OF_FUNCTION, "is for a function, FILE.py:function as TRAINING")
        with user_code():  # the module of an adversary
            settings = settings.resolved()
            bounds, registered = _of_preset(settings, registering=registering)
        show = partial(_print_plan, bounds, f"{settings.preset} by {settings.adversary}")
        prediction = bounds
    else:
        others = [name for name in _SETTINGS if name not in _OF_BOTH]
        _refuse(given, others, f"cannot be used with the function {function}")
        claim = claim_from(given, 1e-5 if given["delta"] is None else given["delta"])
        runs, registered = _of_function(function, claim, given, registering=registering)
        described = {"training": function, "claim": claim.description}
        command |= {"runs": runs.runs, "pilot": None}
        show = partial(_print_training_plan, runs, f"{function}: {claim.description}")
        prediction = runs
    line = None if prediction.runs is None else _command(training, command)

    def print_plan() -> None:
        if given["json"]:
            print_json({**described, **prediction.to_dict(), "command": line})
            return
        show()
        if line is not None:
            console().print(Text(f"To run it: {line}"), soft_wrap=True)

    files: dict[str, Callable[[], object]] = {}
    if registered is not None:
        files["--register"] = partial(
            registered.write, given["register"], overwrite=given["overwrite"]
        )
    print_then_write(print_plan, files)


def _of_preset(settings: Settings, *, registering: bool) -> tuple[Plan, RegisteredPlan | None]:
    with uncollected():
        from dpaudit.audits import plan as predict

        arguments = settings.arguments()
    prediction = predict(**arguments)
    if not registering:
        return prediction, None
    from dpaudit.receipts import register

    training = arguments.pop("mechanism")
    return prediction, register(training, **arguments)


def _of_function(
    training: str, claim: Any, given: Mapping[str, Any], *, registering: bool
) -> tuple[TrainingPlan, RegisteredPlan | None]:
    asked = {
        name: given[name]
        for name in ("adversary", "detect", "power", "seed")
        if given[name] is not None
    }
    pilot = {} if given["pilot"] is None else {"pilot": given["pilot"]}
    call = partial(_planned, training, given["canary"], claim=claim, **asked, **pilot)
    prediction = in_child(training, call)
    if not registering:
        return prediction, None
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
    return prediction, register(function, canary=canary, claim=claim, runs=prediction.runs, **asked)


def _planned(
    training: str, canary: str | None, adversary: str | None = None, **asked: Any
) -> TrainingPlan:
    """The plan for a training, in a process that imports it."""
    from dpaudit.audits import plan_training
    from dpaudit.trainings.importing import canary_beside, load

    function = load("TRAINING", training)
    inserted = canary_beside(function) if canary is None else load("--canary", canary)
    scored = load("--adversary", adversary) if adversary and ":" in adversary else adversary
    return plan_training(function, canary=inserted, adversary=scored, **asked)


def _refuse(given: Mapping[str, Any], names: Iterable[str], why: str) -> None:
    for name in names:
        if given[name] is not None and given[name] is not False:
            raise InvalidInput(f"{option_name(name)} {why}, got {given[name]!r}")


def _command(training: str | None, options: Mapping[str, Any]) -> str:
    """The command of the planned audit, with all options that have a value."""
    words = [] if training is None else [training]
    for name, value in options.items():
        if value is True:
            words.append(option_name(name))
        elif value is not None and value is not False:
            words += [option_name(name), str(value)]
    return shlex.join(["dpaudit", "audit", *words])


def _print_training_plan(prediction: TrainingPlan, title: str) -> None:
    screen = console()
    screen.print(title, style="bold", markup=False)
    screen.print(prediction.sentence, markup=False)
    if prediction.seconds is not None:
        took = duration(max(prediction.seconds, 1))
        screen.print(f"About {took}, one training after the other.")


def _print_plan(prediction: Plan, title: str) -> None:
    from dpaudit.audits.planning import PREDICTION
    from dpaudit.report.words import bounds_title

    screen = console()
    canaries = "" if prediction.canaries == 1 else f" with {prediction.canaries:,} canaries each"
    heading = f"{title}: what {prediction.runs:,} runs{canaries} should prove"
    screen.print(Text(heading, style="bold"))
    workers = prediction.speed.workers
    processes = "1 process" if workers == 1 else f"{workers} processes"
    expected = (*prediction.uppers, *prediction.lower)
    title = bounds_title(prediction.lower.bounds[0])
    print_bounds(screen, expected, title, hide=("delta", "confidence", "error"))
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


option.with_signature(plan, {"training": option.Training, **_OF_FUNCTION, **_SETTINGS, **_OUTPUT})
