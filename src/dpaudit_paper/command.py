"""``dpaudit reproduce``: list or make the paper's figures and tables."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpaudit.cli._audit_options import takes_executor
from dpaudit.cli._exit import UNEXPECTED
from dpaudit.cli._options import Overwrite, option
from dpaudit.errors import InvalidInput

if TYPE_CHECKING:
    from dpaudit.executors import Executor
    from dpaudit_paper import Figure, Made
    from dpaudit_paper.base import Need, Scale


WIDE = 120
"""Width of the terminal from which the list also shows labels."""


@takes_executor
def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME…]",
            help="Figures and tables, such as F1c or T1; F1 means F1a to F1c; or all.",
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for CSV, PNG, SVG, PDF and versions.")] = Path(
        "reproduction"
    ),
    scale: Annotated[
        str, typer.Option(help="quick: minutes on two CPU cores; full: the paper's size.")
    ] = "quick",
    data_dir: Annotated[
        str | None,
        typer.Option(help="Folder with CIFAR-10 and AlexNet's weights; by default $DPAUDIT_DATA."),
    ] = None,
    device: Annotated[
        str,
        typer.Option(
            help="auto, cpu, cuda or cuda:N. auto is a GPU if there is one, except for the small "
            "Housing network, which two CPU cores train about as fast."
        ),
    ] = "auto",
    seed: Annotated[int, typer.Option(help="First random seed.")] = 0,
    again: Annotated[bool, typer.Option("--again", help="Measure again even if done.")] = False,
    redraw: Annotated[
        bool, typer.Option("--redraw", help="Draw again from the CSV file without measuring.")
    ] = False,
    jobs: Annotated[
        int,
        option(
            "Figures made at the same time, each in a process with its share of the cores.", "N"
        ),
    ] = 1,
    executor: Executor | None = None,
    overwrite: Overwrite = False,
    list_only: Annotated[
        bool, typer.Option("--list", help="List the figures and tables; so do no names.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Make the paper's figures and tables.

    Each has a valid bound beside the paper's. Without names, list them with their state and cost.

    Make two of them at the paper's size:
    [bold]dpaudit reproduce F1c F3b --scale full[/]

    Make all that this machine can make, cheapest first:
    [bold]dpaudit reproduce all --data-dir ~/data[/]

    Make four at the same time, longest first:
    [bold]dpaudit reproduce all --scale full --jobs 4[/]

    Finished figures are kept; interrupted trainings are resumed.
    """
    from dpaudit import _validate
    from dpaudit_paper.base import SCALES

    size: Scale = "full" if _validate.one_of("scale", scale, SCALES) == "full" else "quick"
    _check_device(device)
    _validate.integer("jobs", jobs, at_least=1)
    if list_only or not names:
        _list(out, size, data_dir, device, as_json=json)
        return
    from dpaudit_paper import Setting, chosen, make_all, making, style
    from dpaudit_paper.base import Need
    from dpaudit_paper.registry import missing_needs

    style.require_matplotlib()
    figures = chosen(names, scale=size)
    if redraw:
        redrawn = (making.redraw(figure, out, overwrite=overwrite) for figure in figures)
        made = list(_printed(redrawn, len(figures), quiet=json))
        _finish(made, [], out, as_json=json)
        return
    missing = missing_needs(data_dir=data_dir, device=device)
    gpu = Need.GPU not in missing
    figures = chosen(names, scale=size, gpu=gpu, longest_first=jobs > 1)
    # A named figure is always tried; "all" means all that can be made here.
    skipped = []
    if any(name.lower() == "all" for name in names):
        skipped = [figure for figure in figures if figure.needs_at(size) & missing]
        figures = [figure for figure in figures if figure not in skipped]
    setting = Setting(
        scale=size,
        device=device,
        data_dir=data_dir,
        seed=seed,
        progress=_progress(quiet=json),
        executor=executor,
    )
    outcomes = make_all(figures, setting, out, again=again, jobs=jobs, overwrite=overwrite)
    made = list(_printed(outcomes, len(figures), quiet=json))
    reasons = [(figure, state(figure, size, out, missing)) for figure in skipped]
    _finish(made, reasons, out, as_json=json)


def _check_device(device: str) -> None:
    """Raise for an invalid device without importing torch."""
    if not re.fullmatch(r"auto|cpu|cuda(:[0-9]+)?", device):
        raise InvalidInput(f"device must be auto, cpu, cuda or cuda:N, got {device!r}")


