"""All sentences about results. Nothing is computed here.

`statement` puts an audit in words: the verdict, what was claimed, what was shown, what the verdict
rests on and what the audit would have found, and what to do next. Text, report page, JSON, JUnit
and notebooks show this statement, in this order.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, final

from dpaudit._numbers import counted, decimals, duration, percent
from dpaudit.privacy import Bound, ThreatModel, Unavailable

if TYPE_CHECKING:
    from dpaudit.audits import Assessment, AuditResult
    from dpaudit.claims import ClaimTest
    from dpaudit.claims.power import Power

HARDLY_CHANCE = 0.001
"""A violation whose test has a larger false-alarm rate says so."""

MOST_LINES, LINE_WIDTH = 12, 80
"""The size of `Statement.page`, unless what decides needs more lines."""

SUSPECTED = "SUSPECTED"
"""Stands beside a lower bound above the claim, without a violation that is confirmed."""

_SEES = {
    ThreatModel.HIDDEN_STATE: "an adversary who sees only the final model",
    ThreatModel.STANDARD: "an adversary who sees every iterate",
    ThreatModel.BLACK_BOX: "an adversary who sees only losses or predictions",
    None: "this adversary",
}
_CONDITIONS = {
    "the mechanism's trade-off curve is Gaussian (mu-GDP)": "if the trade-off is Gaussian",
    "canaries of the same run are independent": "if canaries are independent",
    "every canary was inserted by its own fair coin": "if coins are fair",
    "scores are independent of each other": "if scores are independent",
}
_WORDS = {"no-claim": "No claim", "too-few-scores": "No bound yet"}
_LEFT = 30  # the column of conditions


# --- The statement of an audit. -------------------------------------------------------------------


@final
@dataclass(frozen=True, kw_only=True)
class Line:
    """A claimed or shown epsilon, and the condition under which it holds."""

    epsilon: float | None
    sign: str
    words: str

    @property
    def value(self) -> str:
        """The epsilon with the digits that a reader uses."""
        if self.epsilon is None:
            return "nothing"
        return "infinite" if math.isinf(self.epsilon) else decimals(self.epsilon, 2)

    def __str__(self) -> str:
        epsilon = "nothing" if self.epsilon is None else f"epsilon {self.sign} {self.value}"
        return f"{epsilon} ({self.words})".replace("\u00a0", " ")


@final
@dataclass(frozen=True, kw_only=True)
class Statement:
    """The result of an audit in words.

    Arguments:
        verdict: The verdict in one word.
        what: The training, the adversary, the number of runs and the duration.
        claimed: The claim.
        shown: Lower bounds, the leading one first.
        earlier: Lower bounds of shorter trainings; empty if there are none.
        meaning: What the verdict rests on and what the audit would have found, one sentence or two
            in each, the most important ones first.
        advice: What to do next; empty if nothing needs to be done.
    """

    verdict: str
    what: str
    claimed: Line
    shown: tuple[Line, ...]
    earlier: str = ""
    meaning: tuple[str, ...] = ()
    advice: str = ""

    @property
    def sentence(self) -> str:
        """The statement as prose."""
        shown = ", ".join(map(str, self.shown))
        words = f"{verdict_word(self.verdict)}: claimed {self.claimed}; shown {shown}."
        return " ".join(part for part in (words, *self.meaning, self.advice) if part)

    @property
    def rows(self) -> tuple[tuple[str, str], ...]:
        """Pairs of a heading and a text, for a page."""
        shown = ", ".join(map(str, self.shown))
        rows = (
            ("Claimed", f"{capitalised(str(self.claimed))}."),
            ("Shown", f"{capitalised(shown)}."),
            ("Meaning", " ".join(self.meaning)),
            ("What to do", self.advice),
        )
        return tuple((heading, typeset(text)) for heading, text in rows if text)

    def page(self, commands: Sequence[str] = ()) -> list[str]:
        """The statement in at most twelve lines of 80 characters.

        What the verdict rests on is always printed whole. Further sentences are left out if there
        is no room; the last command shows everything.
        """
        lines = _hanging(f"{verdict_word(self.verdict).upper()}   ", self.what)
        lines += ["", *_row("claimed", self.claimed)]
        for number, line in enumerate(self.shown):
            lines += _row("" if number else "shown", line)
        if self.earlier:
            lines += _hanging("  earlier   ", self.earlier)
        sentences = [_hanging("  ", text) for text in (*self.meaning, self.advice) if text]
        decisive = {0, 1} if self.verdict == "consistent" else {0, len(sentences) - 1}
        last = _commands(commands)
        printed = [place in decisive for place in range(len(sentences))]

        def room() -> int:
            used = sum(len(text) for text, show in zip(sentences, printed, strict=True) if show)
            return MOST_LINES - len(lines) - 1 - used - len(last)

        if room() < 0:
            last = _commands(commands[-1:])
        if room() < 0:
            last = last[1:]  # without the empty line before it
        for place, text in enumerate(sentences):
            printed[place] = printed[place] or len(text) <= room()
        chosen = [text for text, show in zip(sentences, printed, strict=True) if show]
        return [*lines, "", *(line for text in chosen for line in text), *last]


def statement(result: AuditResult) -> Statement:
    """The result of an audit in words."""
    final, claimed = result.final, result.claimed_epsilon
    return Statement(
        verdict=result.verdict,
        what=", ".join(_what(result)),
        claimed=_claimed(final, claimed),
        shown=tuple(_shown(final, claimed, violation=result.verdict == "violation")),
        earlier=_earlier(result),
        meaning=tuple(_meaning(result)),
        advice=_advice(result),
    )


def _what(result: AuditResult) -> Iterator[str]:
    yield f"{result.name} ({result.training})" if result.name else result.training
    if result.description.live:
        yield f"{result.canaries:,} canaries"
        yield counted(result.final.horizon, "step")
        return
    if result.description.training is None:
        yield f"adversary {result.adversary}"
    runs = counted(result.runs, "training")
    if not result.finished:
        runs = f"{result.runs:,} of {counted(result.asked, 'training')}"
    elif result.fresh_runs:
        runs = f"{result.runs:,} + {result.fresh_runs:,} trainings"
    yield runs + (f" of {result.canaries:,} canaries" if result.canaries > 1 else "")
    if result.failures:
        yield f"{len(result.failures):,} failed"
    if result.seconds:
        yield duration(result.seconds).replace(" ", "\u00a0")


def _claimed(final: Assessment, claimed: float) -> Line:
    delta = _typed(final.leading.delta)
    if final.test is None:
        return Line(epsilon=None, sign="<=", words=f"delta\u00a0{delta}")
    claim = final.test.claim.description.replace("DP-SGD with noise", "DP-SGD: noise")
    if f"{final.leading.delta:g}" not in claim:
        claim += f", delta\u00a0{delta}"
    return Line(epsilon=claimed, sign="<=", words=claim)


def _shown(final: Assessment, claimed: float, *, violation: bool) -> Iterator[Line]:
    """The leading bound, and the first one without assumptions."""
    leading = final.leading
    free = [bound for bound in final.lower if bound is not leading and _is_free(bound)]
    for bound in (leading, *free[:1]):
        words = [_condition(text) for text in bound.assumptions]
        if len(words) > 1:  # in one line: if Gaussian, canaries independent
            brief = [re.sub(r"^if (the trade-off is )?| are\b", "", text) for text in words]
            words = [f"if {', '.join(brief)}"]
        if not bound.assumptions:
            words.append("without assumptions")
        if bound is leading or bound.confidence != leading.confidence:
            words.append(f"{percent(bound.confidence or 0)}\u00a0% confidence")
        if final.test is not None and not violation and bound.epsilon > claimed:
            words.insert(0, f"{SUSPECTED}: above the claim")
        yield Line(epsilon=bound.epsilon, sign=">=", words=", ".join(words))


def _condition(assumption: str) -> str:
    if assumption.startswith("the mechanism is DP-SGD with"):  # the claim above says the numbers
        return "if it is DP-SGD of this rate"
    return _CONDITIONS.get(assumption, f"if {assumption}")


def _is_free(bound: Bound) -> bool:
    """Whether a bound assumes nothing but fair coins, which an audit has by itself."""
    return all(_condition(text) == "if coins are fair" for text in bound.assumptions)


def _earlier(result: AuditResult) -> str:
    parts = result.horizons[:-1]
    more = ", ..." if len(parts) > 4 else ""
    bounds = ", ".join(decimals(part.leading.epsilon, 2) for part in parts[:4])
    steps = ", ".join(f"{part.horizon:,}" for part in parts[:4])
    return f"epsilon >= {bounds} after {steps}{more} steps" if parts else ""


def _meaning(result: AuditResult) -> Iterator[str]:
    final, test = result.final, result.test
    if not result.finished:
        yield "No verdict yet: stopping now would invalidate the confidence."
    elif test is None:
        yield "Nothing finite is claimed."
    elif result.verdict == "violation":
        yield from _why_violation(final, test)
    else:
        if result.verdict == "consistent":
            yield from _how_tight(final, result.claimed_epsilon, live=result.description.live)
        else:
            yield from _why_inconclusive(test)
        same = "runs differ by noise and canary only"
        yield power_line(replace(test.power, condition=same) if result.advice else test.power)
        if final.covers and not result.description.live and result.verdict == "consistent":
            yield f"It covers {final.covers}; dpaudit check tests the shape of the noise."
    if test is not None:
        if result.verdict == "violation" or test.suspected:
            yield from test.doubts
        if test.bare is not None:
            yield f"{capitalised(bare_line(test))}."
        yield from (f"This assumes that {text}." for text in test.claim.assumptions)
    yield from (f"{capitalised(notice)}." for notice in result.notices)


def _why_violation(final: Assessment, test: ClaimTest) -> Iterator[str]:
    own = [text for text in test.assumptions if text not in test.claim.assumptions]
    condition = f" and {' and '.join(own)}" if own else ""
    fresh = " Fresh runs confirm it." if test.stage == 2 else ""
    sentence = (
        f"If the claim were true{condition}, scores this extreme would occur with probability at "
        f"most {test.p_value:.2g}{_where(final)}.{fresh}"
    )
    if test.policy.false_alarms > HARDLY_CHANCE:
        sentence += f" One test at {100 * test.policy.false_alarms:.3g} % decides."
    yield sentence


def _where(final: Assessment) -> str:
    """The tensors whose canaries refute the claim."""
    refuted = [name for name, test in final.tensors.items() if test.verdict == "violation"]
    if not refuted:
        return ""
    shown = ", ".join(refuted[:5]) + (", ..." if len(refuted) > 5 else "")
    return f". The violation is in {shown} ({len(refuted)} of {len(final.tensors)} canaries)"


def _how_tight(final: Assessment, claimed: float, *, live: bool) -> Iterator[str]:
    lower, upper = final.leading.epsilon, final.least_upper.epsilon
    if final.tightness is None or not 0 < upper < math.inf:
        return
    limit = "the claim" if claimed <= upper else f"the upper bound {decimals(upper, 2)}"
    share = f"{100 * lower / min(claimed, upper):.0f} % of {limit}"
    sees = _SEES[final.threat_model]
    if lower > upper:
        yield "Slightly above the claim, as happens by chance; the test finds no violation."
    elif final.tightness == "tight":
        yield f"Tight: {share}, by {sees}."
    elif live:
        yield f"{share}. More canaries, or more steps, show more."
    elif final.tightness == "more-runs":
        yield f"{share}. {counted(len(final.scores), 'score')} cannot show more: increase runs."
    else:
        hidden = ", failed runs hide the leak," if final.failed else ""
        yield (
            f"A gap: {share}. The training leaks less to {sees}{hidden} or a stronger adversary "
            "exists."
        )


def _why_inconclusive(test: ClaimTest) -> Iterator[str]:
    if test.suspected:
        yield f"Suspected: {_suspicion(test)}."
    elif test.doubts:
        yield " ".join(test.doubts)
    elif test.hidden_by_failures or not test.attainable:
        yield f"{capitalised(claim_notes(test)[-1])}."
    else:
        yield "The claim is not refuted, but noise that is too small would have been missed."


def _suspicion(test: ClaimTest) -> str:
    """Why a suspicion is not a violation."""
    if test.only_if_independent:
        return f"p = {test.p_value:.2g} if the canaries of a run are independent"
    if test.stage == 2:
        return f"p = {test.p_value:.2g} in fresh runs"
    if test.to_confirm:
        return f"p = {test.p_value:.2g}, and fresh runs would decide"
    return f"p = {test.p_value:.2g}, and a violation needs p <= {test.policy.prove:g}"


def _advice(result: AuditResult) -> str:
    test = result.test
    match result.verdict:
        case "unfinished":
            return "Repeat the command that started the audit to finish it."
        case "no-claim":
            return "Give a claim to test it."
        case "violation":
            sampled = test is not None and "sampling_rate" in test.claim.settings
            batches = " batches," if sampled and not result.description.live else ""
            return (
                f"Look for a bug (noise, clipping,{batches} number of steps) or a mistake in the "
                "claim."
            )
        case "consistent" if result.description.live:
            return "No audit proves a claim; more canaries find more."
        case "consistent":
            return result.advice or (
                "No audit proves a claim; more runs or a stronger adversary find more."
            )
    if test is None or (test.doubts and not test.suspected):
        return ""  # the doubt says what to do
    if test.suspected and result.description.live:
        return "Watch the next training too: e-values of independent trainings multiply."
    if test.only_if_independent:
        return "Use more runs with fewer canaries each."
    if test.to_confirm:
        return "Repeat it without --max-runs and --time-limit, so that fresh runs decide."
    if test.suspected:
        return "Repeat the audit with another seed."
    if test.hidden_by_failures:
        return ""
    if result.description.live:
        return "Use more canaries, or watch more steps."
    return result.advice or (
        "Increase the number of runs (see dpaudit plan), or use a stronger canary."
    )


# --- All bounds of a result. ----------------------------------------------------------------------

_MOST_FAILURES, _MOST_TENSORS = 3, 12
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def all_bounds(result: AuditResult) -> Iterator[str]:
    """All bounds with what each assumes, notes and failures, and the verdict in prose."""
    for assessment in result.horizons:
        whole = assessment is result.final
        stopped = "" if whole else f", training stopped at {assessment.horizon}"
        yield f"{bounds_title(assessment.leading)}{stopped}"
        bounds = (assessment.least_upper, *assessment.lower)
        hide = ("delta", "confidence", "error")
        yield from bounds_table(bounds, unavailable=assessment.lower.unavailable, hide=hide)
    tests = sorted(result.final.tensors.items(), key=lambda item: item[1].p_value)
    for name, test in tests[:_MOST_TENSORS]:
        yield f"tensor {name}: {test.verdict}, p = {test.p_value:.2g}"
    if len(tests) > _MOST_TENSORS:
        yield f"({len(tests) - _MOST_TENSORS} further tensors have larger p-values)"
    model = result.threat_model
    unknown = "unknown; it depends on what your score was made of"
    seen = unknown if model is None else f"{model.value}, scored by {result.adversary}"
    yield f"Threat model: {seen}. Device: {result.device}."
    yield from result.notes
    for failure in result.failures[:_MOST_FAILURES]:
        yield f"run {failure.run} failed: {failure.error}"
    if len(result.failures) > _MOST_FAILURES:
        more = counted(len(result.failures) - _MOST_FAILURES, "further run")
        yield f"({more} failed; dpaudit show prints all)"
    if result.verdict == "violation" and result.test is not None:
        yield power_line(result.test.power)
    yield result.sentence


def bounds_title(leading: Bound) -> str:
    """What the bounds of one table share."""
    sure = f"{percent(leading.confidence or 0)} %"
    return f"epsilon at delta = {leading.delta:g}, lower bounds at {sure} confidence"


def bounds_table(
    bounds: Sequence[Bound],
    *,
    unavailable: Sequence[Unavailable] = (),
    hide: Collection[str] = (),
) -> Iterator[str]:
    """Bounds as a table of 80 columns without those named in ``hide``; below it their assumptions.

    An assumption that not all bounds share has a letter, which their rows in the table show.
    """
    assumptions = list(dict.fromkeys(text for bound in bounds for text in bound.assumptions))
    shared = [text for text in assumptions if all(text in each.assumptions for each in bounds)]
    letters = dict(
        zip((text for text in assumptions if text not in shared), _LETTERS, strict=False)
    )
    table = [
        {
            "method": bound.method,
            "threshold": str(bound.details.get("threshold_rule", "")),
            "epsilon": _quantity(bound, "epsilon", _number(bound.epsilon)),
            "delta": _quantity(bound, "delta", f"{bound.delta:.4g}"),
            "mu": "" if bound.mu is None or math.isinf(bound.mu) else decimals(bound.mu, 4),
            "confidence": bound.level.removesuffix(" confidence"),
            "scores": "" if bound.sample_size is None else f"{bound.sample_size:,}",
            "error": "" if bound.numerical_error is None else f"{bound.numerical_error:.1g}",
            "assumes": " ".join(letters[text] for text in bound.assumptions if text in letters),
        }
        for bound in bounds
    ]
    names = [
        name
        for name in (table[0] if table else ())
        if name not in hide and any(row[name] for row in table)
    ]
    widths = {name: max(len(name), *(len(row[name]) for row in table)) for name in names}
    if names:
        yield _cells({name: name for name in names}, widths)
        yield "─" * (sum(widths.values()) + 2 * len(widths) - 2)
        yield from (_cells(row, widths) for row in table)
    yield from (f"Assumes: {text}." for text in shared)
    yield from (f" {letter}  assumes: {text}" for text, letter in letters.items())
    methods = [bound.method for bound in bounds]
    notes = [
        (bound.method if methods.count(bound.method) == 1 else method_name(bound), note)
        for bound in bounds
        for note in bound.notes
    ]
    yield from by_text(notes)
    yield from by_text((missing.method, f"no number. {missing.reason}") for missing in unavailable)


def _number(epsilon: float) -> str:
    return "∞" if math.isinf(epsilon) else decimals(epsilon, 4)


def _quantity(bound: Bound, name: str, value: str) -> str:
    """A number; with its sign if it is what the bound is about."""
    sign = "≥" if bound.side == "lower" else "≤"
    return f"{sign} {value}" if bound.quantity == name else value


def _cells(row: Mapping[str, str], widths: Mapping[str, int]) -> str:
    """One line of a table: names to the left, numbers to the right."""
    names = ("method", "threshold", "assumes")
    cells = (f"{row[k]:{'<' if k in names else '>'}{width}}" for k, width in widths.items())
    return "  ".join(cells).rstrip()


def by_text(pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Each text once, after the names that share it.

    Example:
        >>> list(by_text([("a", "too few"), ("b", "no noise"), ("c", "too few")]))
        ['a, c: too few', 'b: no noise']
    """
    names_of: dict[str, dict[str, None]] = {}
    for name, text in pairs:
        names_of.setdefault(text, {})[name] = None
    return (f"{', '.join(names)}: {text}" for text, names in names_of.items())


