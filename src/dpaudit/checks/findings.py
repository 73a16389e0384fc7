"""What a check reports: rules, the probes they are made of, verdicts, and the result of all.

A rule is one claim about private training and a table of probes. A probe tries one thing and says
what it saw. `Rule.check` judges: a rule is broken if one of its probes is, and it has passed only
if at least one probe ran. What no probe could test is ``not tested``, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Literal, final

from dpaudit.checks.subject import UserCodeFailed

Verdict = Literal["broken", "warning", "passed", "not tested", "left out"]
ORDER: tuple[Verdict, ...] = ("broken", "warning", "passed", "not tested", "left out")
"""The verdict of a rule is the first of these that one of its probes has."""

DECLARED = {
    "finite_gradients": "Gradients are declared to be always finite.",
    "fixed_batch_size": "The batch size is declared to be fixed and public.",
    "public_transform": "A public transform of the noisy gradient is declared.",
}
"""What callers may declare, which leaves probes out."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a probe saw.

    Arguments:
        verdict: ``"broken"`` is a leak. ``"warning"`` is no leak by itself, but probably a mistake.
            ``"not tested"`` has its reason in ``explanation``. The caller excluded what is
            ``"left out"``.
        explanation: What was seen, in words; the reason where nothing was tested.
        measured: What was measured.
        allowed: The limit that it was compared with.
        cause: The likely cause, where it is narrower than that of the rule.
        remedy: How to repair it, where that is narrower than for the rule.
        seen_in: Where this happened before, where that is narrower than for the rule.
        epsilon: The epsilon that a violation costs by itself; infinite if no epsilon bounds it,
            `None` if it is not known.
    """

    verdict: Verdict
    explanation: str = ""
    measured: str = ""
    allowed: str = ""
    cause: str = ""
    remedy: str = ""
    seen_in: str = ""
    epsilon: float | None = None


def _outcome(verdict: Verdict, explanation: str = "", **details: Any) -> Outcome:
    return Outcome(verdict=verdict, explanation=explanation, **details)


passed = partial(_outcome, "passed")
broken = partial(_outcome, "broken")
warning = partial(_outcome, "warning")
not_tested = partial(_outcome, "not tested")
left_out = partial(_outcome, "left out")


@final
@dataclass(frozen=True, kw_only=True)
class Probe:
    """One thing that a rule tries.

    Arguments:
        name: What is tried, as the report says it.
        run: Tries it: a function of what was measured.
        needs: Conditions without which it cannot be tried: functions of what was measured that
            return the reason, as a sentence, why they are not met, or no text.
        only: The kind of subject that it has a meaning for; all by default.
        unless: The declaration of the caller that leaves it out, one of `DECLARED`.
    """

    name: str
    run: Callable[[Any], Outcome]
    needs: tuple[Callable[[Any], str], ...] = ()
    only: Literal["step", "training", "several steps", ""] = ""
    unless: str = ""

    def outcome(self, measured: Any) -> Outcome:
        """What the probe sees, or the reason why it cannot see anything."""
        if self.unless and self.unless in measured.subject.declared:
            return left_out(DECLARED[self.unless])
        try:
            reason = next(filter(None, (need(measured) for need in self.needs)), "")
            return not_tested(reason) if reason else self.run(measured)
        except UserCodeFailed as error:
            return not_tested(f"The code that is checked raised an exception: {error}.")


@final
@dataclass(frozen=True, kw_only=True)
class Rule:
    """One requirement of private training.

    Another package adds a rule with an entry point in the group ``dpaudit.checks`` that names such
    an object.

    Arguments:
        name: Short name, the same on the screen, in JSON and in the documentation.
        requirement: The rule in one sentence.
        cause: Usual cause of a violation.
        remedy: How to repair it.
        seen_in: Where this happened before.
        core: Whether a result without a test of this rule has not passed.
        after: Names of more basic rules: while one of those is broken, this one is not tested.
        probes: What the rule tries, in this order, until a probe sees it broken.
    """

    name: str
    requirement: str
    cause: str = ""
    remedy: str = ""
    seen_in: str = ""
    core: bool = False
    after: tuple[str, ...] = ()
    probes: tuple[Probe, ...] = field(default=(), repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        """The words without the probes: findings are sent to other processes, functions are not."""
        return vars(self) | {"probes": ()}

    def finding(self, outcome: Outcome, *, untested: tuple[str, ...] = ()) -> Finding:
        """The finding of an outcome, with the rule's own words where the outcome has none."""
        words = {
            name: getattr(outcome, name) or getattr(self, name)
            for name in ("cause", "remedy", "seen_in")
        }
        return Finding(**asdict(outcome) | words, rule=self, untested=untested)

    def check(self, measured: Any, findings: Mapping[str, Finding]) -> Finding | None:
        """Try all probes and judge; `None` if no probe has a meaning for what is checked."""
        probes = [p for p in self.probes if not p.only or p.only in measured.subject.kinds]
        if not probes:
            return None
        for name in ("canary has an effect", *self.after):
            if name in findings and findings[name].verdict == "broken":
                return self.finding(not_tested(f"Repair '{name}' first: it hides this rule."))
        outcomes: list[Outcome] = []
        for probe in probes:
            outcomes.append(probe.outcome(measured))
            if outcomes[-1].verdict == "broken":
                break
        decisive = min(outcomes, key=lambda outcome: ORDER.index(outcome.verdict))
        if decisive.verdict in ("not tested", "left out"):
            return self.finding(decisive)
        untested = tuple(
            f"{probe.name}: {outcome.explanation}"
            for probe, outcome in zip(probes, outcomes, strict=False)
            if outcome.verdict == "not tested"
        )
        return self.finding(decisive, untested=untested)


