"""``dpaudit plan``: what an audit will find and cost, before anything is trained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dpaudit.cli import _audit_options as option
from dpaudit.configuration import CompleteSettings

if TYPE_CHECKING:
    from dpaudit.executors import Executor


@option.takes_settings()
def plan(settings: CompleteSettings, *, json: bool, executor: Executor | None) -> None:
    """Predict an audit: its bounds, the runs it takes, its time and memory.

    The prediction holds if genuine gradients do not change the canary's dimension. Other canaries
    show less; crafted data (preset crafted-network) show more. A few steps are timed; nothing is
    stored.

    [bold]dpaudit plan --period 5 --runs 1000[/]
    """
    from dpaudit.audits import plan as predict

    found = predict(
        settings.training(),
        settings.adversary,
        runs=settings.runs,
        canaries=settings.canaries,
        insertion=settings.insertion,
        delta=settings.delta,
        confidence=settings.confidence,
        seed=settings.seed,
        speed=settings.speed(),
        executor=executor,
    )
    if json:
        from dpaudit.cli._render import print_json

        print_json(found.to_dict())
    else:
        _print_plan(found, f"{settings.preset} by {settings.adversary.name}")


def _print_plan(found: Any, title: str) -> None:
    from rich.text import Text

    from dpaudit.audits.planning import PREDICTION
    from dpaudit.cli._audit_table import print_side_by_side
    from dpaudit.cli._render import console, duration

    screen = console()
    canaries = "" if found.canaries == 1 else f" with {found.canaries:,} canaries each"
    heading = f"{title}: what {found.runs:,} runs{canaries} should prove"
    screen.print(Text(heading, style="bold"))
    expected = (*found.uppers, *found.lower)
    print_side_by_side(screen, expected, leading=found.lower.bounds[0])
    lines = [
        f"Infinitely many runs should prove {found.epsilon:.2f} (mu = {found.mu:.3f}), if "
        f"{PREDICTION}.",
        *(
            f"{share:.0%} of that takes "
            + ("more than a million scores." if runs is None else f"{runs:,} runs.")
            for share, runs in found.runs_needed.items()
        ),
        f"About {duration(found.seconds)} on {found.device}: {found.speed.tile_size:,} runs at a "
        f"time in {found.speed.workers} process(es), {_size(found.bytes)} beside torch itself.",
        *found.notices,
    ]
    screen.print()
    for line in lines:
        screen.print(Text(line))


def _size(count: int) -> str:
    mebibytes = count / 2**20
    return f"{mebibytes:.0f} MiB" if mebibytes < 1024 else f"{mebibytes / 1024:.1f} GiB"
