"""One check: a rule, what must hold before it can be checked, and the function that checks it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import final

from dpaudit.checks.findings import Finding, Rule
from dpaudit.checks.measuring import Measurements
from dpaudit.checks.subject import Subject, UserCodeFailed

Found = Mapping[str, Finding]
"""The findings so far, by the name of their check in `CHECKS`."""

Need = Callable[[Measurements], str]
"""A condition of a check: the reason, as a sentence, why it is not met; empty if it is."""


@final
@dataclass(frozen=True, kw_only=True)
class Check:
    """A rule of private training as a plug-in.

    Arguments:
        rule: The rule, for the report.
        run: Looks for a violation: a function of the measurements and of the earlier findings.
        applies: Whether the rule has a meaning for a training, or for a step; for all by default.
        after: Names of checks of more basic rules: while one of those is broken, nothing is said
            about this one.
        passed: Names of checks that must have passed.
        needs: Conditions without which the rule cannot be checked.
    """

    rule: Rule
    run: Callable[[Measurements, Found], Finding]
    applies: Callable[[Subject], bool] = lambda subject: True
    after: tuple[str, ...] = ()
    passed: tuple[str, ...] = ()
    needs: tuple[Need, ...] = ()

    def finding(self, measured: Measurements, found: Found) -> Finding:
        """What the check finds, or the reason why it cannot tell.

        Arguments:
            measured: The measurements.
            found: The findings of the checks before this one.
        """
        try:
            reason = next(filter(None, self._reasons(measured, found)), "")
            return self.rule.unknown(reason) if reason else self.run(measured, found)
        except UserCodeFailed as error:
            return self.rule.unknown(f"The code that is checked raised an exception: {error}.")

    def _reasons(self, measured: Measurements, found: Found) -> Iterator[str]:
        yield hidden_by(found, "canary-effect", *self.after)
        for name in self.passed:
            if found[name].verdict != "passed":
                yield f"See '{found[name].rule.name}' first."
        for need in self.needs:
            yield need(measured)


def hidden_by(found: Found, *checks: str) -> str:
    """The reason not to look further while a more basic rule is broken; empty if none is."""
    for name in checks:
        if name in found and found[name].verdict == "broken":
            return f"Repair '{found[name].rule.name}' first: it hides this rule."
    return ""
