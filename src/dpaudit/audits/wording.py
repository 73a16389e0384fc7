"""The result of an audit in words. Nothing is computed here.

`verdict_page` is the result in at most twelve lines, which commands and `AuditResult.summary`
print; `sentence` is the verdict in prose, for pages, JSON and JUnit.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from dpaudit._numbers import counted, decimals, duration, percent
from dpaudit.audits.assessment import Assessment
from dpaudit.claims import LIVE, ClaimTest
from dpaudit.lower_bounds.diagnostics import FAIR_COINS, INDEPENDENT_SCORES
from dpaudit.privacy import Bound, ThreatModel
from dpaudit.report.words import (
    ADVICE,
    bare_line,
    capitalised,
    claim_notes,
    power_in_words,
    power_line,
    verdict_word,
)

if TYPE_CHECKING:
    from dpaudit.audits.result import AuditResult

HARDLY_CHANCE = 0.001
"""The sentence of a violation with a larger p-value says how often chance leads to one."""

_SEES = {
    ThreatModel.HIDDEN_STATE: "an adversary who sees only the final model",
    ThreatModel.STANDARD: "an adversary who sees every iterate",
    ThreatModel.BLACK_BOX: "an adversary who sees only losses or predictions",
    None: "this adversary",
}

MOST_LINES, LINE_WIDTH = 12, 80
"""The size of `verdict_page`, unless its conditions alone need more lines."""

_CONDITIONS = {
    "the mechanism's trade-off curve is Gaussian (mu-GDP)": "if the trade-off is Gaussian",
    "canaries of the same run are independent": "if canaries are independent",
    FAIR_COINS: "if coins are fair",
    INDEPENDENT_SCORES: "if scores are independent",
}
SUSPECTED = "SUSPECTED"
"""Stands beside a lower bound above the claim, without a violation that is confirmed."""

_LEFT = 31  # the column of conditions


def verdict_page(result: AuditResult, *, commands: Sequence[str] = ()) -> list[str]:
    """The result in at most twelve lines: verdict, claimed and shown, meaning, what to do next.

    Arguments:
        result: The result.
        commands: What to call next.
    """
    lines = [*_heading(result), "", *_claimed_and_shown(result)]
    first, *others = [
        textwrap.wrap(
            text,
            LINE_WIDTH,
            initial_indent="  ",
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        for text in _meaning_of(result)
    ] or [[]]
    last = _commands(commands)
    if len(lines) + 1 + len(first) + len(last) > MOST_LINES:
        last = _commands(commands[:1])
    # The first sentence says what the verdict rests on: it is printed whole, whatever it takes.
    meaning_lines = first
    for more in others:
        if len(lines) + 1 + len(meaning_lines) + len(more) + len(last) <= MOST_LINES:
            meaning_lines = meaning_lines + more
    return [*lines, "", *meaning_lines, *last]


def _heading(result: AuditResult) -> list[str]:
    """The verdict, the training, the adversary, the number of runs and the duration."""
    word = f"{verdict_word(result.verdict).upper()}   "
    what = f"{result.name} ({result.training})" if result.name else result.training
    runs = counted(result.runs, "training")
    if not result.finished:
        runs = f"{result.runs:,} of {counted(result.asked, 'training')}"
    parts = [what]
    if result.description.live:
        parts += [f"{result.canaries:,} canaries", counted(result.final.horizon, "step")]
        return _hanging(word, ", ".join(parts))
    if result.adversary and result.adversary != "as returned":
        parts.append(f"adversary {result.adversary}")
    parts.append(runs + (f" of {result.canaries:,} canaries" if result.canaries > 1 else ""))
    if result.fresh_runs:
        parts.append(f"{result.fresh_runs:,} fresh ones")
    if result.failures:
        parts.append(f"{len(result.failures):,} failed")
    if result.seconds:
        parts.append(duration(result.seconds))
    return _hanging(word, ", ".join(parts))


def _claimed_and_shown(result: AuditResult) -> Iterator[str]:
    """The claim, and lower bounds with the condition under which each of them holds."""
    final, test = result.final, result.test
    claimed, leading = claimed_epsilon(result), final.leading
    delta = _typed(leading.delta)
    if test is None:
        yield f"  claimed   nothing{'':14}delta {delta}"
    else:
        claim = test.claim.description
        if f"{leading.delta:g}" not in claim:
            claim += f", delta\u00a0{delta}"
        yield from _row("claimed", "<=", claimed, claim)
    free = [bound for bound in final.lower if bound is not leading and _free(bound)]
    for number, bound in enumerate((leading, *free[:1])):
        words = [f"{percent(bound.confidence or 0)} % confidence"]
        words += [_condition(text) for text in bound.assumptions]
        if not bound.assumptions:
            words.append("without assumptions")
        if test is not None and result.verdict != "violation" and bound.epsilon > claimed:
            words.insert(0, f"{SUSPECTED}: above the claim")
        yield from _row("" if number else "shown", ">=", bound.epsilon, ", ".join(words))
    if len(result.horizons) > 1:
        earlier = [
            f"{decimals(one.leading.epsilon, 2)} after {counted(one.horizon, 'step')}"
            for one in result.horizons[:-1]
        ]
        more = ", ..." if len(earlier) > 3 else ""
        yield f"  earlier   epsilon >= {', '.join(earlier[:3])}{more}"


def _condition(assumption: str) -> str:
    if assumption.startswith("the mechanism is DP-SGD with"):  # the claim above says the numbers
        return "if it is DP-SGD of this rate"
    return _CONDITIONS.get(assumption, f"if {assumption}")


def _free(bound: Bound) -> bool:
    """Whether a bound assumes nothing but fair coins, which an audit has by itself."""
    return not set(bound.assumptions) - {FAIR_COINS}


def _typed(delta: float) -> str:
    """Delta as one types it: 1e-5."""
    return re.sub(r"e([-+])0", r"e\1", f"{delta:g}")


def claimed_epsilon(result: AuditResult) -> float:
    """The epsilon of the claim that was asked for, or else the smallest upper bound."""
    claim = result.question.claim
    return result.least_upper.epsilon if claim is None else claim.epsilon(result.delta)


def _row(label: str, sign: str, epsilon: float, words: str) -> list[str]:
    value = "infinite" if math.isinf(epsilon) else decimals(epsilon, 2)
    return _hanging(f"  {label:<10}epsilon {sign} {value:>5}   ".ljust(_LEFT), words)


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
    return (
        ["", together] if len(together) <= LINE_WIDTH else ["", *(f"  {one}" for one in commands)]
    )


def _meaning_of(result: AuditResult) -> Iterator[str]:
    """What the verdict means and what to do, the most important sentence first."""
    final, test = result.final, result.test
    if not result.finished:
        yield (
            f"No verdict yet: stopping now would invalidate the confidence. {ADVICE['unfinished']}"
        )
    elif test is None:
        yield f"Nothing finite is claimed. {ADVICE['no-claim']}"
    elif result.verdict == "violation":
        yield from _meaning_of_violation(final, test)
    else:
        if result.verdict == "consistent":
            yield from _how_tight(final, claimed_epsilon(result))
        else:
            yield from _why_inconclusive(final, test)
        yield power_line(test.power)
        if final.covers and not result.description.live and result.verdict == "consistent":
            yield f"It covers {final.covers}."
    if test is not None and test.bare is not None and result.verdict != "violation":
        yield f"{capitalised(bare_line(test))}."
    yield from (f"{capitalised(notice)}." for notice in result.notices)


def _meaning_of_violation(final: Assessment, test: ClaimTest) -> Iterator[str]:
    own = [text for text in test.assumptions if text not in test.claim.assumptions]
    condition = f" and {' and '.join(own)}" if own else ""
    fresh = " Fresh runs confirm it." if test.stage == 2 else ""
    if test.bare is not None:
        fresh += f" {capitalised(bare_line(test))}."
    yield (
        f"If the claim were true{condition}, scores this extreme would occur with probability at "
        f"most {test.p_value:.2g}{_where(final)}.{fresh}"
    )
    if test.policy.false_alarms > HARDLY_CHANCE:
        wrong = 100 * test.policy.false_alarms
        yield f"Up to {wrong:.3g} % of the audits of a correct training find this by chance."
    yield ADVICE["violation"]


def _how_tight(final: Assessment, claimed: float) -> Iterator[str]:
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
    elif final.tightness == "more-runs":
        yield f"{share}. {counted(len(final.scores), 'score')} cannot show more: increase runs."
    else:
        yield f"A gap: {share}. The training leaks less to {sees}, or a stronger adversary exists."


def _why_inconclusive(final: Assessment, test: ClaimTest) -> Iterator[str]:
    if test.suspected:
        yield f"Suspected: {_doubted(test)}. {_how_to_decide(test)}"
    elif test.doubts:
        yield " ".join(test.doubts)
    elif test.hidden_by_failures or not test.attainable:
        yield f"{capitalised(claim_notes(test)[-1])}."
    else:
        yield (
            "The claim is not refuted, but noise that is too small would have been missed: "
            "increase the number of runs (see dpaudit plan), or use a stronger canary."
        )


def _how_to_decide(test: ClaimTest) -> str:
    if test.only_if_independent:
        return "Use more runs with fewer canaries each."
    if test.policy is LIVE:
        return f"A violation needs p <= {test.policy.prove:g}: watch the next training too."
    if test.to_confirm:
        return "Repeat the audit without --max-runs and --time-limit, so that fresh runs decide."
    return f"A violation needs p <= {test.policy.prove:g}: repeat the audit with another seed."


def sentence(found: Assessment, *, runs: int) -> str:
    """The verdict in a few plain sentences."""
    test = found.test
    if test is None:
        return f"No claim: the upper bound is infinite. The audit shows {_shown_bound(found)}."
    if found.verdict == "violation":
        text = _violation_sentence(found, test)
    else:
        text = _not_refuted(found, test, runs)
    text += "".join(f" {doubt}" for doubt in found.doubts)
    if test.bare is not None:
        text += f" {capitalised(bare_line(test))}."
    return text + "".join(f" This assumes that {assumed}." for assumed in test.claim.assumptions)


def _not_refuted(found: Assessment, test: ClaimTest, runs: int) -> str:
    claim, consistent = test.claim.description, found.verdict == "consistent"
    trainings = "1 training" if runs == 1 else f"{runs:,} trainings"
    if consistent:
        say = "does not contradict" if runs == 1 else "do not contradict"
        text = f"Consistent: {trainings} {say} the claim, {claim} (p = {test.p_value:.2g})."
    else:
        text = f"Inconclusive: {trainings} could not decide about the claim, {claim}."
        if test.suspected:
            why = _doubted(test)
            text = f"Inconclusive: {trainings} make the claim, {claim}, suspected ({why})."
    text += f" The audit shows {_shown_bound(found)}{_tightness(found)}."
    if found.power is not None:
        text += f" {capitalised(power_in_words(found.power))}."
    if consistent and found.covers:
        text += (
            f" It covers {found.covers}. Of the noise it tests the size only: run dpaudit check "
            "for its shape, its correlations and other gradients."
        )
    if consistent:
        text += " No audit proves a claim true."
    elif not found.doubts and not test.suspected:
        text += f" {ADVICE['inconclusive']}"
    return text


def _violation_sentence(found: Assessment, test: ClaimTest) -> str:
    text = (
        f"Violation: if the claim, {test.claim.description}, were true, scores this extreme would "
        f"occur with probability at most {test.p_value:.2g}{_where(found)}."
    )
    if test.stage == 2:
        text += " Fresh runs confirm it."
    if test.policy.false_alarms > HARDLY_CHANCE:
        wrong = 100 * test.policy.false_alarms
        text += f" Up to {wrong:.3g} % of the audits of a correct training find this by chance."
    return f"{text} {ADVICE['violation']}"


def _doubted(test: ClaimTest) -> str:
    """Why a suspicion is not a violation."""
    if test.only_if_independent:
        return f"p = {test.p_value:.2g} if the canaries of a run are independent"
    if test.stage == 2:
        return f"p = {test.p_value:.2g} in fresh runs"
    if test.policy is LIVE:
        return f"p = {test.p_value:.2g}"
    return f"p = {test.p_value:.2g}; fresh runs would decide"


def _where(found: Assessment) -> str:
    """The tensors whose canaries refute the claim."""
    refuted = [name for name, test in found.tensors.items() if test.verdict == "violation"]
    if not refuted:
        return ""
    shown = ", ".join(refuted[:5]) + (", ..." if len(refuted) > 5 else "")
    return f". The violation is in {shown} ({len(refuted)} of {len(found.tensors)} canaries)"


def _tightness(found: Assessment) -> str:
    lower, upper = found.leading, found.least_upper
    if found.tightness is None or not 0 < upper.epsilon < math.inf:
        return ""
    most = f"the upper bound {decimals(upper.epsilon, 2)}"
    share = f", {100 * lower.epsilon / upper.epsilon:.0f} % of {most}"
    match found.tightness:
        case "tight" if lower.epsilon > upper.epsilon:
            return (
                f", slightly above {most}, as happens by chance; the test of the claim finds no "
                "violation"
            )
        case "tight":
            return f"{share}: tight, for {_SEES[found.threat_model]}"
        case "more-runs":
            best = found.attainable or 0.0
            if best > lower.epsilon:
                perfect = f"this many perfect scores would show about {best:.2f}"
            else:
                perfect = f"{len(found.scores):,} scores cannot show more than this"
            return f"{share}; {perfect}, so that only more runs can show whether it is tight"
        case "gap":
            known = found.power is None or found.power.only_noise
            hiding = [] if known else ["batches or starting points that vary"]
            hiding += ["the failed runs"] if found.failed else []
            hidden = f"{' or '.join(hiding)} hide the leak, or " if hiding else ""
            return (
                f"{share}: a gap. Either the training leaks less to {_SEES[found.threat_model]}, "
                f"or {hidden}a stronger adversary exists"
            )


def unfinished(found: Assessment, runs: int, asked: int) -> str:
    """What the runs so far show; there is no verdict before all runs are done."""
    return (
        f"Unfinished: after {runs:,} of {asked:,} runs the scores show {_shown_bound(found)}. "
        "There is no verdict yet: stopping at a convenient moment would invalidate the confidence "
        "level. "
        f"{ADVICE['unfinished']}"
    )


def _shown_bound(found: Assessment) -> str:
    lower = found.leading
    sure = f"{lower.method}, {percent(lower.confidence or 0)} % confidence"
    return f"epsilon >= {decimals(lower.epsilon, 2)} at delta = {lower.delta:g} ({sure})"


def bounds_in_words(found: Assessment, conclusion: str) -> str:
    """Upper bound, lower bounds with what each assumes, and the conclusion, as plain text."""
    lines = [f"upper  {_line(found.least_upper)}"]
    for bound in found.lower:
        lines.append(f"lower  {_line(bound)}")
        lines += [f"           assumes: {assumption}" for assumption in bound.assumptions]
    lines += [
        f"lower  {missing.method}: no number. {missing.reason}"
        for missing in found.lower.unavailable
    ]
    return "\n".join([*lines, *_test_lines(found), "", conclusion])


def _test_lines(found: Assessment) -> Iterator[str]:
    if found.test is not None:
        wealth = "" if found.test.e_value is None else f", e = {found.test.e_value:.3g}"
        yield f"claim  {found.test.claim.description}"
        yield f"test   {found.test.verdict}, p = {found.test.p_value:.3g}{wealth}"
        yield from (f"note   {note}" for note in claim_notes(found.test))
    yield from (
        f"tensor {name}: {test.verdict}, p = {test.p_value:.3g}"
        for name, test in found.tensors.items()
    )
    if found.power is not None:
        yield f"power  {power_in_words(found.power)}"


def _line(bound: Bound) -> str:
    sign = "<=" if bound.side == "upper" else ">="
    value = "infinite" if math.isinf(bound.epsilon) else decimals(bound.epsilon, 4)
    rule = bound.details.get("threshold_rule")
    how = f"{bound.method} ({rule})" if rule else bound.method
    return f"epsilon {sign} {value:>8}  {how}"
