"""What a verdict means for the reader: the sentences of a page. Nothing is computed here."""

from __future__ import annotations

import re

from dpaudit.privacy import Bound
from dpaudit.report.page_data import Evidence, PageData

VERDICTS = {
    "violation": "Violation",
    "tight": "Tight",
    "few-runs": "Too few runs",
    "gap": "Gap",
    "no-promise": "No promise",
    "too-few-scores": "No bound yet",
    "consistent": "Consistent",
    "inconclusive": "Inconclusive",
}
"""The words of assessments and of claims' tests, as a reader meets them."""


def verdict_word(verdict: str) -> str:
    """The verdict as a heading has it."""
    return VERDICTS.get(verdict, verdict.replace("-", " ").capitalize())


def typeset(text: str) -> str:
    """A sentence with proper signs for plain-text ones.

    Example:
        >>> typeset("epsilon >= 2.10, 88% of it")
        'ε ≥ 2.10, 88 % of it'
    """
    for plain, sign in (("epsilon", "ε"), ("delta", "δ"), (">=", "≥"), ("<=", "≤")):
        text = text.replace(plain, sign)
    text = re.sub(r"(\d)e([-+])0(\d)", r"\1e\2\3", text)
    return re.sub(r"(\d)%", r"\1 %", text)


def assumed(bound: Bound) -> str:
    """What a bound assumes, in a line."""
    return "; ".join(bound.assumptions) if bound.assumptions else "no assumption"


def meaning(page: PageData) -> tuple[str, ...]:
    """What the reader may conclude, and what not; one paragraph each."""
    evidence = page.evidence
    if evidence is None:
        return ()
    paragraphs = []
    if page.verdict == "violation":
        paragraphs += _violation(evidence)
    elif evidence.above_promise:
        paragraphs.append(_above_by_chance(evidence))
    elif page.verdict == "no-promise":
        paragraphs.append(
            "Nothing finite is promised, so there is nothing to compare with and nothing to "
            "violate. The lower bound stands by itself."
        )
    elif page.verdict == "few-runs":
        paragraphs.append(
            "So few scores cannot tell a training that leaks all that is promised from one that "
            "leaks less. Only more scores can prove more."
        )
    elif page.verdict == "gap":
        paragraphs.append(
            "A gap is not a proof of privacy: it is what this adversary could not show. The "
            "accountant's bound holds for every adversary, also for one who sees every iterate."
        )
    return tuple(paragraphs)


def _violation(evidence: Evidence) -> list[str]:
    if evidence.test is None:
        return []
    test = evidence.test
    wrong = 100 * (1 - test.confidence)
    taken = "; ".join(test.assumptions)
    besides = f" It also takes for granted: {taken}." if taken else ""
    return [
        f"This proves a bug, or one of three other things. If the promise ({test.claim.description}"
        f") were kept, errors this few would have had a probability of {test.p_value:.2g}. Either "
        "the training leaks more than was promised (too little noise, clipping that does not clip, "
        "a step that was not counted), or the promise was made about another training, or the "
        "scores of the two worlds differ in more than the canary, or this is the "
        f"{wrong:.3g} % of audits that accuse the innocent.{besides}",
        "Play it again with another seed: a bug stays, chance does not.",
    ]


def _above_by_chance(evidence: Evidence) -> str:
    """A leading bound above the upper one, where the test of the promise sees nothing."""
    least = evidence.least_upper
    upper = "" if least is None else f" ({least.epsilon:.2f})"
    wrong = 100 * (1 - (evidence.leading.confidence or 0.95))
    test = ""
    if evidence.test is not None:
        test = (
            f" The test of the promise, which was made for that question, gives p = "
            f"{evidence.test.p_value:.2g} and refutes nothing."
        )
    return (
        f"The lower bound lies above the upper one{upper}. By itself this is no proof of a bug: "
        f"up to {wrong:.3g} % of such bounds are too large by chance, and it rests on what it "
        f"assumes ({assumed(evidence.leading)}).{test}"
    )
