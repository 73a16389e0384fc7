"""``dpaudit plan``: what an audit will find and cost, before it is run."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from dpaudit._loading import uncollected
from dpaudit._numbers import decimals
from dpaudit._outputs import check_output
from dpaudit.cli import _audit_options as option
from dpaudit.cli._audit_options import with_signature
from dpaudit.cli._exit import Unwritten
from dpaudit.cli._options import claim_from, option_name, optional
from dpaudit.cli._output import console, print_json, user_code
from dpaudit.configuration import Settings
from dpaudit.errors import InvalidInput
from dpaudit.privacy import DETECT, LEAST_POWER

if TYPE_CHECKING:
    from dpaudit.executors import Executor

OWN: dict[str, Any] = {
    "training": optional(
        str,
        "Plan the audit of your own training, as for audit: how many runs find too "
        "little noise. A few pilot trainings are run.",
        "MODULE:FUNCTION",
    ),
    "detect": optional(
        str,
        "With --training: noise of this fraction of the claimed noise must be found.",
        "noise=F",
        f"noise={DETECT}",
    ),
    "power": optional(
        float,
        "With --training: probability with which such noise must be found.",
        "P",
        str(LEAST_POWER),
    ),
    "pilot": optional(int, "With --training: number of pilot seeds, each trained twice.", "N", "6"),
    "canary": optional(
        str,
        "With --training: object passed to the training as its canary.",
        "MODULE:OBJECT",
        "'canary' of the function or of its module",
    ),
    "claimed_epsilon": optional(float, "With --training: claimed epsilon at --delta.", "E"),
    "sampling_rate": optional(
        float, "With --training: claimed Poisson sampling rate, if any.", "q"
    ),
}
REGISTER = optional(Path, "Write the planned audit to this file before its first run.", "PLAN.json")
_SHARED = ("noise_multiplier", "steps", "delta", "seed", "json")
"""Options of a preset's plan that also describe the plan of a user's training."""

_TAKEN_OVER = ("store", "name", "scores_out")
"""Options that change nothing in a plan, but only in the command that it prints."""


def plan(**given: Any) -> None:
    """Predict an audit: its bounds, the runs it takes, its time and memory.

    The prediction holds if genuine gradients do not change the canary's
    dimension. Other canaries give smaller bounds, and crafted data (preset
    crafted-network) larger ones. A few steps are timed; nothing is stored. The
    last line is the command of the planned audit.

    [bold]dpaudit plan --period 5 --runs 1000[/]

    For your own training: how many runs detect half of the claimed noise?
    [bold]dpaudit plan --training train.py:train --detect noise=0.5[/]
    [bold]  --noise-multiplier 1.1 --steps 100[/]

    Decide beforehand, and show later that the audit is the planned one:
    [bold]dpaudit plan --runs 5000 --register plan.json[/]
    [bold]dpaudit audit --runs 5000 --registered plan.json --receipt a.json[/]
    """
    if given["register"] is not None:
        check_output("--register", Path(given["register"]))
    own = {name: given.pop(name) for name in OWN}
    if own["training"] is None:
        used = [name for name, value in own.items() if value is not None]
        if used:
            raise InvalidInput(f"{option_name(used[0])} needs --training, got {own[used[0]]!r}")
        config = [] if given["config"] is None else [str(given["config"])]
        _plan(**given, command=_command(["audit", *config], given))
        return
    for name, value in given.items():
        if (
            value is not None
            and value is not False
            and name
            not in (
                *_SHARED,
                *_TAKEN_OVER,
                "register",
            )
        ):
            raise InvalidInput(f"{option_name(name)} cannot be used with --training, got {value!r}")
    kept = {name: given[name] for name in _TAKEN_OVER}
    register = given["register"]
    _plan_training(**own, **{name: given[name] for name in _SHARED}, kept=kept, register=register)


def _plan_training(
    training: str,
    *,
    detect: str | None,
    power: float | None,
    pilot: int | None,
    canary: str | None,
    claimed_epsilon: float | None,
    sampling_rate: float | None,
    noise_multiplier: float | None,
    steps: int | None,
    delta: float | None,
    seed: int | None,
    json: bool,
    kept: Mapping[str, str | None],
    register: Path | None,
) -> None:
    from dpaudit._numbers import duration
    from dpaudit.audits import plan_training
    from dpaudit.trainings.importing import canary_beside, load

    claim = claim_from(
        claimed_epsilon,
        1e-5 if delta is None else delta,
        noise_multiplier,
        steps,
        sampling_rate,
        pair_only=False,
    )
    others: dict[str, Any] = {"seed": seed}
    with user_code():
        function = load("--training", training)
        found = plan_training(
            function,
            claim=claim,
            canary=canary_beside(function) if canary is None else load("--canary", canary),
            detect=_fraction(detect),
            power=LEAST_POWER if power is None else power,
            pilot=6 if pilot is None else pilot,
            **{name: value for name, value in others.items() if value is not None},
        )
        if register is not None:
            if found.runs is None:
                raise InvalidInput(
                    f"--register needs a number of runs to plan, and no number of runs "
                    f"makes this audit powerful enough; got {str(register)!r}"
                )
            canary_object = canary_beside(function) if canary is None else load("--canary", canary)
            asked = {"delta": delta, "detect": None if detect is None else found.detect}
            asked |= {"power": power, **others}
            _write_plan(
                register,
                training=function,
                canary=canary_object,
                claim=claim,
                runs=found.runs,
                **{name: value for name, value in asked.items() if value is not None},
            )
    options = {
        "runs": found.runs,
        "canary": canary,
        "claimed_epsilon": claimed_epsilon,
        "delta": delta,
        "noise_multiplier": noise_multiplier,
        "steps": steps,
        "sampling_rate": sampling_rate,
        "detect": None if detect is None else found.detect,
        "power": power,
        **others,
        **kept,
    }
    command = None if found.runs is None else _command(["audit", training], options)
    if json:
        described = {"training": training, "claim": claim.description}
        print_json({**described, **found.to_dict(), "command": command})
        return
    screen = console()
    screen.print(f"{training}: {claim.description}", style="bold", markup=False)
    screen.print(found.sentence, markup=False)
    if found.seconds is not None:
        screen.print(f"About {duration(max(found.seconds, 1))}, one training after the other.")
    _print_command(command)


def _fraction(detect: str | None) -> float:
    """The number in ``noise=0.5``."""
    try:
        return DETECT if detect is None else float(detect.removeprefix("noise="))
    except ValueError:
        raise InvalidInput(
            f"--detect must be noise=F with a number F between 0 and 1, got {detect!r}"
        ) from None


def _command(words: list[str], options: Mapping[str, Any]) -> str:
    """The command of the planned audit, with all options that have a value."""
    given = {
        option_name(name): str(value)
        for name, value in options.items()
        if value is not None and name not in ("config", "json", "register")
    }
    return shlex.join(["dpaudit", *words, *itertools.chain(*given.items())])


def _print_command(command: str | None) -> None:
    if command is not None:
        console().print(Text(f"To run it: {command}"), soft_wrap=True)


def _write_plan(path: Path, **arguments: Any) -> None:
    """Write the plan of an audit with these arguments of `dpaudit.audit`."""
    from dpaudit.receipts import register

    try:
        register(**arguments).write(path)
    except OSError as error:
        raise Unwritten(f"--register: cannot write {path}: {error.strerror}") from error


@option.takes_settings(command=str, register=REGISTER)
def _plan(
    settings: Settings,
    *,
    json: bool,
    executor: Executor | None,
    command: str,
    register: Path | None,
) -> None:
    """Predict an audit of a preset."""
    with uncollected():
        from dpaudit.audits import plan as predict

        arguments = settings.arguments()
    found = predict(**arguments, executor=executor)
    if register is not None:
        own = dict(arguments)
        training = own.pop("mechanism")
        _write_plan(register, training=training, horizons=settings.horizons or None, **own)
    if json:
        print_json({**found.to_dict(), "command": command})
    else:
        _print_plan(found, f"{settings.preset} by {settings.adversary}")
        _print_command(command)


def _print_plan(found: Any, title: str) -> None:
    from dpaudit._numbers import duration
    from dpaudit.audits.planning import PREDICTION
    from dpaudit.cli._output import print_side_by_side

    screen = console()
    canaries = "" if found.canaries == 1 else f" with {found.canaries:,} canaries each"
    heading = f"{title}: what {found.runs:,} runs{canaries} should prove"
    screen.print(Text(heading, style="bold"))
    workers = found.speed.workers
    processes = "1 process" if workers == 1 else f"{workers} processes"
    expected = (*found.uppers, *found.lower)
    print_side_by_side(screen, expected, leading=found.lower.bounds[0])
    lines = [
        f"Infinitely many runs should prove {decimals(found.epsilon, 2)} (mu = {found.mu:.3f}), if "
        f"{PREDICTION}.",
        *(
            f"{100 * share:.0f} % of that takes "
            + ("more than a million scores." if runs is None else f"{runs:,} runs.")
            for share, runs in found.runs_needed.items()
        ),
        f"About {duration(found.seconds)} on {found.device}: {found.speed.tile_size:,} runs at a "
        f"time in {processes}, {_size(found.bytes)} beside torch itself.",
        *found.notices,
    ]
    screen.print()
    for line in lines:
        screen.print(Text(line))


def _size(count: int) -> str:
    mebibytes = count / 2**20
    return f"{mebibytes:.0f} MiB" if mebibytes < 1024 else f"{mebibytes / 1024:.1f} GiB"


_of_preset = {
    name: option.taken_over(name) if name in _TAKEN_OVER else kind
    for name, kind in _plan.__annotations__.items()
    if name not in ("command", "return")
}
with_signature(plan, OWN | _of_preset, {"json": False})
