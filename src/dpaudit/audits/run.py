"""`audit`: one call from a training to the verdict on its claim. Tiles are stored as they come.

An audit has up to two phases. The first plays the runs that were asked for; all bounds come from
these. If they make the claim suspected, the second plays twice as many fresh runs, which decide
(`dpaudit.claims.policy`).
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, final

import numpy as np

from dpaudit import _validate
from dpaudit.audits.assessment import policy_of, watcher_of
from dpaudit.audits.game import Game
from dpaudit.audits.games import game_of
from dpaudit.audits.identity import CONFIRMING, Description, Question, Sample, claim_to_test
from dpaudit.audits.progress import Progress, default_progress
from dpaudit.audits.result import AuditResult, result_of
from dpaudit.audits.session import session
from dpaudit.claims import Claim
from dpaudit.claims.verdict import runs_to_refute
from dpaudit.errors import DpauditError, InvalidInput, StoreError, TrainingFailed
from dpaudit.executors import Executor, Notify
from dpaudit.privacy import DETECT, LEAST_POWER
from dpaudit.scores import AuditRecord, Failure, ScoreBlock, Store

if TYPE_CHECKING:
    from dpaudit.engine import Speed
    from dpaudit.mechanisms.dpsgd import DPSGD, Insertion
    from dpaudit.threat_models import Adversary
    from dpaudit.trainings.run import Train
    from dpaudit.trainings.scoring import AdversaryLike

StorePath = str | os.PathLike[str]

PATIENCE = 5
"""The audit gives up after this many failures with (or without) the canary and no success."""

_SECONDS_AT_RISK = 0.5
"""A commit waits for the disk, so results that are faster than this are written together."""


def audit(
    training: DPSGD | Train | str,
    adversary: Adversary | AdversaryLike = None,
    *,
    claim: Claim | None = None,
    claimed_epsilon: float | None = None,
    delta: float = 1e-5,
    runs: int | None = None,
    canaries: int | None = None,
    canary: Any = None,
    neighbours: Any = None,
    insertion: Insertion | None = None,
    confidence: float = 0.95,
    seed: int = 0,
    horizons: Sequence[int] | None = None,
    initial: Any = None,
    until_violation: bool = False,
    confirm: bool = True,
    max_runs: int | None = None,
    time_limit: float | None = None,
    anyway: bool = False,
    check: bool = False,
    detect: float = DETECT,
    power: float = LEAST_POWER,
    on_error: str = "record",
    name: str | None = None,
    store: Store | StorePath | None = None,
    reuse: bool = False,
    speed: Speed | None = None,
    workers: int | None = None,
    timeout: float | None = None,
    isolated: bool | None = None,
    progress: Progress | None = None,
    executor: Executor | None = None,
    call: str = "",
) -> AuditResult:
    r"""Train many models with and without canaries, and test the claim with their scores.

    The training is one that dpaudit runs itself (a `DPSGD` or the name of a preset, thousands of
    models at once), or a function ``train(canary, inserted, seed)`` of yours, in any framework. It
    inserts the canary if ``inserted`` is true, draws everything random from ``seed``, and returns
    what the adversary may see: the final parameters, `Predictions`, or a score of its own (a
    number, higher for "inserted").

    A single canary is in exactly half of the runs. With several canaries, a fair coin decides for
    each in every run. A violation is reported only if fresh runs confirm it, so that a correct
    training gets one with probability at most 0.1 %.

    See also: `dpaudit.plan` predicts the result without training; `dpaudit.estimate` reads scores
    from elsewhere; `GradientCanary`; `dpaudit.claims.judge`, the test behind the verdict.

    Paper: Cebere, Bellet, Papernot (ICLR 2025), Algorithms 1 and 4.

    Arguments:
        training: A `DPSGD`, the name of a preset, or a function; ``module:function`` and
            ``FILE.py:function`` are imported.
        adversary: For a `DPSGD`, an adversary that crafts the canaries and scores the models, or
            its name. For a function, ``"score"``, ``"parameters"``, ``"predictions"`` or a function
            of (canary, returned); by default chosen by what the training returns.
        claim: The privacy claim. By default that of the settings of a `DPSGD`; a function needs
            one, such as `Claim.from_dpsgd(...)`.
        claimed_epsilon: In place of ``claim``: an epsilon at ``delta``, read by
            `Claim.from_epsilon`, which states its assumption.
        delta: Delta of the claimed epsilon and of all bounds.
        runs: Number of trainings; by default 5,000 of a `DPSGD` and 200 of a function. It must be
            even if there is a single canary. Another number is a new sample.
        canaries: Canaries per run of a `DPSGD`.
        canary: Passed to a function unchanged; by default the ``canary`` beside it. For a
            `GradientCanary` of M > 1 canaries, ``inserted`` is an array of M fair coins.
        neighbours: In place of a canary: two data sets (D, D1) that differ in one record, or a
            function that returns them. The training is then a pipeline or any mechanism
            ``train(data, seed)``, and the adversary ``"learned"`` (a classifier that a quarter of
            the runs trains, and the others test), ``"length"`` of the update, or a function of
            (words, returned).
        insertion: The steps of a `DPSGD` at which canaries are inserted; every step by default.
        confidence: Confidence of each lower bound. The verdict does not depend on it.
        seed: Random seed.
        horizons: Further numbers of steps of a `DPSGD` to assess; each is the audit of a training
            that stops there.
        initial: The parameters at the start of a function's training, if they are the same in all
            runs: this removes noise from the scores.
        until_violation: Test the scores as they come, and stop as soon as a violation is proven;
            ``runs`` is then the largest number of runs.
        confirm: Whether fresh runs must confirm a violation. Without, one test at 5 % decides.
        max_runs: Largest number of runs, fresh ones included.
        time_limit: Seconds after which no fresh runs are begun or continued.
        anyway: Play even if this many runs cannot refute the claim, whatever their scores.
        check: For a function, run `dpaudit.check_training` first, where canary and claim allow it,
            or `dpaudit.check_pipeline` with ``neighbours``; the verdict of a training that breaks a
            rule cannot be ``consistent``.
        detect: Noise of this fraction of the claimed noise must be detectable for the verdict
            ``consistent``; 0.5 means noise that is halved by mistake.
        power: Probability with which such noise must be detected.
        on_error: ``"record"`` keeps the traceback of a failed run and continues; ``"stop"`` raises
            it.
        name: The name of the audit in the store.
        store: A file, or an open `dpaudit.Store`, in which results are kept. The same call resumes
            an interrupted audit of the same code. Without a store nothing is kept.
        reuse: Read a finished audit of the same name and settings, in place of playing it again;
            another claim than its own is tested as `read_result` does.
        speed: Device, precision and other settings of a `DPSGD` that do not affect privacy.
        workers: Number of processes that call a function at the same time.
        timeout: Seconds after which a function is stopped; the run counts as failed.
        isolated: Whether a single worker of a function has a process of its own.
        progress: Progress callback; by default a bar in notebooks, and none elsewhere.
        executor: Schedules the tiles; by default processes of this machine.
        call: The command that was called, for the report; empty for this call.

    Example:
        >>> import numpy as np
        >>> from dpaudit import Claim, GradientCanary
        >>> canary = GradientCanary.draw(10, clip_norm=1.0)
        >>> def train(canary, inserted, seed):
        ...     noise = np.random.default_rng(seed).normal(0.0, 0.5, 10)  # should be 1.0
        ...     return -(canary.clipped_sum(inserted) + noise)
        >>> audit(train, canary=canary, claim=Claim.from_mu(1.0), runs=200).verdict
        'violation'
    """
    began = time.perf_counter()
    question = Question(
        claim=claim_to_test(claim, claimed_epsilon, delta),
        delta=delta,
        confidence=confidence,
        detect=detect,
        power=power,
        confirm=bool(confirm),
    )
    _validate.one_of("on_error", on_error, ("record", "stop"))
    if max_runs is not None:
        _validate.integer("max_runs", max_runs, at_least=1)
    if time_limit is not None:
        _validate.positive("time_limit", time_limit)
    name = _validate.label("name", name)
    for what, given, kind, wanted in (
        ("progress", progress, Progress, "an object of a class derived from Progress"),
        ("executor", executor, Executor, "an Executor such as LocalProcesses(workers=2)"),
    ):
        if given is not None and not isinstance(given, kind):
            raise InvalidInput(f"{what} must be {wanted}, got {_validate.shown(given)}")
    if not isinstance(store, Store | None):
        store = _validate.path("store", store)
    with default_progress() if progress is None else progress as shown, ExitStack() as stack:
        notices: dict[str, None] = {}

        def notify(text: str) -> None:
            if text not in notices:  # each once
                notices[text] = None
                shown.notice(text)

        def accept(game: Game) -> Claim | None:
            return _check_claim(game, question, anyway=anyway)

        shown.stage("crafting")
        game = game_of(
            training,
            adversary,
            neighbours=neighbours,
            **({} if neighbours is None else {"notify": notify, "accept": accept}),
            runs=runs,
            canaries=canaries,
            canary=canary,
            insertion=insertion,
            seed=seed,
            horizons=horizons,
            initial=initial,
            until_violation=until_violation,
            speed=speed,
            workers=workers,
            timeout=timeout,
            isolated=isolated,
            capacity=None if executor is None else executor.capacity(),
        )
        stack.callback(game.close)
        if executor is not None:
            stack.enter_context(executor)
        claimed = accept(game)
        if store is not None and not isinstance(store, Store):  # an open one stays open
            store = stack.enter_context(Store.open(store))  # not before everything is checked
        record = None if store is None else begin(store, name, game, reuse=reuse)
        other_claim = False
        if record is not None and record.finished is not None:
            other_claim = question.claim != Question.from_dict(record.summary["question"]).claim
        player = _Player(
            game=game,
            record=record,
            question=question,
            progress=shown,
            notify=notify,
            stop=on_error == "stop",
            executor=executor,
            audit=secrets.token_hex(8) if record is None else record.id,
            facts={} if record is None else record.summary,
            tiles=({}, {}) if record is None else (record.tiles(0), record.tiles(1)),
            other_claim=other_claim,
            max_runs=max_runs,
            time_limit=time_limit,
            began=began,
        )
        if record is not None:
            record.annotate({"question": question.to_dict()})
        player.learn({"call": call})
        if check and claimed is not None and "broken" not in player.facts:
            shown.stage("checking rules")
            player.learn({"broken": game.check(claimed, notify)})
        player.play(game.description.sample(0))
        shown.stage("bounds")
        result = player.result(name)
        test = result.final.test
        if test is not None and test.to_confirm and question.confirm:
            sample = game.description.sample(1)
            if player.may_confirm(sample, result.runs):
                shown.notice(
                    f"suspected (p = {test.p_value:.2g}): {sample.runs:,} fresh runs decide"
                )
                player.play(sample)
                shown.stage("bounds")
                result = player.result(name)
        if not result.finished:  # no verdict while runs have neither a score nor a failure
            raise DpauditError(
                f"{result.runs:,} of {result.asked:,} runs have a score or a recorded failure; "
                "repeat the same call to play the others"
            )
        result = replace(
            result,
            seconds=time.perf_counter() - began,
            notices=(*notices, *result.notices),
        )
        if record is not None:
            record.finish(result.stored())
        return result


def begin(store: Store, name: str | None, game: Game, *, reuse: bool = False) -> AuditRecord:
    """The record of an audit; the game continues an unfinished one of the same settings and code.

    The tile size may have been chosen from the memory that was free when the audit was started.
    Its tiles are numbered by it, so that a resumed audit keeps it unless the user asks for another.
    """
    wanted, described = game.description, game.description.to_dict()
    versions = session(game.device)
    for record in store.named(name, unfinished=not reuse):
        try:
            stored = Description.of(record)
        except StoreError:  # of another program
            continue
        chosen = {choice: getattr(stored.speed, choice) for choice in game.left_open}
        if replace(wanted, speed=replace(wanted.speed, **chosen)) == stored:
            if record.finished is None:
                record = store.begin(name, record.configuration, versions)
            game.resume(stored, record.summary)
            return record
    record = store.begin(name, described, versions)
    game.resume(wanted, {})
    return record


@final
@dataclass(kw_only=True)
class _Player:
    """Plays the samples of one audit, and stores their tiles as they come."""

    game: Game
    record: AuditRecord | None
    question: Question
    progress: Progress
    notify: Notify
    stop: bool
    executor: Executor | None
    audit: str
    facts: dict[str, Any]
    tiles: tuple[dict[int, ScoreBlock | Failure], ...]
    other_claim: bool
    max_runs: int | None
    time_limit: float | None
    began: float
    resumed: int = 0
    _waiting: list[tuple[int, ScoreBlock | Failure]] = field(default_factory=list)
    _written: float = field(default_factory=time.perf_counter)

    def learn(self, facts: Mapping[str, Any]) -> None:
        """Add facts about the audit; a finished one, which is read again, keeps its own."""
        if self.record is not None:
            self.record.annotate(facts)
        if self.record is None or self.record.finished is None:
            self.facts |= facts

    def result(self, name: str | None) -> AuditResult:
        """What the tiles show."""
        tiles, fresh = ([tile for _, tile in sorted(numbered.items())] for numbered in self.tiles)
        return result_of(
            self.game.description,
            self.question,
            tiles,
            fresh,
            self.facts,
            other_claim=self.other_claim,
            audit=self.audit,
            name=name,
            device=self.game.device,
            resumed=self.resumed,
        )

    def may_confirm(self, sample: Sample, runs: int) -> bool:
        """Whether fresh runs may be played after so many runs: they take time in proportion."""
        seconds = time.perf_counter() - self.began
        if self.max_runs is not None and runs + sample.runs > self.max_runs:
            return False
        return self.time_limit is None or (1 + CONFIRMING) * seconds <= self.time_limit

    def play(self, sample: Sample) -> None:
        """Play the tiles of a sample that the store lacks, until a violation is proven."""
        game, record, progress = self.game, self.record, self.progress
        tiles = self.tiles[sample.phase]
        missing = [tile for tile in sample.tiles if tile not in tiles]
        resumed = sum(len(sample.runs_of(tile)) for tile in tiles)
        self.resumed += resumed
        if resumed and record is not None and record.finished is None:
            self.notify(
                f"audit {record.label} of {record.created} is resumed: {resumed:,} of "
                f"{sample.runs:,} runs are stored"
            )
        watcher = watcher_of(game.description, self.question, self.tiles[0].values())
        progress.stage("training" if sample.phase == 0 else "confirming")
        progress.begin(runs=sample.runs, done=resumed)
        if not missing or (watcher is not None and watcher.refuted):
            return
        executor = self.executor or game.executor(len(missing))
        executor.label = f"{self.audit}-{sample.phase}"
        progress.watch(executor.status)
        if "scipy.stats" not in sys.modules:  # bounds need it; training is outside of Python's lock
            threading.Thread(target=import_module, args=("scipy.stats",), daemon=True).start()
        single = game.description.canaries == 1
        failures = _FailurePolicy(tiles.values(), single=single, stop=self.stop)
        results = game.play(sample, missing, executor, self.notify)
        facts = None
        with contextlib.closing(results) as played, ExitStack() as stack:
            if record is not None:
                stack.callback(self._write, record, sample.phase)
            for tile, result in played:
                if game.facts is not facts:  # the first trainings have shown them
                    facts = game.facts
                    self.learn(facts)
                self._keep(sample.phase, failures.released(tile, result))
                progress.advance(len(sample.runs_of(tile)))
                if watcher is not None:
                    watcher.see(result)
                    if watcher.refuted:
                        return
                seconds = time.perf_counter() - self.began
                if sample.phase and self.time_limit is not None and seconds > self.time_limit:
                    return
            for waiting in failures.waiting.values():
                self._keep(sample.phase, waiting)

    def _keep(self, phase: int, results: Sequence[tuple[int, ScoreBlock | Failure]]) -> None:
        """Keep finished tiles; a commit waits for the disk, so that it is not done for each."""
        self.tiles[phase].update(results)
        if self.record is not None:
            self._waiting += results
            if time.perf_counter() - self._written > _SECONDS_AT_RISK:
                self._write(self.record, phase)

    def _write(self, record: AuditRecord, phase: int) -> None:
        """Store what is kept."""
        waiting, self._waiting = self._waiting, []
        if waiting:
            record.add_tiles(waiting, phase)
        self._written = time.perf_counter()


@final
class _FailurePolicy:
    """Decides what happens to a run that failed, and gives up when all first runs fail.

    Failures are released for storing after the first success with (or without) the canary. A
    training that cannot run at all, for example because a file is missing, leaves nothing in the
    store, and can be repaired and audited again. With ``stop`` the first failure is raised and not
    stored, so that the same call tries it again.
    """

    def __init__(self, stored: Any, *, single: bool, stop: bool) -> None:
        self._stop, self._single = stop, single
        self.waiting: defaultdict[bool | None, list[tuple[int, Any]]] = defaultdict(list)
        """The failures that are not released yet, of each group."""
        blocks = [tile for tile in stored if isinstance(tile, ScoreBlock)]
        self._succeeded = {group for block in blocks for group in self._groups(block.inserted)}

    def _groups(self, inserted: Any) -> set[bool | None]:
        return set(np.unique(inserted).astype(bool).tolist()) if self._single else {None}

    def released(self, tile: int, result: ScoreBlock | Failure) -> list[tuple[int, Any]]:
        """The results to store now that this one is known."""
        if isinstance(result, ScoreBlock):
            groups = self._groups(result.inserted)
            self._succeeded |= groups
            return [(tile, result), *(tile for g in groups for tile in self.waiting.pop(g, []))]
        if self._stop:
            raise TrainingFailed(f"run {tile} failed with {result.error}\n{result.traceback}")
        (group,) = self._groups(result.inserted)
        if group in self._succeeded:
            return [(tile, result)]
        self.waiting[group].append((tile, result))
        if len(self.waiting[group]) >= PATIENCE:
            which = {True: "with the canary ", False: "without the canary ", None: ""}[group]
            array = (
                f" ('inserted' is an array of {result.canaries} coins, one for each canary)"
                if group is None
                else ""
            )
            raise TrainingFailed(
                f"the first {PATIENCE} trainings {which}all failed, the last (run {tile}) with "
                f"{result.error}{array}\n{result.traceback}"
            )
        return []


def _check_claim(game: Game, question: Question, *, anyway: bool) -> Claim | None:
    """The claim; refuses, before anything is trained, an audit that could not refute it."""
    description = game.description
    claim = question.claim or description.claim(max(description.horizons, default=0))
    if claim is None and game.needs_claim:
        raise InvalidInput(
            "a claim is needed: give claim, such as Claim.from_dpsgd(noise_multiplier=..., "
            "steps=..., sampling_rate=...), or claimed_epsilon and delta"
        )
    if claim is not None and claim.unit != game.unit:
        raise InvalidInput(
            f"claim must be for the unit that the canary is, a {game.unit}; got {claim!r} for a "
            f"{claim.unit}: use claim.per({game.unit!r}) (--unit {game.unit}) if that is what is "
            f"claimed, or a canary drawn with unit={claim.unit!r}"
        )
    if claim is not None and claim.records is not None and game.records > claim.records:
        raise InvalidInput(
            f"claim must be for a {game.unit} with {game.records} records, which the canary has; "
            f"got {claim!r}"
        )
    if claim is None or anyway:
        return claim
    needed = runs_to_refute(
        claim,
        policy=policy_of(description, question),
        canaries=description.canaries,
        names=description.names,
        private_gradients=description.training is None,
        anytime=description.until_violation,
    )
    if needed is not None and needed <= description.runs:
        return claim
    remedy = (
        "so weak a claim cannot be tested by an audit; audit fewer steps, with their claim"
        if needed is None
        else f"use at least {needed:,} (--runs {needed})"
    )
    raise InvalidInput(
        f"runs must be large enough to refute the claim, {claim.description}, got "
        f"{description.runs:,}: even perfect scores of so many could not; {remedy}, or play them "
        "anyway (anyway=True, --anyway)"
    )
