"""Receipts of checks: which rules of private training were tested, and what each of them gave.

There are no scores to compute a finding from. What follows from the findings is computed again; the
findings themselves can be seen again by the same check of the same code, which takes seconds.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from dpaudit import checks
from dpaudit._version import __version__
from dpaudit.audits.session import session
from dpaudit.checks import CheckResult
from dpaudit.checks.findings import Finding, Rule
from dpaudit.pipelines import comparing
from dpaudit.receipts.form import Case, CheckReceipt, Plain, as_plain
from dpaudit.trainings.identity import code_digest


def receipt_of_check(
    result: CheckResult,
    *,
    name: str,
    training: Any = None,
    settings: Plain | None = None,
    call: str = "",
) -> CheckReceipt:
    """The receipt of a check of rules, in the process that made it.

    See also: `receipt_of`, the receipt of an audit; `verify`, which checks both.

    Arguments:
        result: What was found; see `dpaudit.checks.check_training`.
        name: Name of what was checked, for readers.
        training: The function that was checked: the receipt has the digest of its code.
        settings: What is claimed, and how it was checked.
        call: The command that was called.

    Example:
        >>> import numpy as np
        >>> from dpaudit.checks import check_step
        >>> def step(gradients, seed):
        ...     noise = np.random.default_rng(seed).normal(0, 1.1, gradients.shape[1])
        ...     return gradients.sum(axis=0) + noise
        >>> claimed = {"clip_norm": 1.0, "noise_multiplier": 1.1}
        >>> receipt = receipt_of_check(
        ...     check_step(step, parameters=300, **claimed), name="my step", settings=claimed
        ... )
        >>> receipt.cases[0].verdict
        'broken'
    """
    code = None if training is None else code_digest(training)
    case = case_of(name, result, settings or {})
    # What cannot be read makes the digest unlike any other, so that it says nothing.
    value = "" if code is None or code.unread else code.value
    return receipt_of_cases(name, [case], code=value, call=call)


def case_of(name: str, result: CheckResult, settings: Plain) -> Case:
    """The findings of a check as a part of a receipt."""
    evidence = as_plain(result.to_dict())
    return Case(name=name, settings=settings, verdict=result.verdict, evidence=evidence)


def receipt_of_cases(
    subject: str, cases: Sequence[Case], *, code: str, call: str = ""
) -> CheckReceipt:
    """The receipt of several checks, such as all ways of using one library.

    Arguments:
        subject: What was checked.
        cases: What was found.
        code: Digest of the code that was checked.
        call: The command that was called.
    """
    return CheckReceipt(
        dpaudit=__version__,
        subject=subject,
        code=code,
        call=call,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        session=session(platform.machine()),
        cases=tuple(cases),
    ).sealed()


def computed_again(case: Case) -> Case:
    """The case as it follows from its findings; itself if it has none, as of an audit."""
    evidence = case.evidence
    if "findings" not in evidence:
        return replace(case, verdict=evidence["verdict"])
    result = CheckResult(
        findings=tuple(_finding(finding) for finding in evidence["findings"]),
        **{name: evidence[name] for name in ("calls", "false_alarm", "note")},
    )
    return case_of(case.name, result, case.settings)


def core_rules_left_out(case: Case) -> Iterator[str]:
    """Names of the core rules that such a check always has, and this one does not."""
    names = {str(finding["rule"]) for finding in case.evidence.get("findings", ())}
    for rules in (checks.RULES, comparing.RULES):
        if names & {rule.name for rule in rules}:
            yield from (rule.name for rule in rules if rule.core and rule.name not in names)


def _finding(plain: Mapping[str, Any]) -> Finding:
    """The finding that was written; whether a rule of dpaudit is a core one is known."""
    rest = dict(plain)
    core = {rule.name: rule.core for rule in (*checks.RULES, *comparing.RULES)}
    name, requirement, stated = rest.pop("rule"), rest.pop("requirement"), rest.pop("core")
    rule = Rule(name=name, requirement=requirement, core=core.get(name, stated))
    return Finding(**rest | {"rule": rule, "untested": tuple(rest["untested"])})
