"""``dpaudit landscape``: the exact privacy loss of a crafted loss landscape."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Table as Grid
from rich.text import Text

from dpaudit import _validate
from dpaudit._numbers import decimals
from dpaudit._outputs import check_output
from dpaudit.cli._options import Json, Overwrite, option
from dpaudit.cli._output import console, print_bounds, print_json
from dpaudit.errors import InvalidInput


def landscape(
    noise_multiplier: Annotated[
        float, option("Noise multiplier: standard deviation of the noise over the clip norm C.")
    ],
    batch_size: Annotated[
        int, option("Batch size B. The gradient of the landscape is at most B times C.")
    ],
    steps: Annotated[
        int, option("Number of steps T. Only the parameter after the last step is released.")
    ],
    delta: Annotated[float, option("Delta at which epsilon is computed.")] = 1e-5,
    shape: Annotated[
        str,
        option(
            "Loss landscape: threshold, decision, moving-threshold, reading-wells, wells, "
            "constant, literal; or a CSV file with the columns position and gradient, in units "
            "of C.",
            "NAME|FILE",
        ),
    ] = "threshold",
    scaling: Annotated[
        str,
        option(
            "Scale of the steps. paper: steps after the first are divided by B, as in the paper. "
            "dpsgd: all steps have the same scale, as in DP-SGD.",
            "paper|dpsgd",
        ),
    ] = "paper",
    period: Annotated[
        int | None,
        option("Insert the canary once in every PERIOD steps, instead of at the first step only."),
    ] = None,
    simulate: Annotated[
        int | None,
        option(
            "Also simulate this many trainings, and compute every lower bound from them.", "RUNS"
        ),
    ] = None,
    seed: Annotated[int, option("Random seed of the simulation.")] = 0,
    plot: Annotated[
        str | None,
        option("Draw the landscape, the densities and epsilon to this file.", "FILE.png"),
    ] = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Compute the exact epsilon of one parameter trained on a crafted loss landscape.

    This is the hidden-state setting of section 6 of the paper: the canary is
    inserted at the first step, the adversary crafts the loss of all later
    steps, and only the final parameter is released. Its densities with and
    without the canary are computed step by step, without simulation.

    The landscape of the paper, with its sign corrected:
    [bold]dpaudit landscape --noise-multiplier 1 --batch-size 16 --steps 25[/]

    A threshold at the decision point, in DP-SGD's scaling:
    [bold]dpaudit landscape --noise-multiplier 1 --batch-size 4 --steps 25[/]
    [bold]  --scaling dpsgd --shape decision[/]

    A canary at every 25th of 6,250 steps:
    [bold]dpaudit landscape --noise-multiplier 4 --batch-size 128 --steps 6250[/]
    [bold]  --scaling dpsgd --period 25 --shape reading-wells[/]
    """
    from dpaudit_paper.landscapes import exact_privacy

    if plot is not None:
        _check_plot(Path(plot), overwrite=overwrite)
    process = _process(noise_multiplier, batch_size, steps, scaling, period, shape, delta)
    result = exact_privacy(process, delta=delta)
    audited = None if simulate is None else _audit(process, simulate, delta, seed)
    if plot is not None:
        _draw(result, plot)
    if json:
        _print_json(result, audited)
    else:
        _print_text(result, shape, audited)
        if plot is not None:
            typer.echo(f"Drawn in {plot}.")


def _check_plot(path: Path, *, overwrite: bool) -> None:
    """Raise before computing if the figure could not be written."""
    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise InvalidInput(f"plot must be a .png, .svg or .pdf file, got {str(path)!r}")
    check_output("plot", path, overwrite=overwrite)


def _process(
    noise_multiplier: float,
    batch_size: int,
    steps: int,
    scaling: str,
    period: int | None,
    shape: str,
    delta: float,
) -> Any:
    from dpaudit_paper.landscapes.named import SHAPES, named_landscape
    from dpaudit_paper.landscapes.process import LandscapeProcess
    from dpaudit_paper.landscapes.shapes import Constant, from_file

    _validate.between("delta", delta, 0, 1, remedy="a common choice is 1e-5")
    blank = LandscapeProcess(
        noise_multiplier=noise_multiplier,
        batch_size=batch_size,
        steps=steps,
        scaling=scaling,  # type: ignore[arg-type]  # checked by the process itself
        period=period,
        landscape=Constant(),
    )
    if shape in SHAPES:
        return blank.with_landscape(named_landscape(shape, blank, delta=delta))
    if not Path(shape).is_file():
        raise InvalidInput(
            f"shape must be one of {', '.join(SHAPES)}, or a CSV file that exists, got {shape!r}"
        )
    return blank.with_landscape(from_file(shape, blank))


