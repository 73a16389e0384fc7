"""What the pictures of an audit show, as plain numbers: figures and pages draw the same ones.

Every number comes from the library's own functions. Nothing here knows what was trained: scores,
a claim and the bounds are enough.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from dpaudit.claims import Claim
from dpaudit.lower_bounds.bands import upper_rate
from dpaudit.lower_bounds.clopper_pearson import epsilon_of_errors
from dpaudit.lower_bounds.counts import ErrorCounts
from dpaudit.lower_bounds.profile import ProvenCurve
from dpaudit.scores import Scores
from dpaudit.tradeoff import (
    gaussian_delta,
    gaussian_epsilon,
    gaussian_tradeoff,
    mu_of_errors,
)

Array = NDArray[np.float64]

SMALLEST_RATE = 1e-4
"""Where the axes of error rates end."""

SMALLEST_DELTA = 1e-9
"""Where the axis of delta ends."""

_MOST_BINS = 60


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Curve:
    """Points to be joined by a line, x ascending."""

    x: Array
    y: Array


def staircase(curve: Curve) -> Curve:
    """A falling curve of points as steps, from the top to the right end of the unit square.

    What holds at one false-positive rate holds at every larger one, so the steps claim nothing
    between the points that the points themselves do not say.

    Example:
        >>> steps = staircase(Curve(x=np.array([0.1, 0.3]), y=np.array([0.5, 0.2])))
        >>> steps.x.tolist(), steps.y.tolist()
        ([0.1, 0.1, 0.3, 0.3, 1.0], [1.0, 0.5, 0.5, 0.2, 0.2])
    """
    if len(curve.x) == 0:
        return Curve(x=np.array([0.0, 1.0]), y=np.array([1.0, 1.0]))
    return Curve(
        x=np.append(np.repeat(curve.x, 2), 1.0),
        y=np.append(np.append(1.0, np.repeat(curve.y, 2)[:-1]), curve.y[-1]),
    )


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Histogram:
    """The scores of both worlds in the same bins, as shares of each world.

    Arguments:
        edges: One more than there are bins.
        inserted: Share of the inserted canaries' scores in each bin.
        others: Share of the others' scores.
        outside: How many scores lie beyond the edges; they are counted in the last bin there.
    """

    edges: Array
    inserted: Array
    others: Array
    outside: int


def histogram(scores: Scores) -> Histogram | None:
    """The histogram of both worlds; `None` where no score is finite.

    A few scores far out would squeeze all others into one bin, so the edges leave them outside.

    Example:
        >>> shown = histogram(Scores.from_samples([1.0, 2.0, 3.0], [0.0, 1.0]))
        >>> round(float(shown.inserted.sum()), 9), round(float(shown.others.sum()), 9)
        (1.0, 1.0)
    """
    finite = scores.score[np.isfinite(scores.score)]
    if len(finite) == 0:
        return None
    low, high = _extent(finite)
    bins = int(np.clip(1.2 * np.sqrt(len(finite)), 8, _MOST_BINS))
    edges = np.linspace(low, high, bins + 1)
    shares = [
        np.histogram(np.clip(world, low, high), edges)[0] / max(len(world), 1)
        for world in (scores.inserted_scores, scores.other_scores)
    ]
    outside = int(((scores.score < low) | (scores.score > high)).sum())
    return Histogram(edges=edges, inserted=shares[0], others=shares[1], outside=outside)


def _extent(finite: Array) -> tuple[float, float]:
    low, high = float(finite.min()), float(finite.max())
    inner = np.quantile(finite, [0.005, 0.995])
    room = float(inner[1] - inner[0]) / 4
    if room > 0:
        low, high = max(low, float(inner[0]) - room), min(high, float(inner[1]) + room)
    if low == high:
        return low - 0.5, high + 0.5
    return low, high


@final
@dataclass(frozen=True, kw_only=True)
class Reading:
    """What one threshold, fixed beforehand, would say: the numbers that the page shows live.

    Arguments:
        threshold: Scores above it are guessed to be inserted.
        false_positives: Not inserted, but guessed to be.
        false_negatives: Inserted, but guessed not to be.
        false_positive_upper: Clopper-Pearson upper bound, with half of the error probability.
        false_negative_upper: The same for the other rate.
        mu: Of Gaussian DP, from both upper bounds; 0 where they show nothing.
        gaussian_epsilon: Epsilon at delta, if the trade-off curve is Gaussian.
        epsilon: Epsilon at delta, with no assumption.
    """

    threshold: float
    false_positives: int
    false_negatives: int
    false_positive_upper: float
    false_negative_upper: float
    mu: float
    gaussian_epsilon: float
    epsilon: float


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Thresholds:
    """The errors at every threshold that a reader may choose.

    Arguments:
        counts: As `ErrorCounts.sweep` counts them, at finite thresholds.
        start: The place of the threshold to begin with.
        delta: Of the epsilons that are read.
        confidence: Of each reading by itself.
    """

    counts: ErrorCounts
    start: int
    delta: float
    confidence: float

    def reading(self, place: int) -> Reading:
        """What the threshold at ``place`` would say if it had been fixed beforehand."""
        counts = self.counts[place]
        tail = (1 - self.confidence) / 2
        alpha = upper_rate(counts.false_positives, counts.negatives, tail)
        beta = upper_rate(counts.false_negatives, counts.positives, tail)
        mu = max(0.0, float(mu_of_errors(alpha, beta)[0]))
        return Reading(
            threshold=float(counts.thresholds[0]),
            false_positives=int(counts.false_positives[0]),
            false_negatives=int(counts.false_negatives[0]),
            false_positive_upper=float(alpha[0]),
            false_negative_upper=float(beta[0]),
            mu=mu,
            gaussian_epsilon=gaussian_epsilon(self.delta, mu),
            epsilon=float(epsilon_of_errors(alpha, beta, self.delta)[0]),
        )


def thresholds(
    scores: Scores, *, chosen: float | None, delta: float, confidence: float, most: int = 20_000
) -> Thresholds | None:
    """The errors at every threshold, or at ``most`` of them; `None` where no two scores differ.

    Arguments:
        scores: The scores.
        chosen: The threshold that a bound was read at: it is among them, and is where to begin.
        delta: Of the epsilons that are read.
        confidence: Of each reading by itself.
        most: Thresholds at most; those that are kept are exact.
    """
    inserted, others = scores.inserted_scores, scores.other_scores
    if len(inserted) == 0 or len(others) == 0:
        return None
    values = ErrorCounts.sweep(inserted, others).thresholds
    values = values[np.isfinite(values)]
    if len(values) == 0:
        return None
    if len(values) > most:
        values = values[np.unique(np.linspace(0, len(values) - 1, most).astype(np.int64))]
    if chosen is None or not np.isfinite(chosen):
        balance = ErrorCounts.at(inserted, others, values)
        rates = balance.false_positives / len(others) + balance.false_negatives / len(inserted)
        chosen = float(values[int(np.argmin(rates))])
    values = np.unique(np.append(values, chosen))
    return Thresholds(
        counts=ErrorCounts.at(inserted, others, values),
        start=int(np.searchsorted(values, chosen)),
        delta=delta,
        confidence=confidence,
    )


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class TradeoffCurves:
    """False-negative against false-positive rate: seen, proven, promised and fitted.

    Arguments:
        seen: The rates as they were counted.
        proven: Upper bounds on both, all together at ``confidence``; the truth is below them.
        promised: The accountant's curve; the truth is above it. `None` without a promise.
        fitted: The Gaussian curve of the fitted mu, `None` where none was fitted.
        confidence: Of the proven curve.
    """

    seen: Curve
    proven: Curve
    promised: Curve | None
    fitted: Curve | None
    confidence: float


def tradeoff_curves(
    curve: ProvenCurve, *, claim: Claim | None, fitted_mu: float | None
) -> TradeoffCurves:
    """The four curves, between `SMALLEST_RATE` and one minus it."""
    rates = ndtr(np.linspace(ndtri(SMALLEST_RATE), -ndtri(SMALLEST_RATE), 201))
    promised = None if claim is None else Curve(x=rates, y=claim.tradeoff(rates))
    fitted = None
    if fitted_mu is not None:
        fitted = Curve(x=rates, y=gaussian_tradeoff(rates, fitted_mu))
    return TradeoffCurves(
        seen=_thinned(curve.false_positive_rate[::-1], curve.false_negative_rate[::-1]),
        proven=_thinned(curve.false_positive_upper[::-1], curve.false_negative_upper[::-1]),
        promised=promised,
        fitted=fitted,
        confidence=curve.confidence,
    )


def _thinned(x: Array, y: Array, points: int = 400) -> Curve:
    """About this many of the points, evenly spread along the curve as it will be drawn."""
    if len(x) <= points:
        return Curve(x=x, y=y)
    bounded = [ndtri(np.clip(rate, SMALLEST_RATE, 1 - SMALLEST_RATE)) for rate in (x, y)]
    length = np.concatenate([[0.0], np.cumsum(sum(np.abs(np.diff(rate)) for rate in bounded))])
    marks = np.linspace(0, length[-1], points)
    keep = np.unique(np.concatenate([[0], np.searchsorted(length, marks), [len(x) - 1]]))
    keep = keep[keep < len(x)]
    return Curve(x=x[keep], y=y[keep])


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class ProfileCurves:
    """Delta against epsilon, from below and from above.

    Arguments:
        proven: Lower bounds on delta with no assumption, all together at ``confidence``.
        gaussian: Lower bounds if the trade-off curve is Gaussian, `None` where there is no mu.
        promised: The accountant's, `None` without a promise.
        delta: The one that the bounds on epsilon are for.
        confidence: Of the proven curve.
    """

    proven: Curve
    gaussian: Curve | None
    promised: Curve | None
    delta: float
    confidence: float


def profile_curves(
    curve: ProvenCurve,
    *,
    claim: Claim | None,
    gaussian_mu: float | None,
    delta: float,
    largest_epsilon: float,
) -> ProfileCurves:
    """The profiles from epsilon 0 to ``largest_epsilon``."""
    epsilon = np.linspace(0.0, max(largest_epsilon, 1.0), 301)
    gaussian = None
    if gaussian_mu is not None and gaussian_mu > 0:
        gaussian = Curve(x=epsilon, y=gaussian_delta(epsilon, gaussian_mu))
    return ProfileCurves(
        proven=Curve(x=epsilon, y=curve.delta_at(epsilon)),
        gaussian=gaussian,
        promised=None if claim is None else Curve(x=epsilon, y=claimed_delta(claim, epsilon)),
        delta=delta,
        confidence=curve.confidence,
    )


def claimed_delta(claim: Claim, epsilon: ArrayLike) -> Array:
    r"""The delta that a claim promises at each epsilon.

    .. math:: \delta(\epsilon) = \sup_\alpha 1 - f(\alpha) - e^\epsilon \alpha

    Dong, Roth, Su (2022), Proposition 2.12; in closed form for a Gaussian claim, else over a fine
    grid of rates.

    Example:
        >>> claimed_delta(Claim.from_points([(1.0, 0.01)]), [0.0, 1.0, 2.0]).round(4)
        array([0.4675, 0.01  , 0.01  ])
    """
    epsilon = np.asarray(epsilon, dtype=float)
    if claim.mu is not None and claim.largest_epsilon is None:
        return gaussian_delta(epsilon, claim.mu)
    alpha = np.concatenate([[0.0], ndtr(np.linspace(-9.0, 9.0, 6001))])
    spare = 1 - claim.tradeoff(alpha)
    growth = np.exp(np.minimum(epsilon, 700.0))[..., None]
    return np.asarray(np.maximum((spare - growth * alpha).max(axis=-1), 0.0))
