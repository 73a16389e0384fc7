"""`check_pipeline`: run a whole pipeline on neighbouring data sets, and name what differs."""

from __future__ import annotations

import contextlib
import inspect
import math
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from dpaudit import _validate
from dpaudit.checks.findings import CheckResult, Finding
from dpaudit.checks.subject import seeded_generators
from dpaudit.errors import InvalidInput, TrainingFailed
from dpaudit.pipelines.comparing import Comparison, sizes_of
from dpaudit.pipelines.coupling import Draws
from dpaudit.pipelines.libraries import OBSERVERS, observing
from dpaudit.pipelines.neighbours import (
    Neighbours,
    copied,
    neighbours_of,
    records_of,
    with_and_without,
    with_zeros,
)
from dpaudit.pipelines.random_draws import coupled_generators
from dpaudit.pipelines.recording import Recording, recorded_by, returned_as_arrays

AMPLIFY = 1e4
"""Factor on the noise of runs whose result shows the noise alone."""

Pipeline = Callable[[Any, int], Any]


def check_pipeline(
    train: Pipeline,
    neighbours: Any = None,
    *,
    data: Any = None,
    seed: int = 0,
    delta: float = 1e-5,
    notify: Callable[[str], None] | None = None,
) -> CheckResult:
    r"""Check a whole pipeline: what depends on one record without any noise?

    The pipeline runs on two data sets that differ in one record. All random draws are coupled by
    record, and the second run gets the noisy gradients of the first one in place of its own, so
    that everything after them is equal unless it reads the data once more. Every quantity that
    differs then comes from the record alone: the number of steps, the sampling rate, the divisor,
    the learning rate, the noise scale, the clip norm, batches and features of other records,
    buffers of the model, returned values, logs and files. There are no statistics: two runs for
    each pair, and at most five more where a difference must be confirmed.

    Trainings with torch, Opacus, jax-privacy and Keras are observed without editing them. Others
    say what they do with `dpaudit.pipelines.release`, `public` and `batch`.

    See also: `dpaudit.check_training`, the rules of one private step; `dpaudit.audit` with
    ``neighbours``, the statistical test of the same function.

    Arguments:
        train: ``train(data, seed)`` runs the whole pipeline and returns what it releases.
        neighbours: The data sets (D, D1), or a function that returns them. Data sets that differ in
            all records of a user are ``neighbours_of((D, D1), unit="user")``.
        data: In place of ``neighbours``: one data set. It is compared with itself without its last
            record, without its first one, and without its last one against zeros in its place.
        seed: The seed passed to every run.
        delta: Delta of the epsilon that a finding costs.
        notify: Called with a line of text before every run.

    Example:
        >>> from dpaudit.pipelines import public, release
        >>> def train(data, seed):
        ...     random = np.random.default_rng(seed)
        ...     theta = np.zeros(3)
        ...     for _ in range(2):
        ...         clipped = data / np.maximum(1, np.linalg.norm(data, axis=1))[:, None]
        ...         noisy = release(clipped.sum(axis=0) + random.normal(0, 1.0, 3))
        ...         public(divisor=len(data))
        ...         theta -= noisy / len(data)
        ...     return theta
        >>> result = check_pipeline(train, data=np.ones((5, 3)))
        >>> [finding.rule.name for finding in result.broken]
        ['divisor']
    """
    _check_function(train)
    if (neighbours is None) == (data is None):
        raise InvalidInput(
            "give neighbours, a pair (D, D1) or a function that returns one, or data, one data set;"
            f" got {'neither' if data is None else 'both'}"
        )
    runner = _Runner(
        train, _validate.integer("seed", seed), _validate.delta(delta), notify or (lambda _: None)
    )
    pairs = [neighbours_of(neighbours)] if data is None else _default_pairs(data)
    findings: dict[str, Finding] = {}
    for pair in pairs:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what arrays of the training's framework say
            of_pair = runner.findings(pair)
        for finding in of_pair:
            name = finding.rule.name
            if name not in findings or _rank(finding) < _rank(findings[name]):
                findings[name] = finding
    result = CheckResult(
        findings=tuple(findings.values()),
        calls=runner.calls,
        false_alarm=0.0,
        note=f"{', '.join(dict.fromkeys(pair.words for pair in pairs))}. {runner.seen}",
    )
    return replace(result, note=f"{result.note} {_least_claim(result, delta)}".strip())


def _least_claim(result: CheckResult, delta: float) -> str:
    """What the findings leave of a claim, whatever an accountant says."""
    cost = max((finding.epsilon or 0.0 for finding in result.broken), default=0.0)
    if cost == math.inf:
        return "No finite epsilon holds for these data sets."
    return (
        f"A claim for these data sets must be at least {cost:.2f} at delta {delta:g}."
        if cost
        else ""
    )


def _default_pairs(data: Any) -> list[Neighbours]:
    """A data set against itself without its last or first record, and against zeros."""
    if records_of(data) < 2:
        raise InvalidInput("data must have at least two records, got one")
    pairs = [neighbours_of(with_and_without(data, place)) for place in (-1, 0)]
    with contextlib.suppress(InvalidInput):  # not every kind of data has zeros
        pairs.append(neighbours_of(with_zeros(data)))
    return pairs


