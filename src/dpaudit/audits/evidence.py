"""What a page or a figure shows of scores: bounds that were computed elsewhere, and curves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from dpaudit.audits import curves
from dpaudit.audits.curves import (
    MOST_THRESHOLDS,
    Histogram,
    ProfileCurves,
    Thresholds,
    TradeoffCurves,
)
from dpaudit.claims import Claim, ClaimTest
from dpaudit.errors import DpauditError
from dpaudit.lower_bounds import proven_curve
from dpaudit.lower_bounds.diagnostics import FAIR_COINS, INDEPENDENT_CANARIES
from dpaudit.lower_bounds.gaussian_fit import fit_gaussian
from dpaudit.privacy import Bound, Bounds, Unavailable
from dpaudit.scores import Scores


@final
@dataclass(frozen=True, kw_only=True)
class AuditEvidence:
    """The bounds of an audit and the curves behind them.

    Arguments:
        sample: The number of scores and runs, in words.
        leading: The lower bound that the verdict sentence names.
        cautious: The lower bound with the fewest assumptions; `None` if that is the leading one.
        lower: All lower bounds, each at its own confidence.
        upper: The accountants' bounds or the claimed one; empty without a claim.
        unavailable: Methods that have no number here, and why.
        test: The test of the claim.
        histogram: The scores with and without the canary.
        thresholds: The errors at every threshold.
        tradeoff: The trade-off functions.
        profile: The privacy profiles.
        band_assumes: What the simultaneous band assumes.
    """

    sample: str
    leading: Bound
    cautious: Bound | None
    lower: tuple[Bound, ...]
    upper: tuple[Bound, ...]
    unavailable: tuple[Unavailable, ...]
    test: ClaimTest | None
    histogram: Histogram | None
    thresholds: Thresholds | None
    tradeoff: TradeoffCurves
    profile: ProfileCurves
    band_assumes: tuple[str, ...]

    @property
    def least_upper(self) -> Bound | None:
        """The smallest finite upper bound; `None` if there is none."""
        finite = [bound for bound in self.upper if math.isfinite(bound.epsilon)]
        return min(finite, key=lambda bound: bound.epsilon, default=None)


def collect_evidence(
    scores: Scores,
    *,
    lower: Bounds,
    leading: Bound,
    upper: Sequence[Bound] = (),
    claim: Claim | None = None,
    test: ClaimTest | None = None,
    most_thresholds: int = MOST_THRESHOLDS,
) -> AuditEvidence:
    """Everything that a page or a figure shows of these scores.

    Arguments:
        scores: The scores that the bounds were computed from.
        lower: All lower bounds, and the methods without a number.
        leading: The lower bound that the verdict sentence names.
        upper: The accountants' bounds, or the claimed one.
        claim: The claim as a trade-off function.
        test: The test of the claim.
        most_thresholds: Largest number of thresholds that the page may carry.

    Example:
        >>> import numpy as np, dpaudit
        >>> random = np.random.default_rng(0)
        >>> scores = Scores.from_samples(random.normal(2, 1, 200), random.normal(0, 1, 200))
        >>> lower = dpaudit.estimate_all(scores, methods=["gaussian-dp"], delta=1e-5)
        >>> collect_evidence(scores, lower=lower, leading=lower["gaussian-dp"]).sample
        '400 scores from 400 runs'
    """
    confidence = leading.confidence or 0.95
    finite = [bound.epsilon for bound in upper if math.isfinite(bound.epsilon)]
    proven = proven_curve(scores, confidence=confidence)
    fitted = fitted_mu(scores, confidence=confidence)
    largest = max([*finite, *(bound.epsilon for bound in lower)], default=1.0)
    return AuditEvidence(
        sample=_sample(scores),
        leading=leading,
        cautious=_cautious(lower, leading),
        lower=lower.bounds,
        upper=tuple(upper),
        unavailable=lower.unavailable,
        test=test,
        histogram=curves.histogram(scores),
        thresholds=curves.thresholds(
            scores,
            chosen=leading.details.get("threshold"),
            delta=leading.delta,
            confidence=confidence,
            most=most_thresholds,
        ),
        tradeoff=curves.tradeoff_curves(proven, claim=claim, fitted_mu=fitted),
        profile=curves.profile_curves(
            proven,
            claim=claim,
            gaussian_mu=leading.mu,
            delta=leading.delta,
            largest_epsilon=1.1 * largest,
        ),
        band_assumes=(INDEPENDENT_CANARIES,) if scores.clustered else (),
    )


def _sample(scores: Scores) -> str:
    runs = "1 run" if scores.runs == 1 else f"{scores.runs:,} runs"
    return f"{len(scores):,} scores from {runs}"


def fitted_mu(scores: Scores, *, confidence: float = 0.95) -> float | None:
    """The mu of a Gaussian fit to the scores; `None` if no Gaussian fits."""
    try:
        fit = fit_gaussian(scores.inserted_scores, scores.other_scores, significance=1 - confidence)
    except DpauditError:
        return None
    return None if fit.rejected else max(fit.estimate, 0.0)


def _cautious(lower: Bounds, leading: Bound) -> Bound | None:
    """The first bound with the fewest assumptions; the audit itself provides fair coins."""

    def assumed(bound: Bound) -> int:
        return len([text for text in bound.assumptions if text != FAIR_COINS])

    least = min(lower, key=assumed, default=leading)
    return None if least is leading else least
