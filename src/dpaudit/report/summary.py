"""An assessment in words. Nothing is computed here."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dpaudit.privacy import Bound, ThreatModel

if TYPE_CHECKING:
    from dpaudit.audits.assessment import Assessment


def sentence(assessment: Assessment) -> str:
    """What an audit comes to, in one sentence."""
    lower, upper = assessment.leading, assessment.least_upper
    proven = _proven(lower)
    promised = f"{upper.epsilon:.2f}"
    share = f"{lower.epsilon / upper.epsilon:.0%}" if upper.epsilon > 0 else "all"
    match assessment.verdict:
        case "violation":
            p_value = "" if assessment.test is None else f" (p = {assessment.test.p_value:.2g})"
            return (
                f"Violation: a training that keeps the accountant's promise of {promised} would "
                f"hardly give these scores{p_value}; look for a bug in the training or in its "
                "accounting."
            )
        case "tight" if lower.epsilon > upper.epsilon:
            p_value = "" if assessment.test is None else f" (p = {assessment.test.p_value:.2g})"
            return (
                f"Tight: the audit shows {proven}, as much as the accountant allows ({promised}) "
                "and, as such bounds may by chance, a little more; the test of the promise "
                f"itself{p_value} sees no violation."
            )
        case "tight":
            return (
                f"Tight: the audit shows {proven}, {share} of the {promised} that the accountant "
                f"allows, for an adversary who sees {_SEEN[assessment.threat_model]}."
            )
        case "few-runs":
            attainable = assessment.attainable or 0.0
            best = (
                f"{len(assessment.scores):,} perfect scores would show about {attainable:.2f}"
                if attainable > assessment.leading.epsilon
                else f"{len(assessment.scores):,} scores can hardly show more"
            )
            return (
                f"Too few scores to tell: the audit shows {proven}, {share} of the {promised} "
                f"promised, and {best}; play more runs."
            )
        case "gap":
            return (
                f"Gap: the audit shows {proven}, {share} of the {promised} that the accountant "
                "allows; either this training leaks less than that to an adversary who sees "
                f"{_SEEN[assessment.threat_model]}, or a stronger adversary exists."
            )
        case "no-promise":
            return f"No promise: the upper bound is infinite; the audit shows {proven}."


def unfinished(assessment: Assessment, runs: int, asked: int) -> str:
    """What the runs so far show; no verdict, since whoever may stop at one keeps no confidence."""
    return (
        f"Unfinished: after {runs:,} of {asked:,} runs the scores show "
        f"{_proven(assessment.leading)}. The verdict waits for all of them: to stop where one "
        "likes what one sees would cost the confidence."
    )


def _proven(lower: Bound) -> str:
    sure = f"{lower.method}, {100 * (lower.confidence or 0):g} % confidence"
    return f"epsilon >= {lower.epsilon:.2f} at delta = {lower.delta:g} ({sure})"


_SEEN = {
    ThreatModel.HIDDEN_STATE: "only the final model",
    ThreatModel.STANDARD: "every iterate",
    ThreatModel.BLACK_BOX: "only losses or predictions",
}


def summary(assessment: Assessment, conclusion: str) -> str:
    """Upper bound, lower bounds with what each assumes, and the conclusion, as plain text."""
    lines = [f"upper  {_line(assessment.least_upper)}"]
    for bound in assessment.lower:
        lines.append(f"lower  {_line(bound)}")
        lines += [f"           assumes: {assumption}" for assumption in bound.assumptions]
    lines += [
        f"lower  {missing.method}: no number. {missing.reason}"
        for missing in assessment.lower.unavailable
    ]
    return "\n".join([*lines, "", conclusion])


def _line(bound: Bound) -> str:
    sign = "<=" if bound.side == "upper" else ">="
    value = "infinite" if math.isinf(bound.epsilon) else f"{bound.epsilon:.4f}"
    rule = bound.details.get("threshold_rule")
    how = f"{bound.method} ({rule})" if rule else bound.method
    return f"epsilon {sign} {value:>8}  {how}"
