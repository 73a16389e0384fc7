"""What a page or a figure shows of scores: bounds that were computed elsewhere, and curves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import final

import numpy as np

from dpaudit._arrays import Integers
from dpaudit.audits import curves
from dpaudit.audits.curves import (
    MOST_THRESHOLDS,
    Curve,
    Histogram,
    ProfileCurves,
    Thresholds,
    TradeoffCurves,
)
from dpaudit.claims import Claim, ClaimTest
from dpaudit.curves import gaussian_mu
from dpaudit.errors import DpauditError
from dpaudit.lower_bounds import METHODS, estimate, proven_curve
from dpaudit.lower_bounds.diagnostics import FAIR_COINS, INDEPENDENT_CANARIES
from dpaudit.lower_bounds.gaussian_fit import fit_gaussian
from dpaudit.lower_bounds.prediction import expected_bound
from dpaudit.privacy import Bound, Bounds, Unavailable
from dpaudit.scores import Scores


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Growth:
    """The lower bound against the number of runs, or of canaries if there is a single run.

    Arguments:
        unit: What the x axis counts: runs or canaries.
        bounds: The bound on the first x of them, by the leading method.
        free: The same by Clopper-Pearson at all thresholds at once, without an assumption.
        expected: The bound to expect if the scores stay as far apart as they look.
        attainable: The bound to expect if the canary leaks all that is claimed.
        outlook: One sentence on whether more would help.
    """

    unit: str
    bounds: Curve
    free: Curve
    expected: Curve | None
    attainable: Curve | None
    outlook: str


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
        growth: The bound against the number of runs.
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
    growth: Growth | None
    band_assumes: tuple[str, ...]

    @property
    def least_upper(self) -> Bound | None:
        """The smallest finite upper bound; `None` if there is none."""
        finite = [bound for bound in self.upper if math.isfinite(bound.epsilon)]
        return min(finite, key=lambda bound: bound.epsilon, default=None)

    @property
    def above_claim(self) -> bool:
        """Whether the leading lower bound exceeds the upper bound."""
        least = self.least_upper
        return least is not None and self.leading.epsilon > least.epsilon


def collect_evidence(
    scores: Scores,
    *,
    lower: Bounds,
    leading: Bound,
    upper: Sequence[Bound] = (),
    claim: Claim | None = None,
    test: ClaimTest | None = None,
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


TIMES = 10
"""The outlook reaches this many times the present number of scores."""

_FEWEST = 20
_POINTS = 9

_MOST_FREE = 50_000
"""The bound without assumptions is drawn up to this many scores: it tries every threshold."""


def growth(
    scores: Scores,
    *,
    leading: Bound,
    confidence: float,
    seed: int,
    fitted_mu: float | None,
    claimed_mu: float | None,
) -> Growth | None:
    """The bounds on nested parts of the scores; `None` if there are fewer than 40 scores.

    Arguments:
        scores: The scores.
        leading: The leading bound on all scores; its method and delta are used for all parts.
        confidence: Confidence of each bound.
        seed: Random seed of the pilots.
        fitted_mu: The mu of a Gaussian fit to the scores; `None` if none fits.
        claimed_mu: The mu that the claim allows; `None` without a claim.
    """
    method = leading.method if leading.method in METHODS else "gaussian-dp"
    delta, unit, order = leading.delta, *_order(scores)
    whole = int(order.max(initial=-1)) + 1
    per_unit = len(scores) / max(whole, 1)
    if len(scores) < 2 * _FEWEST:
        return None
    asked = partial(estimate, delta=delta, confidence=confidence, seed=seed)
    first = max(2, math.ceil(_FEWEST / per_unit))
    sizes, bounds, free = [], [], []
    for size in np.unique(np.geomspace(min(first, whole), whole, _POINTS).round().astype(int)):
        part = scores if size == whole else scores.where(order < size)
        is_leading = size == whole and leading.method == method
        try:
            bound = leading if is_leading else asked(part, method=method)
            if len(part) <= _MOST_FREE:
                other = asked(part, method="clopper-pearson", threshold="simultaneous")
                free.append(other.epsilon)
        except DpauditError:
            continue  # too early: one group has no score yet, or the pilot is too small
        sizes.append(size)
        bounds.append(bound.epsilon)
    if not sizes:
        return None
    further = np.geomspace(sizes[0], TIMES * whole, 13)

    def expected(mu: float | None) -> Curve | None:
        if mu is None or not 0 < mu < 1e3:
            return None
        bound = partial(expected_bound, mu, delta=delta, confidence=confidence, method=method)
        values = [bound(scores=round(size * per_unit)).epsilon for size in further]
        return Curve(x=further, y=np.asarray(values))

    places = np.asarray(sizes, dtype=float)
    as_they_look, as_claimed = expected(fitted_mu), expected(claimed_mu)
    return Growth(
        unit=unit,
        bounds=Curve(x=places, y=np.asarray(bounds)),
        free=Curve(x=places[: len(free)], y=np.asarray(free)),
        expected=as_they_look,
        attainable=as_claimed,
        outlook=_outlook(unit, bounds[-1], as_they_look, as_claimed),
    )


def _order(scores: Scores) -> tuple[str, Integers]:
    """What is counted, and the index of each score in that counting."""
    if scores.runs == len(scores) and (scores.run[1:] > scores.run[:-1]).all():
        return "runs", np.arange(len(scores))  # as audits of one canary store them
    if scores.runs > 1:
        return "runs", np.unique(scores.run, return_inverse=True)[1]
    return "canaries", np.argsort(np.argsort(scores.canary, kind="stable"), kind="stable")


def _outlook(unit: str, now: float, expected: Curve | None, attainable: Curve | None) -> str:
    if expected is None:
        return (
            f"The scores do not look Gaussian, so there is no forecast for more {unit}; the curve "
            "shows how the bound has grown so far."
        )
    later, most = float(expected.y[-1]), None if attainable is None else float(attainable.y[-1])
    helps = "would help" if later > 1.05 * now else "would not help much"
    sentence = (
        f"More {unit} {helps}: with {TIMES} times as many, expect about epsilon >= {later:.2f}, "
        f"compared with {now:.2f} now"
    )
    if most is None:
        return f"{sentence}."
    sentence += f"; a canary that leaks all that is claimed would show about {most:.2f}."
    if later < 0.85 * most:
        sentence += " To show more takes a stronger adversary, if there is more to show."
    return sentence
