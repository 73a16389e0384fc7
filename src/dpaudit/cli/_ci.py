"""The outcomes that ``--junit`` and ``--sarif`` write."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpaudit import _validate
from dpaudit._files import write_text
from dpaudit.cli._exit import Unwritten

if TYPE_CHECKING:
    from dpaudit.audits import AuditResult
    from dpaudit.checks import CheckResult
    from dpaudit.report.ci import Level, Outcome

_LEVELS: dict[str, Level] = {
    "violation": "failed",
    "broken": "failed",
    "consistent": "passed",
    "passed": "passed",
    "warning": "passed",
}


def check_outcome_files(*, junit: Path | None, sarif: Path | None) -> None:
    """Refuse files that cannot be written, before hours of training.

    Arguments:
        junit: File for JUnit XML; `None` for none.
        sarif: File for SARIF; `None` for none.
    """
    for name, path in (("--junit", junit), ("--sarif", sarif)):
        if path is not None:
            _validate.file_to_write(name, path)


def write_outcomes(outcomes: Sequence[Outcome], *, junit: Path | None, sarif: Path | None) -> None:
    """Write the files that were asked for.

    Arguments:
        outcomes: The outcomes of the command.
        junit: File for JUnit XML; `None` for none.
        sarif: File for SARIF; `None` for none.
    """
    from dpaudit.report.ci import to_junit, to_sarif

    for name, path, render in (("--junit", junit, to_junit), ("--sarif", sarif, to_sarif)):
        if path is None:
            continue
        try:
            write_text(path, render(outcomes))
        except OSError as error:
            raise Unwritten(f"{name}: cannot write {path}: {error.strerror}") from error


def outcome_of_audit(result: AuditResult, train: Callable[..., Any] | None = None) -> Outcome:
    """The outcome of an audit; a verdict that decides nothing counts as skipped.

    Arguments:
        result: The result of the audit.
        train: The user's training, whose place is reported; `None` for a training of a preset.
    """
    from dpaudit.report.ci import Outcome

    file, line = ("", 1) if train is None else _place(train)
    return Outcome(
        name=result.name or result.training,
        level=_LEVELS.get(result.verdict, "skipped"),
        verdict=result.verdict,
        message=result.sentence,
        file=file,
        line=line,
        seconds=result.seconds,
    )


def outcomes_of_check(result: CheckResult, train: Callable[..., Any]) -> list[Outcome]:
    """One outcome for each rule."""
    from dpaudit.report.ci import Outcome

    file, line = _place(train)
    return [
        Outcome(
            name=found.rule.name,
            level=_LEVELS.get(found.verdict, "skipped"),
            verdict=found.verdict,
            message=found.explanation or f"measured {found.measured}, allowed {found.allowed}",
            file=file,
            line=line,
        )
        for found in result.findings
    ]


def _place(train: Callable[..., Any]) -> tuple[str, int]:
    """File and line of a training, if it has any: relative to the working directory if inside."""
    try:
        path = Path(inspect.getsourcefile(inspect.unwrap(train)) or "")
        line = inspect.getsourcelines(inspect.unwrap(train))[1]
    except (TypeError, OSError):
        return "", 1
    here = Path.cwd()
    return (path.relative_to(here) if path.is_relative_to(here) else path).as_posix(), line
