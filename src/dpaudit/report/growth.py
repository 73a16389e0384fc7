"""Would more runs help? The bound on ever more of the runs, and what to expect of still more."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np

from dpaudit.errors import DpauditError
from dpaudit.lower_bounds import estimate
from dpaudit.lower_bounds.prediction import expected_bound
from dpaudit.report.curves import Curve
from dpaudit.scores import Scores

TIMES = 10
"""How many times more scores the outlook reaches."""

_FEWEST = 20
_POINTS = 9


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Growth:
    """The lower bound against the number of runs, or of canaries where there is a single run.

    Arguments:
        unit: What is counted along x: runs or canaries.
        bounds: The bound on the first so many of them, by the leading method.
        free: The same whatever the curve's shape, by Clopper-Pearson at all thresholds at once.
        expected: What to expect of so many, if the worlds are as far apart as they look.
        attainable: What perfect scores would be expected to show: all that the promise allows.
        outlook: Whether more would help, in a sentence.
    """

    unit: str
    bounds: Curve
    free: Curve
    expected: Curve | None
    attainable: Curve | None
    outlook: str


def growth(
    scores: Scores,
    *,
    method: str,
    delta: float,
    confidence: float,
    seed: int,
    fitted_mu: float | None,
    promised_mu: float | None,
) -> Growth | None:
    """The bounds on nested parts of the scores; `None` where there are too few to look back.

    Arguments:
        scores: The scores.
        method: Of the leading bound.
        delta: Of all bounds.
        confidence: Of each of them.
        seed: Draws the pilots.
        fitted_mu: How far apart the worlds look, `None` where they do not look Gaussian.
        promised_mu: How far apart the promise lets them be, `None` without a promise.
    """
    unit, order = _order(scores)
    whole = int(order.max(initial=-1)) + 1
    for_each = len(scores) / max(whole, 1)
    if len(scores) < 2 * _FEWEST:
        return None
    first = max(2, math.ceil(_FEWEST / for_each))
    sizes = np.unique(np.geomspace(min(first, whole), whole, _POINTS).round().astype(int))
    leading, free, kept = [], [], []
    for size in sizes:
        part = _first(scores, order < size)
        try:
            bound = estimate(part, method=method, delta=delta, confidence=confidence, seed=seed)
            other = estimate(
                part,
                method="clopper-pearson",
                threshold="simultaneous",
                delta=delta,
                confidence=confidence,
                seed=seed,
            )
        except DpauditError:
            continue  # too early: one world has no score yet, or a pilot too few
        kept.append(size)
        leading.append(bound.epsilon)
        free.append(other.epsilon)
    if not kept:
        return None
    further = np.geomspace(kept[0], TIMES * whole, 13)
    asked = {"for_each": for_each, "delta": delta, "confidence": confidence, "method": method}
    expected = _expected(fitted_mu, further, **asked)  # type: ignore[arg-type]
    attainable = _expected(promised_mu, further, **asked)  # type: ignore[arg-type]
    places = np.asarray(kept, dtype=float)
    return Growth(
        unit=unit,
        bounds=Curve(x=places, y=np.asarray(leading)),
        free=Curve(x=places, y=np.asarray(free)),
        expected=expected,
        attainable=attainable,
        outlook=_outlook(unit, leading[-1], expected, attainable),
    )


def _order(scores: Scores) -> tuple[str, np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """What to count, and for each row its place in that counting."""
    if scores.runs > 1:
        return "runs", np.unique(scores.run, return_inverse=True)[1]
    return "canaries", np.argsort(np.argsort(scores.canary, kind="stable"), kind="stable")


def _first(scores: Scores, rows: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Scores:
    return Scores(
        score=scores.score[rows],
        inserted=scores.inserted[rows],
        run=scores.run[rows],
        canary=scores.canary[rows],
    )


def _expected(
    mu: float | None,
    sizes: np.ndarray[tuple[int], np.dtype[np.float64]],
    *,
    for_each: float,
    delta: float,
    confidence: float,
    method: str,
) -> Curve | None:
    if mu is None or not 0 < mu < 1e3:
        return None
    values = [
        expected_bound(
            mu, scores=round(size * for_each), delta=delta, confidence=confidence, method=method
        ).epsilon
        for size in sizes
    ]
    return Curve(x=sizes, y=np.asarray(values))


def _outlook(unit: str, now: float, expected: Curve | None, attainable: Curve | None) -> str:
    if expected is None:
        return (
            f"The scores do not look Gaussian, so there is no forecast for more {unit}; see on how "
            "many of them the bound still grew."
        )
    later, most = float(expected.y[-1]), None if attainable is None else float(attainable.y[-1])
    helps = "would help" if later > 1.05 * now else "would hardly help"
    sentence = (
        f"More {unit} {helps}: {TIMES} times as many should show about epsilon >= {later:.2f}, "
        f"where these show {now:.2f}"
    )
    if most is None:
        return f"{sentence}."
    sentence += f"; worlds as far apart as the promise allows would show about {most:.2f}."
    if later < 0.85 * most:
        sentence += " What is missing is a stronger adversary, or there is nothing more to find."
    return sentence
