"""What a check says: a rule, a verdict, what was measured against what is allowed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, final

Verdict = Literal["passed", "broken", "warning", "could not tell"]


@final
@dataclass(frozen=True, kw_only=True)
class Rule:
    """One thing that a private training must do.

    Arguments:
        name: A short name, the same in the table, in JSON and in the docs.
        promise: The rule in one sentence.
        cause: What usually breaks it.
        remedy: What puts it right.
        seen_in: Where it happened.
    """

    name: str
    promise: str
    cause: str
    remedy: str
    seen_in: str = ""


@final
@dataclass(frozen=True, kw_only=True)
class Finding:
    """What one check found.

    Arguments:
        rule: The rule that was put to the test.
        verdict: ``"broken"`` is a leak. ``"warning"`` is no leak, but surely not what was meant.
            ``"could not tell"`` comes with its reason in ``explanation``.
        measured: What was seen.
        allowed: What the rule allows.
        explanation: What it means, in plain words; the reason where nothing could be told.
        seen_in: Where exactly this happened, if that is narrower than the rule's own precedents.

    Example:
        >>> rule = Rule(name="noise size", promise="p", cause="c", remedy="r")
        >>> Finding(rule=rule, verdict="passed", measured="1.1", allowed="at least 1.1")
        Finding(noise size: passed, measured 1.1, allowed at least 1.1)
    """

    rule: Rule
    verdict: Verdict
    measured: str = ""
    allowed: str = ""
    explanation: str = ""
    seen_in: str = ""

    @property
    def precedent(self) -> str:
        """Where it happened to others."""
        return self.seen_in or self.rule.seen_in

    def to_dict(self) -> dict[str, Any]:
        """The finding as plain data."""
        return {
            "rule": self.rule.name,
            "promise": self.rule.promise,
            "verdict": self.verdict,
            "measured": self.measured,
            "allowed": self.allowed,
            "explanation": self.explanation,
            "cause": self.rule.cause if self.verdict == "broken" else "",
            "remedy": self.rule.remedy if self.verdict == "broken" else "",
            "seen_in": self.precedent if self.verdict == "broken" else "",
        }

    def __repr__(self) -> str:
        measured = f", measured {self.measured}" if self.measured else ""
        allowed = f", allowed {self.allowed}" if self.allowed else ""
        return f"Finding({self.rule.name}: {self.verdict}{measured}{allowed})"


@final
@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """All that the checks of a training, or of a step, have found.

    `passed` is no proof of privacy: it says that none of these rules was seen to be broken.

    Arguments:
        findings: One for each rule, in the order in which they were checked.
        calls: How often the training, or the step, was called.
        false_alarm: Largest probability with which a rule about noise calls a correct one broken.

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
        """The rules that were seen to be broken."""
        return tuple(found for found in self.findings if found.verdict == "broken")

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
        """One sentence about the whole."""
        if self.broken:
            names = ", ".join(found.rule.name for found in self.broken)
            return f"Broken: {names}."
        unknown = sum(found.verdict == "could not tell" for found in self.findings)
        rest = f" {unknown} could not be told." if unknown else ""
        return f"No rule was seen to be broken.{rest} This is not a proof of privacy."

    def to_dict(self) -> dict[str, Any]:
        """The result as plain data."""
        return {
            "passed": self.passed,
            "summary": self.summary,
            "calls": self.calls,
            "false_alarm": self.false_alarm,
            "findings": [found.to_dict() for found in self.findings],
        }

    def __repr__(self) -> str:
        rows = "\n".join(f"  {found!r}" for found in self.findings)
        return f"CheckResult({self.summary}\n{rows}\n)"
