"""An audit in words: the verdict sentence and the summary. Nothing is computed here."""

from __future__ import annotations

import math
from collections.abc import Iterator

from dpaudit._numbers import decimals, percent
from dpaudit.audits.assessment import Assessment
from dpaudit.claims import ClaimTest
from dpaudit.privacy import Bound, ThreatModel
from dpaudit.report.words import ADVICE, bare_line, capitalised, claim_notes, power_in_words

HARDLY_CHANCE = 0.001
"""The sentence of a violation with a larger p-value says how often chance leads to one."""

_SEES = {
    ThreatModel.HIDDEN_STATE: "an adversary who sees only the final model",
    ThreatModel.STANDARD: "an adversary who sees every iterate",
    ThreatModel.BLACK_BOX: "an adversary who sees only losses or predictions",
    None: "this adversary",
}


def sentence(found: Assessment, *, runs: int) -> str:
    """The verdict in a few plain sentences."""
    test = found.test
    if test is None:
        return f"No claim: the upper bound is infinite. The audit shows {_shown(found)}."
    if found.verdict == "violation":
        text = _violation(found, test)
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
    text += f" The audit shows {_shown(found)}{_tightness(found)}."
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


def _violation(found: Assessment, test: ClaimTest) -> str:
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
        f"Unfinished: after {runs:,} of {asked:,} runs the scores show {_shown(found)}. There is "
        "no verdict yet: stopping at a convenient moment would invalidate the confidence level. "
        f"{ADVICE['unfinished']}"
    )


def _shown(found: Assessment) -> str:
    lower = found.leading
    sure = f"{lower.method}, {percent(lower.confidence or 0)} % confidence"
    return f"epsilon >= {decimals(lower.epsilon, 2)} at delta = {lower.delta:g} ({sure})"


def summary(found: Assessment, conclusion: str) -> str:
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
