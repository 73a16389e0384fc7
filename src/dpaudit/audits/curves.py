"""The curves behind an audit as plain numbers: figures and pages draw the same ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from dpaudit._arrays import Array, Integers
from dpaudit.claims import Claim
from dpaudit.curves import (
    epsilon_of_errors,
    gaussian_delta,
    gaussian_tradeoff,
    mu_of_errors,
)
from dpaudit.lower_bounds.counts import ErrorCounts, upper_rate
from dpaudit.lower_bounds.simultaneous import ProvenCurve
from dpaudit.scores import Scores

SMALLEST_RATE = 1e-4
"""The end of the axes of error rates."""

SMALLEST_DELTA = 1e-9
"""The end of the axis of delta."""

MOST_THRESHOLDS = 20_000
"""The largest number of thresholds that a page carries for the reader to try."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Curve:
    """Points to be joined by a line, x ascending."""

    x: Array
    y: Array


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Histogram:
    """The scores with and without the canary in the same bins, as shares of each group."""

    edges: Array
    inserted: Array
    others: Array
    outside: int


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Readings:
    """The bounds at many thresholds, at each as if it had been fixed before the scores were seen.

    Arguments:
        threshold: Scores above it are guessed to be inserted.
        false_positives: Number of scores without the canary above the threshold.
        false_negatives: Number of scores with the canary at or below the threshold.
        false_positive_upper: Clopper-Pearson upper bound, with half of the error probability.
        false_negative_upper: The same for the false-negative rate.
        mu: Gaussian-DP parameter from both upper bounds; 0 if they show nothing.
        gaussian_epsilon: Epsilon at delta if the trade-off function is Gaussian.
        epsilon: Epsilon at delta without an assumption.
    """

    threshold: Array
    false_positives: Integers
    false_negatives: Integers
    false_positive_upper: Array
    false_negative_upper: Array
    mu: Array
    gaussian_epsilon: Array
    epsilon: Array

    def __getitem__(self, place: int) -> Readings:
        """The bounds at one threshold."""
        return Readings(**{name: values[place] for name, values in vars(self).items()})


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Thresholds:
    """What a reader sees at every threshold that he may choose.

    Arguments:
        counts: The errors at finite thresholds.
        readings: The bounds there.
        start: Index of the threshold that the page shows first.
        delta: Delta at which the epsilons are read.
        confidence: Confidence of each reading by itself.
    """

    counts: ErrorCounts
    readings: Readings
    start: int
    delta: float
    confidence: float

    @property
    def reading(self) -> Readings:
        """The bounds at the threshold that the page shows first."""
        return self.readings[self.start]


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class TradeoffCurves:
    """False-negative rate against false-positive rate.

    Arguments:
        seen: The observed rates.
        proven: Upper bounds on both rates, valid together; the true curve lies below.
        claimed: The claimed trade-off function; the true curve lies above. `None` without a claim.
        fitted: The trade-off function of the fitted Gaussian; `None` if none was fitted.
        confidence: Confidence of the proven curve.
    """

    seen: Curve
    proven: Curve
    claimed: Curve | None
    fitted: Curve | None
    confidence: float


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class ProfileCurves:
    """Privacy profiles: delta against epsilon.

    Arguments:
        proven: Lower bounds on delta without an assumption, valid together.
        gaussian: Lower bounds if the trade-off function is Gaussian; `None` without a mu.
        claimed: The claimed profile; `None` without a claim.
        delta: The delta at which epsilon is bounded.
        confidence: Confidence of the proven curve.
    """

    proven: Curve
    gaussian: Curve | None
    claimed: Curve | None
    delta: float
    confidence: float


_MOST_BINS = 60
_POINTS = 400


