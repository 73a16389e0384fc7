"""What a verdict means for the reader: the sentences of a page. Nothing is computed here."""

from __future__ import annotations

import re

from dpaudit.privacy import Bound
from dpaudit.report.data import Evidence, PageData

_WORDS = {"no-claim": "No claim", "too-few-scores": "No bound yet"}


def verdict_word(verdict: str) -> str:
    """The verdict as a heading."""
    return _WORDS.get(verdict, verdict.replace("-", " ").capitalize())


def typeset(text: str) -> str:
    """Plain-text signs replaced by typographic ones.

    Example:
        >>> typeset("epsilon >= 2.10, 88% of it")
        'ε ≥ 2.10, 88 % of it'
    """
    for plain, sign in (("epsilon", "ε"), ("delta", "δ"), (">=", "≥"), ("<=", "≤")):
        text = text.replace(plain, sign)
    text = re.sub(r"(\d)e([-+])0(\d)", r"\1e\2\3", text)
    return re.sub(r"(\d)%", r"\1 %", text)


def assumed(bound: Bound) -> str:
    """What a bound assumes, in one line."""
    return "; ".join(bound.assumptions) if bound.assumptions else "no assumption"


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
        "The claim is not refuted, and the audit would have found the errors named above. This is "
        "not a proof of the claim: an upper bound holds against every adversary, and this audit "
        "used one.",
    ),
}


def _violation(evidence: Evidence) -> list[str]:
    if evidence.test is None:
        return []
    test = evidence.test
    wrong = 100 * (1 - test.confidence)
    assumptions = "; ".join(test.assumptions)
    besides = f" The test assumes: {assumptions}." if assumptions else ""
    return [
        f"If the claim ({test.claim.description}) were true, errors this rare would occur with "
        f"probability at most {test.p_value:.2g}. Possible causes: the training leaks more than "
        "was claimed (too little noise, clipping that does not clip, a step that was not counted); "
        "the claim is about another training; the runs with and without the canary differ in more "
        f"than the canary; or this is one of the {wrong:.3g} % of false alarms.{besides}",
        "Repeat the audit with another seed: a bug remains, a false alarm does not.",
    ]


def _above_by_chance(evidence: Evidence) -> str:
    """The leading bound exceeds the upper bound, but the test of the claim does not reject."""
    least = evidence.least_upper
    upper = "" if least is None else f" ({least.epsilon:.2f})"
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
