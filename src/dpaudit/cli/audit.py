"""``dpaudit audit``: play the game and read the bounds."""

from __future__ import annotations

import sys
from typing import Any

from dpaudit.cli import _audit_options as option
from dpaudit.configuration import CompleteSettings


@option.takes_settings
def audit(settings: CompleteSettings, json: bool) -> None:
    """Audit a DP-SGD training: what its final model proves, beside what an accountant promises.

    Without options: a small network on California Housing, trained 5,000 times.
    Half of the trainings have a crafted gradient at every step.

    Canary at every fifth step, by another adversary:
    [bold]dpaudit audit --period 5 --adversary random-direction[/]

    One training with 20,000 canaries:
    [bold]dpaudit audit --preset convnet --runs 1 --canaries 20000 --data-dir ~/data[/]

    Interrupted? The same command goes on where it stopped.
    """
    result = _play(settings, quiet=json)
    if settings.scores_out is not None:
        from dpaudit.scores import write_scores

        write_scores(result.scores, settings.scores_out)
    if json:
        from dpaudit.cli._render import print_json

        print_json({**result.to_dict(), "store": settings.store})
    else:
        from dpaudit.cli._audit_table import print_result

        print_result(result, where=settings.store)


def _play(settings: CompleteSettings, *, quiet: bool) -> Any:
    from dpaudit.audits import Bar, Silent, audit

    progress = Silent() if quiet else Bar()
    try:
        return audit(
            settings.training(),
            settings.adversary,
            runs=settings.runs,
            canaries=settings.canaries,
            insertion=settings.insertion,
            delta=settings.delta,
            confidence=settings.confidence,
            seed=settings.seed,
            horizons=settings.horizons,
            name=settings.name,
            store=settings.store,
            speed=settings.speed(),
            progress=progress,
        )
    except KeyboardInterrupt:
        if isinstance(progress, Bar) and progress.runs:
            print(
                f"dpaudit: {progress.done:,} of {progress.runs:,} runs are kept in "
                f"{settings.store}; the same command goes on from there",
                file=sys.stderr,
            )
        raise
