"""The lower bound against the number of runs, and what more runs would be expected to show."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from dpaudit._arrays import Integers
from dpaudit.errors import DpauditError
from dpaudit.lower_bounds import METHODS, estimate
from dpaudit.lower_bounds.prediction import expected_bound
from dpaudit.privacy import Bound
from dpaudit.report.data import Curve, Growth
from dpaudit.scores import Scores

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
        known = size == whole and leading.method == method
        try:
            bound = leading if known else asked(part, method=method)
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
