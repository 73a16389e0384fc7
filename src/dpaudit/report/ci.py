"""Verdicts for continuous integration: JUnit XML and SARIF 2.1.0.

Both are written from plain data, one `Outcome` for each audit or rule. CI systems show JUnit files
as test results. SARIF is the format of code scanning.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, final
from urllib.parse import quote
from xml.etree import ElementTree

from dpaudit._outputs import MARKER
from dpaudit._validate import printable, unobeyed
from dpaudit._version import __version__

Level = Literal["passed", "failed", "skipped"]
_SARIF_LEVELS = {"failed": "error", "skipped": "note"}


@final
@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The verdict on one audit or one rule.

    Arguments:
        name: Name of the audit or of the rule.
        level: ``"failed"`` for a violation or a broken rule, ``"skipped"`` for a test that could
            not decide, ``"passed"`` otherwise.
        verdict: The verdict in one word, such as ``"violation"``.
        message: What was found, in one sentence.
        file: The file of the training, relative to the working directory; empty if unknown.
        line: The line of the training in this file, counted from 1.
        seconds: Time that the test took.
    """

    name: str
    level: Level
    verdict: str
    message: str
    file: str = ""
    line: int = 1
    seconds: float = 0.0


def to_junit(outcomes: Sequence[Outcome], *, suite: str = "dpaudit") -> str:
    """A JUnit file with one test case for each outcome.

    Example:
        >>> bad = Outcome(name="train", level="failed", verdict="violation", message="p = 0.01")
        >>> 'failures="1"' in to_junit([bad])
        True
    """
    counts = {
        level: sum(outcome.level == level for outcome in outcomes)
        for level in ("failed", "skipped")
    }
    root = ElementTree.Element(
        "testsuite",
        name=suite,
        tests=str(len(outcomes)),
        failures=str(counts["failed"]),
        skipped=str(counts["skipped"]),
        errors="0",
        time=f"{sum(outcome.seconds for outcome in outcomes):.3f}",
    )
    for outcome in outcomes:
        case = ElementTree.SubElement(
            root,
            "testcase",
            classname=suite,
            name=printable(outcome.name),
            time=f"{outcome.seconds:.3f}",
        )
        if outcome.file:
            case.set("file", printable(outcome.file))
        if outcome.level != "passed":
            tag = "failure" if outcome.level == "failed" else "skipped"
            words = printable(outcome.verdict)
            ElementTree.SubElement(case, tag, message=words).text = printable(outcome.message)
    ElementTree.indent(root)
    text: str = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="utf-8"?>\n<!-- {MARKER} -->\n{text}\n'


def to_sarif(outcomes: Sequence[Outcome]) -> str:
    """A SARIF log with one result for each outcome that did not pass.

    Example:
        >>> bad = Outcome(name="train", level="failed", verdict="violation", message="p = 0.01")
        >>> json.loads(to_sarif([bad]))["runs"][0]["results"][0]["level"]
        'error'
    """
    names = sorted({outcome.name for outcome in outcomes})
    driver = {
        "name": "dpaudit",
        "version": __version__,
        "informationUri": "https://github.com/dpaudit/dpaudit",
        "rules": [{"id": name} for name in names],
    }
    run = {
        "tool": {"driver": driver},
        "results": [_result(outcome) for outcome in outcomes if outcome.level != "passed"],
    }
    log = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "properties": {"comment": MARKER},
        "runs": [run],
    }
    return unobeyed(json.dumps(log, indent=2)) + "\n"


def _result(outcome: Outcome) -> dict[str, Any]:
    text = outcome.message
    if not text.lower().startswith(outcome.verdict):  # the sentence of an audit begins with it
        text = f"{outcome.verdict}: {text}"
    result: dict[str, Any] = {
        "ruleId": outcome.name,
        "level": _SARIF_LEVELS[outcome.level],
        "message": {"text": text},
    }
    if outcome.file:
        uri = quote(outcome.file, safe="/", errors="surrogateescape")
        place = {"artifactLocation": {"uri": uri}, "region": {"startLine": outcome.line}}
        result["locations"] = [{"physicalLocation": place}]
    return result
