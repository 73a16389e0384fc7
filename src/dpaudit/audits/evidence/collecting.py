"""Bounds that were computed elsewhere, together with the curves behind them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dpaudit.audits.evidence import curves
from dpaudit.audits.evidence.growth import growth
from dpaudit.claims import Claim, ClaimTest
from dpaudit.curves import gaussian_mu
from dpaudit.errors import DpauditError
from dpaudit.lower_bounds import proven_curve
from dpaudit.lower_bounds.diagnostics import FAIR_COINS, INDEPENDENT_CANARIES
from dpaudit.lower_bounds.gaussian_fit import fit_gaussian
from dpaudit.privacy import Bound, Bounds
from dpaudit.report.data import MOST_THRESHOLDS, AuditEvidence
from dpaudit.scores import Scores


def collect_evidence(
    scores: Scores,
    *,
    lower: Bounds,
    leading: Bound,
    upper: Sequence[Bound] = (),
    claim: Claim | None = None,
    test: ClaimTest | None = None,
    power: str = "",
    seed: int = 0,
    most_thresholds: int = MOST_THRESHOLDS,
    with_growth: bool = True,
) -> AuditEvidence:
    """Everything that a page or a figure shows of these scores.

    Arguments:
        scores: The scores that the bounds were computed from.
        lower: All lower bounds, and the methods without a number.
        leading: The lower bound that the verdict sentence names.
        upper: The accountants' bounds, or the claimed one.
        claim: The claim as a trade-off function.
        test: The test of the claim.
        power: What the audit could have detected, in words.
        seed: Random seed of the pilots, the same as for the bounds.
        most_thresholds: Largest number of thresholds that the page may carry.
        with_growth: Whether to compute the bound against the number of runs.

    Example:
        >>> import numpy as np, dpaudit
        >>> random = np.random.default_rng(0)
        >>> scores = Scores.from_samples(random.normal(2, 1, 200), random.normal(0, 1, 200))
        >>> found = dpaudit.estimate_all(scores, methods=["gaussian-dp"], delta=1e-5)
        >>> collect_evidence(scores, lower=found, leading=found["gaussian-dp"]).sample
        '400 scores from 400 runs'
    """
    confidence = leading.confidence or 0.95
    finite = [bound.epsilon for bound in upper if math.isfinite(bound.epsilon)]
    proven = proven_curve(scores, confidence=confidence)
    fitted = fitted_mu(scores, confidence=confidence)
    largest = max([*finite, *(bound.epsilon for bound in lower)], default=1.0)
    grown = None
    if with_growth:
        grown = growth(
            scores,
            leading=leading,
            confidence=confidence,
            seed=seed,
            fitted_mu=fitted,
            claimed_mu=gaussian_mu(min(finite), leading.delta) if finite else None,
        )
    return AuditEvidence(
        sample=_sample(scores),
        leading=leading,
        cautious=_cautious(lower, leading),
        lower=lower.bounds,
        upper=tuple(upper),
        unavailable=lower.unavailable,
        test=test,
        power=power,
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
        growth=grown,
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
