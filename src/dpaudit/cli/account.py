"""``dpaudit account``: upper bounds on epsilon for a described training."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import typer

from dpaudit import _validate
from dpaudit._numbers import counted
from dpaudit.cli._options import Json, option, option_name
from dpaudit.cli._output import console, print_bounds, print_json
from dpaudit.errors import InvalidInput
from dpaudit.privacy import Bounds
from dpaudit.upper_bounds.accountants import ACCOUNTANTS

_EVERY = "all"


def account(
    steps: Annotated[int | None, option("Number of steps that may use the record.")] = None,
    noise_multiplier: Annotated[
        float | None, option("Noise standard deviation divided by the clipping norm.")
    ] = None,
    delta: Annotated[float | None, option("Bound epsilon at this delta.")] = None,
    epsilon: Annotated[float | None, option("Bound delta at this epsilon.")] = None,
    target_epsilon: Annotated[
        float | None, option("Find the smallest noise multiplier for this epsilon at --delta.")
    ] = None,
    gaussian_mechanism: Annotated[
        float | None,
        option("Standard deviation of the noise of one release, in place of the other settings."),
    ] = None,
    sensitivity: Annotated[
        float, option("Largest change of that release, as with --gaussian-mechanism.")
    ] = 1.0,
    sampling_rate: Annotated[
        float | None,
        option(
            "Poisson sampling rate: probability that a step uses a record. "
            "Without it every step uses the record."
        ),
    ] = None,
    accountant: Annotated[
        str | None,
        option(
            "Accountant to use. Without it: the exact closed form (gaussian) "
            "if there is no sampling, otherwise the least of pld, rdp and the closed form.",
            "|".join((*ACCOUNTANTS, _EVERY)),
        ),
    ] = None,
    hidden_state: Annotated[
        bool,
        typer.Option(
            "--hidden-state",
            help="Also bound what the final model alone reveals. --steps then counts all steps.",
        ),
    ] = False,
    step_lipschitz: Annotated[
        float | None,
        option("Lipschitz constant of a step without the record, as a function of the model."),
    ] = None,
    period: Annotated[int, option("The record takes part in one step of every PERIOD steps.")] = 1,
    phase: Annotated[str, option("Which step of a period has the record.", "first|last")] = "first",
    batch_size: Annotated[
        int | None, option("Genuine examples in a batch, for the clipping bound.")
    ] = None,
    domain_diameter: Annotated[
        float | None,
        option(
            "Diameter of the set onto which every step projects the model, in units of "
            "(learning rate) x (clip norm) / (batch size)."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Upper bounds on the privacy loss of DP-SGD.

    Neighbouring data sets differ by one record, added or removed.
    The bounds hold for every adversary, also if it sees all iterates.

    Epsilon of 250 steps at delta, by the closed form:
    [bold]dpaudit account --noise-multiplier 4 --steps 250 --delta 1e-5[/]

    All accountants side by side, with sampling:
    [bold]dpaudit account --noise-multiplier 1 --steps 1000 --delta 1e-5[/]
    [bold]  --sampling-rate 0.01 --accountant all[/]

    Final model only, with updates that are 1.05-Lipschitz, a record in every fifth step:
    [bold]dpaudit account --hidden-state --step-lipschitz 1.05 --period 5[/]
    [bold]  --noise-multiplier 4 --steps 1250 --delta 1e-5[/]

    Smallest noise for an epsilon:
    [bold]dpaudit account --target-epsilon 8 --steps 1000 --delta 1e-5[/]

    Two shuffled epochs, without amplification: a record is in one step of each:
    [bold]dpaudit account --noise-multiplier 2 --steps 2 --delta 1e-5[/]

    One release with Gaussian noise, such as local privacy; the classical formula for its noise is
    proven up to epsilon 1 only:
    [bold]dpaudit account --gaussian-mechanism 0.484 --sensitivity 1 --delta 1e-5[/]
    """
    from dpaudit.upper_bounds import all_upper_bounds, upper_bound
    from dpaudit.upper_bounds.gaussian import classical_epsilon

    if gaussian_mechanism is not None:
        if noise_multiplier is not None or target_epsilon is not None or sampling_rate is not None:
            raise InvalidInput(
                "--gaussian-mechanism describes one release: give it with --sensitivity and "
                "--delta or --epsilon, without --noise-multiplier, --target-epsilon and "
                "--sampling-rate"
            )
        deviation = _validate.positive("--gaussian-mechanism", gaussian_mechanism)
        noise_multiplier = deviation / _validate.positive("--sensitivity", sensitivity)
        steps = 1 if steps is None else steps
    elif sensitivity != 1.0:
        raise InvalidInput(f"--sensitivity needs --gaussian-mechanism, got {sensitivity:g} alone")
    if steps is None:
        raise InvalidInput("give --steps, the number of steps that may use the record")

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
    given = _hidden_state(
        hidden_state,
        step_lipschitz=step_lipschitz,
        period=period,
        phase=phase,
        batch_size=batch_size,
        domain_diameter=domain_diameter,
    )
    if given is not None:
        result = _beside_standard(described, given, accountant)
    elif accountant == _EVERY:
        result = all_upper_bounds(**described)
    else:
        bound = upper_bound(**described, accountant=accountant)
        result = Bounds(bounds=(bound,))

    if json:
        printed: dict[str, Any] = {"bounds": [bound.to_dict() for bound in result.bounds]}
        if accountant == _EVERY or hidden_state:
            printed["unavailable"] = [entry.to_dict() for entry in result.unavailable]
        if calibrated:
            printed["noise_multiplier"] = result.bounds[0].details["noise_multiplier"]
        print_json(printed)
        return
    heading = "Smallest noise for that epsilon" if calibrated else "Upper bounds"
    rate = "" if sampling_rate is None else f", sampling rate {sampling_rate:g}"
    title = (
        f"{heading}: noise multiplier {noise_multiplier:.6g} over {counted(steps, 'step')}{rate}"
    )
    print_bounds(console(), result.bounds, title, unavailable=result.unavailable)
    if gaussian_mechanism is not None and steps == 1 and delta is not None:
        classical = classical_epsilon(noise_multiplier, delta)
        if classical > 1:
            console().print(
                f"The classical formula, proven up to epsilon 1, would claim {classical:.4f}."
            )


