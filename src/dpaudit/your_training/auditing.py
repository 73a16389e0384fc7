"""One call from a training function to a verdict on its promise."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np

from dpaudit import _validate
from dpaudit.audits.assessment import lower_bounds
from dpaudit.audits.progress import Progress, Silent
from dpaudit.claims import Claim
from dpaudit.errors import ConfigurationChanged, DpauditError, InvalidInput, TrainingFailed
from dpaudit.lower_bounds import estimate
from dpaudit.scores import AuditRecord, Store
from dpaudit.scores.configuration import differences
from dpaudit.your_training.assessing import tested
from dpaudit.your_training.description import KIND, describe, versions
from dpaudit.your_training.failing import Patience, failure_notes
from dpaudit.your_training.playing import Job, Outcome, Train, check_signature, play_here
from dpaudit.your_training.result import TrainingAudit
from dpaudit.your_training.scoring import (
    THREAT_MODELS,
    AdversaryLike,
    Kind,
    Scorer,
    UnscorableReturn,
)

StorePath = str | os.PathLike[str]

_SECONDS_BETWEEN_BOUNDS = 2.0


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
            ``runs`` is then the most that are played.
        progress: Who is told how it goes on; nobody by default.

    Example:
        >>> from dpaudit.your_training import GradientCanary
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
    check_signature(train)
    job = Job(
        train=train,
        scorer=Scorer(canary=canary, adversary=adversary, initial=initial),
        seed=_validate.integer("seed", seed),
    )
    canaries = job.scorer.canaries
    # A single run has both worlds only if it has several canaries.
    runs = _validate.integer("runs", runs, at_least=2 if canaries == 1 else 1)
    workers = _validate.integer("workers", workers, at_least=1)
    progress = Silent() if progress is None else progress
    with _opened(store) as opened, progress:
        record = _begin(opened, name, describe(job, runs))
        resumed = len(record.finished_tiles())
        kind = _play(
            job, record, runs, workers=workers, stop=on_error == "stop", progress=progress,
            delta=delta,
        )  # fmt: skip
        scores, failures = record.scores(), record.failures()
        kind = kind or (record.summary or {}).get("adversary")
        result = TrainingAudit(
            audit=record.id,
            name=record.name,
            training=record.configuration["mechanism"]["name"],
            adversary=kind or "unknown",
            threat_model=None if kind is None else THREAT_MODELS[kind],
            test=tested(scores, failures, claim, confidence=confidence, seed=seed),
            scores=scores,
            lower=lower_bounds(scores, delta=delta, confidence=confidence, seed=seed),
            delta=delta,
            failures=failures,
            runs=runs,
            canaries=canaries,
            notes=failure_notes(scores, failures),
            configuration=record.configuration,
            seconds=time.perf_counter() - began,
            resumed=resumed,
        )
        record.finish(_kept(result))
    return result


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
) -> Kind | None:
    """Play what the store does not have yet, and store each run as soon as it is there."""
    done = record.finished_tiles()
    missing = [run for run in range(runs) if run not in done]
    patience, kind = Patience(), None
    for world in _worlds_seen(record, job):
        patience.success(world)
    progress.begin(runs=runs, done=len(done))
    bounded = time.perf_counter()
    for outcome in _outcomes(job, missing, workers):
        world = _world(job, outcome.run)
        if outcome.failure is None:
            kind = outcome.kind
            for failure in patience.success(world):
                record.add_failure(failure.run, failure)
            record.add_tile(outcome.run, job.block(outcome))
        else:
            if stop:
                raise TrainingFailed(
                    f"run {outcome.run} failed with {outcome.failure.error}\n"
                    f"{outcome.failure.traceback}"
                )
            for failure in patience.failure(world, outcome.failure):
                record.add_failure(failure.run, failure)
        progress.advance(1)
        if progress.wants_bounds and time.perf_counter() - bounded > _SECONDS_BETWEEN_BOUNDS:
            _tell_bound(record, progress, delta)
            bounded = time.perf_counter()
    for failure in patience.rest():
        record.add_failure(failure.run, failure)
    return kind


def _outcomes(job: Job, missing: list[int], workers: int) -> Iterator[Outcome]:
    """The runs, the first of them alone: what cannot be scored must not cost a second training."""
    waiting = list(missing)
    while waiting:
        outcome = job.play(waiting.pop(0))
        if outcome.unscorable and outcome.failure is not None:
            raise UnscorableReturn(outcome.failure.error.partition(": ")[2])
        yield outcome
        if outcome.kind is not None:
            yield from _rest(job.pinned(outcome.kind), waiting, workers)
            return


def _rest(job: Job, runs: Iterable[int], workers: int) -> Iterator[Outcome]:
    return play_here(job, runs)


def _world(job: Job, run: int) -> bool | None:
    """Which world the run is in; `None` where its canaries are in both."""
    return bool(job.coins(run)[0]) if job.scorer.canaries == 1 else None


def _worlds_seen(record: AuditRecord, job: Job) -> set[bool | None]:
    scores = record.scores()
    if job.scorer.canaries > 1:
        return {None} if len(scores) else set()
    return set(np.unique(scores.inserted).tolist())


def _begin(store: Store, name: str | None, configuration: dict[str, Any]) -> AuditRecord:
    """The audit's place in the store; a changed one under the same name is refused."""
    if name is None:
        for known in store.audits():
            other = known.configuration
            same_training = other.get("kind") == KIND and (
                other["mechanism"]["name"] == configuration["mechanism"]["name"]
            )
            changed = differences(other, configuration)
            if known.name is None and known.finished is None and same_training and changed:
                raise ConfigurationChanged(
                    f"{store.path} has an unfinished audit {known.id[:8]} of this training with "
                    f"other settings: {'; '.join(changed)}; go on with those, or give this audit "
                    "a name or another store"
                )
    return store.begin(name, configuration, versions())


def _tell_bound(record: AuditRecord, progress: Progress, delta: float) -> None:
    try:
        progress.bound(estimate(record.scores(), delta=delta, method="gaussian-dp").epsilon)
    except DpauditError:
        return  # too early: one world has no score yet


def _opened(store: Store | StorePath | None) -> Store | nullcontext[Store]:
    """The store as a context; one that the user opened is the user's to close."""
    if isinstance(store, Store):
        return nullcontext(store)
    return Store.open(":memory:" if store is None else store)


def _kept(result: TrainingAudit) -> dict[str, object]:
    """What ``dpaudit list`` shows without reading the scores."""
    return {
        "verdict": result.verdict,
        "sentence": result.sentence,
        "delta": result.delta,
        "lower": result.leading.to_dict(),
        "upper": result.least_upper.to_dict(),
        "adversary": result.adversary,
        "seconds": round(result.seconds, 3),
    }
