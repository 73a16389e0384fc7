"""One call from a training to its bounds: `audit` and `audit_training`."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dpaudit import _validate
from dpaudit._version import __version__
from dpaudit.audits.description import DescribedAdversary, DescribedTraining, Description
from dpaudit.audits.playing import FailurePolicy, Tiles
from dpaudit.audits.progress import Progress, Silent
from dpaudit.audits.recording import begin
from dpaudit.audits.result import AuditResult
from dpaudit.audits.stored import read_result
from dpaudit.audits.watching import Watcher
from dpaudit.claims import Claim
from dpaudit.errors import InvalidInput, MissingExtra
from dpaudit.executors import Executor, Lost, check_pickles, refuse_in_worker
from dpaudit.mechanisms.dpsgd import DPSGD, Insertion
from dpaudit.scores import AuditRecord, Store
from dpaudit.threat_models import Adversary, audited_mechanism
from dpaudit.trainings.identity import Identity, digest, name_of
from dpaudit.trainings.liveness import DeadCanary, Liveness, check_function
from dpaudit.trainings.parameters import flat_parameters
from dpaudit.trainings.player import PROBE, TrainingPlayer, executor_of
from dpaudit.trainings.playing import Job, Train
from dpaudit.trainings.scoring import AdversaryLike, Scorer

if TYPE_CHECKING:
    from dpaudit.engine import Speed
    from dpaudit.games import Game

StorePath = str | os.PathLike[str]


def audit(
    mechanism: DPSGD,
    adversary: Adversary,
    *,
    runs: int = 5000,
    canaries: int = 1,
    insertion: Insertion | None = None,
    delta: float = 1e-5,
    confidence: float = 0.95,
    seed: int = 0,
    horizons: Sequence[int] = (),
    name: str | None = None,
    store: Store | StorePath | None = None,
    speed: Speed | None = None,
    progress: Progress | None = None,
    executor: Executor | None = None,
) -> AuditResult:
    r"""Train many models with and without canaries, and compute bounds from the scores.

    A single canary is in exactly half of the runs. With several canaries, a fair coin decides for
    each in every run, which is what the bounds for one run need.

    See also: `dpaudit.plan` predicts the result without training; `dpaudit.estimate` reads scores
    from elsewhere; `dpaudit.audit_training` audits a training of your own.

    Paper: Cebere, Bellet, Papernot (ICLR 2025), Algorithms 1 and 4.

    Arguments:
        mechanism: The training.
        adversary: Crafts the canaries and scores the trained models.
        runs: Number of trainings; even for a single canary.
        canaries: Canaries per run.
        insertion: The steps at which canaries are inserted; every step by default.
        delta: Delta at which all bounds are computed.
        confidence: Confidence of each lower bound and of the test of the claim.
        seed: Random seed.
        horizons: Further numbers of steps to assess; each is the audit of a training that stops
            there.
        name: The name of the audit in the store; the same name with other settings is refused.
        store: A file, or an open `dpaudit.Store`, in which results are kept. The same call resumes
            an interrupted audit. Without a store nothing is kept.
        speed: Device, precision and other settings that do not affect privacy.
        progress: Progress callback; none by default.
        executor: Schedules the tiles; by default as many processes as ``speed`` has workers.

    Example:
        >>> from dpaudit.adversaries import RandomDimension
        >>> from dpaudit.testing import easy_training
        >>> training = easy_training(noise_multiplier=2.0)
        >>> result = audit(training, RandomDimension(), runs=200)
        >>> result.upper["gaussian"]
        Bound(epsilon <= 11.4800 at delta=1e-05, gaussian)
        >>> result.scores
        Scores(100 inserted, 100 not, 200 runs)
    """
    began = time.perf_counter()
    _validate.delta(delta)
    _validate.confidence(confidence)
    game, asked = make_game(
        mechanism,
        adversary,
        runs=runs,
        canaries=canaries,
        insertion=Insertion() if insertion is None else insertion,
        seed=seed,
        horizons=horizons,
        speed=speed,
    )
    from dpaudit.audits._describing import describe_game, device_name, versions
    from dpaudit.games import executor_for, play, prepare

    ready = prepare(game, asked)
    if executor is not None:
        ready = ready.spread_over(executor.capacity(), keep=asked.tile_size is not None)
    device = ready.speed.torch_device()
    left_open = {"tile_size": asked.tile_size is None, "compile": asked.compile == "auto"}
    with open_store(store) as opened, _Notices(progress) as notices:
        record, description, remarks = begin(
            opened,
            name,
            describe_game(ready),
            versions(device),
            open_choices=[choice for choice, is_open in left_open.items() if is_open],
        )
        settled = description.speed
        ready = ready.at(replace(ready.speed, tile_size=settled.tile_size, compile=settled.compile))
        for remark in remarks:
            notices.notify(remark)
        tiles = Tiles(record, description, progress=notices.progress, delta=delta, runs=game.runs)
        tiles.begin()
        done = record.finished_tiles()
        chosen = executor_for(ready, done) if executor is None else executor
        chosen.label = record.id
        notices.progress.watch(chosen.status)
        tiles.keep(play(ready, done=done, notify=notices.notify, executor=chosen))
        return _finished(
            record,
            delta=delta,
            confidence=confidence,
            began=began,
            device=device_name(device),
            resumed=tiles.resumed,
            notices=notices.seen,
        )


def audit_training(
    train: Train,
    *,
    canary: Any = None,
    claim: Claim | None = None,
    claimed_epsilon: float | None = None,
    delta: float = 1e-5,
    runs: int = 200,
    confidence: float = 0.95,
    seed: int = 0,
    workers: int = 1,
    store: Store | StorePath | None = None,
    name: str | None = None,
    adversary: AdversaryLike = None,
    initial: Any = None,
    on_error: str = "record",
    until_violation: bool = False,
    progress: Progress | None = None,
    executor: Executor | None = None,
    timeout: float | None = None,
    detect: float = 0.5,
    power: float = 0.8,
    fresh: bool = False,
) -> AuditResult:
    r"""Audit your own training, in any framework, and test its privacy claim.

    ``train(canary, inserted, seed)`` trains one model. It inserts the canary if ``inserted`` is
    true, draws everything random from ``seed``, and returns what the adversary may see: the final
    parameters, `Predictions`, or a score of its own (a number, higher for "inserted").

    Before anything else, one pair of trainings with the same seed shows whether the canary has an
    effect at all. A training that ignores it is refused.

    See also: `dpaudit.audit`, for a training described to dpaudit, which is much faster;
    `GradientCanary`; `dpaudit.test_claim`, the test behind the verdict.

    Paper: Cebere, Bellet, Papernot (ICLR 2025), Algorithm 1.

    Arguments:
        train: The training function.
        canary: Passed to ``train`` unchanged: a `GradientCanary` or an object of your own. For a
            `GradientCanary` of M > 1 canaries, ``inserted`` is an array of M fair coins, and one
            run gives M scores.
        claim: The privacy claim: `Claim.from_dpsgd` needs no assumption.
        claimed_epsilon: In place of ``claim``: an epsilon at ``delta``, read by
            `Claim.from_epsilon`, which states its assumption.
        delta: Delta of the claimed epsilon and of the lower bounds.
        runs: Number of trainings; a single canary is in half of them.
        confidence: Confidence of the verdict and of each lower bound.
        seed: Random seed.
        workers: Number of processes that train at the same time. Scores do not depend on it.
        store: A file, or an open `dpaudit.Store`, in which results are kept. The same call resumes
            an interrupted audit. Changed code is another audit. Without a store nothing is kept.
        name: The name of the audit in the store.
        adversary: ``"score"``, ``"parameters"``, ``"predictions"``, or a function of (canary,
            returned) that returns the score; by default chosen by what ``train`` returns.
        initial: The parameters at the start of training, if they are the same in all runs: this
            removes noise from the scores.
        on_error: ``"record"`` keeps the traceback of a failed run and continues; ``"stop"`` raises
            it.
        until_violation: Test the scores as they come, and stop as soon as a violation is proven;
            ``runs`` is then the largest number of runs.
        progress: Progress callback; none by default.
        executor: Schedules the runs; by default ``workers`` processes of this machine.
        timeout: Seconds after which a training is stopped and counts as failed.
        detect: Fraction of the claimed noise that must be detectable for the verdict
            ``consistent``; 0.5 means noise that is halved by mistake.
        power: Probability with which it must be detectable.
        fresh: Train again even if the store has the runs of this audit.

    Example:
        >>> from dpaudit.trainings import GradientCanary
        >>> canary = GradientCanary.draw(10, clip_norm=1.0)
        >>> def train(canary, inserted, seed):
        ...     noise = np.random.default_rng(seed).normal(0.0, 0.5, 10)  # should be 1.0
        ...     return -(canary.clipped_sum(inserted) + noise)
        >>> audit_training(train, canary=canary, claim=Claim.from_mu(1.0), runs=200).verdict
        'violation'
    """
    began = time.perf_counter()
    claim = claim_of(claim, claimed_epsilon, delta)
    _validate.confidence(confidence)
    _validate.between("detect", detect, 0, 1)
    _validate.between("power", power, 0, 1, closed_low=True)
    _validate.one_of("on_error", on_error, ("record", "stop"))
    refuse_in_worker()
    check_function(train, canary)
    scorer = Scorer(canary=canary, adversary=adversary, initial=initial)
    job = Job(train=train, scorer=scorer, seed=_validate.integer("seed", seed))
    canaries = scorer.canaries
    runs = _validate.runs(runs, canaries=canaries)
    workers = _validate.integer("workers", workers, at_least=1)
    if workers > 1 or executor is not None:
        check_pickles(TrainingPlayer(job=job))
    described = DescribedTraining(
        **vars(Identity.of(train)),
        canary=digest(canary),
        initial=None if initial is None else digest(flat_parameters(initial)),
        claim=claim.to_dict(),
        delta=float(delta),
        confidence=float(confidence),
        until_violation=bool(until_violation),
        detect=float(detect),
        power=float(power),
    )
    wanted = Description(
        mechanism=described,
        adversary=DescribedAdversary(name=_adversary_name(adversary)),
        runs=runs,
        canaries=canaries,
        coin="half" if canaries == 1 else "fair",
        seed=seed,
    )
    with open_store(store) as opened, _Notices(progress) as notices:
        record, _, remarks = begin(opened, name, wanted, _versions(), fresh=fresh)
        tiles = Tiles(record, wanted, progress=notices.progress, delta=delta, runs=runs)
        if tiles.resumed and not remarks:
            remarks = (
                f"{tiles.resumed:,} stored runs of {record.created} are used (code "
                f"{described.code or described.source}); --fresh ignores them",
            )
        for remark in remarks:
            notices.notify(remark)
        watcher = _watcher(record, wanted, claim, runs) if until_violation else None
        tiles.begin()
        if tiles.missing and not (watcher is not None and watcher.refuted):
            chosen = executor or executor_of(workers, timeout=timeout)
            # With fresh, files that an executor kept of an earlier audit are not used either.
            chosen.label = f"{record.id}-{time.time_ns()}" if fresh else record.id
            notices.progress.watch(chosen.status)
            policy = FailurePolicy(record, canaries=canaries, stop=on_error == "stop")
            _train(job, record, tiles, chosen, policy, watcher)
        return _finished(
            record,
            delta=delta,
            confidence=confidence,
            began=began,
            resumed=tiles.resumed,
            notices=notices.seen,
            runs=runs,
        )


def _train(
    job: Job,
    record: AuditRecord,
    tiles: Tiles,
    executor: Executor,
    policy: FailurePolicy,
    watcher: Watcher | None,
) -> None:
    """Check the training on the first missing runs, then play the others."""
    missing = tuple(tiles.missing)
    kept = (record.summary or {}).get("adversary")
    if kept is None:
        player = TrainingPlayer(job=job, runs=missing)
        (found,) = (result for _, result in executor.play(player, [PROBE], lambda text: None))
        if isinstance(found, Lost):
            run = missing[0]
            found = Liveness(results={run: job.failure(run, _lost(found))})
        if found.problem:
            raise DeadCanary(found.problem)
        if found.kind is not None:
            record.annotate({"adversary": found.kind})
            job = job.pinned(found.kind)
        tiles.keep(iter(found.results.items()), policy, watcher)
        missing = tuple(run for run in missing if run not in found.results)
        if watcher is not None and watcher.refuted:
            return
    else:
        job = job.pinned(kept)
    results = (
        (run, job.failure(run, _lost(result)) if isinstance(result, Lost) else result)
        for run, result in executor.play(TrainingPlayer(job=job), missing, lambda text: None)
    )
    tiles.keep(results, policy, watcher)


def _lost(lost: Lost) -> str:
    return f"ProcessEnded: {lost.reason} ({lost.attempts} attempts)"


def _watcher(record: AuditRecord, description: Description, claim: Claim, runs: int) -> Watcher:
    training = description.training
    watcher = Watcher(
        claim,
        confidence=0.95 if training is None else training.confidence,
        canaries=description.canaries,
        seed=description.seed,
    )
    scores = record.scores()
    failures = [failure for failure in record.failures() if failure.run < runs]
    watcher.see_all(scores.where(scores.run < runs), failures)
    return watcher


def _finished(record: AuditRecord, *, began: float, **known: Any) -> AuditResult:
    result = read_result(record, seconds=time.perf_counter() - began, **known)
    record.finish(result.stored())
    return result


class _Notices:
    """Passes notices to the progress callback, each once, and remembers them."""

    def __init__(self, progress: Progress | None) -> None:
        self.progress = Silent() if progress is None else progress
        self._seen: dict[str, None] = {}

    def __enter__(self) -> _Notices:
        self.progress.__enter__()
        return self

    def __exit__(self, *details: Any) -> None:
        self.progress.__exit__(*details)

    @property
    def seen(self) -> tuple[str, ...]:
        return tuple(self._seen)

    def notify(self, text: str) -> None:
        """Pass one line on, unless it was passed before."""
        if text not in self._seen:
            self._seen[text] = None
            self.progress.notice(text)


def make_game(
    mechanism: DPSGD,
    adversary: Adversary,
    *,
    runs: int,
    canaries: int,
    insertion: Insertion,
    seed: int,
    horizons: Sequence[int],
    speed: Speed | None,
) -> tuple[Game, Speed]:
    """The game, with everything checked that can be checked before crafting and training."""
    try:
        from dpaudit.engine import Speed
        from dpaudit.games import Game
    except ImportError as error:
        if getattr(error, "name", None) != "torch":
            raise
        raise MissingExtra("playing an audit", "train") from None
    if not isinstance(mechanism, DPSGD):
        raise InvalidInput(f"mechanism must be a DPSGD, got {type(mechanism).__name__}")
    if not isinstance(adversary, Adversary):
        raise InvalidInput(
            f"adversary must be an Adversary such as SimulatedDimension(), got {adversary!r}"
        )
    _validate.integer("canaries", canaries, at_least=1)
    _validate.runs(runs, canaries=canaries)
    mechanism.check_insertion(insertion)
    speed = Speed() if speed is None else speed
    speed.torch_device()  # raises if the device is missing
    if horizons:
        horizons = (*horizons, mechanism.steps)
    mechanism = audited_mechanism(adversary, mechanism)
    crafted = adversary.craft(mechanism, insertion, canaries=canaries, seed=seed)
    game = Game(
        mechanism=mechanism,
        adversary=adversary,
        canaries=crafted,
        insertion=insertion,
        runs=runs,
        seed=seed,
        horizons=tuple(horizons),
        coin="half" if canaries == 1 else "fair",
    )
    return game, speed


def claim_of(claim: Claim | None, claimed_epsilon: float | None, delta: float) -> Claim:
    """The claim to test: the one given, or the one for an epsilon at delta."""
    _validate.delta(delta)
    if claim is not None and claimed_epsilon is not None:
        raise InvalidInput(
            f"give claim or claimed_epsilon, not both; got {claim!r} and {claimed_epsilon!r}"
        )
    if claim is not None:
        if not isinstance(claim, Claim):
            raise InvalidInput(
                f"claim must be a Claim such as Claim.from_dpsgd(...), got {claim!r}; for an "
                "epsilon use claimed_epsilon"
            )
        return claim
    if claimed_epsilon is None:
        raise InvalidInput(
            "a claim is needed: give claim, such as Claim.from_dpsgd(noise_multiplier=..., "
            "steps=..., sampling_rate=...), or claimed_epsilon and delta"
        )
    return Claim.from_epsilon(claimed_epsilon, delta)


def open_store(store: Store | StorePath | None) -> Store | nullcontext[Store]:
    """The store as a context; a store that the user opened stays open."""
    if isinstance(store, Store):
        return nullcontext(store)
    return Store.open(":memory:" if store is None else store)


def _adversary_name(adversary: AdversaryLike) -> str:
    if adversary is None:
        return "as returned"
    return adversary if isinstance(adversary, str) else name_of(adversary)


def _versions() -> dict[str, str]:
    return {
        "dpaudit": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "device": platform.machine(),
    }
