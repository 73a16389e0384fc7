r"""Is a claim kept? Asked after every run, and valid whenever one stops.

A gambler bets against the claim, one pair of runs at a time. If the claim is kept, no way of
betting is expected to win, so the wealth :math:`W_k` after :math:`k` pairs is a non-negative
supermartingale from :math:`W_0 = 1`, and by Ville's inequality it *ever* reaches :math:`1/\gamma`
with probability at most :math:`\gamma`. Reaching it refutes the claim at confidence
:math:`1-\gamma`, at whatever moment one looks.

**The bet.** A pair is one run with the canary and one without. Fix a threshold before the pair is
seen; let :math:`Y = 1` if the run without is above it (a false positive, rate :math:`\alpha`) and
:math:`Z = 1` if the run with is not (a false negative, rate :math:`\beta`). The claim's curve
:math:`f` is convex, so a claim that is kept satisfies each of its supporting lines,
:math:`p\alpha + r\beta \ge c` with :math:`p, r > 0`. Take any point of such a line,
:math:`p a + r b = c`, and any :math:`\lambda \ge 0` that keeps both factors non-negative:

.. math:: e(Y, Z) = \bigl(1 - \lambda p (Y - a)\bigr) \bigl(1 - \lambda r (Z - b)\bigr).

*Proof that* :math:`E[e] \le 1`. The two runs are independent, so :math:`E[e] = (1-u)(1-v)` with
:math:`u = \lambda p(\alpha - a)` and :math:`v = \lambda r(\beta - b)`. Both factors are
expectations of non-negative numbers, and :math:`u + v = \lambda(p\alpha + r\beta - c) \ge 0`; so
by the inequality of the means :math:`(1-u)(1-v) \le (1 - (u+v)/2)^2 \le 1`. ∎

Line, point, :math:`\lambda` and threshold may depend on everything seen before the pair. Where
:math:`(a, b)` is the point of the curve nearest (in Kullback-Leibler divergence) to the true error
rates, the best :math:`\lambda` makes :math:`e` their likelihood ratio, so nothing is lost against a
likelihood-ratio test for known rates; and no run is spent on a pilot. Nothing is assumed of the
scores, nor that they have the same law in every run: only that each run keeps the claim given the
runs before it.

References:
    Ville: *Étude critique de la notion de collectif* (1939).
    Waudby-Smith, Ramdas: *Estimating means of bounded random variables by betting* (JRSS-B 2024).
    Grünwald, de Heide, Koolen: *Safe testing* (JRSS-B 2024).
    Wasserman, Ramdas, Balakrishnan: *Universal inference* (PNAS 2020), the alternative: it needs
    a pilot, and pays :math:`\log n` for not knowing the rates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, ndtr

from dpaudit import _validate
from dpaudit.claims.claim import Claim
from dpaudit.errors import InvalidScores
from dpaudit.lower_bounds.counts import ErrorCounts, midpoints
from dpaudit.tradeoff import gaussian_delta

Array = NDArray[np.float64]

LINES = 31
SHARES = (0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9, 0.99)
"""How much of the largest possible lambda a bet may stake. All of it would risk losing all."""

CAUTIONS = (0.3, 1.0, 3.0)
"""Errors that a gambler adds to those seen before predicting. Several gamblers share the stake."""

MOST_THRESHOLDS = 32


@final
@dataclass(frozen=True, kw_only=True)
class Lines:
    """Supporting lines of a claim's curve, each with a point on it.

    Arguments:
        p: Weight of the false-positive rate.
        r: Weight of the false-negative rate; ``p + r = 1``.
        c: What ``p alpha + r beta`` is at least.
        a: False-positive rate of the point.
        b: False-negative rate of the point: ``p a + r b = c``.
    """

    p: Array
    r: Array
    c: Array
    a: Array
    b: Array


def supporting_lines(claim: Claim, count: int = LINES) -> Lines:
    """Lines that the claim's curve is nowhere below, of slopes from steep to flat.

    An (epsilon, delta) that is promised is the line of slope :math:`e^\\epsilon`, and its mirror
    image. Lines between two promised ones are averages of them, which are promised too.

    Example:
        >>> lines = supporting_lines(Claim.from_mu(1.0), 3)
        >>> lines.b.round(3), lines.c.round(3)
        (array([0.   , 0.309, 0.999]), array([0.029, 0.309, 0.029]))
    """
    if claim.mu is not None:
        reach = min(claim.largest_epsilon or math.inf, claim.mu**2 / 2 + 3 * claim.mu, 30.0)
        epsilon = np.linspace(-reach, reach, count)
        p, r = expit(epsilon), expit(-epsilon)
        c = np.minimum(p, r) * (1 - gaussian_delta(np.abs(epsilon), claim.mu))
        with np.errstate(invalid="ignore", divide="ignore"):
            a = ndtr(-epsilon / claim.mu - claim.mu / 2) if claim.mu > 0 else np.full(count, 0.5)
    else:
        promised, deltas = np.array(claim.epsilons), np.array(claim.deltas)
        steep = expit(promised)
        offset = expit(-promised) * (1 - deltas)
        known_p = np.concatenate([[0.0], steep, 1 - steep, [1.0]])
        known_c = np.concatenate([[0.0], offset, offset, [0.0]])
        # Of several lines with one slope the highest says all.
        order = np.lexsort((-known_c, known_p))
        known_p, first = np.unique(known_p[order], return_index=True)
        reach = min(float(promised.max()), 30.0)
        p = expit(np.linspace(-reach, reach, count))
        r, c = 1 - p, np.interp(p, known_p, known_c[order][first])
        a = _touching(claim, p, r)
    b = (c - p * a) / r
    kept = (b > 0) & (b < 1) & (a > 0) & (a < 1)
    return Lines(p=p[kept], r=r[kept], c=c[kept], a=a[kept], b=b[kept])


def _touching(claim: Claim, p: Array, r: Array) -> Array:
    """Where each line touches the curve; the middle, where it touches along a whole segment.

    Any point of the line would be valid; this one is worth betting on.
    """
    rates = ndtr(np.linspace(-8, 8, 1601))
    height = p[:, None] * rates + r[:, None] * claim.tradeoff(rates)
    lowest = height <= height.min(axis=1, keepdims=True) * (1 + 1e-9)
    first, last = lowest.argmax(axis=1), lowest.shape[1] - 1 - lowest[:, ::-1].argmax(axis=1)
    return np.asarray((rates[first] + rates[last]) / 2)


@final
@dataclass(frozen=True, kw_only=True)
class Bets:
    """Logarithms of what each bet pays, by what is seen of one run of a pair.

    Arguments:
        payoff: Shape (bets, 4): for a run without the canary that is not above the threshold, and
            one that is; for a run with the canary that is above it, and one that is not.
    """

    payoff: Array

    @classmethod
    def against(cls, claim: Claim) -> Bets:
        """Every line of the claim, with every share of the largest stake."""
        lines = supporting_lines(claim)
        with np.errstate(divide="ignore"):
            most = np.minimum(1 / (lines.p * (1 - lines.a)), 1 / (lines.r * (1 - lines.b)))
        stake = most[:, None] * np.array(SHARES)
        p, r, a, b = (value[:, None] for value in (lines.p, lines.r, lines.a, lines.b))
        payoff = np.stack(
            [
                np.log1p(stake * p * a),
                np.log1p(-stake * p * (1 - a)),
                np.log1p(stake * r * b),
                np.log1p(-stake * r * (1 - b)),
            ],
            axis=-1,
        )
        none = np.zeros((1, 4))  # not to bet is a bet too
        return cls(payoff=np.concatenate([none, payoff.reshape(-1, 4)]))


@final
class AnytimeTest:
    """The test of a claim that may be looked at after every pair of scores.

    See also: `dpaudit.test_claim`, for a number of runs that is fixed beforehand: it needs fewer
    runs on average only if that number happens to be right.

    Arguments:
        claim: The promise.
        confidence: A kept claim is ever refuted with at most the remaining probability.

    Example:
        >>> random = np.random.default_rng(0)
        >>> test = AnytimeTest(Claim.from_mu(1.0))
        >>> test.add(random.normal(3, 1, 500), random.normal(0, 1, 500))
        >>> test.refuted, test.refuted_at
        (True, 9)
        >>> kept = AnytimeTest(Claim.from_mu(3.0))
        >>> kept.add(random.normal(3, 1, 500), random.normal(0, 1, 500))
        >>> kept.refuted
        False
    """

    def __init__(self, claim: Claim, *, confidence: float = 0.95, bets: Bets | None = None) -> None:
        self.claim = claim
        self.confidence = _validate.confidence(confidence)
        self._goal = -math.log(1 - self.confidence)
        self._bets = Bets.against(claim) if bets is None else bets
        self._inserted: Array = np.empty(0)
        self._others: Array = np.empty(0)
        self._wealth = np.zeros(len(CAUTIONS))  # logarithms, one a gambler
        self._wealth_now = self._largest = 0.0  # logarithms, of all gamblers together
        self._chosen_at = -1
        self._payoff = np.zeros((len(CAUTIONS), 4))
        self._threshold = np.zeros(len(CAUTIONS))
        self._refuted_at: int | None = None

    @property
    def pairs(self) -> int:
        """How many pairs have been seen."""
        return len(self._inserted)

    @property
    def e_value(self) -> float:
        """The wealth now. Its expectation is at most 1 if the claim is true, at any stopping time.

        The product of the e-values of independent audits is again an e-value.
        """
        return math.exp(min(self._wealth_now, 700.0))

    @property
    def p_value(self) -> float:
        """The anytime-valid p-value: one over the largest wealth so far."""
        return math.exp(-self._largest)

    @property
    def refuted_at(self) -> int | None:
        """The pair after which the claim was refuted; `None` while it is not."""
        return self._refuted_at

    @property
    def refuted(self) -> bool:
        """Whether the claim is refuted; once refuted, it stays so."""
        return self._refuted_at is not None

    def add(self, inserted: ArrayLike, others: ArrayLike) -> None:
        """See further pairs, in their order: scores with the canary, and without it.

        A run that failed has the score minus infinity: it is guessed 'not inserted' whatever the
        threshold, and no threshold is chosen from it.
        """
        new_inserted = np.atleast_1d(np.asarray(inserted, dtype=float))
        new_others = np.atleast_1d(np.asarray(others, dtype=float))
        if new_inserted.shape != new_others.shape:
            raise InvalidScores(
                "pairs need as many scores with the canary as without it, got "
                f"{new_inserted.size} and {new_others.size}; leave out the run without a partner"
            )
        start, end = self.pairs, self.pairs + len(new_inserted)
        self._inserted = np.concatenate([self._inserted, new_inserted])
        self._others = np.concatenate([self._others, new_others])
        while start < end:
            if start >= self._next_choice():
                self._choose(start)
            stop = min(end, max(self._next_choice(), start + 1))
            self._settle(start, stop)
            start = stop

    def _next_choice(self) -> int:
        """Bets are chosen anew at every pair at first, then whenever a quarter more was seen."""
        return 0 if self._chosen_at < 0 else self._chosen_at + 1 + self._chosen_at // 4

    def _choose(self, seen: int) -> None:
        """Choose each gambler's bet from the pairs seen, and from nothing later."""
        self._chosen_at = seen
        inserted, others = self._inserted[:seen], self._others[:seen]
        distinct = np.unique(np.concatenate([inserted, others]))
        cuts = midpoints(distinct[np.isfinite(distinct)])
        if len(cuts) == 0:
            return
        counts = ErrorCounts.at(inserted, others, cuts)
        if len(cuts) > MOST_THRESHOLDS:
            # Evenly spread, and the one that errs least: where the worlds are apart, it is between.
            spread = np.linspace(0, len(cuts) - 1, MOST_THRESHOLDS).astype(np.int64)
            best = int(np.argmin(counts.false_positives + counts.false_negatives))
            counts = counts[[*spread, best]]
        for gambler, caution in enumerate(CAUTIONS):
            alpha = (counts.false_positives + caution) / (seen + 2 * caution)
            beta = (counts.false_negatives + caution) / (seen + 2 * caution)
            chances = np.stack([1 - alpha, alpha, 1 - beta, beta], axis=1)
            growth = chances @ self._bets.payoff.T
            place, bet = np.unravel_index(int(np.argmax(growth)), growth.shape)
            self._threshold[gambler] = counts.thresholds[place]
            self._payoff[gambler] = self._bets.payoff[bet]

    def _settle(self, start: int, stop: int) -> None:
        """Pay the bets on some pairs, and see whether the goal was reached at any of them."""
        above = self._inserted[start:stop, None] > self._threshold
        false = self._others[start:stop, None] > self._threshold
        won = np.where(false, self._payoff[:, 1], self._payoff[:, 0]) + np.where(
            above, self._payoff[:, 2], self._payoff[:, 3]
        )
        path = self._wealth + np.cumsum(won, axis=0)
        self._wealth = path[-1]
        together = np.logaddexp.reduce(path, axis=1) - math.log(len(CAUTIONS))
        self._wealth_now = float(together[-1])
        self._largest = max(self._largest, float(together.max()))
        if self._refuted_at is None and self._largest >= self._goal:
            self._refuted_at = start + int(np.argmax(together >= self._goal)) + 1


def pairs_to_refute(claim: Claim, *, confidence: float = 0.95, most: int = 20_000) -> int | None:
    """After how many pairs without any error the claim is refuted; `None` if not after ``most``.

    Example:
        >>> pairs_to_refute(Claim.from_mu(1.6))
        13
    """
    test = AnytimeTest(claim, confidence=confidence)
    while not test.refuted and test.pairs < most:
        more = min(max(64, test.pairs), most - test.pairs)
        test.add(np.ones(more), np.zeros(more))
    return test.refuted_at
