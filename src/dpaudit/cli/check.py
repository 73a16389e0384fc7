"""``dpaudit check``: which rule of private training a training breaks, before any statistics."""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dpaudit.cli._child import in_child
from dpaudit.cli._ci import outcome_files, outcomes_of_check
from dpaudit.cli._exit import decided
from dpaudit.cli._options import Json, Junit, Overwrite, Sarif, check_files, option, option_name
from dpaudit.cli._output import console, print_json, print_then_write
from dpaudit.cli.receipts import ReceiptOut
from dpaudit.errors import InvalidInput

if TYPE_CHECKING:
    from dpaudit.checks import CheckResult, Finding
    from dpaudit.receipts import CheckReceipt


def check(
    train: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:FUNCTION",
            help="Your function train(canary, inserted, seed), which returns the final parameters. "
            "If it has an argument steps, rules about several steps are also checked. With "
            "--pipeline: your function train(data, seed).",
        ),
    ],
    noise_multiplier: Annotated[
        float | None,
        option(
            "Claimed noise multiplier: standard deviation of the noise over C.",
            default="needed without --pipeline",
        ),
    ] = None,
    clip_norm: Annotated[float | None, option("Claimed clip norm C of each gradient.")] = None,
    parameters: Annotated[
        int | None, option("Number of parameters of the model; needed without a canary.")
    ] = None,
    canary: Annotated[
        str | None,
        option(
            "Canary object, or a function without arguments that returns one.",
            "MODULE:OBJECT",
            "'canary' of the function or of its module, if there is one",
        ),
    ] = None,
    steps: Annotated[
        int | None,
        option(
            "Number of steps of the training.",
            default="default of the argument steps, or how often the canary is read",
        ),
    ] = None,
    runs: Annotated[
        int | None, option("Number of seeds with which the noise is measured.", default="16")
    ] = None,
    pipeline: Annotated[
        bool,
        typer.Option(
            "--pipeline",
            help="Check a whole pipeline: MODULE:FUNCTION is then train(data, seed), which runs on "
            "two data sets that differ in one record.",
        ),
    ] = False,
    neighbours: Annotated[
        str | None,
        option(
            "With --pipeline: a function that returns the two data sets (D, D1).",
            "MODULE:FUNCTION",
            "'neighbours' of the module, or 'data' with and without a record",
        ),
    ] = None,
    unit: Annotated[
        str | None,
        option(
            "With --pipeline: what the data sets differ by, such as a user with all records.",
            "UNIT",
            "record",
        ),
    ] = None,
    step: Annotated[
        bool,
        typer.Option(
            "--step",
            help="Check a single step: MODULE:FUNCTION is then a function "
            "private_step(gradients, seed) that returns the private gradient.",
        ),
    ] = False,
    batch_size: Annotated[
        int | None,
        option("With --step: examples per batch, including the crafted one.", default="16"),
    ] = None,
    seed: Annotated[int, option("First of the random seeds.")] = 1000,
    finite_gradients: Annotated[
        bool,
        typer.Option(
            "--finite-gradients",
            help="Skip the rule on infinite and NaN gradients. Use it if none can occur.",
        ),
    ] = False,
    fixed_batch_size: Annotated[
        bool,
        typer.Option(
            "--fixed-batch-size",
            help="Do not change the batch size. Use it if the size is fixed and public.",
        ),
    ] = False,
    public_transform: Annotated[
        bool,
        typer.Option(
            "--public-transform",
            help="Skip the rules on single coordinates. Use it if the noisy gradients are "
            "post-processed by a public function that hides coordinates, such as top-k.",
        ),
    ] = False,
    all_rules: Annotated[
        bool, typer.Option("--all", help="Show every rule with what was measured and allowed.")
    ] = False,
    junit: Junit = None,
    sarif: Sarif = None,
    receipt: ReceiptOut = None,
    page: Annotated[
        Path | None, option("Also write all findings as one HTML page.", "PAGE.html")
    ] = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Check your own training against the rules of DP-SGD, in seconds.

    One example must change a step by at most C, even if its gradient is huge
    or infinite. Every parameter must receive independent Gaussian noise of the
    claimed size at every step.

    MODULE:FUNCTION may also be a DP optimizer of Opacus or optax, or a
    configuration of a jax-privacy plan.

    Exit code 0: no rule is broken; 1: a rule is broken; 2: an error in the
    call or in the training; 3: a core rule (bounded contribution, noise in
    every parameter, noise size) could not be tested.

    Check a training in my_training.py:
    [bold]dpaudit check my_training:train --clip-norm 1 --noise-multiplier 1.1[/]
    [bold]  --parameters 62006[/]

    Check what depends on one record around the private steps:
    [bold]dpaudit check --pipeline my_training.py:train --neighbours[/]
    [bold]  my_training.py:neighbours[/]

    Check only its clipping and noise:
    [bold]dpaudit check my_training:private_step --step --clip-norm 1[/]
    [bold]  --noise-multiplier 1.1 --parameters 1000[/]
    """
    given = locals()
    check_files(given, "junit", "sarif", "receipt", "page")
    kind = "--pipeline" if pipeline else "--step" if step else "a training"
    for name, value in given.items():
        if value is not None and value is not False and kind not in _OF.get(name, (kind,)):
            if kind == "a training":
                raise InvalidInput(f"{option_name(name)} needs {_OF[name][0]}, got {value}")
            raise InvalidInput(f"{option_name(name)} cannot be used with {kind}, got {value}")
    if noise_multiplier is None and not pipeline:
        raise InvalidInput(
            "--noise-multiplier is needed: the standard deviation of the noise over C"
        )
    files_asked = ("junit", "sarif", "receipt", "page", "overwrite", "json")
    others = ("pipeline", "step", "all_rules", *files_asked)
    asked = {name: value for name, value in given.items() if name not in others}
    run = {"--pipeline": _check_pipeline, "--step": _check_step}.get(kind, _check_training)
    call = shlex.join(["dpaudit", *sys.argv[1:]])
    of_receipt = None if receipt is None else call
    result, evidence = in_child(train, partial(_checked, run, call=of_receipt, **asked))
    broken = "violation" if result.broken else "inconclusive"
    code = decided("consistent" if result.passed else broken)
    outcomes = partial(outcomes_of_check, result, train)
    files = outcome_files(outcomes, junit=junit, sarif=sarif, overwrite=overwrite)
    if receipt is not None and evidence is not None:
        files["--receipt"] = lambda: evidence.write(receipt, overwrite=overwrite)
    if page is not None:
        files["--page"] = partial(_write_page, result, train, call, page, overwrite=overwrite)
    print_then_write(
        lambda: (
            print_json(result.to_dict())
            if json
            else _print(console(), result, train, all_rules=all_rules)
        ),
        files,
    )
    raise typer.Exit(code)


def _write_page(result: CheckResult, train: str, call: str, page: Path, *, overwrite: bool) -> None:
    from dpaudit.report import check_page, write_page

    write_page(check_page(result, title=train, call=call), page, overwrite=overwrite)


_STEPS = ("--step", "a training")
_OF = {
    **dict.fromkeys(("neighbours", "unit"), ("--pipeline",)),
    "batch_size": ("--step",),
    "canary": ("a training",),
    "steps": ("a training",),
    **dict.fromkeys(("noise_multiplier", "clip_norm", "parameters", "runs"), _STEPS),
    **dict.fromkeys(("finite_gradients", "fixed_batch_size", "public_transform"), _STEPS),
}
"""What an option is for; the others are for everything that is checked."""


def _checked(
    check: Callable[..., CheckResult], train: str, *, call: str | None, **asked: Any
) -> tuple[CheckResult, CheckReceipt | None]:
    """The result of a check, and its receipt if there is a call to name.

    This is in the process that imports the training, whose libraries the receipt names.
    """
    from dpaudit.trainings.importing import load

    function = load("MODULE:FUNCTION", train)
    given = {name: value for name, value in asked.items() if value is not None}
    result = check(function, train, **given)
    receipt = None
    if call is not None:
        from dpaudit.receipts import receipt_of_check

        receipt = receipt_of_check(result, name=train, training=function, settings=given, call=call)
    return result, receipt


def _check_pipeline(
    function: Any,
    train: str,
    *,
    seed: int,
    neighbours: str | None = None,
    unit: str = "record",
    **_: bool,
) -> CheckResult:
    """The check of a whole pipeline, on the data sets that are given or beside the function."""
    from dpaudit.pipelines import check_pipeline, neighbours_of
    from dpaudit.trainings.importing import load

    beside = load("MODULE:FUNCTION", f"{train.rpartition(':')[0]}:__dict__")
    pair = beside.get("neighbours") if neighbours is None else load("--neighbours", neighbours)
    if pair is not None:
        return check_pipeline(function, neighbours_of(pair, unit=unit), seed=seed)
    data = beside.get("data")
    if data is None or unit != "record":
        raise InvalidInput(
            f"--neighbours is needed: {train} has neither 'neighbours' nor 'data' beside it; give "
            "MODULE:FUNCTION, a function that returns the two data sets (D, D1)"
            if data is None
            else f"--neighbours is needed with --unit {unit}: dpaudit does not know which records "
            f"of 'data' are those of a {unit}"
        )
    return check_pipeline(function, data=data() if callable(data) else data, seed=seed)


def _check_step(
    function: Any, train: str, *, clip_norm: float | None = None, **asked: Any
) -> CheckResult:
    from dpaudit.checks import check_step

    return check_step(function, clip_norm=_given("--clip-norm", clip_norm), **asked)


def _check_training(
    function: Any,
    train: str,
    *,
    canary: str | None = None,
    clip_norm: float | None = None,
    parameters: int | None = None,
    steps: int | None = None,
    **settings: Any,
) -> CheckResult:
    from dpaudit.checks import check_training
    from dpaudit.integrations import integration_of
    from dpaudit.trainings import GradientCanary
    from dpaudit.trainings.importing import canary_beside

    if not callable(function):
        kind = type(function).__name__
        for name, value in (("canary", canary), ("parameters", parameters), ("steps", steps)):
            if value is not None:
                raise InvalidInput(
                    f"{option_name(name)} is {value}, but {train} is a {kind}, whose private step "
                    f"is checked by itself; leave {option_name(name)} out, or give a function that "
                    "trains"
                )
        if isinstance(function, int | float | str | bytes):
            raise InvalidInput(
                f"MODULE:FUNCTION must be a function train(canary, inserted, seed) or an "
                f"optimizer, got {function!r}"
            )
        return integration_of(function).check(function, clip_norm=clip_norm, **settings)
    inserted = canary_beside(function) if canary is None else _canary(canary)
    if not (hasattr(inserted, "clip_norm") and hasattr(inserted, "parameters")):
        inserted = GradientCanary.draw(
            _given("--parameters, or --canary,", parameters),
            clip_norm=_given("--clip-norm, or --canary,", clip_norm),
        )
    _agree("--clip-norm", clip_norm, inserted.clip_norm)
    _agree("--parameters", parameters, inserted.parameters)
    return check_training(function, inserted, steps=steps, **settings)


def _canary(where: str) -> Any:
    from dpaudit.trainings.importing import load

    canary = load("--canary", where)
    if callable(canary):
        try:
            canary = canary()
        except TypeError as error:
            raise InvalidInput(
                f"--canary: {where} must be callable without arguments: {error}"
            ) from error
    for attribute in ("clip_norm", "parameters"):
        if not hasattr(canary, attribute):
            raise InvalidInput(
                f"--canary must have {attribute}, as a GradientCanary has, got "
                f"{type(canary).__name__}"
            )
    return canary


def _agree(option: str, given: float | None, of_canary: float) -> None:
    if given is not None and given != of_canary:
        raise InvalidInput(
            f"{option} is {given:g}, but the canary's is {of_canary:g}; give only one of them"
        )


def _given(option: str, value: Any) -> Any:
    if value is None:
        raise InvalidInput(f"{option} is needed")
    return value


# --- The page: the verdict, what is wrong, what was not tested, and how much passed.


def _print(screen: Console, result: CheckResult, train: str, *, all_rules: bool) -> None:
    from dpaudit.report.palette import terminal_style
    from dpaudit.report.words import by_text

    tested = f"{len(result.findings) - len(result.not_tested)} of {len(result.findings)} rules"
    screen.print(
        Text(result.verdict.upper(), style=terminal_style(result.verdict)),
        Text(f"  {train}, {tested} tested, {result.calls:,} calls\n"),
    )
    page = Table.grid(padding=(0, 2, 0, 0))
    for finding in (*result.broken, *result.warnings):
        style = terminal_style(finding.verdict)
        page.add_row(Text(finding.verdict, style=style), Text(_line(finding), style=style))
        cost = "" if finding.epsilon is None else f"epsilon {finding.epsilon:.2f} by itself"
        if finding.epsilon == math.inf:
            cost = "no finite epsilon"
        for label, text in (
            ("seen", finding.explanation),
            ("costs", cost),
            ("cause", finding.cause),
            ("remedy", finding.remedy),
            ("precedent", finding.seen_in),
        ):
            if text:
                page.add_row(f"  {label}", Text(text))
    for line in by_text(_untested(result)):
        page.add_row(Text("not tested"), Text(line))
    passed = [finding for finding in result if finding.verdict == "passed"]
    if all_rules:
        for finding in result:
            if finding.verdict in ("passed", "left out"):
                page.add_row(finding.verdict, Text(_line(finding)))
    elif passed:
        names = ", ".join(finding.rule.name for finding in passed)
        page.add_row("passed", Text(f"{len(passed)} {'rule' + 's' * (len(passed) > 1)}: {names}"))
    if result.note:
        page.add_row("note", Text(result.note))
    screen.print(Padding(page, (0, 0, 0, 2)))
    if result.passed:
        screen.print("\n  This is not a proof of privacy.")
    if not all_rules:
        screen.print("  --all shows what every rule measured and allows.")


def _line(finding: Finding) -> str:
    """A rule with what was measured and allowed, or why it was left out."""
    if finding.measured:
        return f"{finding.rule.name}: {finding.measured}, allowed {finding.allowed}"
    why = f": {finding.explanation}" if finding.verdict == "left out" else ""
    return f"{finding.rule.name}{why}"


def _untested(result: CheckResult) -> list[tuple[str, str]]:
    """Rules that were not tested with the reason, then probes of rules that passed."""
    reasons = [(finding.rule.name, finding.explanation) for finding in result.not_tested]
    for finding in result:
        probes: dict[str, list[str]] = {}
        for probe in finding.untested if finding.verdict != "broken" else ():
            name, _, reason = probe.partition(": ")
            probes.setdefault(reason, []).append(name)
        reasons += [
            (f"{finding.rule.name} ({', '.join(names)})", reason)
            for reason, names in probes.items()
        ]
    return reasons
