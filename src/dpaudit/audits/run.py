"""`audit`: one call from a training to the verdict on its claim. Tiles are stored as they come.

An audit has up to two phases. The first plays the runs that were asked for; all bounds come from
these. If they make the claim suspected, the second plays twice as many fresh runs, which decide
(`dpaudit.claims.policy`).
"""

from __future__ import annotations

import contextlib
import os
import platform
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, final

import numpy as np

from dpaudit import _validate
from dpaudit._version import __version__
from dpaudit.audits.assessment import policy_of, watcher_of
from dpaudit.audits.games import Game, game_of
from dpaudit.audits.identity import CONFIRMING, Description, Question, Sample, claim_to_test
from dpaudit.audits.progress import Progress, default_progress
from dpaudit.audits.result import AuditResult, read_result
from dpaudit.claims import Claim
from dpaudit.claims.verdict import runs_to_refute
from dpaudit.errors import DpauditError, InvalidInput, StoreError, TrainingFailed
from dpaudit.executors import Executor, Notify
from dpaudit.lower_bounds import estimate
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

SECONDS_BETWEEN_BOUNDS = 2.0

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
        reuse: Read a finished audit of the same name and settings, in place of playing it again.
        speed: Device, precision and other settings of a `DPSGD` that do not affect privacy.
        workers: Number of processes that call a function at the same time.
        timeout: Seconds after which a function is stopped; the run counts as failed.
        isolated: Whether a single worker of a function has a process of its own.
        progress: Progress callback; by default a bar in notebooks, and none elsewhere.
        executor: Schedules the tiles; by default processes of this machine.
        call: The command that was called, for the report; by default this call.

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
        delta=float(_validate.delta(delta)),
        confidence=float(_validate.confidence(confidence)),
        detect=_validate.between("detect", detect, 0, 1),
        power=_validate.between("power", power, 0, 1, closed_low=True),
        confirm=bool(confirm),
    )
    _validate.one_of("on_error", on_error, ("record", "stop"))
    limits = _Limits(max_runs, time_limit, began)
    name = _validate.label("name", name)
    _check_kind("progress", progress, Progress, "an object of a class derived from Progress")
    _check_kind("executor", executor, Executor, "an Executor such as LocalProcesses(workers=2)")
    if not isinstance(store, Store | None):
        store = _validate.path("store", store)
    with default_progress() if progress is None else progress as shown, ExitStack() as stack:
        notices: dict[str, None] = {}

        def notify(text: str) -> None:
            if text not in notices:  # each once
                notices[text] = None
                shown.notice(text)

        shown.stage("crafting")
        game = game_of(
            training,
            adversary,
            neighbours=neighbours,
            notify=None if neighbours is None else notify,
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
        claimed = _check_claim(game, question, anyway=anyway)
        if not isinstance(store, Store):  # a store that the user opened stays open
            # Not before everything is checked.
            store = stack.enter_context(Store.open(":memory:" if store is None else store))
        record = begin(store, name, game, reuse=reuse)
        player = _Player(
            game, record, question, shown, notify, on_error=on_error, executor=executor
        )
        called = call or _call(game.description, question)
        record.annotate({"question": question.to_dict(), "call": called})
        if check and claimed is not None and "broken" not in record.summary:
            shown.stage("checking rules")
            record.annotate({"broken": game.check(claimed, notify)})
        player.play(game.description.sample(0))
        result = read_result(record)
        if result.test is not None and result.test.to_confirm and question.confirm:
            sample = game.description.sample(1)
            if limits.allow(sample, result.runs, time.perf_counter() - began):
                shown.notice(
                    f"suspected (p = {result.test.p_value:.2g}): {sample.runs:,} fresh runs decide"
                )
                player.play(sample, limits)
        shown.stage("bounds")
        result = read_result(
            record,
            seconds=time.perf_counter() - began,
            device=game.device,
            resumed=player.resumed,
            notices=tuple(notices),
        )
        if not result.finished:  # no verdict while runs have neither a score nor a failure
            raise DpauditError(
                f"{result.runs:,} of {result.asked:,} runs have a score or a recorded failure; "
                "repeat the same call to play the others"
            )
        record.finish(result.stored())
        return result


def begin(store: Store, name: str | None, game: Game, *, reuse: bool = False) -> AuditRecord:
    """The record of an audit; the game continues an unfinished one of the same settings and code.

    The tile size may have been chosen from the memory that was free when the audit was started.
    Its tiles are numbered by it, so that a resumed audit keeps it unless the user asks for another.

    Arguments:
        store: The store.
        name: The name of the audit, if the user gave one.
        game: What is played.
        reuse: Also continue with a finished audit, whose runs are then read.
    """
    wanted, described = game.description, game.description.to_dict()
    versions = {
        "dpaudit": __version__,
        "python": platform.python_version(),
        **{one: import_module(one).__version__ for one in ("numpy", *game.software)},
        "device": game.device,
    }
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
class _Player:
    """Plays the samples of one audit and stores their tiles as they come.

    Arguments:
        game: What is played.
        record: Where tiles are stored.
        question: What is asked of the scores.
        progress: Progress callback.
        notify: Passes one line to the user.
        on_error: ``stop`` raises the failure of a run.
        executor: Schedules the tiles; by default that of the game.
    """

    def __init__(
        self,
        game: Game,
        record: AuditRecord,
        question: Question,
        progress: Progress,
        notify: Notify,
        *,
        on_error: str,
        executor: Executor | None,
    ) -> None:
        self._game, self._record, self._question = game, record, question
        self._progress, self._stop, self._executor = progress, on_error == "stop", executor
        self._waiting: list[tuple[int, ScoreBlock | Failure]] = []
        self._written = self._shown = time.perf_counter()
        self._notify = notify
        self.resumed = 0

    def play(self, sample: Sample, limits: _Limits | None = None) -> None:
        """Play the tiles of a sample that the store lacks, until a violation is proven."""
        game, record, progress = self._game, self._record, self._progress
        done = record.finished_tiles(sample.phase)
        missing = [tile for tile in sample.tiles if tile not in done]
        resumed = sum(len(sample.runs_of(tile)) for tile in done)
        self.resumed += resumed
        if resumed and record.finished is None:
            self._notify(
                f"audit {record.label} of {record.created} is resumed: {resumed:,} of "
                f"{sample.runs:,} runs are stored"
            )
        watcher = watcher_of(game.description, self._question, record.tiles().values())
        progress.stage("training" if sample.phase == 0 else "confirming")
        progress.begin(runs=sample.runs, done=resumed)
        if not missing or (watcher is not None and watcher.refuted):
            return
        executor = self._executor or game.executor(len(missing))
        executor.label = f"{record.id}-{sample.phase}"
        progress.watch(executor.status)
        if "scipy.stats" not in sys.modules:  # bounds need it; training is outside of Python's lock
            threading.Thread(target=import_module, args=("scipy.stats",), daemon=True).start()
        failures = _FailurePolicy(
            record.tiles(sample.phase).values(),
            single=game.description.canaries == 1,
            stop=self._stop,
        )
        results = game.play(sample, missing, executor, self._notify)
        facts = None
        with contextlib.closing(results) as played, ExitStack() as stack:
            stack.callback(self._write, sample.phase)
            for tile, result in played:
                if game.facts is not facts:  # the first trainings have shown them
                    facts = game.facts
                    record.annotate(facts)
                self._waiting += failures.released(tile, result)
                if time.perf_counter() - self._written > _SECONDS_AT_RISK:
                    self._write(sample.phase)
                progress.advance(len(sample.runs_of(tile)))
                if watcher is not None:
                    watcher.see(result)
                    if watcher.refuted:
                        return
                elif progress.wants_bounds:
                    self._show_bound(sample.phase)
                if limits is not None and limits.over:
                    return
            self._waiting += failures.rest()

    def _write(self, phase: int) -> None:
        """Store what is finished; a commit waits for the disk, so that it is not done for each."""
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._record.add_tiles(waiting, phase)
        self._written = time.perf_counter()

    def _show_bound(self, phase: int) -> None:
        """Report the bound so far, every few seconds."""
        if time.perf_counter() - self._shown < SECONDS_BETWEEN_BOUNDS:
            return
        self._write(phase)
        with contextlib.suppress(DpauditError):  # too early: one group has no score yet
            scores = self._record.scores(phase=phase)
            bound = estimate(scores, delta=self._question.delta, method="gaussian-dp")
            self._progress.bound(bound.epsilon)
        self._shown = time.perf_counter()


@final
class _Limits:
    """What the confirmation may cost."""

    def __init__(self, max_runs: int | None, time_limit: float | None, began: float) -> None:
        if max_runs is not None:
            _validate.integer("max_runs", max_runs, at_least=1)
        if time_limit is not None:
            _validate.positive("time_limit", time_limit)
        self._max_runs, self._time_limit, self._began = max_runs, time_limit, began

    @property
    def over(self) -> bool:
        """Whether the time is over."""
        elapsed = time.perf_counter() - self._began
        return self._time_limit is not None and elapsed > self._time_limit

    def allow(self, sample: Sample, runs: int, seconds: float) -> bool:
        """Whether fresh runs fit: so many after so many runs, which took so many seconds."""
        if self._max_runs is not None and runs + sample.runs > self._max_runs:
            return False
        return self._time_limit is None or (1 + CONFIRMING) * seconds <= self._time_limit


@final
class _FailurePolicy:
    """Decides what happens to a run that failed, and gives up when all first runs fail.

    Failures are released for storing after the first success with (or without) the canary. A
    training that cannot run at all, for example because a file is missing, leaves nothing in the
    store, and can be repaired and audited again.

    Arguments:
        stored: The tiles in the store, whose successes count.
        single: Whether there is one canary per run; runs with several canaries form one group.
        stop: Raise at the first failure. It is not stored, so that the same call tries it again.
    """

    def __init__(self, stored: Any, *, single: bool, stop: bool) -> None:
        self._stop, self._single = stop, single
        self._waiting: defaultdict[bool | None, list[tuple[int, Any]]] = defaultdict(list)
        blocks = [tile for tile in stored if isinstance(tile, ScoreBlock)]
        self._succeeded = {group for block in blocks for group in self._groups(block.inserted)}

    def _groups(self, inserted: Any) -> set[bool | None]:
        return set(np.unique(inserted).astype(bool).tolist()) if self._single else {None}

    def released(self, tile: int, result: ScoreBlock | Failure) -> list[tuple[int, Any]]:
        """The results to store now that this one is known."""
        if isinstance(result, ScoreBlock):
            groups = self._groups(result.inserted)
            self._succeeded |= groups
            return [(tile, result), *(one for g in groups for one in self._waiting.pop(g, []))]
        if self._stop:
            raise TrainingFailed(f"run {tile} failed with {result.error}\n{result.traceback}")
        (group,) = self._groups(result.inserted)
        if group in self._succeeded:
            return [(tile, result)]
        self._waiting[group].append((tile, result))
        if len(self._waiting[group]) >= PATIENCE:
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

    def rest(self) -> list[tuple[int, Any]]:
        """The failures that are not stored when all runs are done."""
        return [result for waiting in self._waiting.values() for result in waiting]


def _check_kind(name: str, value: object, kind: type, wanted: str) -> None:
    if value is not None and not isinstance(value, kind):
        raise InvalidInput(f"{name} must be {wanted}, got {_validate.shown(value)}")


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
            f"{claim.unit}: use claim.per({game.unit!r}) if that is what is claimed, or a canary "
            f"drawn with unit={claim.unit!r}"
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


def _call(description: Description, question: Question) -> str:
    """The call in Python, as far as it is known."""
    claim = "" if question.claim is None else f"claim={question.claim!r}, "
    return (
        f"dpaudit.audit({description.mechanism.name.rpartition(':')[2]}, ..., {claim}"
        f"runs={description.runs}, seed={description.seed}, delta={question.delta!r})"
    )