def _rank(finding: Finding) -> tuple[int, float]:
    order = ("broken", "warning", "not tested", "passed", "left out")
    return order.index(finding.verdict), -(finding.epsilon or 0.0)


def _check_function(train: object) -> None:
    if not callable(train):
        raise InvalidInput(
            f"train must be a function train(data, seed), got {_validate.shown(train)}"
        )
    try:
        inspect.signature(train).bind(None, 0)
    except TypeError as error:
        name = getattr(train, "__qualname__", type(train).__name__)
        raise InvalidInput(
            f"train is called as train(data, seed), but {name} cannot be: {error}"
        ) from None
    except ValueError:
        pass  # a builtin that hides its signature


class _Runner:
    """Runs a pipeline and compares its runs."""

    def __init__(
        self, train: Pipeline, seed: int, delta: float, notify: Callable[[str], None]
    ) -> None:
        self._train, self._seed, self._delta, self._notify = train, seed, delta, notify
        self.calls = 0
        self.seen = ""

    def findings(self, pair: Neighbours) -> list[Finding]:
        """The findings about one pair of data sets."""
        first = self._first(pair)
        second = self._run(pair, 1, replayed=first)
        self.seen = _seen(first)
        comparison = Comparison(
            neighbours=pair,
            first=first,
            second=second,
            again=None,
            ratio=self._ratio(pair, first, second),
            delta=self._delta,
        )
        findings = comparison.compared()
        batches = findings["batches of other records"].verdict
        if batches in ("broken", "warning") and not comparison.shifted:
            comparison = replace(comparison, coupled=self._coupled(pair, comparison))
            findings = comparison.compared()
        if any(findings[name].verdict == "broken" for name in _MAY_VARY):
            again = self._run(pair, 0, replayed=first)
            findings = replace(comparison, again=again).compared()
        return list(findings.values())

    def _coupled(self, pair: Neighbours, comparison: Comparison) -> bool:
        """Whether the batches that differ were drawn by coupled draws, or are not random.

        Other coupled draws change the former, another seed of the training does not change the
        latter. What only the seed changes comes from a generator that is not coupled.
        """

        def changed(run: Recording) -> list[bool]:
            both = zip(comparison.first.batches, run.batches, comparison.moved, strict=False)
            return [set(a) != set(b) for a, b, moved in both if moved]

        first = comparison.first
        return all(changed(self._run(pair, 0, replayed=first, variant=1))) or not any(
            changed(self._run(pair, 0, replayed=first, seed=self._seed + 1))
        )

    def _first(self, pair: Neighbours) -> Recording:
        """The first run; once more if it loaded a library that was not observed."""
        first = self._run(pair, 0)
        if any(name in sys.modules and name not in first.libraries for name in OBSERVERS):
            first = self._run(pair, 0)
        return first

    def _ratio(self, pair: Neighbours, first: Recording, second: Recording) -> float | None:
        """The noise of the second result over that of the first, if steps are not observed."""
        sizes = sizes_of(first.returned)
        if first.releases or not first.noise_of(sizes) or not second.noise_of(sizes):
            first.sizes = second.sizes = frozenset() if first.releases else sizes
            return None
        first.sizes = second.sizes = sizes
        results = []
        for place in (0, 1):
            try:
                loud = self._run(pair, place, amplify=AMPLIFY, sizes=sizes)
            except TrainingFailed:
                return None
            results.append(returned_as_arrays(loud.returned))
        a, b = results
        if a.shape != b.shape or not (np.isfinite(a).all() and np.isfinite(b).all()):
            return None
        norm = float(np.linalg.norm(a))
        return float(np.linalg.norm(b)) / norm if norm else None

    def _run(
        self,
        pair: Neighbours,
        place: int,
        *,
        replayed: Recording | None = None,
        amplify: float = 1.0,
        sizes: frozenset[int] = frozenset(),
        seed: int | None = None,
        variant: int = 0,
    ) -> Recording:
        """One run on one of the data sets."""
        seed = self._seed if seed is None else seed
        draws = Draws(ids=pair.ids[place], extras=pair.extras, seed=self._seed, variant=variant)
        recording = Recording(draws, replayed=replayed, amplify=amplify, sizes=sizes)
        data = copied((pair.first, pair.second)[place])
        self.calls += 1
        self._notify(f"run {self.calls}: {pair.words}, data set {'D' if place == 0 else 'D1'}")
        with (
            warnings.catch_warnings(),
            seeded_generators(seed),
            recorded_by(recording),
            observing(recording),
            coupled_generators(recording),
        ):
            warnings.simplefilter("ignore")
            try:
                recording.keep(self._train(data, seed))
            except (Exception, SystemExit) as error:
                raise TrainingFailed(
                    f"train failed on a data set of {records_of(data)} records ({pair.words}), "
                    f"seed={seed}: {type(error).__name__}: {error}"
                ) from error
        recording.read_files()
        return recording


_MAY_VARY = (
    "features of other records", "buffers of the model", "returned values", "logs", "files",
)  # fmt: skip
"""What a clock may change, too."""


def _seen(recording: Recording) -> str:
    """What was observed, as a sentence."""
    counts = {"private releases": recording.steps, "batches": len(recording.batches)}
    quantities = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
    libraries = f" ({', '.join(sorted(recording.libraries))})" * bool(recording.libraries)
    return f"Observed: {quantities or 'neither private releases nor batches'}{libraries}."
