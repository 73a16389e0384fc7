"""The game of a training function of the user's."""

from __future__ import annotations

import dataclasses
import functools
import platform
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, final

from dpaudit import _validate
from dpaudit.audits.game import Game, Results
from dpaudit.audits.identity import (
    AS_RETURNED,
    DescribedAdversary,
    DescribedTraining,
    Description,
    Sample,
)
from dpaudit.claims import Claim
from dpaudit.errors import DeadCanary, DpauditError, TrainingFailed
from dpaudit.executors import (
    Capacity,
    Executor,
    InProcess,
    Lost,
    Notify,
    check_pickles,
    refuse_in_worker,
)
from dpaudit.scores import Failure, ScoreBlock
from dpaudit.trainings.importing import Named
from dpaudit.trainings.player import CHECK, DESCRIBE, PROBE, TrainingPlayer, executor_of
from dpaudit.trainings.probe import Liveness
from dpaudit.trainings.run import failed_run

if TYPE_CHECKING:
    from dpaudit.checks import CheckResult


@final
class FunctionGame(Game):
    """A training function of the user's: one run is one call, and one tile."""

    needs_claim = True

    rules: Callable[[Any, Any], CheckResult] | None = None
    """What `check` calls with the training and the canary, in place of `check_training`."""

    def __init__(
        self,
        train: Any,
        adversary: Any = None,
        *,
        canary: Any = None,
        initial: Any = None,
        runs: int = 200,
        seed: int = 0,
        until_violation: bool = False,
        workers: int = 1,
        timeout: float | None = None,
        isolated: bool = False,
        capacity: Capacity | None = None,
    ) -> None:
        refuse_in_worker()
        workers = _validate.integer("workers", workers, at_least=1)
        self.device = platform.machine()
        self._player = TrainingPlayer(
            train=train,
            canary=canary,
            adversary=adversary,
            initial=initial,
            seed=_validate.integer("seed", seed),
        )
        if workers > 1 or isolated or capacity is not None:
            check_pickles(self._player)
        self._executor = executor_of(workers, timeout=timeout, isolated=isolated).__enter__()
        # Before the first run, the training is read where it is imported; an object, and a training
        # whose jobs may wait in a queue, are in this process.
        elsewhere = isinstance(train, Named) and capacity is None
        self._reader: Executor = self._executor if elsewhere else InProcess()
        try:
            facts = self._ask(self._player, DESCRIBE, lambda text: None)
            self._code, self._crafted = facts.code, facts.crafted
            self.unit, self.records = facts.unit, facts.records
            runs = _validate.runs(runs, canaries=facts.canaries)
        except BaseException:
            self.close()
            raise
        self.description = Description(
            mechanism=DescribedTraining(
                name=facts.name,
                source=facts.code.value,
                files=facts.code.modules,
                canary=facts.code.parts["canary"],
                initial=None if initial is None else facts.code.parts["initial"],
                tensors=facts.names,
            ),
            adversary=DescribedAdversary(name=facts.adversary or AS_RETURNED),
            runs=runs,
            canaries=facts.canaries,
            coin="half" if facts.canaries == 1 else "fair",
            seed=seed,
            until_violation=bool(until_violation),
        )

    def close(self) -> None:
        self._executor.__exit__(None, None, None)

    def _ask(self, player: TrainingPlayer, tile: int, notify: Notify) -> Any:
        """The result of a tile that comes before the runs."""
        ((_, result),) = self._reader.play(player, [tile], notify)
        if isinstance(result, Lost):
            raise TrainingFailed(f"the training could not be read: {result.reason}")
        return result

    def check(self, claim: Claim, notify: Notify) -> tuple[str, ...]:
        """`dpaudit check`, for crafted canaries and a claim of noise in every step."""
        rules = self.rules
        if rules is None:
            claimed = claim.to_dict().get("settings") or {}
            noise, steps = claimed.get("noise_multiplier"), claimed.get("steps")
            if noise is None or claimed.get("sampling_rate") is not None or not self._crafted:
                return ()
            rules = functools.partial(check_of, noise_multiplier=noise, steps=steps)
        player = dataclasses.replace(self._player, check=functools.partial(broken_rules, rules))
        broken: tuple[str, ...] = self._ask(player, CHECK, notify)
        return broken

    def executor(self, tiles: int) -> Executor:
        return self._executor

    def play(
        self, sample: Sample, tiles: Sequence[int], executor: Executor, notify: Notify
    ) -> Results:
        """Check the training on the first runs, unless that is done, then play the others.

        Every process that plays runs digests the code itself, and refuses to play other code.
        """
        player = dataclasses.replace(self._player, seed=sample.seed, code=self._code)
        played: dict[int, ScoreBlock | Failure] = {}

        def lost(run: int, result: Lost) -> Failure:
            reason = f"ProcessEnded: {result.reason} ({result.attempts} attempts)"
            return failed_run(run, sample.seed, self.description.canaries, reason)

        if "adversary" not in self.facts:
            first = dataclasses.replace(player, runs=tuple(tiles))
            ((_, shown),) = executor.play(first, [PROBE], notify)
            if isinstance(shown, Lost):
                played, liveness = {tiles[0]: lost(tiles[0], shown)}, Liveness()
            else:
                liveness = Liveness(**shown)
                played = dict(liveness.results)
            if liveness.problem:
                raise DeadCanary(liveness.problem)
            if liveness.kind is not None:
                self.facts = {
                    "adversary": liveness.kind,
                    "doubts": list(liveness.doubts),
                    "covers": liveness.covers,
                    **({"advice": liveness.advice} if liveness.advice else {}),
                    **({"alike": True} if liveness.alike else {}),
                }
        if self.facts.get("adversary", "own") != "own":
            player = dataclasses.replace(player, adversary=self.facts["adversary"])
        yield from played.items()
        rest = [run for run in tiles if run not in played]
        for run, result in executor.play(player, rest, notify):
            yield run, lost(run, result) if isinstance(result, Lost) else result
        self._code.require_unedited()


def check_of(train: Any, canary: Any, **claimed: Any) -> CheckResult:
    """`dpaudit check` of a training with a crafted canary."""
    from dpaudit.checks import check_training

    return check_training(train, canary, **claimed)


def broken_rules(
    check: Callable[[Any, Any], CheckResult], train: Any, canary: Any, notify: Notify
) -> tuple[str, ...]:
    """The rules that ``dpaudit check`` finds broken, as sentences."""
    try:
        result = check(train, canary)
    except DpauditError as error:
        notify(f"dpaudit check could not run: {str(error).splitlines()[0]}")
        return ()
    return tuple(
        f"dpaudit check finds the rule {finding.rule.name!r} broken: {finding.explanation}"
        for finding in result.broken
    )