def histogram(scores: Scores) -> Histogram | None:
    """The histogram with and without the canary; `None` if no score is finite.

    A few extreme scores would squeeze all others into one bin, so the edges leave them outside.

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
        np.histogram(np.clip(group, low, high), edges)[0] / max(len(group), 1)
        for group in (scores.inserted_scores, scores.other_scores)
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


def thresholds(
    scores: Scores,
    *,
    chosen: float | None,
    delta: float,
    confidence: float,
    most: int = MOST_THRESHOLDS,
) -> Thresholds | None:
    """The errors at every threshold, or at ``most`` of them; `None` if no two scores differ."""
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
    counts = ErrorCounts.at(inserted, others, values)
    return Thresholds(
        counts=counts,
        readings=readings(counts, delta=delta, confidence=confidence),
        start=int(np.searchsorted(values, chosen)),
        delta=delta,
        confidence=confidence,
    )


def readings(counts: ErrorCounts, *, delta: float, confidence: float) -> Readings:
    """The bounds at each threshold of ``counts``, as if it had been fixed beforehand."""
    tail = (1 - confidence) / 2
    alpha = upper_rate(counts.false_positives, counts.negatives, tail)
    beta = upper_rate(counts.false_negatives, counts.positives, tail)
    mu = np.maximum(mu_of_errors(alpha, beta), 0.0)
    return Readings(
        threshold=counts.thresholds,
        false_positives=counts.false_positives,
        false_negatives=counts.false_negatives,
        false_positive_upper=alpha,
        false_negative_upper=beta,
        mu=mu,
        gaussian_epsilon=_gaussian_epsilons(delta, mu),
        epsilon=epsilon_of_errors(alpha, beta, delta),
    )


def _gaussian_epsilons(delta: float, mu: Array) -> Array:
    """`gaussian_epsilon` of many mu at once, by bisection."""
    if delta == 0:
        return np.where(mu > 0, np.inf, 0.0)
    low, high = np.zeros_like(mu), mu**2 / 2 + mu * np.sqrt(2 * np.log(1 / delta))
    shows = np.maximum(mu, 1e-9)
    for _ in range(60):
        middle = (low + high) / 2
        above = gaussian_delta(middle, shows) > delta
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return np.asarray(high)


def tradeoff_curves(
    curve: ProvenCurve, *, claim: Claim | None, fitted_mu: float | None
) -> TradeoffCurves:
    """The four curves, between `SMALLEST_RATE` and one minus it."""
    rates = ndtr(np.linspace(ndtri(SMALLEST_RATE), -ndtri(SMALLEST_RATE), 201))
    fitted = None if fitted_mu is None else gaussian_tradeoff(rates, fitted_mu)
    return TradeoffCurves(
        seen=_thinned(curve.false_positive_rate[::-1], curve.false_negative_rate[::-1]),
        proven=_thinned(curve.false_positive_upper[::-1], curve.false_negative_upper[::-1]),
        claimed=None if claim is None else Curve(x=rates, y=claim.tradeoff(rates)),
        fitted=None if fitted is None else Curve(x=rates, y=fitted),
        confidence=curve.confidence,
    )


def _thinned(x: Array, y: Array) -> Curve:
    """About `_POINTS` of the points, evenly spread along the curve as it will be drawn."""
    if len(x) <= _POINTS:
        return Curve(x=x, y=y)
    bounded = [ndtri(np.clip(rate, SMALLEST_RATE, 1 - SMALLEST_RATE)) for rate in (x, y)]
    length = np.concatenate([[0.0], np.cumsum(sum(np.abs(np.diff(rate)) for rate in bounded))])
    marks = np.linspace(0, length[-1], _POINTS)
    keep = np.unique(np.concatenate([[0], np.searchsorted(length, marks), [len(x) - 1]]))
    keep = keep[keep < len(x)]
    return Curve(x=x[keep], y=y[keep])


def profile_curves(
    curve: ProvenCurve,
    *,
    claim: Claim | None,
    gaussian_mu: float | None,
    delta: float,
    largest_epsilon: float,
) -> ProfileCurves:
    """The privacy profiles from epsilon 0 to ``largest_epsilon``."""
    epsilon = np.linspace(0.0, max(largest_epsilon, 1.0), 301)
    gaussian = gaussian_delta(epsilon, gaussian_mu) if gaussian_mu else None
    return ProfileCurves(
        proven=Curve(x=epsilon, y=curve.delta_at(epsilon)),
        gaussian=None if gaussian is None else Curve(x=epsilon, y=gaussian),
        claimed=None if claim is None else Curve(x=epsilon, y=claimed_delta(claim, epsilon)),
        delta=delta,
        confidence=curve.confidence,
    )


def claimed_delta(claim: Claim, epsilon: ArrayLike) -> Array:
    r"""The delta that a claim allows at each epsilon.

    .. math:: \delta(\epsilon) = \sup_\alpha 1 - f(\alpha) - e^\epsilon \alpha

    Dong, Roth, Su (2022), Proposition 2.12; in closed form for a Gaussian claim, otherwise over a
    fine grid of rates.

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
