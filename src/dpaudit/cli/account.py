"""``dpaudit account``: upper bounds on epsilon for a described training."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from dpaudit.errors import InvalidInput

_EVERY = "all"


def account(
    steps: Annotated[int, typer.Option(help="Number of steps that may use the record.")],
    noise_multiplier: Annotated[
        float | None,
        typer.Option(help="Noise standard deviation divided by the clipping norm."),
    ] = None,
    delta: Annotated[float | None, typer.Option(help="Bound epsilon at this delta.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="Bound delta at this epsilon.")] = None,
    target_epsilon: Annotated[
        float | None,
        typer.Option(help="Find the smallest noise multiplier for this epsilon at --delta."),
    ] = None,
    sampling_rate: Annotated[
        float | None,
        typer.Option(
            help="Poisson sampling rate: probability that a step uses a record. "
            "Without it every step uses the record."
        ),
    ] = None,
    accountant: Annotated[
        str | None,
        typer.Option(
            metavar="gaussian|pld|prv|rdp|all",
            help="Accountant to use. Without it: the exact closed form (gaussian) "
            "if there is no sampling, otherwise pld.",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Upper bounds on the privacy loss of DP-SGD.

    Neighbouring data sets differ by one record, added or removed.
    The bounds hold for every adversary, also if it sees all iterates.

    Epsilon of 250 steps at delta, by the closed form:
    [bold]dpaudit account --noise-multiplier 4 --steps 250 --delta 1e-5[/]

    All accountants side by side, with sampling:
    [bold]dpaudit account --noise-multiplier 1 --steps 1000 --delta 1e-5[/]
    [bold]  --sampling-rate 0.01 --accountant all[/]

    Smallest noise for an epsilon:
    [bold]dpaudit account --target-epsilon 8 --steps 1000 --delta 1e-5[/]
    """
    from dpaudit.privacy import Bounds
    from dpaudit.upper_bounds import all_upper_bounds, upper_bound

    calibrated = target_epsilon is not None
    if noise_multiplier is None:
        noise_multiplier = _calibrate(target_epsilon, delta, steps, sampling_rate, accountant)
    elif calibrated:
        raise InvalidInput(
            f"give either --noise-multiplier or --target-epsilon, got {noise_multiplier:g} and "
            f"{target_epsilon:g}"
        )
    described: dict[str, Any] = {
        "noise_multiplier": noise_multiplier,
        "steps": steps,
        "sampling_rate": sampling_rate,
        "delta": delta,
        "epsilon": epsilon,
    }
    if accountant == _EVERY:
        result = all_upper_bounds(**described)
    else:
        bound = upper_bound(**described, accountant=accountant)
        result = Bounds(bounds=(bound,))

    if json:
        _print_json(result, every=accountant == _EVERY, calibrated=calibrated)
    else:
        rate = "" if sampling_rate is None else f", sampling rate {sampling_rate:g}"
        training = f"noise multiplier {noise_multiplier:.6g} over {steps} steps{rate}"
        _print_table(result, training, calibrated=calibrated)


def _calibrate(
    target_epsilon: float | None,
    delta: float | None,
    steps: int,
    sampling_rate: float | None,
    accountant: str | None,
) -> float:
    from dpaudit.upper_bounds import noise_multiplier_for

    if target_epsilon is None:
        raise InvalidInput("give --noise-multiplier, or --target-epsilon to find one")
    if delta is None:
        raise InvalidInput("--target-epsilon needs --delta; a common choice is 1e-5")
    if accountant == _EVERY:
        raise InvalidInput("--target-epsilon takes one --accountant, got 'all'")
    return noise_multiplier_for(
        epsilon=target_epsilon,
        delta=delta,
        steps=steps,
        sampling_rate=sampling_rate,
        accountant=accountant,
    )


def _print_json(result: Any, *, every: bool, calibrated: bool) -> None:
    from dpaudit.cli._render import print_json

    printed: dict[str, Any] = {"bounds": [bound.to_dict() for bound in result.bounds]}
    if every:
        printed["unavailable"] = [entry.to_dict() for entry in result.unavailable]
    if calibrated:
        printed["noise_multiplier"] = result.bounds[0].details["noise_multiplier"]
    print_json(printed)


def _print_table(result: Any, training: str, *, calibrated: bool) -> None:
    from dpaudit.cli._render import console, print_bounds

    heading = "Smallest noise for that epsilon" if calibrated else "Upper bounds"
    print_bounds(console(), result, f"{heading}: {training}")
