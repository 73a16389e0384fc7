"""The outcomes that ``--junit`` and ``--sarif`` write."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from dpaudit._outputs import write_output

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


def outcome_files(
    outcomes: Callable[[], Sequence[Outcome]],
    *,
    junit: Path | None,
    sarif: Path | None,
    overwrite: bool,
) -> dict[str, Callable[[], object]]:
    """What writes the files that were asked for, for `print_then_write`."""

    def write(name: str, path: Path) -> None:
        from dpaudit.report.ci import to_junit, to_sarif

        text = (to_junit if name == "--junit" else to_sarif)(outcomes())
        write_output(path, text, name=name, overwrite=overwrite)

    files = (("--junit", junit), ("--sarif", sarif))
    return {name: partial(write, name, path) for name, path in files if path is not None}


def outcome_of_audit(result: AuditResult, training: str | None = None) -> Outcome:
    """The outcome of an audit; a verdict that decides nothing counts as skipped."""
    from dpaudit.report.ci import Outcome

    file, line = ("", 1) if training is None else _place(training)
    return Outcome(
        name=result.name or result.training,
        level=_LEVELS.get(result.verdict, "skipped"),
        verdict=result.verdict,
        message=result.sentence,
        file=file,
        line=line,
        seconds=result.seconds,
    )


def outcomes_of_check(result: CheckResult, train: str) -> list[Outcome]:
    """One outcome for each rule."""
    from dpaudit.report.ci import Outcome

    file, line = _place(train)
    return [
        Outcome(
            name=finding.rule.name,
            level=_LEVELS.get(finding.verdict, "skipped"),
            verdict=finding.verdict,
            message=finding.explanation
            or f"measured {finding.measured}, allowed {finding.allowed}",
            file=file,
            line=line,
        )
        for finding in result.findings
    ]


def _place(training: str) -> tuple[str, int]:
    """File and line of ``FILE.py:function`` or ``module:function``, without importing it."""
    module, _, name = training.rpartition(":")
    file = Path(module if module.endswith(".py") else f"{module.replace('.', '/')}.py")
    try:
        body = ast.parse(file.read_bytes()).body
    except (OSError, ValueError, SyntaxError):
        return "", 1
    name, here = name.partition(".")[0], Path.cwd()
    lines = [node.lineno for node in body if getattr(node, "name", None) == name]
    file = file.relative_to(here) if file.is_relative_to(here) else file
    return file.as_posix(), lines[-1] if lines else 1
