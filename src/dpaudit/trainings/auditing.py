"""One call from a training function to a verdict on its promise."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Generator, Mapping
from typing import Any

import numpy as np

from dpaudit import _validate
from dpaudit.audits.assessment import lower_bounds
from dpaudit.audits.auditing import SECONDS_BETWEEN_BOUNDS, StorePath, open_store, tell_bound
from dpaudit.audits.progress import Progress, Silent
from dpaudit.claims import Claim
from dpaudit.errors import InvalidInput, StoreError
from dpaudit.executors import check_pickles, refuse_in_worker
from dpaudit.privacy import ThreatModel
from dpaudit.scores import AuditRecord, Scores, Store
from dpaudit.trainings.assessing import check_both_worlds, repetition_notes, tested
from dpaudit.trainings.description import describe
from dpaudit.trainings.failing import failure_notes
from dpaudit.trainings.player import TrainingPlayer, executor_of, outcomes
from dpaudit.trainings.playing import Job, Outcome, Train, check_signature
from dpaudit.trainings.recording import Keeper, begin
from dpaudit.trainings.result import TrainingAudit
from dpaudit.trainings.scoring import (
    THREAT_MODELS,
    AdversaryLike,
    Kind,
    Scorer,
    UnscorableReturn,
)
from dpaudit.trainings.watching import Watcher


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
) -> TrainingAudit:
    r"""Play the game with a training of your own, in any framework, and test what it promises.

    ``train(canary, inserted, seed)`` trains one model. It inserts the canary if ``inserted`` is
    true, draws everything random from ``seed``, and returns what the adversary may see: the final
    parameters, `Predictions`, or a score of its own (a number, higher for "inserted").

    See also: `dpaudit.audit`, for a training described to dpaudit, which it plays much faster;
    `GradientCanary`; `dpaudit.test_claim`, the test behind the verdict.

    Paper: Cebere, Bellet, Papernot (ICLR 2025), Algorithm 1, with the training in other hands.

    Arguments:
        train: The training.
        canary: Handed to ``train`` untouched: a `GradientCanary`, an object of yours, or nothing.
            For a `GradientCanary` of M > 1 canaries, ``inserted`` is an array of M fair coins, and
            one run gives M scores.
        claim: What the training promises: `Claim.from_dpsgd` is exact.
        claimed_epsilon: In place of ``claim``: an epsilon at ``delta``, read by
            `Claim.from_epsilon`, which says what it assumes.
        delta: Of the claimed epsilon, and of the lower bounds.
        runs: How many trainings; a single canary is in half of them.
        confidence: Of the verdict, and of each lower bound.
        seed: Of the coins, of the seeds handed to ``train``, and of the pilots.
        workers: How many processes train at a time. Scores do not depend on it.
        store: A file, or an open `dpaudit.scores.Store`, from which the same call goes on where an
            earlier one stopped. Nothing is kept without one.
        name: What to call the audit in the store.
        adversary: ``"score"``, ``"parameters"``, ``"predictions"``, or a function of (canary,
            returned) that gives the score; chosen by what is returned if not given.
        initial: Where training began, if that is the same in all runs: takes noise off the scores
            of parameters.
        on_error: ``"record"`` keeps the traceback of a run that failed and goes on; ``"stop"``
            raises it.
        until_violation: Look at the scores as they come, and stop as soon as a violation is proven;
            ``runs`` is then the most that are played, and the same call with more of them goes on.
        progress: Who is told how it goes on; nobody by default.

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
    _validate.one_of("on_error", on_error, ("record", "stop"))
    refuse_in_worker()
    check_signature(train)
    job = Job(
        train=train,
        scorer=Scorer(canary=canary, adversary=adversary, initial=initial),
        seed=_validate.integer("seed", seed),
    )
    canaries = job.scorer.canaries
    # A single run has both worlds only if it has several canaries.
    runs = _validate.runs(runs, canaries=canaries)
    workers = _validate.integer("workers", workers, at_least=1)
    if workers > 1:
        check_pickles(TrainingPlayer(job=job))  # before any training
    progress = Silent() if progress is None else progress
    with open_store(store) as opened, progress:
        record = begin(opened, name, describe(job, runs), any_number=until_violation)
        before = record.finished_tiles()
        watcher = (
            Watcher(claim, confidence=confidence, canaries=canaries, seed=seed)
            if until_violation
            else None
        )
        kind = _play(
            job,
            record,
            runs,
            workers=workers,
            stop=on_error == "stop",
            progress=progress,
            delta=delta,
            watcher=watcher,
        )
        kind = kind or (record.summary or {}).get("adversary")
        seen = runs if watcher is None or not watcher.refuted else watcher.runs
        scores = _first_runs(record.scores(), seen)
        failures = tuple(failure for failure in record.failures() if failure.run < seen)
        if watcher is None:
            test = tested(scores, failures, claim, confidence=confidence, seed=seed)
            lower = lower_bounds(scores, delta=delta, confidence=confidence, seed=seed)
        else:
            check_both_worlds(scores, failures)
            test, lower = watcher.test(), watcher.bounds(delta)
        result = TrainingAudit(
            audit=record.id,
            name=record.name,
            training=record.configuration["mechanism"]["name"],
            adversary=kind or "unknown",
            threat_model=None if kind is None else THREAT_MODELS.get(kind),
            test=test,
            scores=scores,
            lower=lower,
            delta=delta,
            failures=failures,
            runs=seen,
            canaries=canaries,
            stopped_at=None if watcher is None or not watcher.refuted else seen,
            notes=(*failure_notes(scores, failures), *repetition_notes(scores)),
            configuration=record.configuration,
            seconds=time.perf_counter() - began,
            resumed=sum(tile < seen for tile in before),
        )
        record.finish(_kept(result))
    return result


