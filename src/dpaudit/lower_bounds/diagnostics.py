"""What a lower bound is computed from, and what one should know about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import fdtr, fdtrc

from dpaudit._arrays import Array
from dpaudit.errors import InvalidInput, InvalidScores
from dpaudit.lower_bounds.counts import ErrorCounts
from dpaudit.scores.table import Scores, is_frame

if TYPE_CHECKING:
    from dpaudit.scores.tiles import Failure

Evidence = Scores | ErrorCounts

GAUSSIAN_TRADE_OFF = "the mechanism's trade-off curve is Gaussian (mu-GDP)"
INDEPENDENT_CANARIES = "canaries of the same run are independent"
INDEPENDENT_SCORES = "scores are independent of each other"
FAIR_COINS = "every canary was inserted by its own fair coin"
FEWEST_TO_CHECK = 20
"""With fewer scores of a kind, neither normality nor equal variances are tested."""


def evidence_of(given: Any) -> Evidence:
    """Counts, or scores of both kinds, as they are; a data frame as scores."""
    if isinstance(given, ErrorCounts):
        return given
    if not isinstance(given, Scores):
        if is_frame(given):
            return evidence_of(Scores.from_pandas(given))
        raise InvalidInput(
            "evidence must be Scores, ErrorCounts or a data frame with the columns score and "
            f"inserted, got {type(given).__name__}; make a table with "
            "Scores.from_samples(inserted, not_inserted)"
        )
    if given.inserted.all() or not given.inserted.any():
        kind = "inserted" if given.inserted.any() else "not inserted"
        raise InvalidScores(
            f"all {len(given)} scores are of canaries that were {kind}; an audit compares scores "
            "of both kinds, with and without the canary, and needs at least one of each"
        )
    return given


def dependence_of(scores: Scores) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The assumption that several canaries per run need, and a note with their correlation."""
    if scores.runs == len(scores.run):
        return (), ()
    return (INDEPENDENT_CANARIES,), (within_run_dependence(scores),)


def with_failures(scores: Scores, failures: Sequence[Failure]) -> Scores:
    """The scores, with every canary of a failed run at the lowest score, minus infinity.

    A training that may fail is a mechanism with one more output value. Guessing "not inserted" for
    it is a function of that output, so bounds and verdicts hold for the mechanism that includes
    failures, also if failures depend on the canary. Leaving failures out has no such guarantee.
    """
    if not failures:
        return scores
    inserted = [np.arange(failure.canaries) < failure.inserted for failure in failures]
    lost = Scores(
        score=np.full(sum(map(len, inserted)), -np.inf),
        inserted=np.concatenate(inserted),
        run=np.repeat(
            [failure.run for failure in failures], [failure.canaries for failure in failures]
        ),
        canary=np.concatenate([np.arange(len(labels)) for labels in inserted]),
    )
    return Scores.concat([scores, lost])


def wrong_way(scores: Scores) -> tuple[str, ...]:
    """A note if inserted canaries have the lower scores."""
    ones, zeros = (
        group[:: 1 + len(group) // 100_000]  # enough for a diagnostic
        for group in (scores.inserted_scores, scores.other_scores)
    )
    zeros = np.sort(zeros)
    below = np.searchsorted(zeros, ones, side="left") + np.searchsorted(zeros, ones, side="right")
    area = float(below.mean()) / (2 * len(zeros))
    # Three standard deviations of the area under the curve when there is no signal.
    if area < 0.5 - 3 * np.sqrt((1 / len(ones) + 1 / len(zeros)) / 12):
        return (
            f"the scores point the wrong way (area under the curve {area:.3f}): "
            "higher must mean inserted",
        )
    return ()


def within_run_dependence(scores: Scores) -> str:
    """The intraclass correlation of scores within a run, after subtracting the effect of insertion.

    By a one-way analysis of variance of the residual scores by run. The correlation is 0 if
    canaries of one run are no more alike than canaries of different runs. The design effect is the
    factor by which dependence inflates the variance of a mean.

    Example:
        >>> scores = Scores(score=[0, 1, 5, 6], inserted=[0, 1, 0, 1], run=[0, 0, 1, 1])
        >>> within_run_dependence(scores)
        'within-run correlation of scores 1.0000 (design effect 2.00)'
    """
    finite = np.isfinite(scores.score)
    runs, run = np.unique(scores.run[finite], return_inverse=True)
    if len(runs) < 2 or len(run) <= len(runs):
        return "one run only: dependence between its canaries cannot be measured"
    residual = scores.score[finite] / unit_of(scores.score)
    for kind in (True, False):
        rows = scores.inserted[finite] == kind
        if rows.any():
            residual[rows] -= residual[rows].mean()
    size = np.bincount(run)
    mean = np.bincount(run, residual) / size
    between = float(size @ (mean - residual.mean()) ** 2) / (len(runs) - 1)
    within = float(((residual - mean[run]) ** 2).sum()) / (len(run) - len(runs))
    typical = (len(run) - float(size @ size) / len(run)) / (len(runs) - 1)
    total = between + (typical - 1) * within
    correlation = (between - within) / total if total > 0 else 0.0
    effect = max(1 + (float(size.mean()) - 1) * correlation, 0.0)
    return f"within-run correlation of scores {correlation:.4f} (design effect {effect:.2f})"


def unit_of(*samples: Array) -> float:
    """A power of two near the largest finite score: dividing by it is exact and cannot overflow."""
    largest = max(float(np.abs(x[np.isfinite(x)]).max(initial=0.0)) for x in samples)
    # Within 2**1000, so that neither the unit nor its inverse leaves the range of floats.
    return 1.0 if largest == 0 else 2.0 ** min(max(np.floor(np.log2(largest)), -1000.0), 1000.0)


def normal_p_values(inserted: Array, not_inserted: Array) -> tuple[float, float] | None:
    """P-values of two tests: that both samples are normal, and that their variances are equal.

    D'Agostino and Pearson's test of both samples together, each centred and scaled by itself, and
    the two-sided F test; scores are in units near the largest one, see `unit_of`. `None` if there
    are too few scores to test, if they are not finite, or if neither sample varies.
    """
    samples = (inserted, not_inserted)
    if min(map(len, samples)) < FEWEST_TO_CHECK or not all(np.isfinite(x).all() for x in samples):
        return None
    from scipy.stats import normaltest  # slow to import, and few methods need it

    spreads = [float(x.std(ddof=1)) for x in samples]
    residuals = [
        (x - x.mean()) / spread for x, spread in zip(samples, spreads, strict=True) if spread
    ]
    if not residuals:
        return None
    ratio = (spreads[0] / spreads[1]) ** 2 if spreads[1] else np.inf
    degrees = len(inserted) - 1, len(not_inserted) - 1
    equal = 2 * min(fdtr(*degrees, ratio), fdtrc(*degrees, ratio))
    return float(normaltest(np.concatenate(residuals)).pvalue), float(min(1.0, equal))
