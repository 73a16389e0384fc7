"""What a check reports: a rule, a verdict, what was measured and what is allowed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, final

RuleVerdict = Literal["passed", "broken", "warning", "could not tell", "left out"]


@final
@dataclass(frozen=True, kw_only=True)
class Rule:
    """One requirement of private training.

    Arguments:
        name: Short name, the same in the table, in JSON and in the documentation.
        requirement: The rule in one sentence.
        cause: Usual cause of a violation.
        remedy: How to repair it.
        seen_in: Where this happened before.
    """

    name: str
    requirement: str
    cause: str
    remedy: str
    seen_in: str = ""

    def passed(self, explanation: str = "", **seen: str) -> Finding:
        """The finding that the rule holds; ``seen`` are further fields of `Finding`."""
        return Finding(rule=self, verdict="passed", explanation=explanation, **seen)

    def warning(self, explanation: str, **seen: str) -> Finding:
        """The finding of what is no leak, but probably a mistake."""
        return Finding(rule=self, verdict="warning", explanation=explanation, **seen)

    def broken(self, explanation: str, **seen: str) -> Finding:
        """The finding that the rule is violated."""
        return Finding(rule=self, verdict="broken", explanation=explanation, **seen)

    def unknown(self, reason: str, **seen: str) -> Finding:
        """The finding that nothing can be said, and why."""
        return Finding(rule=self, verdict="could not tell", explanation=reason, **seen)


@final
@dataclass(frozen=True, kw_only=True)
class Finding:
    """What one check found.

    Arguments:
        rule: The rule that was checked.
        verdict: ``"broken"`` is a leak. ``"warning"`` is no leak, but probably a mistake.
            ``"could not tell"`` has its reason in ``explanation``. The caller excluded a rule that
            is ``"left out"``.
        measured: What was measured.
        allowed: What the rule allows.
        explanation: What was seen, in words; the reason where the verdict is "could not tell".
        seen_in: Where exactly this happened, if that is narrower than ``rule.seen_in``.

    Example:
        >>> rule = Rule(name="noise size", requirement="r", cause="c", remedy="r")
        >>> rule.passed(measured="1.1", allowed="at least 1.1")
        Finding(noise size: passed, measured 1.1, allowed at least 1.1)
    """

    rule: Rule
    verdict: RuleVerdict
    measured: str = ""
    allowed: str = ""
    explanation: str = ""
    seen_in: str = ""

    @property
    def precedent(self) -> str:
        """Where this happened before."""
        return self.seen_in or self.rule.seen_in

    def to_dict(self) -> dict[str, Any]:
        """The finding as plain data."""
        broken = self.verdict == "broken"
        return {
            "rule": self.rule.name,
            "promise": self.rule.requirement,
            "verdict": self.verdict,
            "measured": self.measured,
            "allowed": self.allowed,
            "explanation": self.explanation,
            "cause": self.rule.cause if broken else "",
            "remedy": self.rule.remedy if broken else "",
            "seen_in": self.precedent if broken else "",
        }

    def __repr__(self) -> str:
        measured = f", measured {self.measured}" if self.measured else ""
        allowed = f", allowed {self.allowed}" if self.allowed else ""
        return f"Finding({self.rule.name}: {self.verdict}{measured}{allowed})"


@final
@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """The findings of all checks of a training, or of a step.

    `passed` does not prove privacy: it says that no rule was seen to be broken.

    Arguments:
        findings: One finding for each rule, in the order in which they were checked.
        calls: Number of calls of the training, or of the step.
        false_alarm: Largest probability that a rule about noise reports a correct training.

    Example:
        >>> import numpy as np
        >>> from dpaudit.checks import check_step
        >>> def forgets_to_clip(gradients, seed):
        ...     noise = np.random.default_rng(seed).normal(0, 1.1, gradients.shape[1])
        ...     return gradients.sum(axis=0) + noise
        >>> result = check_step(
        ...     forgets_to_clip, clip_norm=1.0, noise_multiplier=1.1, parameters=300
        ... )
        >>> result.passed, [finding.rule.name for finding in result.broken][0]
        (False, 'bounded contribution')
    """

    findings: tuple[Finding, ...]
    calls: int
    false_alarm: float

    @property
    def broken(self) -> tuple[Finding, ...]:
        """The findings of broken rules."""
        return tuple(found for found in self.findings if found.verdict == "broken")

    @property
    def unknown(self) -> tuple[Finding, ...]:
        """The findings of rules that could not be checked."""
        return tuple(found for found in self.findings if found.verdict == "could not tell")

    @property
    def passed(self) -> bool:
        """Whether no rule was seen to be broken."""
        return not self.broken

    def __getitem__(self, rule: str) -> Finding:
        """The finding about the rule of this name."""
        for found in self.findings:
            if found.rule.name == rule:
                return found
        known = ", ".join(found.rule.name for found in self.findings)
        raise KeyError(f"{rule!r}; the rules are {known}")

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    @property
    def summary(self) -> str:
        """One sentence about all findings."""
        rest = (
            f" {len(self.unknown)} of {len(self.findings)} rules could not be checked."
            if self.unknown
            else ""
        )
        if self.broken:
            return f"Broken: {', '.join(found.rule.name for found in self.broken)}.{rest}"
        return f"No rule was seen to be broken.{rest} This is not a proof of privacy."

    @property
    def counts(self) -> dict[str, int]:
        """Number of findings with each verdict."""
        verdicts = [found.verdict for found in self.findings]
        return {verdict: verdicts.count(verdict) for verdict in dict.fromkeys(verdicts)}

    def to_dict(self) -> dict[str, Any]:
        """The result as plain data."""
        return {
            "passed": self.passed,
            "summary": self.summary,
            "counts": self.counts,
            "calls": self.calls,
            "false_alarm": self.false_alarm,
            "findings": [found.to_dict() for found in self.findings],
        }

    def __repr__(self) -> str:
        rows = "\n".join(f"  {found!r}" for found in self.findings)
        return f"CheckResult({self.summary}\n{rows}\n)"
