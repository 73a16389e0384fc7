"""Lower bounds from scores or counts: one call for every method."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

from dpaudit import _validate
from dpaudit.errors import DpauditError, InvalidInput
from dpaudit.lower_bounds.diagnostics import Evidence, evidence_of
from dpaudit.lower_bounds.methods import Method, Request
from dpaudit.lower_bounds.registry import DEFAULT_METHODS, METHODS
from dpaudit.lower_bounds.selection import ThresholdRule, threshold_rule
from dpaudit.privacy import Bound, Bounds, Question, Unavailable
from dpaudit.scores.table import Scores

if TYPE_CHECKING:
    from dpaudit.lower_bounds.dpsgd import Group


def lower_bound(
    inserted: ArrayLike,
    not_inserted: ArrayLike,
    *,
    delta: float | None = None,
    epsilon: float | None = None,
    method: str = "clopper-pearson",
    threshold: str | ThresholdRule = "pilot",
    confidence: float = 0.95,
    seed: int = 0,
) -> Bound:
    """A lower bound on epsilon from the scores of an audit.

    See also: `estimate` for a table of scores or counts, `estimate_all` for every method.

    Arguments:
        inserted: Scores of canaries that were in the training; higher must mean "inserted".
        not_inserted: Scores of canaries that were not.
        delta: Bound epsilon at this delta.
        epsilon: Bound delta at this epsilon; give either this or ``delta``.
        method: One of `METHODS`.
        threshold: How the threshold is chosen: one of the words in `RULES`, or a rule object.
        confidence: Probability that the bound holds, jointly over both error rates.
        seed: Random seed that draws the pilot scores.

    Example:
        >>> import numpy as np
        >>> random = np.random.default_rng(0)
        >>> there, not_there = random.normal(2, 1, 2000), random.normal(0, 1, 2000)
        >>> lower_bound(there, not_there, delta=1e-5, method="gaussian-dp")
        Bound(epsilon >= 9.1626 at delta=1e-05, 95% confidence, gaussian-dp)
    """
    return estimate(
        Scores.from_samples(inserted, not_inserted),
        delta=delta,
        epsilon=epsilon,
        method=method,
        threshold=threshold,
        confidence=confidence,
        seed=seed,
    )


def estimate(
    evidence: Evidence | Any,
    *,
    delta: float | None = None,
    epsilon: float | None = None,
    method: str = "clopper-pearson",
    threshold: str | ThresholdRule = "pilot",
    confidence: float = 0.95,
    seed: int = 0,
    sampling_rate: float | None = None,
    steps: int | None = None,
    history: Sequence[Group] | None = None,
) -> Bound:
    """A lower bound by one method, from a table of scores or from the four counts.

    The method ``"dpsgd"`` takes the mechanism to be DP-SGD with this ``sampling_rate`` (1 without
    sampling) and these ``steps``, and bounds its noise; see `dpaudit.lower_bounds.dpsgd`. If noise
    or rate change, ``history`` has groups of equal steps instead: noise up to a common factor,
    sampling rate and number of steps.

    The table is a `Scores`, or a data frame with the columns ``score`` and ``inserted``. Other
    arguments as in `lower_bound`. The threshold behind counts was chosen elsewhere, so
    ``threshold`` does not apply to them, and methods that need the scores refuse them.
    """
    request = Request(
        question=Question(delta=delta, epsilon=epsilon),
        rule=threshold_rule(threshold, seed=seed),
        confidence=_validate.confidence(confidence),
        seed=seed,
    )
    mechanism = {"sampling_rate": sampling_rate, "steps": steps, "history": history}
    return _methods([method], mechanism)[method].bound(evidence, request)


MOST_GROUPS = 20
"""Of more groups of unequal steps, the family of DP-SGD would take minutes."""


def claimed_history(settings: Mapping[str, Any]) -> list[Group] | None:
    """The sampled steps that a claim names in its settings, for method ``"dpsgd"``; else `None`.

    Example:
        >>> claimed_history({"noise_multiplier": 1.0, "steps": 100, "sampling_rate": 0.1})
        [(1.0, 0.1, 100)]
    """
    if "history" in settings:
        groups = [(noise, rate, int(steps)) for noise, rate, steps in settings["history"]]
        return groups if len(groups) <= MOST_GROUPS else None
    rate, steps = settings.get("sampling_rate"), settings.get("steps")
    return None if rate is None or steps is None or rate >= 1 else [(1.0, rate, int(steps))]


def _methods(names: Iterable[str], mechanism: Mapping[str, Any]) -> dict[str, Method]:
    """The methods of these names; ``mechanism`` is what `estimate` is told for ``"dpsgd"``."""
    chosen = dict[str, Method]()
    for name in names:
        is_dpsgd = isinstance(name, str) and name == "dpsgd"
        method = _dpsgd(**mechanism) if is_dpsgd else METHODS[name]
        chosen[name] = method
    given = [name for name, value in mechanism.items() if value is not None]
    if given and "dpsgd" not in chosen:
        raise InvalidInput(f"{given[0]} is for method 'dpsgd', got {', '.join(map(repr, chosen))}")
    return chosen


def _dpsgd(
    sampling_rate: float | None, steps: int | None, history: Sequence[Group] | None
) -> Method:
    if sampling_rate is not None and steps is not None and history is None:
        history = [(1.0, sampling_rate, steps)]
    elif sampling_rate is not None or steps is not None or history is None:
        raise InvalidInput(
            "method 'dpsgd' bounds the noise of DP-SGD with a known mechanism: it needs "
            "sampling_rate (1 without sampling) and steps, or history instead of both; got "
            f"sampling_rate={sampling_rate!r}, steps={steps!r} and history={history!r}"
        )
    from dpaudit.lower_bounds.dpsgd import dpsgd  # imports dp-accounting

    return dpsgd(history)


def estimate_all(
    evidence: Evidence | Any,
    *,
    methods: Iterable[str] | None = None,
    delta: float | None = None,
    epsilon: float | None = None,
    threshold: str | ThresholdRule = "pilot",
    confidence: float = 0.95,
    seed: int = 0,
    sampling_rate: float | None = None,
    steps: int | None = None,
    history: Sequence[Group] | None = None,
) -> Bounds:
    """Several methods on the same evidence; a method without an answer is listed with its reason.

    By default the assumption-free bound, and the one that takes the trade-off curve to be Gaussian;
    with ``sampling_rate`` and ``steps`` (or ``history``, as in `estimate`) the one for DP-SGD and
    the assumption-free one. ``methods=METHODS`` are all, also those without a theorem (see
    `Bound.guarantee`).

    Arguments that no method could work with, such as a delta of 2, raise an error.
    """
    request = Request(
        question=Question(delta=delta, epsilon=epsilon),
        rule=threshold_rule(threshold, seed=seed),
        confidence=_validate.confidence(confidence),
        seed=seed,
    )
    evidence = evidence_of(evidence)
    mechanism = {"sampling_rate": sampling_rate, "steps": steps, "history": history}
    if methods is None:
        is_dpsgd = any(setting is not None for setting in mechanism.values())
        methods = ("dpsgd", "clopper-pearson") if is_dpsgd else DEFAULT_METHODS
    if isinstance(methods, str) or not isinstance(methods, Iterable):
        raise InvalidInput(f"methods must be a list of names of methods, got {methods!r}")
    bounds: list[Bound] = []
    unavailable: list[Unavailable] = []
    for name, method in _methods(methods, mechanism).items():
        try:
            bounds.append(method.bound(evidence, request))
        except DpauditError as error:
            unavailable.append(Unavailable(method=name, reason=str(error)))
    return Bounds(bounds=tuple(bounds), unavailable=tuple(unavailable))
