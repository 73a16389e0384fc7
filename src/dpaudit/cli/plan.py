"""``dpaudit plan``: what an audit will find and cost, before anything is trained."""

from __future__ import annotations

from typing import Any

from dpaudit.cli import _audit_options as option
from dpaudit.configuration import Settings


def plan(
    config: option.Config = None,
    preset: option.Preset = None,
    adversary: option.Adversary = None,
    runs: option.Runs = None,
    canaries: option.CanaryCount = None,
    steps: option.Steps = None,
    period: option.Period = None,
    noise_multiplier: option.NoiseMultiplier = None,
    clip_norm: option.ClipNorm = None,
    batch_size: option.BatchSize = None,
    learning_rate: option.LearningRate = None,
    delta: option.Delta = None,
    seed: option.Seed = None,
    data_dir: option.DataDir = None,
    device: option.Device = None,
    store: option.StoreFile = None,
    name: option.Name = None,
    scores_out: option.ScoresOut = None,
    json: option.Json = False,
) -> None:
    """Predict an audit: its bounds, the runs it takes, its time and memory.

    The prediction holds where genuine gradients leave the canary's dimension alone; for other
    canaries it is a ceiling. A few steps are timed, nothing is trained to its end or stored.

    [bold]dpaudit plan --period 5 --runs 1000[/]
    """
    settings = option.complete(
        config,
        Settings(
            preset=preset,
            adversary=adversary,
            runs=runs,
            canaries=canaries,
            steps=steps,
            period=period,
            noise_multiplier=noise_multiplier,
            clip_norm=clip_norm,
            batch_size=batch_size,
            learning_rate=learning_rate,
            delta=delta,
            seed=seed,
            data_dir=data_dir,
            device=device,
            store=store,
            name=name,
            scores_out=scores_out,
        ),
    )
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
    from dpaudit.cli._render import console

    screen = console()
    canaries = "" if found.canaries == 1 else f" with {found.canaries:,} canaries each"
    heading = f"{title}: what {found.runs:,} runs{canaries} should prove"
    screen.print(Text(heading, style="bold"))
    expected = (found.upper, *found.lower)
    print_side_by_side(screen, expected, leading=found.lower.bounds[0])
    lines = [
        f"Infinitely many runs should prove {found.epsilon:.2f} (mu = {found.mu:.3f}), if "
        f"{PREDICTION}.",
        *(
            f"{share:.0%} of that takes "
            + ("more than a million scores." if runs is None else f"{runs:,} runs.")
            for share, runs in found.runs_needed.items()
        ),
        f"About {_duration(found.seconds)} on {found.device}: {found.speed.tile_size:,} runs at a "
        f"time in {found.speed.workers} process(es), {_size(found.bytes)} beside torch itself.",
        *found.notices,
    ]
    screen.print()
    for line in lines:
        screen.print(Text(line))


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _size(count: int) -> str:
    mebibytes = count / 2**20
    return f"{mebibytes:.0f} MiB" if mebibytes < 1024 else f"{mebibytes / 1024:.1f} GiB"
