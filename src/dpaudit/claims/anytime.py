r"""Test of a claim that may be looked at after every step, and the bounds that follow from it.

A *step* is a pair of runs, one with the canary and one without it, or one run into which the canary
was inserted by a fair coin. Before a step, a threshold and a bet are chosen from earlier steps. Let
:math:`Y = 1` if a score without the canary is above the threshold (a false positive, rate
:math:`\alpha`), and :math:`Z = 1` if a score with the canary is not (a false negative, rate
:math:`\beta`). The claimed trade-off function is convex: if the claim is true, every supporting
line of it holds: :math:`p\alpha + r\beta \ge c` with :math:`p, r > 0`. For any point of such a
line, :math:`p a + r b = c`, and any :math:`\lambda \ge 0` that keeps both factors non-negative, the
bet multiplies the wealth by

.. math:: F(Y) = 1 - \lambda p (Y - a) \quad\text{or}\quad G(Z) = 1 - \lambda r (Z - b),

for a score without or with the canary. Several bets may be averaged with the same weights in both.

**Theorem.** If the claim is true, no step has an expected factor above 1.

*Proof.* Let :math:`E[F] = 1 - u` and :math:`E[G] = 1 - v`. Both are expectations of non-negative
numbers, and for one bet :math:`u + v = \lambda(p\alpha + r\beta - c) \ge 0`, so also for an average
of bets. A pair of independent runs multiplies by :math:`E[FG] = (1-u)(1-v) \le (1 - (u+v)/2)^2 \le
1`; a run with a fair coin by :math:`\tfrac12(1-u) + \tfrac12(1-v) \le 1`. ∎

So the wealth after each step, which starts at 1, is a non-negative supermartingale: an e-process.
By Ville's inequality it *ever* reaches :math:`1/\gamma` with probability at most :math:`\gamma`.
Reaching it refutes the claim at confidence :math:`1-\gamma`, at any stopping time. An average of
e-processes of the same steps is an e-process: of several strategies, and of several tensors, whose
canaries share their runs. All bets of a run are chosen before that run, from earlier runs.

Nothing is assumed about the scores, nor that they have the same distribution in every step: only
that each step satisfies the claim given the steps before it. Where a run has several canaries
without names, each canary is a step, which assumes that the canaries of a run are independent; or
(``together``) the run is a step that multiplies by the mean of its canaries' factors, whose
expectation is at most 1 however they depend on each other.

**Bounds.** If a mechanism is mu-GDP, it is also mu'-GDP for every larger mu'. Claims on a fixed
grid are tested from below until the first that is not refuted. The bound exceeds the truth only if
the smallest true claim of the grid was refuted. The same holds for epsilon at a given delta.

References:
    Ville: *Étude critique de la notion de collectif* (1939).
    Cover: *An algorithm for maximizing expected log investment return* (1984), for the portfolio.
    Waudby-Smith, Ramdas: *Estimating means of bounded random variables by betting* (JRSS-B 2024).
    Grünwald, de Heide, Koolen: *Safe testing* (JRSS-B 2024).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, ndtr

from dpaudit import _validate
from dpaudit._arrays import Array
from dpaudit.claims.claim import Claim
from dpaudit.curves import gaussian_delta, gaussian_epsilon
from dpaudit.errors import InvalidScores
from dpaudit.lower_bounds.counts import ErrorCounts, midpoints
from dpaudit.lower_bounds.diagnostics import GAUSSIAN_TRADE_OFF, INDEPENDENT_CANARIES
from dpaudit.privacy import Bound, Bounds, Unavailable

LINES = 31
SHARES = (0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9, 0.99)
"""Stakes, as shares of the largest possible lambda. The largest one could lose everything."""

GRID, LARGEST = 0.05, 30.0
"""Bounds are multiples of the first, up to the second."""

_AT_ONCE = 64  # steps between two looks at a replayed test

Coins = NDArray[np.bool_]


# ---- bets ------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, kw_only=True)
class Lines:
    """Supporting lines of a claimed trade-off function, each with a point on it.

    ``p alpha + r beta >= c`` with p + r = 1, and the point (a, b) with p a + r b = c.
    """

    p: Array
    r: Array
    c: Array
    a: Array
    b: Array


def supporting_lines(claim: Claim, count: int = LINES) -> Lines:
    """Lines that the claimed trade-off function is nowhere below, with slopes from flat to steep.

    A claimed (epsilon, delta) is the line of slope :math:`e^\\epsilon` and its mirror image. Lines
    between two claimed ones are averages of them, which the claim implies.

    Example:
        >>> lines = supporting_lines(Claim.from_mu(1.0), 3)
        >>> lines.b.round(3), lines.c.round(3)
        (array([0.   , 0.309, 0.999]), array([0.029, 0.309, 0.029]))
    """
    if claim.mu is not None:
        reach = min(claim.largest_epsilon or math.inf, claim.mu * (claim.mu / 2 + 3), 30.0)
        epsilon = np.linspace(-reach, reach, count)
        p, r = expit(epsilon), expit(-epsilon)
        c = np.minimum(p, r) * (1 - gaussian_delta(np.abs(epsilon), claim.mu))
        with np.errstate(invalid="ignore", divide="ignore"):
            a = ndtr(-epsilon / claim.mu - claim.mu / 2) if claim.mu > 0 else np.full(count, 0.5)
    else:
        claimed, deltas = np.array(claim.epsilons), np.array(claim.deltas)
        steep = expit(claimed)
        offset = expit(-claimed) * (1 - deltas)
        claimed_p = np.concatenate([[0.0], steep, 1 - steep, [1.0]])
        claimed_c = np.concatenate([[0.0], offset, offset, [0.0]])
        # Of several lines with one slope only the highest matters.
        order = np.lexsort((-claimed_c, claimed_p))
        claimed_p, first = np.unique(claimed_p[order], return_index=True)
        reach = min(float(claimed.max()), 30.0)
        p = expit(np.linspace(-reach, reach, count))
        r, c = 1 - p, np.interp(p, claimed_p, claimed_c[order][first])
        a = _touching(claim, p, r)
    b = (c - p * a) / r
    inside = (b > 0) & (b < 1) & (a > 0) & (a < 1)
    return Lines(p=p[inside], r=r[inside], c=c[inside], a=a[inside], b=b[inside])


def _touching(claim: Claim, p: Array, r: Array) -> Array:
    """False-positive rate at which each line touches the curve; the middle of a whole segment.

    Any point of the line is valid; the touching point gives the largest gains.
    """
    rates = ndtr(np.linspace(-8, 8, 1601))
    height = p[:, None] * rates + r[:, None] * claim.tradeoff(rates)
    lowest = height <= height.min(axis=1, keepdims=True) * (1 + 1e-9)
    first, last = lowest.argmax(axis=1), lowest.shape[1] - 1 - lowest[:, ::-1].argmax(axis=1)
    return np.asarray((rates[first] + rates[last]) / 2)


@final
@dataclass(frozen=True, kw_only=True)
class Bets:
    """Logarithms of the factors of each bet.

    The array has the shape (lines, shares, 4): for a score without the canary that is not above the
    threshold, and one that is; for a score with the canary that is above it, and one that is not.
    """

    payoff: Array

    @classmethod
    def against(cls, claim: Claim) -> Bets:
        """Every supporting line of the claim with every share of the largest stake."""
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
        return cls(payoff=payoff)


# ---- how bets are chosen from earlier steps --------------------------------------------------


@final
class SingleBets:
    """Three accounts, each with one threshold and the bet with the largest expected logarithm."""

    # Errors added to the observed ones before predicting, one account each.
    CAUTIONS = (0.3, 1.0, 3.0)
    MOST_THRESHOLDS = 32

    def __init__(self, bets: Bets) -> None:
        self._payoffs = np.concatenate([np.zeros((1, 4)), bets.payoff.reshape(-1, 4)])
        self._payoff = np.zeros((len(self.CAUTIONS), 4))
        self._threshold = np.zeros(len(self.CAUTIONS))

    def choose(self, inserted: Array, others: Array) -> None:
        """Choose bets for the next step from all earlier scores."""
        counts = _errors(inserted, others, self.MOST_THRESHOLDS)
        if len(counts) == 0:
            return
        for account, caution in enumerate(self.CAUTIONS):
            growth = _chances(counts, caution) @ self._payoffs.T
            place, bet = np.unravel_index(int(np.argmax(growth)), growth.shape)
            self._threshold[account] = counts.thresholds[place]
            self._payoff[account] = self._payoffs[bet]

    def gains(self, scores: Array, inserted: Coins) -> Array:
        """Logarithm of the factor for each score; shape (scores, accounts)."""
        above = scores[:, None] > self._threshold
        with_canary = np.where(above, self._payoff[:, 2], self._payoff[:, 3])
        without = np.where(above, self._payoff[:, 1], self._payoff[:, 0])
        return np.asarray(np.where(inserted[:, None], with_canary, without))


@final
class Portfolio:
    """One account: an average of bets at many thresholds, which uses more than a bit of each score.

    The weights maximise the mean logarithm of the factors of earlier scores (the log-optimal
    portfolio of Cover 1984), found by his multiplicative updates, and are mixed with the weights of
    a cautious start.
    """

    THRESHOLDS = 16
    STAKES = (1, 3, 5, 7)  # indices into `SHARES`
    # Few updates, and a start that counts as 40 scores and bets half: both prevent overfitting.
    _UPDATES = 15
    _START = 40.0

    def __init__(self, bets: Bets) -> None:
        self._bets = bets
        self.cuts: Array = np.empty(0)
        self.factors: Array = np.zeros((2, 1))  # logarithms, without and with the canary, by cell

    def choose(self, inserted: Array, others: Array) -> None:
        """Choose weights for the next step from all earlier scores."""
        counts = _errors(inserted, others, self.THRESHOLDS)
        if len(counts) == 0 or len(self._bets.payoff) == 0:
            return
        growth = np.einsum("tc,lsc->tls", _chances(counts, 1.0), self._bets.payoff)
        line = growth.max(axis=2).argmax(axis=1)
        payoff = np.exp(self._bets.payoff[line][:, list(self.STAKES)])
        self.cuts = counts.thresholds
        cells = len(self.cuts) + 1
        # All that counts of a score is how many cuts it exceeds.
        exceeded = np.arange(cells)[:, None, None] > np.arange(len(self.cuts))[:, None]
        without = np.where(exceeded, payoff[..., 1], payoff[..., 0]).reshape(cells, -1)
        with_canary = np.where(exceeded, payoff[..., 2], payoff[..., 3]).reshape(cells, -1)
        factors = np.concatenate([without, with_canary])
        factors = np.concatenate([np.ones((2 * cells, 1)), factors], axis=1)
        times = np.concatenate(
            [np.bincount(self._cell(group), minlength=cells) for group in (others, inserted)]
        )
        self.factors = np.log(factors @ self._weights(factors, times)).reshape(2, cells)

    def gains(self, scores: Array, inserted: Coins) -> Array:
        """Logarithm of the factor for each score; shape (scores, 1)."""
        return np.asarray(self.factors[inserted.astype(int), self._cell(scores)][:, None])

    def _cell(self, scores: Array) -> Any:
        return np.searchsorted(self.cuts, scores, side="left")

    def _weights(self, factors: Array, times: Array) -> Array:
        start = np.full(factors.shape[1], 0.5 / (factors.shape[1] - 1))
        start[0] = 0.5
        observed, number = times > 0, float(times.sum())
        factors, share = factors[observed], times[observed] / number
        weights = start
        for _ in range(self._UPDATES):
            weights = weights * ((share / (factors @ weights)) @ factors)
        return np.asarray((number * weights + self._START * start) / (number + self._START))


def _errors(inserted: Array, others: Array, most: int) -> ErrorCounts:
    """Errors at evenly spread thresholds, and at the one with the fewest errors."""
    distinct = np.unique(np.concatenate([inserted, others]))
    counts = ErrorCounts.at(inserted, others, midpoints(distinct[np.isfinite(distinct)]))
    if len(counts) <= most:
        return counts
    spread = ((np.arange(most) + 0.5) * len(counts) / most).astype(np.int64)
    best = int(np.argmin(counts.false_positives + counts.false_negatives))
    return counts[np.union1d(spread, [best])]


def _chances(counts: ErrorCounts, caution: float) -> Array:
    """Predicted probabilities of the four outcomes of `Bets`, one row per threshold."""
    alpha = (counts.false_positives + caution) / (counts.negatives + 2 * caution)
    beta = (counts.false_negatives + caution) / (counts.positives + 2 * caution)
    return np.stack([1 - alpha, alpha, 1 - beta, beta], axis=1)


# ---- the test --------------------------------------------------------------------------------


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Stream:
    """The scores of an anytime-valid test of one canary, in the order of the steps.

    ``pairs`` is the number of pairs of runs that are worth about as much.
    """

    inserted_scores: Array
    other_scores: Array
    pairs: int


@final
class AnytimeTest:
    """A test of a claim that is valid after every step.

    See also: `dpaudit.test_claim`, for a number of runs that is fixed beforehand. It needs fewer
    runs if that number is close to the smallest one that suffices.

    Arguments:
        claim: The claim to test.
        confidence: One minus the probability that a true claim is ever refuted.
        names: Names of the canaries, if they are tested one by one: the wealth is then the mean of
            that of all canaries.
        canaries: Number of canaries of a run without names.
        together: Whether a run is one step, so that its canaries may depend on each other.
        bets: The bets against the claim, if they were computed before.

    Example:
        >>> random = np.random.default_rng(0)
        >>> test = AnytimeTest(Claim.from_mu(1.0))
        >>> test.add(random.normal(3, 1, 500), random.normal(0, 1, 500))
        >>> test.refuted
        True
        >>> true = AnytimeTest(Claim.from_mu(3.0))
        >>> true.add(random.normal(3, 1, 500), random.normal(0, 1, 500))
        >>> true.refuted
        False
    """

    def __init__(
        self,
        claim: Claim,
        *,
        confidence: float = 0.95,
        names: Sequence[str] = (),
        canaries: int = 1,
        together: bool = False,
        bets: Bets | None = None,
    ) -> None:
        self.claim, self.names = claim, tuple(names)
        self.canaries, self.together = canaries, together and canaries > 1
        self.confidence = _validate.confidence(confidence)
        self._goal = -math.log(1 - self.confidence)
        self.bets = Bets.against(claim) if bets is None else bets
        processes = max(1, len(self.names))
        self._strategies = [(SingleBets(self.bets), Portfolio(self.bets)) for _ in range(processes)]
        singles = len(SingleBets.CAUTIONS)
        # Logarithms: the wealth of each account of each process, now; that of each process, and
        # their mean, now and at its largest.
        self._accounts = np.tile(np.log([0.5 / singles] * singles + [0.5]), (processes, 1))
        self._processes = np.zeros((2, processes))
        self._mean_now = self._mean_largest = 0.0
        self._scores: Array = np.empty((0, processes))
        self._inserted: Coins = np.empty((0, processes), dtype=bool)
        self._rows = 0  # in a step: 2 of a pair, otherwise one for each coin; 0 before the first
        self._next_choice = 1
        # The step after which the claim was refuted.
        self.refuted_at: int | None = None

    @property
    def steps(self) -> int:
        """Number of steps so far: pairs of runs, runs, or canaries of runs."""
        return len(self._scores) // max(1, self._rows)

    @property
    def sample_size(self) -> int:
        """Number of scores so far."""
        return int(self._scores.size)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the scores must satisfy for the test to be valid, besides independent runs."""
        alone = self.names or self.together or self.canaries == 1
        return () if alone else (INDEPENDENT_CANARIES,)

    @property
    def streams(self) -> list[Stream]:
        """The scores of each named canary, or of all together."""
        columns = zip(self._scores.T, self._inserted.T, strict=True)
        return [
            Stream(
                inserted_scores=scores[coins],
                other_scores=scores[~coins],
                # The mean of the factors of a run is worth about as much as one of them.
                pairs=self.steps // 2 if self.together else min(coins.sum(), (~coins).sum()),
            )
            for scores, coins in columns
        ]

    @property
    def e_value(self) -> float:
        """The wealth now. Its expectation is at most 1 if the claim is true, at any stopping time.

        The product of the e-values of independent audits is again an e-value.
        """
        return math.exp(min(self._mean_now, 700.0))

    @property
    def p_value(self) -> float:
        """The anytime-valid p-value: one over the largest wealth so far."""
        return math.exp(-min(self._mean_largest, 700.0))

    @property
    def e_values(self) -> Array:
        """The wealth of each process now; one process without names."""
        return np.asarray(np.exp(np.minimum(self._processes[0], 700.0)))

    @property
    def p_values(self) -> Array:
        """The anytime-valid p-value of each process by itself."""
        return np.asarray(np.exp(-np.minimum(self._processes[1], 700.0)))

    @property
    def refuted(self) -> bool:
        """Whether the claim was refuted after any of the steps."""
        return self.refuted_at is not None

    def add(self, inserted: ArrayLike, others: ArrayLike) -> None:
        """Add pairs in the order in which they were observed; not for canaries with names.

        Arguments:
            inserted: Scores with the canary. A failed run has the score minus infinity: it is never
                above a threshold, and no threshold is chosen from it.
            others: Scores without the canary, one for each of ``inserted``.
        """
        with_canary = np.atleast_1d(np.asarray(inserted, dtype=float))
        without = np.atleast_1d(np.asarray(others, dtype=float))
        if with_canary.shape != without.shape:
            raise InvalidScores(
                "pairs need as many scores with the canary as without it, got "
                f"{with_canary.size} and {without.size}; leave out the run without a partner"
            )
        scores = np.stack([with_canary, without], axis=1).reshape(-1, 1)
        coins = np.tile([[True], [False]], (len(with_canary), 1))
        self._extend(scores, coins, rows=2)

    def add_coins(self, scores: ArrayLike, inserted: ArrayLike) -> None:
        """Add runs whose canaries were inserted by a fair coin each: a row for each run."""
        shape = (-1, self._scores.shape[1])
        values = np.asarray(scores, dtype=float).reshape(shape)
        coins = np.asarray(inserted, dtype=bool).reshape(shape)
        if values.shape != coins.shape:
            raise InvalidScores(
                f"every score needs the coin of its canary, got {values.size} scores and "
                f"{coins.size} coins"
            )
        self._extend(values, coins, rows=self.canaries if self.together else 1)

    def _extend(self, scores: Array, inserted: Coins, *, rows: int) -> None:
        if len(scores) == 0:
            return
        if self._rows not in (0, rows) or scores.shape[1] != self._scores.shape[1]:
            raise InvalidScores(
                "a test takes pairs (add) or scores with coins (add_coins), not both, and pairs "
                "only without names; use one test for each"
            )
        if len(scores) % rows:
            raise InvalidScores(
                f"runs of {rows} canaries need a multiple of {rows} scores, got {len(scores)}"
            )
        self._rows, start = rows, self.steps
        self._scores = np.concatenate([self._scores, scores])
        self._inserted = np.concatenate([self._inserted, inserted])
        end = self.steps
        while start < end:
            if start >= self._next_choice:
                for process, strategies in enumerate(self._strategies):
                    earlier = slice(0, start * rows)
                    values, coins = self._scores[earlier, process], self._inserted[earlier, process]
                    for strategy in strategies:
                        strategy.choose(values[coins], values[~coins])
                # After every step at first, then whenever a quarter more was observed.
                self._next_choice = start + 1 + start // 4
            stop = min(end, max(self._next_choice, start + 1))
            self._settle(start, stop)
            start = stop

    def _settle(self, start: int, stop: int) -> None:
        """Pay the bets on some steps, and record whether the goal was reached after any of them."""
        rows = slice(start * self._rows, stop * self._rows)
        paths = []
        for process, strategies in enumerate(self._strategies):
            step = self._scores[rows, process], self._inserted[rows, process]
            gains = np.concatenate([each.gains(*step) for each in strategies], axis=1)
            gains = gains.reshape(stop - start, self._rows, -1)
            if self.together:
                factors = np.logaddexp.reduce(gains, axis=1) - math.log(self._rows)
            else:
                factors = gains.sum(axis=1)
            path = self._accounts[process] + np.cumsum(factors, axis=0)
            self._accounts[process] = path[-1]
            paths.append(np.logaddexp.reduce(path, axis=1))
        wealth = np.stack(paths)
        self._processes[0] = wealth[:, -1]
        self._processes[1] = np.maximum(self._processes[1], wealth.max(axis=1))
        mean = np.logaddexp.reduce(wealth, axis=0) - math.log(len(wealth))
        self._mean_now = float(mean[-1])
        self._mean_largest = max(self._mean_largest, float(mean.max()))
        if self.refuted_at is None and self._mean_largest >= self._goal:
            self.refuted_at = start + int(np.argmax(mean >= self._goal)) + 1

    def replayed(
        self, claim: Claim, *, confidence: float | None = None, stop: bool = False
    ) -> AnytimeTest:
        """The test of another claim on the same steps; ``stop`` ends soon after a refutation."""
        level = self.confidence if confidence is None else confidence
        test = AnytimeTest(
            claim,
            confidence=level,
            names=self.names,
            canaries=self.canaries,
            together=self.together,
        )
        rows = max(1, self._rows)
        for start in range(0, len(self._scores), _AT_ONCE * rows):
            some = slice(start, start + _AT_ONCE * rows)
            test._extend(self._scores[some], self._inserted[some], rows=rows)
            if stop and test.refuted:
                break
        return test


