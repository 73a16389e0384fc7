"""Everything a page shows of one audit, computed by the library before anything is rendered.

`PageData` knows nothing of DP-SGD: scores, bounds, a claim and a few facts make a page, whoever
trained. `dpaudit.report.from_audit` makes one of an audit that dpaudit played.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from dpaudit.claims import Claim, ClaimTest
from dpaudit.errors import DpauditError
from dpaudit.lower_bounds import METHODS, proven_curve
from dpaudit.lower_bounds.dependence import INDEPENDENT_CANARIES
from dpaudit.lower_bounds.gaussian_fit import fit_gaussian
from dpaudit.lower_bounds.one_run_method import FAIR_COINS
from dpaudit.privacy import Bound, Bounds, Unavailable
from dpaudit.report import curves
from dpaudit.report.growth import Growth, growth
from dpaudit.scores import Scores
from dpaudit.tradeoff import gaussian_mu

MOST_THRESHOLDS = 20_000
"""How many thresholds a page carries for the reader to try; `ErrorCounts.sweep` has no more."""


@final
@dataclass(frozen=True, kw_only=True)
class Facts:
    """Some settings under one heading: pairs of a name and a value."""

    heading: str
    rows: tuple[tuple[str, str], ...]


@final
@dataclass(frozen=True, kw_only=True)
class Snippet:
    """Something to copy: a command, a file or a piece of Python."""

    caption: str
    text: str


@final
@dataclass(frozen=True, kw_only=True)
class Progress:
    """How much of an audit is done.

    Arguments:
        done: Runs whose scores are stored.
        asked: Runs that were asked for.
        remedy: How to go on.
    """

    done: int
    asked: int
    remedy: str


@final
@dataclass(frozen=True, kw_only=True)
class Horizon:
    """The bounds of a training that stops after so many steps."""

    steps: int
    lower: Bound
    upper: Bound | None
    verdict: str


@final
@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The bounds of an audit and the pictures behind them.

    Arguments:
        sample: How many scores there are, in words.
        leading: The lower bound that the verdict speaks of.
        cautious: The lower bound that assumes least; `None` where that is the leading one.
        lower: All lower bounds, each at its own confidence.
        upper: The accountants' bounds; empty where there is no promise at all.
        unavailable: Methods that have no number here, and why.
        test: The test of the promise.
        histogram: The scores of both worlds.
        thresholds: The errors at every threshold.
        tradeoff: The trade-off curves.
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
    histogram: curves.Histogram | None
    thresholds: curves.Thresholds | None
    tradeoff: curves.TradeoffCurves
    profile: curves.ProfileCurves
    growth: Growth | None
    band_assumes: tuple[str, ...]

    @property
    def least_upper(self) -> Bound | None:
        """The sharpest upper bound, `None` where nothing finite is promised."""
        finite = [bound for bound in self.upper if math.isfinite(bound.epsilon)]
        return min(finite, key=lambda bound: bound.epsilon, default=None)

    @property
    def above_promise(self) -> bool:
        """Whether the leading lower bound exceeds the upper bound."""
        least = self.least_upper
        return least is not None and self.leading.epsilon > least.epsilon


@final
@dataclass(frozen=True, kw_only=True)
class PageData:
    """One audit, ready to be rendered.

    See also: `dpaudit.report.write_page`; `dpaudit.report.audit_page`, which makes one.

    Arguments:
        title: What to call the audit.
        subtitle: What was audited and by whom.
        identity: Its identity in a store, if it has one.
        verdict: What it comes to, in a word; ``unfinished`` or ``too-few-scores`` without bounds.
        sentence: What it comes to, in a sentence.
        evidence: Bounds and pictures; `None` while there are too few scores for any.
        progress: How much is done, where that is not all.
        notices: What the reader should know besides.
        horizons: Bounds of shorter trainings, the whole one last; empty where there are none.
        facts: Settings, seeds, versions.
        repeat: How to do it again.
    """

    title: str
    subtitle: str
    identity: str
    verdict: str
    sentence: str
    evidence: Evidence | None
    progress: Progress | None = None
    notices: tuple[str, ...] = ()
    horizons: tuple[Horizon, ...] = ()
    facts: tuple[Facts, ...] = ()
    repeat: tuple[Snippet, ...] = ()


def evidence(
    scores: Scores,
    *,
    lower: Bounds,
    leading: Bound,
    upper: Sequence[Bound] = (),
    claim: Claim | None = None,
    test: ClaimTest | None = None,
    seed: int = 0,
    most_thresholds: int = MOST_THRESHOLDS,
) -> Evidence:
    """Bounds that were computed elsewhere, with the pictures that belong to them.

    Arguments:
        scores: What the bounds were read from.
        lower: All lower bounds, and the methods without a number.
        leading: The one that the verdict speaks of.
        upper: The accountants' bounds, or the claimed one.
        claim: The promise as a curve.
        test: Whether the scores contradict it.
        seed: Draws pilots, as it did for the bounds.
        most_thresholds: How many thresholds the page may carry.

    Example:
        >>> import numpy as np, dpaudit
        >>> random = np.random.default_rng(0)
        >>> scores = Scores.from_samples(random.normal(2, 1, 200), random.normal(0, 1, 200))
        >>> found = dpaudit.estimate_all(scores, methods=["gaussian-dp"], delta=1e-5)
        >>> evidence(scores, lower=found, leading=found["gaussian-dp"]).sample
        '400 scores from 400 runs'
    """
    confidence = leading.confidence or 0.95
    finite = [bound.epsilon for bound in upper if math.isfinite(bound.epsilon)]
    proven = proven_curve(scores, confidence=confidence)
    fitted = fitted_mu(scores, confidence=confidence)
    largest = max([*finite, *(bound.epsilon for bound in lower)], default=1.0)
    return Evidence(
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
        growth=growth(
            scores,
            method=leading.method if leading.method in METHODS else "gaussian-dp",
            delta=leading.delta,
            confidence=confidence,
            seed=seed,
            fitted_mu=fitted,
            promised_mu=gaussian_mu(min(finite), leading.delta) if finite else None,
        ),
        band_assumes=(INDEPENDENT_CANARIES,) if scores.clustered else (),
    )


def _sample(scores: Scores) -> str:
    runs = "1 run" if scores.runs == 1 else f"{scores.runs:,} runs"
    return f"{len(scores):,} scores from {runs}"


def fitted_mu(scores: Scores, *, confidence: float = 0.95) -> float | None:
    """How far apart the worlds look, where a Gaussian fits the scores at all."""
    ones, zeros = scores.inserted_scores, scores.other_scores
    try:
        fit = fit_gaussian(ones, zeros, significance=1 - confidence)
    except DpauditError:
        return None
    return None if fit.rejected else max(fit.estimate, 0.0)


def _cautious(lower: Bounds, leading: Bound) -> Bound | None:
    """The first bound with the fewest assumptions; fair coins are the game's own doing."""

    def assumed(bound: Bound) -> int:
        return len([text for text in bound.assumptions if text != FAIR_COINS])

    least = min(lower, key=assumed, default=leading)
    return None if least is leading else least