def _hidden_state(asked: bool, **given: Any) -> Any:
    """The description for hidden-state accountants, or `None` without ``--hidden-state``."""
    from dpaudit.upper_bounds import HiddenState

    if asked:
        return HiddenState(**given)
    defaults = {"period": 1, "phase": "first"}
    for name, value in given.items():
        if value != defaults.get(name):
            raise InvalidInput(
                f"{option_name(name)} needs --hidden-state, got {value!r} without it"
            )
    return None


def _beside_standard(described: dict[str, Any], given: Any, accountant: str | None) -> Any:
    """The bounds for the hidden state after the standard one, which composes the insertions."""
    from dpaudit.upper_bounds import HIDDEN_STATE_ACCOUNTANTS, all_upper_bounds

    result = all_upper_bounds(**described, hidden_state=given)
    if accountant == _EVERY:
        return result
    asked = "gaussian" if accountant is None else accountant
    if asked not in ACCOUNTANTS and asked not in HIDDEN_STATE_ACCOUNTANTS:
        ACCOUNTANTS[asked]  # raises, with the names
    shown = {asked, *HIDDEN_STATE_ACCOUNTANTS} if asked in ACCOUNTANTS else {"gaussian", asked}
    return replace(
        result,
        bounds=tuple(bound for bound in result.bounds if bound.method in shown),
        unavailable=tuple(entry for entry in result.unavailable if entry.method in shown),
    )


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