@final
@dataclass(frozen=True, kw_only=True)
class Finding(Outcome):
    """What was found about one rule: the outcome of the probe that decides, and the rule's words.

    Arguments:
        rule: The rule that was checked.
        untested: The probes of the rule that could not be tried, each with its reason.

    Example:
        >>> rule = Rule(name="noise size", requirement="Noise is as large as claimed.")
        >>> rule.finding(passed(measured="1.1", allowed="at least 1.1"))
        Finding(noise size: passed, measured 1.1, allowed at least 1.1)
    """

    rule: Rule
    untested: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The finding as plain data."""
        wrong = self.verdict in ("broken", "warning")
        return {
            "rule": self.rule.name,
            "requirement": self.rule.requirement,
            "core": self.rule.core,
            "verdict": self.verdict,
            "measured": self.measured,
            "allowed": self.allowed,
            "explanation": self.explanation,
            "cause": self.cause if wrong else "",
            "remedy": self.remedy if wrong else "",
            "seen_in": self.seen_in if wrong else "",
            "untested": list(self.untested),
            "epsilon": self.epsilon if wrong else None,
        }

    def __repr__(self) -> str:
        measured = f", measured {self.measured}" if self.measured else ""
        allowed = f", allowed {self.allowed}" if self.allowed else ""
        return f"Finding({self.rule.name}: {self.verdict}{measured}{allowed})"


@final
@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """The findings about all rules of a training, of a step, or of a pipeline.

    `passed` does not prove privacy: it says that no rule was seen to be broken, and that the core
    rules (bounded contribution, noise in every parameter, noise size) were tested.

    Arguments:
        findings: One finding for each rule, in the order in which they were checked.
        calls: Number of calls of the user's code.
        false_alarm: Largest probability that a rule about noise reports a correct training.
        note: What was assumed about the training, such as a number of steps that was counted.

    Example:
        >>> import numpy as np
        >>> from dpaudit.checks import check_step
        >>> def forgets_to_clip(gradients, seed):
        ...     noise = np.random.default_rng(seed).normal(0, 1.1, gradients.shape[1])
        ...     return gradients.sum(axis=0) + noise
        >>> result = check_step(
        ...     forgets_to_clip, clip_norm=1.0, noise_multiplier=1.1, parameters=300
        ... )
        >>> result.verdict, [finding.rule.name for finding in result.broken]
        ('broken', ['bounded contribution'])
    """

    findings: tuple[Finding, ...]
    calls: int
    false_alarm: float
    note: str = ""

    @property
    def verdict(self) -> Literal["passed", "broken", "not tested"]:
        """``"broken"`` if a rule is, ``"not tested"`` if a core rule could not be tested."""
        if self.broken:
            return "broken"
        return "not tested" if any(finding.rule.core for finding in self.not_tested) else "passed"

    @property
    def passed(self) -> bool:
        """Whether no rule was seen to be broken and all core rules were tested."""
        return self.verdict == "passed"

    @property
    def broken(self) -> tuple[Finding, ...]:
        """The findings about broken rules."""
        return self._with("broken")

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """The findings of what is no leak by itself, but probably a mistake."""
        return self._with("warning")

    @property
    def not_tested(self) -> tuple[Finding, ...]:
        """The findings about rules that could not be tested."""
        return self._with("not tested")

    def _with(self, verdict: Verdict) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.verdict == verdict)

    def __getitem__(self, rule: str) -> Finding:
        """The finding about the rule of this name."""
        by_name = {finding.rule.name: finding for finding in self.findings}
        if rule not in by_name:
            raise KeyError(f"{rule!r}; the rules are {', '.join(by_name)}")
        return by_name[rule]

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    @property
    def summary(self) -> str:
        """One sentence about all findings."""
        untested = len(self.not_tested)
        rest = f" {untested} of {len(self.findings)} rules were not tested." if untested else ""
        if self.broken:
            return f"Broken: {', '.join(finding.rule.name for finding in self.broken)}.{rest}"
        if not self.passed:
            core = ", ".join(
                untested.rule.name for untested in self.not_tested if untested.rule.core
            )
            return f"Not tested: {core}.{rest}"
        return f"No rule was seen to be broken.{rest} This is not a proof of privacy."

    def to_dict(self) -> dict[str, Any]:
        """The result as plain data."""
        verdicts = [finding.verdict for finding in self.findings]
        return {
            "verdict": self.verdict,
            "passed": self.passed,
            "summary": self.summary,
            "note": self.note,
            "counts": {verdict: verdicts.count(verdict) for verdict in dict.fromkeys(verdicts)},
            "calls": self.calls,
            "false_alarm": self.false_alarm,
            "findings": [finding.to_dict() for finding in self.findings],
        }

    def __repr__(self) -> str:
        rows = "\n".join(f"  {finding!r}" for finding in self.findings)
        return f"CheckResult({self.summary}\n{rows}\n)"
