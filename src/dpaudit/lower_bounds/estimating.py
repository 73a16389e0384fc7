"""Lower bounds from scores or counts: one call for every method."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from numpy.typing import ArrayLike

from dpaudit.errors import DpauditError, InvalidInput
from dpaudit.lower_bounds.diagnostics import Evidence, check_both_kinds, evidence_of
from dpaudit.lower_bounds.methods import Method, Request
from dpaudit.lower_bounds.registry import DEFAULT_METHODS, METHODS
from dpaudit.lower_bounds.selection import ThresholdRule
from dpaudit.privacy import Bound, Bounds, Unavailable
from dpaudit.scores.table import Scores


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
) -> Bound:
    """A lower bound by one method, from a table of scores or from the four counts.

    The method ``"dpsgd"`` takes the mechanism to be DP-SGD with this ``sampling_rate`` (1 without
    sampling) and these ``steps``, and bounds its noise; see `dpaudit.lower_bounds.dpsgd`.

    The table is a `Scores`, or a data frame with the columns ``score`` and ``inserted``. Other
    arguments as in `lower_bound`. The threshold behind counts was chosen elsewhere, so
    ``threshold`` does not apply to them, and methods that need the scores refuse them.
    """
    request = Request.asking(
        delta=delta, epsilon=epsilon, threshold=threshold, confidence=confidence, seed=seed
    )
    return _method(method, sampling_rate, steps).bound(evidence_of(evidence), request)


def _method(name: str, sampling_rate: float | None, steps: int | None) -> Method:
    if not isinstance(name, str) or name != "dpsgd":
        for argument, value in (("sampling_rate", sampling_rate), ("steps", steps)):
            if value is not None:
                raise InvalidInput(f"{argument} is for method 'dpsgd', got method {name!r}")
        return METHODS[name]
    if sampling_rate is None or steps is None:
        missing = "sampling_rate" if sampling_rate is None else "steps"
        raise InvalidInput(
            f"method 'dpsgd' needs {missing}: the bound is on the noise of DP-SGD with a known "
            "sampling rate (1 without sampling) and number of steps"
        )
    from dpaudit.lower_bounds.dpsgd import dpsgd  # imports dp-accounting

    return dpsgd(sampling_rate, steps)


def estimate_all(
    evidence: Evidence | Any,
    *,
    methods: Iterable[str] = DEFAULT_METHODS,
    delta: float | None = None,
    epsilon: float | None = None,
    threshold: str | ThresholdRule = "pilot",
    confidence: float = 0.95,
    seed: int = 0,
) -> Bounds:
    """Several methods on the same evidence; a method without an answer is listed with its reason.

    By default the assumption-free bound, and the one that takes the trade-off curve to be Gaussian.
    ``methods=METHODS`` are all, also those without a theorem (see `Bound.guarantee`).

    Arguments that no method could work with, such as a delta of 2, raise an error.
    """
    request = Request.asking(
        delta=delta, epsilon=epsilon, threshold=threshold, confidence=confidence, seed=seed
    )
    evidence = evidence_of(evidence)
    if isinstance(methods, str) or not isinstance(methods, Iterable):
        raise InvalidInput(f"methods must be a list of names of methods, got {methods!r}")
    if isinstance(evidence, Scores):
        check_both_kinds(evidence)
    bounds: list[Bound] = []
    unavailable: list[Unavailable] = []
    for name, method in [(name, METHODS[name]) for name in methods]:
        try:
            bounds.append(method.bound(evidence, request))
        except DpauditError as error:
            unavailable.append(Unavailable(method=name, reason=str(error)))
    return Bounds(bounds=tuple(bounds), unavailable=tuple(unavailable))