def state(figure: Figure, scale: Scale, out: Path, missing: frozenset[Need]) -> str:
    """The state of a figure on this machine: done, ready, or what is missing."""
    from dpaudit_paper.base import Need
    from dpaudit_paper.making import left_out, scale_done

    done = scale_done(figure, out)
    if done is not None and (done == "full" or scale == "quick"):
        part = ", in part" if left_out(figure, out) else ""
        return f"done here{part} ({done})"
    needs = figure.needs_at(scale) & missing
    lacking = [need.value for need in Need if need in needs]
    return "needs " + ", ".join(lacking) if lacking else "ready"


def _list(out: Path, scale: Scale, data_dir: str | None, device: str, *, as_json: bool) -> None:
    from dpaudit_paper import FIGURES
    from dpaudit_paper.registry import missing_needs

    missing = missing_needs(data_dir=data_dir, device=device)
    if as_json:
        from dpaudit.cli._output import print_json

        entries = [_described(figure, out, missing) for figure in FIGURES.values()]
        print_json({"out": str(out), "figures": entries})
        return
    from rich import box
    from rich.table import Table

    from dpaudit._numbers import duration
    from dpaudit.cli._output import console

    screen = console()
    table = Table(box=box.SIMPLE_HEAD)
    # On a wide terminal: also the paper's labels and the cost of the quick version on a GPU.
    wide = screen.width >= WIDE
    headers = ["name", "shows", f"state ({scale})", "quick", "full", "H200"]
    for header in [*headers, *(["quick, H200", "label in the paper"] if wide else [])]:
        words = header == "shows" or header.startswith("state")
        table.add_column(header, no_wrap=not words)
    for figure in FIGURES.values():
        more = [duration(figure.quick.gpu), figure.label or "(ours)"] if wide else []
        on_cpu = (figure.quick.cpu, figure.full.cpu)
        table.add_row(
            figure.id,
            figure.title,
            state(figure, scale, out, missing),
            *("hours" if seconds is None else duration(seconds) for seconds in on_cpu),
            duration(figure.full.gpu),
            *more,
        )
    screen.print(table)
    screen.print("Costs: on two idle CPU cores; H200: in full on one, with nothing made before.")
    screen.print("Make some with: dpaudit reproduce F1c F3b    or all of them with: all")


def _described(figure: Figure, out: Path, missing: frozenset[Need]) -> dict[str, Any]:
    """One entry of the list as plain data."""
    from dpaudit_paper.base import SCALES, Need

    return {
        "id": figure.id,
        "title": figure.title,
        "label": figure.label,
        "needs": {
            scale: [need.value for need in Need if need in figure.needs_at(scale)]
            for scale in SCALES
        },
        "state": {scale: state(figure, scale, out, missing) for scale in SCALES},
        "seconds": {
            scale: {"cpu": figure.cost(scale).cpu, "gpu": figure.cost(scale).gpu}
            for scale in SCALES
        },
    }


def _printed(made: Iterable[Made], count: int, *, quiet: bool) -> Iterable[Made]:
    """Yield what was made; unless quiet, print a line as soon as each is finished."""
    if quiet:
        yield from made
        return
    from rich.text import Text

    from dpaudit._numbers import duration
    from dpaudit.cli._output import console

    screen = console()
    for number, each in enumerate(made, start=1):
        head = f"{each.id}  {each.title}: {each.outcome}"
        took = "" if each.outcome == "kept" else f" in {duration(each.seconds)}"
        style = "bold red" if each.outcome == "failed" else "bold"
        screen.print(Text(f"[{number}/{count}] {head}{took}", style=style))
        if each.error:
            screen.print(Text(each.error))
        yield each


def _finish(
    made: list[Made], skipped: list[tuple[Figure, str]], out: Path, *, as_json: bool
) -> None:
    failed = [each for each in made if each.outcome == "failed"]
    if as_json:
        from dpaudit.cli._output import print_json

        print_json(
            {
                "out": str(out),
                "figures": [each.to_dict() for each in made],
                "skipped": [{"id": figure.id, "reason": why} for figure, why in skipped],
            }
        )
    else:
        for figure, why in skipped:
            print(f"{figure.id} left out: {why}")
        print(f"{len(made) - len(failed)} of {len(made)} are in {out}")
    if failed:
        print(
            f"dpaudit: {len(failed)} failed: {', '.join(each.id for each in failed)}",
            file=sys.stderr,
        )
        raise typer.Exit(UNEXPECTED)


def _progress(*, quiet: bool) -> Any:
    from dpaudit.audits import Bar, Silent

    return Silent() if quiet else Bar()