def read_training_audit(
    record: AuditRecord, *, delta: float | None = None, confidence: float | None = None
) -> TrainingAudit | None:
    """A finished audit read back from its store, its bounds at any delta and confidence.

    The test of the claim is made again at the audit's own confidence, which was chosen before
    anybody saw its outcome.

    Arguments:
        record: The audit.
        delta: Of the bounds; that of the audit if not given.
        confidence: Of each lower bound; that of the audit if not given.

    Returns:
        The audit; `None` while it is not finished: what it claims comes into the store at its end.
    """
    kept = record.summary
    if not record.finished or kept is None:
        return None
    if "promise" not in kept:
        raise StoreError(
            f"audit {record.label} was kept by an earlier dpaudit, without its claim; the command "
            "that made it, given again, trains nothing and keeps the claim too"
        )
    whole, configuration = kept["result"], record.configuration
    delta = float(kept["delta"]) if delta is None else _validate.delta(delta)
    own = float(whole["confidence"])
    confidence = own if confidence is None else _validate.confidence(confidence)
    claim, runs = _claim_from(kept["promise"]), int(whole["runs"])
    seed, canaries = int(configuration["seed"]), int(configuration["canaries"])
    scores = _first_runs(record.scores(), runs)
    failures = tuple(failure for failure in record.failures() if failure.run < runs)

    def watcher(confidence: float) -> Watcher:
        watching = Watcher(claim, confidence=confidence, canaries=canaries, seed=seed)
        _see_stored(record, watching, runs)
        return watching

    if whole["e_value"] is None:
        test = tested(scores, failures, claim, confidence=own, seed=seed)
        lower = lower_bounds(scores, delta=delta, confidence=confidence, seed=seed)
    else:  # the scores said when to stop, so only what holds at any time holds
        test, lower = watcher(own).test(), watcher(confidence).bounds(delta)
    threat_model = whole["threat_model"]
    return TrainingAudit(
        audit=record.id,
        name=record.name,
        training=configuration["mechanism"]["name"],
        adversary=kept["adversary"],
        threat_model=None if threat_model is None else ThreatModel(threat_model),
        test=test,
        scores=scores,
        lower=lower,
        delta=delta,
        failures=failures,
        runs=runs,
        canaries=canaries,
        stopped_at=whole["stopped_at"],
        notes=(*failure_notes(scores, failures), *repetition_notes(scores)),
        configuration=configuration,
        seconds=float(kept["seconds"]),
        resumed=int(whole["resumed_runs"]),
    )


