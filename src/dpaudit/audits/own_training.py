"""`audit_training`: one call from the user's own training to the verdict on its claim."""

from __future__ import annotations

import platform
import time
from typing import Any

from dpaudit import _validate
from dpaudit.audits.description import (
    AS_RETURNED,
    DescribedAdversary,
    DescribedTraining,
    Description,
)
from dpaudit.audits.failures import FailurePolicy
from dpaudit.audits.playing import Results, Tiles
from dpaudit.audits.progress import Progress
from dpaudit.audits.recording import begin
from dpaudit.audits.result import AuditResult
from dpaudit.audits.session import Notices, StorePath, finished, open_store, versions
from dpaudit.audits.stored import watcher_of
from dpaudit.audits.watching import Watcher
from dpaudit.claims import Claim, unconfirmed
from dpaudit.claims.fixed_sample import MOST_SCORES, scores_to_refute
from dpaudit.errors import InvalidInput
from dpaudit.executors import Executor, Lost, check_pickles, refuse_in_worker
from dpaudit.privacy import DETECT, LEAST_POWER
from dpaudit.scores import AuditRecord, Failure, ScoreBlock, Store
from dpaudit.trainings.identity import CodeDigest, code_digest, name_of
from dpaudit.trainings.player import PROBE, TrainingPlayer, executor_of
from dpaudit.trainings.probe import DeadCanary, Liveness, check_function
from dpaudit.trainings.run import Job, Train
from dpaudit.trainings.scoring import AdversaryLike, Scorer, names_of


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
    detect: float = DETECT,
    power: float = LEAST_POWER,
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
        progress: Progress callback; by default a bar in notebooks, and none elsewhere.
        executor: Schedules the runs; by default ``workers`` processes of this machine.
        timeout: Seconds after which a training is stopped and counts as failed.
        detect: Noise of this fraction of the claimed noise must be detectable for the verdict
            ``consistent``; 0.5 means noise that is halved by mistake.
        power: Probability with which such noise must be detected.

    Example:
        >>> import numpy as np
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
    code = code_digest(train, **job.held)
    described = DescribedTraining(
        name=name_of(train),
        source=code.value,
        files=code.modules,
        canary=code.parts["canary"],
        initial=None if initial is None else code.parts["initial"],
        claim=claim.to_dict(),
        delta=float(delta),
        confidence=float(confidence),
        until_violation=bool(until_violation),
        detect=float(detect),
        power=float(power),
        tensors=names_of(canary),
    )
    wanted = Description(
        mechanism=described,
        adversary=DescribedAdversary(name=_adversary_name(adversary)),
        runs=runs,
        canaries=canaries,
        coin="half" if canaries == 1 else "fair",
        seed=seed,
    )
    with open_store(store) as opened, Notices(progress) as notices:
        record, _ = begin(opened, name, wanted, versions(platform.machine()))
        tiles = Tiles(record, wanted, progress=notices.progress, delta=delta, runs=runs)
        if tiles.resumed:
            notices.notify(
                f"the unfinished audit {record.label} of {record.created} is resumed, which has "
                f"{tiles.resumed:,} runs"
            )
        too_few = "" if until_violation else _too_few_runs(wanted, claim, confidence)
        if tiles.missing and too_few:
            notices.progress.notice(too_few)  # now; in the result the test says it
        watcher = watcher_of(record, wanted, runs)
        notices.progress.stage("training")
        tiles.begin()
        if tiles.missing and not (watcher is not None and watcher.refuted):
            chosen = executor or executor_of(workers, timeout=timeout)
            chosen.label = record.id
            notices.progress.watch(chosen.status)
            policy = FailurePolicy(record, canaries=canaries, stop=on_error == "stop")
            _train(job, code, record, tiles, chosen, policy, watcher)
            code.require_unedited()
        notices.progress.stage("bounds")
        return finished(
            record,
            delta=delta,
            confidence=confidence,
            began=began,
            resumed=tiles.resumed,
            notices=notices.seen,
            runs=runs,
        )


def _too_few_runs(description: Description, claim: Claim, confidence: float) -> str:
    """A warning if this many runs cannot refute the claim, before they are trained."""
    names, runs = description.names, description.runs
    scores = runs if names else runs * description.canaries
    policy = unconfirmed(1 - confidence)
    needed = scores_to_refute(claim, policy=policy, tests=max(1, len(names)))
    if needed is not None and needed <= scores:
        return ""
    if needed is None:
        enough = f"more than {MOST_SCORES:,}"
        remedy = "so weak a claim cannot be tested by an audit; audit fewer steps, with their claim"
    else:
        enough, remedy = f"about {needed:,}", "increase runs (--runs)"
    return (
        f"{runs:,} runs are too few to refute the claim, {claim.description}, even if the scores "
        f"separate perfectly, which would take {enough} scores{' per tensor' if names else ''}; "
        f"{remedy}"
    )


def _train(
    job: Job,
    code: CodeDigest,
    record: AuditRecord,
    tiles: Tiles,
    executor: Executor,
    policy: FailurePolicy,
    watcher: Watcher | None,
) -> None:
    """Check the training on the first missing runs, then play the others."""
    kept, probed = (record.summary or {}).get("adversary"), dict[int, ScoreBlock | Failure]()
    if kept is None:
        player = TrainingPlayer(job=job, runs=tuple(tiles.missing), code=code)
        (found,) = (result for _, result in executor.play(player, [PROBE], lambda text: None))
        if isinstance(found, Lost):
            run = tiles.missing[0]
            found = Liveness(results={run: job.failure(run, _lost(found))})
        if found.problem:
            raise DeadCanary(found.problem)
        kept, probed = found.kind, found.results
        if kept is not None:
            record.annotate(
                {"adversary": kept, "doubts": list(found.doubts), "covers": found.covers}
            )
    if kept is not None:
        job = job.pinned(kept)

    def results() -> Results:
        yield from probed.items()
        rest = [run for run in tiles.missing if run not in probed]
        for run, result in executor.play(
            TrainingPlayer(job=job, code=code), rest, lambda text: None
        ):
            yield run, job.failure(run, _lost(result)) if isinstance(result, Lost) else result

    # At once, because a failure is stored only after a success, or when all runs are done.
    tiles.keep(results(), policy, watcher)


def _lost(lost: Lost) -> str:
    return f"ProcessEnded: {lost.reason} ({lost.attempts} attempts)"


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


def _adversary_name(adversary: AdversaryLike) -> str:
    if adversary is None:
        return AS_RETURNED
    return adversary if isinstance(adversary, str) else name_of(adversary)
