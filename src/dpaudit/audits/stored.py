"""An audit read back from a store: finished or not, and without torch."""

from __future__ import annotations

from dpaudit.audits.assessment import assess
from dpaudit.audits.result import AuditResult
from dpaudit.errors import StoreError
from dpaudit.scores import AuditRecord


def read_result(
    record: AuditRecord,
    *,
    delta: float = 1e-5,
    confidence: float = 0.95,
    seconds: float = 0.0,
    device: str = "",
    resumed: int = 0,
    notices: tuple[str, ...] = (),
) -> AuditResult:
    """What the scores of a stored audit prove; while tiles are missing, what they prove so far.

    Arguments:
        record: The audit.
        delta: Of the bounds; any, whatever the audit was played for.
        confidence: Of each lower bound.
        seconds: How long the caller worked on it.
        device: On what.
        resumed: How many runs were there before.
        notices: What the user should know.
    """
    horizons = record.horizons()
    if not horizons:
        raise StoreError(
            f"audit {record.label} has no scores yet: it was stopped before its first tile; "
            "the command that began it goes on with it"
        )
    configuration = record.configuration
    assessments = tuple(
        assess(
            configuration,
            record.scores(horizon),
            horizon=horizon,
            delta=delta,
            confidence=confidence,
            seed=configuration["seed"],
            every_accountant=horizon == horizons[-1],
        )
        for horizon in horizons
    )
    return AuditResult(
        audit=record.id,
        name=record.name,
        configuration=configuration,
        horizons=assessments,
        runs=assessments[-1].scores.runs,
        canaries=configuration["canaries"],
        seconds=seconds,
        device=device or ", ".join(dict.fromkeys(v["device"] for v in record.versions)),
        resumed=resumed,
        notices=notices,
    )