def pairs_to_refute(claim: Claim, *, confidence: float = 0.95, most: int = 20_000) -> int | None:
    """Number of pairs without any error that refute the claim; `None` if it exceeds ``most``.

    Example:
        >>> pairs_to_refute(Claim.from_mu(1.6)) < 20
        True
    """
    test = AnytimeTest(claim, confidence=confidence)
    while not test.refuted and test.steps < most:
        more = min(max(64, test.steps), most - test.steps)
        test.add(np.ones(more), np.zeros(more))
    return test.refuted_at


# ---- bounds ----------------------------------------------------------------------------------


def anytime_bounds(test: AnytimeTest, *, delta: float, confidence: float = 0.95) -> Bounds:
    """Lower bounds from the steps of a test of any claim, valid under optional stopping.

    The steps are replayed against the claims of a grid. Canaries with names give the bound on the
    canary that leaks most.

    Example:
        >>> random = np.random.default_rng(0)
        >>> test = AnytimeTest(Claim.from_mu(1.0))
        >>> test.add(random.normal(2, 1, 500), random.normal(0, 1, 500))
        >>> 1.5 < anytime_bounds(test, delta=1e-5)["anytime-gaussian-dp"].mu <= 2
        True
    """

    def largest_refuted(claim: Callable[[float], Claim]) -> float:
        largest = 0.0
        for place in range(round(LARGEST / GRID) + 1):
            value = round(place * GRID, 10)
            if not test.replayed(claim(value), confidence=confidence, stop=True).refuted:
                break
            largest = value
        return largest

    def bound(epsilon: float, method: str, mu: float | None, *own: str) -> Bound:
        return Bound(
            epsilon=epsilon,
            delta=delta,
            side="lower",
            method=method,
            confidence=confidence,
            assumptions=(*own, *test.assumptions),
            sample_size=test.sample_size,
            mu=mu,
            details={"threshold_rule": "as they come"},
        )

    epsilon = largest_refuted(lambda value: Claim.from_points([(value, delta)]))
    free = bound(epsilon, "anytime", None)
    if delta == 0:
        reason = "at delta 0 a Gaussian trade-off function has an infinite epsilon"
        missing = Unavailable(method="anytime-gaussian-dp", reason=reason)
        return Bounds(bounds=(free,), unavailable=(missing,))
    mu = largest_refuted(Claim.from_mu)
    gaussian = bound(gaussian_epsilon(delta, mu), "anytime-gaussian-dp", mu, GAUSSIAN_TRADE_OFF)
    return Bounds(bounds=(gaussian, free))
