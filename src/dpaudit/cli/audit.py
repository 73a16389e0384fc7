"""``dpaudit audit``: train many models and compute bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpaudit.cli import _audit_options as option
from dpaudit.cli._playing import played, print_audit
from dpaudit.configuration import CompleteSettings

if TYPE_CHECKING:
    from dpaudit.executors import Executor


@option.takes_settings
def audit(settings: CompleteSettings, json: bool, executor: Executor | None) -> None:
    """Audit a DP-SGD training: a lower bound on epsilon, beside the accountant's upper bound.

    Without options: a small network on California Housing, trained 5,000 times.
    Half of the trainings have a crafted gradient at every step.

    Canary at every fifth step, by another adversary:
    [bold]dpaudit audit --period 5 --adversary random-direction[/]

    One training with 20,000 canaries:
    [bold]dpaudit audit --preset convnet --runs 1 --canaries 20000 --data-dir ~/data[/]

    After an interruption, the same command resumes the audit.
    """
    from dpaudit.audits import audit as play

    result = played(
        play,
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
        executor=executor,
        quiet=json,
    )
    print_audit(result, store=settings.store, scores_out=settings.scores_out, json=json)