# --- The test of a claim. -------------------------------------------------------------------------


def power_line(power: Power) -> str:
    """What a test would have found, in one sentence."""
    where = f" in {power.canary}" if power.canary else ""
    if power.found is None:
        return f"Could not have found too little noise{where}, however small."
    if power.found == 1.0:
        return "Scores like these refute the claim 9 times of 10."
    small = (
        f"{100 * (1 - 1 / power.found):.2g} %" if power.found <= 2 else f"{power.found:.3g} times"
    )
    condition = f", if {power.condition}" if power.condition else ""
    return f"Would have found noise {small} too small{where} (9 times of 10){condition}."


def power_dict(power: Power) -> dict[str, Any]:
    """The power as plain data, with its sentence."""
    return {**power.to_dict(), "sentence": power_line(power)}


def bare_line(test: ClaimTest) -> str:
    """The verdict on the claimed pair alone; empty if no pair was extended to a function."""
    if test.bare is None or test.claim.pair is None:
        return ""
    refuted = "refuted" if test.bare.refuted else "not refuted"
    return f"bare ({test.claim.pair[0]:g}, {test.claim.pair[1]:g}): {refuted}"


def claim_notes(test: ClaimTest) -> tuple[str, ...]:
    """What else a reader of a verdict should know."""
    return (*test.notes, *_claim_notes(test))


