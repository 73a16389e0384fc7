"""Results read back from a store, finished or not, without torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dpaudit import _validate
from dpaudit.audits.assessment import assess, watched
from dpaudit.audits.description import Description
from dpaudit.audits.doubts import (
    constant_scores,
    failure_doubts,
    failure_notes,
    repetition_notes,
)
from dpaudit.audits.result import AuditResult
from dpaudit.audits.watching import Watcher
from dpaudit.errors import StoreError, TrainingFailed
from dpaudit.scores import AuditRecord, Failure, Scores
from dpaudit.trainings.scoring import THREAT_MODELS


def read_result(
    record: AuditRecord,
    *,
    delta: float | None = None,
    confidence: float | None = None,
    runs: int | None = None,
    seconds: float | None = None,
    device: str = "",
    resumed: int = 0,
    notices: tuple[str, ...] = (),
) -> AuditResult:
    """What the scores of a stored audit show; while runs are missing, what they show so far.

    Arguments:
        record: The audit.
        delta: Delta at which all bounds are computed; by default the audit's own.
        confidence: Confidence of each lower bound; by default the audit's own.
        runs: Number of runs asked for, if that is not the stored number.
        seconds: Duration of the caller's work; by default the stored duration.
        device: Device used; by default the devices of all sessions.
        resumed: Number of runs that were in the store before.
        notices: Further remarks for the user.
    """
    description, kept = Description.of(record), record.summary or {}
    training, horizons = description.training, record.horizons()
    failures = record.failures()
    if not horizons:
        _refuse_empty(record, failures)
    delta, confidence = read_at(record, delta, confidence)
    _validate.delta(delta)
    _validate.confidence(confidence)
    asked = int(kept.get("asked", description.runs)) if runs is None else runs
    # A single scoring rule is known from the description; otherwise the first training decided.
    adversary = str(kept.get("adversary") or description.adversary.name)
    watcher = watcher_of(record, description, asked)
    stopped_at = watcher.runs if watcher is not None and watcher.refuted else None
    used = asked if stopped_at is None else stopped_at
    failures = tuple(failure for failure in failures if failure.run < used)
    assessments, doubts = [], tuple(kept.get("doubts", ()))
    for horizon in horizons:
        scores = record.scores(horizon)
        if training is not None:
            scores = scores.where(scores.run < used)
            check_both_groups(scores, failures)
            doubts = doubts or constant_scores(scores)
        counted = _counted(record, scores, failures, used)
        assessments.append(
            assess(
                description,
                scores,
                horizon=horizon,
                delta=delta,
                confidence=confidence,
                failures=failures,
                threat_model=THREAT_MODELS.get(adversary),  # type: ignore[call-overload]
                every_accountant=horizon == horizons[-1],
                doubts=(*doubts, *failure_doubts(scores, failures)),
                covers=str(kept.get("covers", "")),
            )
        )
    final = assessments[-1].scores
    if training is not None:
        notices = (*notices, *failure_notes(final, failures), *repetition_notes(final))
    return AuditResult(
        audit=record.id,
        name=record.name,
        description=description,
        horizons=tuple(assessments),
        runs=counted,
        asked=asked,
        failures=failures,
        adversary=adversary,
        stopped_at=stopped_at,
        seconds=float(kept.get("seconds", 0.0)) if seconds is None else seconds,
        device=device or ", ".join(dict.fromkeys(one["device"] for one in record.versions)),
        resumed=resumed,
        notices=notices,
    )


def summary_of(record: AuditRecord) -> Mapping[str, Any]:
    """What the store keeps of a result; computed again if dpaudit 0.1, with other verdicts, did."""
    kept = record.summary or {}
    if not record.finished or "tightness" in kept:
        return kept
    return read_result(record).stored()


def _counted(record: AuditRecord, scores: Scores, failures: tuple[Failure, ...], most: int) -> int:
    """The number of runs with a score or a failure; `StoreError` if a run counts twice."""
    count = scores.runs + len(failures)
    failed = {failure.run for failure in failures}
    if count > most or (failed and np.isin(scores.run, list(failed)).any()):
        raise StoreError(
            f"audit {record.label} has {scores.runs:,} runs with scores and {len(failures):,} "
            f"failed runs, but {most:,} in all; the store {record.database.path} is damaged"
        )
    return count


def read_at(
    record: AuditRecord, delta: float | None, confidence: float | None
) -> tuple[float, float]:
    """Delta and confidence at which to read an audit: as given, as it was read, or the default."""
    lower, training = (record.summary or {}).get("lower", {}), Description.of(record).training
    usual = (1e-5, 0.95) if training is None else (training.delta, training.confidence)
    delta = lower.get("delta", usual[0]) if delta is None else delta
    confidence = (lower.get("confidence") or usual[1]) if confidence is None else confidence
    return float(delta), float(confidence)


def watcher_of(record: AuditRecord, description: Description, runs: int) -> Watcher | None:
    """The anytime-valid test of the first runs in the store; `None` if there is no such test."""
    training = description.training
    claim = description.claim(0) if description.anytime else None
    if training is None or claim is None:
        return None
    scores = record.scores()
    failures = [failure for failure in record.failures() if failure.run < runs]
    scores = scores.where(scores.run < runs)
    return watched(description, claim, training.confidence, scores, failures)


def _refuse_empty(record: AuditRecord, failures: tuple[Failure, ...]) -> None:
    if failures:
        check_both_groups(Scores(score=np.empty(0), inserted=np.empty(0, dtype=bool)), failures)
    raise StoreError(
        f"audit {record.label} has no scores yet: it was stopped before its first runs were "
        "stored; repeat the command that started it to resume it"
    )


def check_both_groups(scores: Scores, failures: tuple[Failure, ...]) -> None:
    """Raise if no run with the canary, or none without it, has a score."""
    inserted = int(scores.inserted.sum())
    if 0 < inserted < len(scores):
        return
    which = "with" if inserted == 0 else "without"
    problem = f"no run {which} the canary gave a score, and an audit compares runs with and without"
    if failures:
        last = failures[-1]
        raise TrainingFailed(
            f"{problem}; {len(failures)} runs failed, the last (run {last.run}) with {last.error}"
            f"\n{last.traceback}"
        )
    raise TrainingFailed(f"{problem}; increase runs")