def _audit(process: Any, runs: int, delta: float, seed: int) -> Any:
    """Every bound on the simulated scores; last the paper's: GDP at the best threshold."""
    from dpaudit.lower_bounds import estimate, estimate_all
    from dpaudit_paper.landscapes import simulate

    scores = simulate(process, runs=runs, seed=seed)
    result = estimate_all(scores, delta=delta, seed=seed)
    papers = estimate(scores, delta=delta, method="gaussian-dp", threshold="best")
    papers = replace(papers, method="gaussian-dp, best")
    return replace(result, bounds=(*result.bounds, papers))


def _draw(result: Any, path: str) -> None:
    from dpaudit_paper.landscapes import DensityPair, pairs
    from dpaudit_paper.landscapes.drawing import draw_process

    wanted = sorted({1, 2, max(1, result.process.steps // 5), result.process.steps})
    shown = []
    if result.method == "densities":
        for step, pair in enumerate(pairs(result.process, delta=result.delta), start=1):
            if step in wanted and isinstance(pair, DensityPair):
                shown.append((step, pair))
    draw_process(result, shown, path)


def _print_json(result: Any, audited: Any) -> None:
    printed: dict[str, Any] = result.to_dict()
    printed["landscape"] = repr(result.process.landscape)
    if audited is not None:
        printed["simulated"] = {
            "bounds": [bound.to_dict() for bound in audited.bounds],
            "unavailable": [entry.to_dict() for entry in audited.unavailable],
        }
    print_json(printed)


def _print_text(result: Any, shape: str, audited: Any) -> None:
    process, screen = result.process, console()
    setting = (
        f"{shape} landscape, sigma {process.noise_multiplier:g}, B {process.batch_size}, "
        f"{process.scaling} scaling, delta {result.delta:g}"
    )
    grid = Grid(box=box.SIMPLE_HEAD)
    for header in ("step", "insertions", "exact epsilon", "GDP rule"):
        grid.add_column(header, justify="right", no_wrap=True)
    for step in _milestones(process.steps):
        grid.add_row(
            f"{step:,}",
            str(process.insertions(step)),
            Text(decimals(result.epsilon[step - 1], 4), style="bold"),
            decimals(result.gdp_rule[step - 1], 4),
        )
    # Not the grid's title, which could be no wider than the grid.
    screen.print(Text(setting, style="bold"))
    screen.print(grid)
    screen.print(_sentence(result))
    if audited is not None:
        screen.print()
        print_bounds(
            screen,
            audited.bounds,
            "The same process simulated and audited",
            unavailable=audited.unavailable,
        )


def _sentence(result: Any) -> str:
    last, claimed = float(result.epsilon[-1]), float(result.gdp_rule[-1])
    share = f"{100 * last / result.accountant:.1f} %" if result.accountant > 0 else "all"
    exactly = "at least" if result.method == "chain" else "exactly"
    error = f" (two grids agree to {result.error:.0e})" if result.error else ""
    text = (
        f"After step {result.process.steps:,} the released position has {exactly} "
        f"epsilon = {decimals(last, 4)}{error}: {share} of the accountant's "
        f"{decimals(result.accountant, 4)}."
    )
    if claimed > last * 1.01 + 1e-4:
        text += f" The GDP rule gives {decimals(claimed, 4)}, which is more than the exact value."
    return text


def _milestones(steps: int) -> list[int]:
    """A few steps worth a row: 1, 2, 5, 10, 25, 50, 100, …, and the last."""
    rounds = [scale * digit for scale in (1, 10, 100, 1000, 10_000) for digit in (1, 2.5, 5)]
    wanted = {1, 2, *(int(step) for step in rounds if step == int(step))}
    return sorted({step for step in wanted if step < steps} | {steps})
