"""The results of dpaudit in words. Nothing is computed here.

The result of an audit as a whole is in `dpaudit.audits.wording`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dpaudit._numbers import decimals, percent
from dpaudit.privacy import Bound
from dpaudit.report.data import AuditEvidence, PageData

if TYPE_CHECKING:
    from dpaudit.claims import ClaimTest
    from dpaudit.claims.power import Power

_WORDS = {"no-claim": "No claim", "too-few-scores": "No bound yet"}


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
        text = text.replace(plain, sign)
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


def headline(page: PageData) -> tuple[tuple[str, str], ...]:
    """What was claimed, what was shown and what to do: pairs of a heading and a sentence."""
    found = page.evidence
    if found is None:
        return ()
    rows = [("Shown", _shown(page, found))]
    if found.test is not None or found.least_upper is not None:
        rows.insert(0, ("Claimed", _claimed(found)))
    advice = ADVICE.get(page.verdict, "")
    if page.verdict == "inconclusive" and page.doubts:
        advice = " ".join(page.doubts)  # more runs would not change the verdict
    if advice:
        rows.append(("What to do", advice))
    return tuple((heading, typeset(text)) for heading, text in rows)


ADVICE = {
    "violation": (
        "Repeat the audit with another seed. If the violation remains, look for a bug in the "
        "training or in its accounting."
    ),
    "consistent": (
        "Make sure that only the noise and the canary differ between runs. Nothing more is needed "
        "if the errors that this audit would have found are the ones you care about. To find "
        "smaller ones, increase the number of runs or use a stronger adversary."
    ),
    "inconclusive": (
        "Increase the number of runs (dpaudit plan predicts how many are needed), or use a canary "
        "with a stronger effect. Keep the starting point and the data the same in all runs, so "
        "that only the noise and the canary differ."
    ),
    "no-claim": "Give a claim to test it.",
    "unfinished": "Repeat the command that started the audit to finish it.",
}
"""What to do after each verdict."""


def _claimed(found: AuditEvidence) -> str:
    claim = "" if found.test is None else found.test.claim.description
    least = found.least_upper
    bound = (
        ""
        if least is None
        else f"epsilon <= {decimals(least.epsilon, 2)} at delta = {least.delta:g}"
    )
    return f"{'. That is, '.join(part for part in (claim, bound) if part)}."


def _shown(page: PageData, found: AuditEvidence) -> str:
    leading = found.leading
    sure = f"{percent(leading.confidence or 0.95)} % confidence"
    bound = f"epsilon >= {decimals(leading.epsilon, 2)} at delta = {leading.delta:g}, with {sure}"
    if page.verdict == "violation" and found.test is not None:
        p_value = f"{found.test.p_value:.2g}"
        return (
            f"The scores contradict the claim: if it were true, scores this extreme would occur "
            f"with probability at most {p_value}. They show {bound}."
        )
    if page.verdict == "consistent":
        power = f" {capitalised(found.power)}." if found.power else ""
        return f"{capitalised(bound)}. This does not contradict the claim.{power}"
    return f"{capitalised(bound)}."


_WEAK = 1.0  # scores closer together than this hardly depend on the canary
_CONDITION = (
    "if batches and starting points are the same in all runs, so that only the noise varies"
)


def power_in_words(power: Power) -> str:
    """What a test could have found."""
    where = f" in {power.canary}" if power.canary else ""
    if power.found is None:
        reason = (
            f"the scores hardly depend on the canary (mu = {power.mu:.2g} in units of their "
            "own noise)"
            if power.mu < _WEAK
            else "there are too few scores to tell such noise from what is claimed"
        )
        return f"this audit could not have found too little noise{where}, however small: {reason}"
    where = f" in every tensor ({power.canary} has the least power)" if power.canary else ""
    found, missed = f"{power.found:.3g}", f"{power.missed or 1.0:.3g}"
    if power.found == 1.0:
        return (
            f"scores like these refute the claim with probability {100 * power.SURE:.0f} % or more"
        )
    condition = "" if power.only_noise else f"{_CONDITION}, "
    more = f"; noise {missed} times too small would more likely have been missed"
    return (
        f"{condition}this audit would have found noise {found} times too small{where} with "
        f"probability {100 * power.SURE:.0f} %{'' if missed in ('1', found) else more}"
    )


def power_dict(power: Power) -> dict[str, Any]:
    """The power as plain data, with its sentence."""
    return {**power.to_dict(), "sentence": power_in_words(power)}


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
        yield _suspicion(test)
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


def _suspicion(test: ClaimTest) -> str:
    if test.only_if_independent:
        return (
            f"suspected: the scores speak against the claim (p = {test.p_value:.2g}) if the "
            "canaries of a run are independent"
        )
    if test.e_value is not None and not test.anytime:
        return (
            f"suspected: p = {test.p_value:.2g}, and a violation needs {test.policy.prove:g}; "
            "watch the next training too: e-values of independent trainings multiply"
        )
    least = f"{test.policy.prove:g}" if test.policy.prove else "a test of fresh runs"
    return f"suspected: p = {test.p_value:.2g}, and a violation needs {least}; test fresh runs"


def capitalised(text: str) -> str:
    """The text with a capital first letter; the other letters stay."""
    return text[:1].upper() + text[1:]


def meaning(page: PageData) -> tuple[str, ...]:
    """What the reader may conclude from the verdict; one paragraph each."""
    evidence = page.evidence
    if evidence is None:
        return ()
    if page.verdict == "violation":
        return tuple(_violation(evidence))
    if evidence.above_claim:
        return (_above_by_chance(evidence),)
    return _MEANINGS.get(page.verdict, ())


_MEANINGS = {
    "no-claim": (
        "Nothing finite is claimed, so there is nothing to compare with. The lower bound stands "
        "by itself.",
    ),
    "inconclusive": (
        "The claim is not refuted, but this audit might also have missed a claim that is wrong. "
        "Do not read it as a confirmation: use more runs, or a canary with a stronger effect.",
    ),
    "consistent": (
        "The claim is not refuted, and the audit would have found the errors named above, under "
        "the condition given with them, if there is one. This is "
        "not a proof of the claim: an upper bound holds against every adversary, and this audit "
        "used one.",
    ),
}


def _violation(evidence: AuditEvidence) -> list[str]:
    if evidence.test is None:
        return []
    test = evidence.test
    wrong = 100 * test.policy.false_alarms
    assumptions = "; ".join(test.assumptions)
    besides = f" The test assumes: {assumptions}." if assumptions else ""
    return [
        f"If the claim ({test.claim.description}) were true, errors this rare would occur with "
        f"probability at most {test.p_value:.2g}. Possible causes: the training leaks more than "
        "was claimed (too little noise, clipping that does not clip, a step that was not counted); "
        "the claim is about another training; the runs with and without the canary differ in more "
        f"than the canary; or this is one of the {wrong:.3g} % of false alarms.{besides}"
    ]


def _above_by_chance(evidence: AuditEvidence) -> str:
    """The leading bound exceeds the upper bound, but the test of the claim does not reject."""
    least = evidence.least_upper
    upper = "" if least is None else f" ({decimals(least.epsilon, 2)})"
    wrong = 100 * (1 - (evidence.leading.confidence or 0.95))
    test = ""
    if evidence.test is not None:
        test = (
            f" The test of the claim, which answers that question, gives p = "
            f"{evidence.test.p_value:.2g} and does not reject it."
        )
    return (
        f"The lower bound exceeds the upper bound{upper}. By itself this does not prove a bug: up "
        f"to {wrong:.3g} % of such bounds are too large by chance, and it relies on its "
        f"assumptions ({assumed(evidence.leading)}).{test}"
    )


def power_line(power: Power) -> str:
    """What a test would have found, in one short sentence."""
    where = f" in {power.canary}" if power.canary else ""
    condition = "" if power.only_noise else f", {_CONDITION_SHORT}"
    if power.found is None:
        return f"Could not have found too little noise{where}, however small."
    if power.found == 1.0:
        return "Scores like these refute the claim 9 times of 10."
    small = (
        f"{100 * (1 - 1 / power.found):.2g} %" if power.found <= 2 else f"{power.found:.3g} times"
    )
    return f"Would have found noise {small} too small{where} (9 times of 10){condition}."


_CONDITION_SHORT = "if batches and starting points are the same in all runs"