def _claim_notes(test: ClaimTest) -> Iterator[str]:
    if test.anytime:
        yield "the scores were tested as they came; the test is valid whenever the audit stops"
    if test.suspected:
        yield f"suspected: {_suspicion(test)}"
    if test.hidden_by_failures:
        yield (
            "the scores of the runs that did not fail speak against the claim; counting failed "
            "runs as lowest scores hides it: repair the failures and repeat the audit"
        )
    if not test.attainable:
        needed = test.scores_needed
        enough = "more than can be collected" if needed is None else f"about {needed:,} scores"
        yield (
            f"even scores without any error would not refute this claim: it takes {enough}"
            f"{' per tensor' if len(test.tensors) > 1 else ''}"
        )


# --- Words and signs. -----------------------------------------------------------------------------


def verdict_word(verdict: str) -> str:
    """The verdict as a heading."""
    return _WORDS.get(verdict, verdict.replace("-", " ").capitalize())


def typeset(text: str) -> str:
    """Plain-text signs replaced by typographic ones.

    Example:
        >>> typeset("epsilon >= 2.10, 88% of it")
        'ε ≥ 2.10, 88 % of it'
        >>> typeset("delta = 1e-05")
        'δ = 1e−5'
    """
    for plain, sign in (("epsilon", "ε"), ("delta", "δ"), (">=", "≥"), ("<=", "≤")):
        text = re.sub(rf"(?i:\b{plain}\b)" if plain.isalpha() else plain, sign, text)
    text = re.sub(r"(\d)e([-+])0?(\d)", r"\1e\2\3", text)
    text = re.sub(r"(\d)e-(\d)", r"\1e−\2", text)  # a line may break after a hyphen
    return re.sub(r"(\d)%", r"\1 %", text)