def claim_of(claim: Claim | None, claimed_epsilon: float | None, delta: float) -> Claim:
    """The claim to test: the one given, or the one that an epsilon at delta is read as."""
    _validate.delta(delta)
    if claim is not None and claimed_epsilon is not None:
        raise InvalidInput(
            f"give claim or claimed_epsilon, not both; got {claim!r} and {claimed_epsilon!r}"
        )
    if claim is not None:
        if not isinstance(claim, Claim):
            raise InvalidInput(
                f"claim must be a Claim such as Claim.from_dpsgd(…), got {claim!r}; for an epsilon "
                "use claimed_epsilon"
            )
        return claim
    if claimed_epsilon is None:
        raise InvalidInput(
            "what does the training promise? Give claim, such as Claim.from_dpsgd("
            "noise_multiplier=…, steps=…, sampling_rate=…), or claimed_epsilon and delta"
        )
    return Claim.from_epsilon(claimed_epsilon, delta)


def _play(
    job: Job,
    record: AuditRecord,
    runs: int,
    *,
    workers: int,
    stop: bool,
    progress: Progress,
    delta: float,
    watcher: Watcher | None,
) -> Kind | None:
    """Play what the store does not have yet, and store each run as soon as it is there."""
    done = {tile for tile in record.finished_tiles() if tile < runs}
    if watcher is not None:
        _see_stored(record, watcher, runs)
    refuted = watcher is not None and watcher.refuted
    missing = [] if refuted else [run for run in range(runs) if run not in done]
    kind: Kind | None = None
    progress.begin(runs=runs, done=len(done))
    bounded = time.perf_counter()
    playing = contextlib.closing(_outcomes(job, missing, workers))
    with playing as outcomes, Keeper(record, job, stop=stop) as keeper:
        for outcome in outcomes:
            keeper.keep(outcome)
            kind = kind or outcome.kind
            progress.advance(1)
            if watcher is not None:
                watcher.see(outcome.run, outcome.scores)
                if watcher.refuted:
                    break
            if watcher is None and _due(progress, bounded):
                keeper.write()
                tell_bound(record, progress, delta)
                bounded = time.perf_counter()
    return kind


def _outcomes(job: Job, missing: list[int], workers: int) -> Generator[Outcome]:
    """The runs, the first of them alone: what cannot be scored must not cost a second training."""
    executor = executor_of(workers)
    for number, run in enumerate(missing):
        (outcome,) = outcomes(executor, job, [run])
        if outcome.unscorable and outcome.failure is not None:
            raise UnscorableReturn(outcome.failure.error.partition(": ")[2])
        yield outcome
        if outcome.kind is not None:
            yield from outcomes(executor, job.pinned(outcome.kind), missing[number + 1 :])
            return


def _see_stored(record: AuditRecord, watcher: Watcher, runs: int) -> None:
    scores = _first_runs(record.scores(), runs)
    for run in np.unique(scores.run).tolist():
        watcher.see(run, scores.score[scores.run == run])
    for failure in record.failures():
        if failure.run < runs:
            watcher.see(failure.run, None)


def _first_runs(scores: Scores, runs: int) -> Scores:
    """The scores of the runs that a verdict rests on: later ones may have come in meanwhile."""
    kept = scores.run < runs
    return Scores(
        score=scores.score[kept],
        inserted=scores.inserted[kept],
        run=scores.run[kept],
        canary=scores.canary[kept],
    )


def _due(progress: Progress, bounded: float) -> bool:
    return progress.wants_bounds and time.perf_counter() - bounded > SECONDS_BETWEEN_BOUNDS


def _claim_from(promise: Mapping[str, Any]) -> Claim:
    """The claim as `_kept` wrote it; JSON has lists where a claim has tuples."""
    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in promise.items()
    }
    return Claim(**fields)


def _kept(result: TrainingAudit) -> dict[str, object]:
    """What ``dpaudit list`` and ``show`` need besides the scores: the claim is not in them."""
    whole = result.to_dict()
    apart = ("configuration", "failures", "verdict", "sentence", "lower", "adversary", "seconds")
    return {
        "result": {name: value for name, value in whole.items() if name not in apart},
        "promise": dataclasses.asdict(result.test.claim),
        "verdict": result.verdict,
        "sentence": result.sentence,
        "delta": result.delta,
        "lower": result.leading.to_dict(),
        "upper": result.least_upper.to_dict(),
        "adversary": result.adversary,
        "seconds": round(result.seconds, 3),
    }
