"""One check: a rule and the function that looks for violations of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import final

from dpaudit.checks.findings import Finding, Rule
from dpaudit.checks.measuring import Measurements
from dpaudit.checks.subject import Subject

Found = Mapping[str, Finding]
"""The findings so far, by the name of their rule."""


@final
@dataclass(frozen=True, kw_only=True)
class Check:
    """A rule of private training as a plug-in.

    Arguments:
        rule: The rule, for the report.
        run: Looks for a violation: a function of the measurements and of the earlier findings.
        applies: Whether the rule has a meaning for a training, or for a step; for all by default.
    """

    rule: Rule
    run: Callable[[Measurements, Found], Finding]
    applies: Callable[[Subject], bool] = lambda subject: True


def hidden_by(found: Found, *rules: Rule) -> str:
    """The reason not to look further while a more basic rule is broken; empty if none is."""
    for rule in rules:
        if rule.name in found and found[rule.name].verdict == "broken":
            return f"Repair '{rule.name}' first: it hides this rule."
    return ""