def method_name(bound: Bound) -> str:
    """The method of a bound, and how its threshold was chosen."""
    rule = bound.details.get("threshold_rule")
    return f"{bound.method}, {rule}" if rule else bound.method


def assumed(bound: Bound) -> str:
    """What a bound assumes, in one line."""
    return "; ".join(bound.assumptions) if bound.assumptions else "no assumption"


def capitalised(text: str) -> str:
    """The text with a capital first letter; the other letters stay."""
    return text[:1].upper() + text[1:]


def _typed(delta: float) -> str:
    """Delta as one types it: 1e-5."""
    return re.sub(r"e([-+])0", r"e\1", f"{delta:g}")


def _row(label: str, line: Line) -> list[str]:
    value = line.value if line.epsilon is None else f"epsilon {line.sign} {line.value:>5}"
    return _hanging(f"  {label:<10}{value}  ".ljust(_LEFT), line.words)


def _hanging(start: str, text: str) -> list[str]:
    """A line that begins with ``start``; what does not fit is indented as far."""
    lines = textwrap.wrap(
        text,
        LINE_WIDTH,
        initial_indent=start,
        subsequent_indent=" " * len(start),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace("\u00a0", " ") for line in lines]


def _commands(commands: Sequence[str]) -> list[str]:
    """The commands in one line, or one line each if they are long."""
    if not commands:
        return []
    together = "  " + "    ".join(commands)
    lines = [together] if len(together) <= LINE_WIDTH else [f"  {text}" for text in commands]
    return ["", *lines]
