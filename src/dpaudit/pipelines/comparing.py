"""What differs between two runs on neighbouring data sets, as findings with their epsilon.

Every rule names one quantity that must be the same with and without a record, or change only in the
record itself. Nothing is estimated: the runs are equal in all random draws, so that every
difference comes from the record.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from dpaudit.checks.findings import (
    Finding,
    Outcome,
    Probe,
    Rule,
    broken,
    left_out,
    not_tested,
    passed,
    warning,
)
from dpaudit.errors import InvalidInput
from dpaudit.pipelines.costs import moved_epsilon, noise_ratio_epsilon
from dpaudit.pipelines.neighbours import Neighbours
from dpaudit.pipelines.recording import Recording, digest_of
from dpaudit.trainings.scoring import as_array, named_leaves

_CLOSE = 1e-9


@final
@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two runs on neighbouring data sets, and a third run on the first one if there is any.

    Arguments:
        neighbours: The data sets.
        first: The run on the first one.
        second: The run on the second one, with the releases of the first run.
        again: One more run on the first one: what differs from itself is not compared.
        ratio: Noise of the result of the second run over that of the first one, if measured.
        delta: Delta of the epsilon of every finding.
        coupled: Whether the batches of both runs are comparable: drawn by coupled draws, or not
            random at all.
    """

    neighbours: Neighbours
    first: Recording
    second: Recording
    again: Recording | None
    ratio: float | None
    delta: float
    coupled: bool = True

    @property
    def moved(self) -> list[int]:
        """How many of the other records differ between both runs, for each batch."""
        extras = self.neighbours.extras
        first, second = self.both(lambda run: [frozenset(batch) - extras for batch in run.batches])
        return [len(a ^ b) for a, b in zip(first, second, strict=False)]

    @property
    def shifted(self) -> bool:
        """Whether the other records have the same order in both runs, cut into other batches."""
        extras = self.neighbours.extras
        first, second = self.both(
            lambda run: [
                number for batch in run.batches for number in batch if number not in extras
            ]
        )
        length = min(len(first), len(second))
        return bool(first[:length] == second[:length])

    def both(self, part: Callable[[Recording], Any]) -> tuple[Any, Any]:
        """The same part of both runs."""
        return part(self.first), part(self.second)

    def series(self, *names: str) -> tuple[Any, Any]:
        """The values of these quantities in both runs."""
        return self.both(lambda run: {n: run.series[n] for n in names if n in run.series})

    def moved_epsilon(self, moved: list[int]) -> float | None:
        """The cost of so many contributions that change in each step, if the noise is known."""
        values = self.first.series.get("noise multiplier", [])
        if not values or not isinstance(values[0], int | float):
            return None
        return moved_epsilon(moved, float(values[0]), delta=self.delta)

    def scale_epsilon(self, a: Any, b: Any) -> float | None:
        """The cost of noise that is scaled by a quantity, over all steps of the shorter run."""
        if not (isinstance(a, int | float) and isinstance(b, int | float) and a > 0 and b > 0):
            return None
        sizes = [sum(_sizes(release)) for release in self.first.releases]
        numbers = sum(sizes) if sizes else sum(self.first.sizes)
        return noise_ratio_epsilon(a / b, numbers, delta=self.delta) if numbers else None

    def compared(self) -> dict[str, Finding]:
        """One finding for every rule, and for every quantity that no rule names."""
        reported = dict.fromkeys((*self.first.series, *self.second.series))
        further = [
            _same(name, name, remedy=_PUBLIC)
            for name in reported
            if name not in _NAMED and name not in {rule.name for rule in RULES}
        ]
        findings: dict[str, Finding] = {}
        for rule in (*RULES, *further):
            finding = rule.check(self, findings)
            assert finding is not None
            findings[rule.name] = finding
        return findings


# --- Series of values. ----------------------------------------------------------------------------


def _same(
    name: str,
    *series: str,
    requirement: str = "",
    scales_noise: bool = False,
    **words: Any,
) -> Rule:
    """The rule that the values of these quantities are the same, one by one."""

    def compare(runs: Comparison) -> Outcome:
        first, second = runs.series(*series)
        if not first and not second:
            name = series[0].replace(" ", "_")
            return not_tested(
                f"No {series[0]} was seen. State it with dpaudit.pipelines.public({name}=...)."
            )
        for quantity in dict.fromkeys((*first, *second)):
            a, b = first.get(quantity, []), second.get(quantity, [])
            if bool(a) != bool(b):
                text = f"Only one of the runs has a {quantity}."
                return broken(text, measured=quantity, epsilon=math.inf)
            for step, (x, y) in enumerate(zip(a, b, strict=False)):
                if not _close(x, y):
                    where = f" (value {step + 1:,} of {len(a):,})" if step else ""
                    both_values = f"{_words(x)} and {_words(y)}"
                    return broken(
                        f"The {quantity} is {both_values}{where}, depending on one record.",
                        measured=both_values,
                        allowed="the same",
                        epsilon=runs.scale_epsilon(x, y) if scales_noise else None,
                    )
        values = next(iter(first.values()), None) or next(iter(second.values()))
        return passed(measured=_words(values[0]), allowed="the same")

    requirement = requirement or f"The {name} is the same with and without a record."
    return _rule(name, requirement, compare, **words)


def _rule(
    name: str, requirement: str, compare: Callable[[Comparison], Outcome], **words: Any
) -> Rule:
    probes = (Probe(name="both runs", run=compare),)
    return Rule(name=name, requirement=requirement, probes=probes, **words)


def _steps(runs: Comparison) -> Outcome:
    """Steps of optimizers, releases, entries of the accountant, or draws of noise."""
    counts: dict[str, tuple[int, int]] = {}
    for shown, name in (
        ("optimizer steps", "optimizer steps"),
        ("accounted steps", "accounted sampling rate"),
    ):
        first, second = runs.series(name)
        counts[shown] = len(first.get(name, ())), len(second.get(name, ()))
    counts["private releases"] = runs.both(lambda run: run.steps)
    for name in ("steps", "planned steps", "number of batches", "batches per epoch"):
        values = [series.get(name, [0])[-1] for series in runs.series(name)]
        if all(isinstance(value, int | float) for value in values):
            counts[name] = int(values[0]), int(values[1])
    sizes = runs.first.sizes | runs.second.sizes
    if not any(counts["optimizer steps"]) and sizes:
        counts["draws of noise"] = runs.both(lambda run: len(run.noise_of(sizes)))
    if not any(map(any, counts.values())):
        return not_tested(
            "No step was seen: no known optimizer, and no noise as large as the result. Mark the "
            "noisy gradient with dpaudit.pipelines.release(...)."
        )
    for name, (a, b) in counts.items():
        if a != b:
            return broken(
                f"The number of {name} is {a:,} and {b:,}, depending on one record. Whoever "
                "learns this number knows whether the record is in the data.",
                measured=f"{a:,} and {b:,}",
                allowed="the same",
                epsilon=math.inf,
            )
    return passed(measured=f"{max(a for a, _ in counts.values()):,}", allowed="the same")


def _result_noise(runs: Comparison) -> Outcome:
    """The noise of the result, where everything but noise is negligible."""
    if runs.ratio is None:
        return left_out(
            "Steps are observed one by one."
            if runs.first.releases
            else "No noise as large as the result was seen."
        )
    comparison = {"measured": f"ratio {runs.ratio:.4g}", "allowed": "1"}
    if abs(runs.ratio - 1) <= 1e-3:
        return passed(**comparison)
    return broken(
        f"The noise of the result is {runs.ratio:.4g} times as large with one more or another "
        "record: a divisor, a learning rate, a noise scale or the number of steps depends on it.",
        epsilon=noise_ratio_epsilon(runs.ratio, sum(runs.first.sizes), delta=runs.delta),
        **comparison,
    )


# --- Batches and contents of the other records. ---------------------------------------------------


def _batches(runs: Comparison) -> Outcome:
    """Which of the other records are in which batch."""
    extras, moved = runs.neighbours.extras, runs.moved
    if not moved:
        return not_tested(
            "The records of the batches are not known. Name them with "
            "dpaudit.pipelines.batch(places)."
        )
    rates = runs.series("sampling rate")
    if rates[0] != rates[1]:
        return not_tested("The sampling rate differs; repair that first.")
    if not any(moved):
        return passed(measured=f"{len(moved):,} batches", allowed="the same records")
    if not runs.coupled:
        return not_tested(
            "The batches could not be coupled: the sampling uses a generator that dpaudit does not "
            "know. Only its rate was compared."
        )
    place = next(step for step, count in enumerate(moved) if count)
    # With replacement, a record can be in a batch more than once.
    own = [sum(number in extras for number in batch) for batch in runs.second.batches]
    both = list(zip(moved, own, strict=False))
    comparison: dict[str, Any] = {
        "measured": f"{max(moved)} of the other records in a batch, first in batch {place + 1:,}",
        "allowed": "none",
        "epsilon": runs.moved_epsilon([sum(pair) for pair in both]),
    }
    if not runs.neighbours.replaced and all(n <= max(len(extras), k) for n, k in both):
        return warning(
            "Batches have a fixed size: a record that is added takes the place of another one, "
            "which moves to another batch. Records can be replaced with this sampling; for "
            "records that are added, the claim must allow a change of 2 C in a step.",
            **comparison,
        )
    return broken(
        "One more record shifts all later records to other batches."
        if runs.shifted
        else "One record decides which batch other records are in.",
        **comparison,
    )


def _contents(runs: Comparison) -> Outcome:
    """What the training gets for the other records."""
    first, second = runs.both(lambda run: run.contents)
    both = [key for key in first.keys() & second.keys() if key[0] not in runs.neighbours.extras]
    if not both:
        return not_tested("What the training reads is not known: no data loader was seen.")
    again = first if runs.again is None else runs.again.contents
    changed = {key[0] for key in both if first[key] != second[key] and again.get(key) == first[key]}
    if runs.first.by_place and len(changed) <= 2 * len(runs.neighbours.extras):
        changed = set()  # another record has the place of the one that differs
    share = f"{len(changed):,} of {len({key[0] for key in both}):,} records"
    if not changed:
        return passed(measured=share, allowed="0")
    moved = [2 * len(changed & set(batch)) for batch in runs.first.batches]
    return broken(
        f"The features of {share} change with another record, as with means, vocabularies or "
        "limits that are computed from the data without noise.",
        measured=share,
        allowed="0",
        epsilon=runs.moved_epsilon(moved) if moved else None,
    )


# --- What is released beside the noisy gradients. -------------------------------------------------


def _exact(
    name: str, requirement: str, part: Callable[[Recording], Any], what: str, **words: Any
) -> Rule:
    """The rule that a part is exactly the same, given that the private releases are.

    Whoever sees the releases, too, tells the data sets apart with certainty. What a difference
    costs without them depends on the noise that they leave in it, and is not computed.
    """

    def compare(runs: Comparison) -> Outcome:
        first, second = runs.both(part)
        if not first and not second:
            return left_out(f"There are no {what}.")
        if first == second:
            return passed(measured=f"{len(first):,} compared", allowed="the same")
        if not runs.second.complete:
            return not_tested(
                "The runs have different private releases; repair what is above first."
                if runs.first.releases
                else "Mark the noisy gradients with dpaudit.pipelines.release(...): without them, "
                "a difference can come from what noise covers."
            )
        named = runs.series(*_NAMED)
        if named[0] != named[1]:
            return not_tested("Repair what is above first: it changes the result, too.")
        if runs.again is not None and first != part(runs.again):
            return not_tested(f"The {what} differ between two runs on the same data.")
        difference = _difference(first, second)
        return broken(
            f"The {what} depend on one record beyond everything that noise covers: {difference}.",
            measured=difference,
            allowed="the same",
        )

    return _rule(name, requirement, compare, **words)


def returned_parts(recording: Recording) -> tuple[dict[str, str], dict[str, str]]:
    """Digests of what a run returned, by name: values, and buffers of models."""
    value, values, buffers = recording.returned, dict[str, str](), dict[str, str]()
    models = [value, *value] if isinstance(value, tuple | list) else [value]
    for place, model in enumerate(models):
        for name, buffer in getattr(model, "named_buffers", list)():
            buffers[f"{place}.{name}"] = digest_of(buffer)
    try:
        for name, leaf in named_leaves(value):
            if callable(getattr(leaf, "named_parameters", None)):
                values |= {f"{name}.{own}": digest_of(p) for own, p in leaf.named_parameters()}
            elif callable(getattr(leaf, "items", None)):
                values[name] = digest_of(dict(leaf.items()))
            else:
                values[name] = digest_of(leaf)
    except InvalidInput:
        values["result"] = digest_of(value)
    statistics = {name for name in values if name.rpartition(".")[2] in _STATISTICS}
    buffers |= {name: values.pop(name) for name in statistics}
    return values, buffers


_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


def sizes_of(returned: Any) -> frozenset[int]:
    """Numbers of entries of the arrays that a training returns, and of all together."""
    sizes = []
    try:
        for _, leaf in named_leaves(returned):
            sizes.append(int(as_array(leaf).size))
    except InvalidInput:
        return frozenset()
    return frozenset({*sizes, sum(sizes)} - {0, 1})


# --- The rules. -----------------------------------------------------------------------------------

_PUBLIC = "Set it to a constant that does not depend on the data, or release it with noise."
_RELEASED = "Release it with noise, or do not release it."
_OPACUS = "Opacus (opacus#571)"

RULES: tuple[Rule, ...] = (
    _rule(
        "number of steps",
        "The number of steps is the same with and without a record.",
        _steps,
        cause="Steps are counted in epochs of the data, or end early by a private loss.",
        remedy="Fix the number of steps; stop early only on public data or noisy values.",
        seen_in=_OPACUS,
        core=True,
    ),
    _same(
        "sampling rate",
        "sampling rate",
        "accounted sampling rate",
        "batch size",
        cause="The rate is computed from the number of records.",
        remedy="Fix the sampling rate, and let the batch size follow.",
        seen_in=_OPACUS,
    ),
    _same(
        "divisor",
        "divisor",
        requirement="The sum is divided by the same number with and without a record.",
        scales_noise=True,
        cause="The divisor is computed from the number of records or from the batch.",
        remedy="Divide by a constant, such as the expected batch size that you publish.",
        seen_in=_OPACUS,
    ),
    _same(
        "learning rate",
        "learning rate",
        scales_noise=True,
        cause="A schedule counts batches or epochs of the data, or follows a private loss.",
        remedy=_PUBLIC,
    ),
    _same(
        "noise scale",
        "noise multiplier",
        "accounted noise multiplier",
        "noise scale",
        requirement="The noise is the same with and without a record.",
        scales_noise=True,
        cause="The noise is calibrated with the number of records.",
        remedy=_PUBLIC,
    ),
    _same(
        "clip norm",
        "clip norm",
        scales_noise=True,
        cause="The clip norm follows the norms of private gradients without noise.",
        remedy="Fix the clip norm, or adapt it by a noisy count (Andrew et al. 2021).",
    ),
    _rule(
        "noise of the result",
        "The noise in the result is the same with and without a record.",
        _result_noise,
        cause="A divisor, a rate or the number of steps is computed from the data.",
        remedy=_PUBLIC,
    ),
    _rule(
        "batches of other records",
        "A record does not decide which batch other records are in.",
        _batches,
        cause="Batches or micro-batches are cut from a list of the records.",
        remedy="Sample every record independently, and clip every record by itself.",
        seen_in="PyVacy (sampling/batch_samplers.py)",
    ),
    _rule(
        "features of other records",
        "A record does not change what is computed from other records.",
        _contents,
        cause="Normalisation, a vocabulary or deduplication uses all records without noise.",
        remedy="Use public statistics, or release them with noise and account for them.",
    ),
    _exact(
        "buffers of the model",
        "Buffers such as running means do not depend on a record.",
        lambda run: returned_parts(run)[1],
        "buffers of the model",
        cause="Batch normalisation keeps means of private batches without noise.",
        remedy="Use group or layer normalisation, or do not release these buffers.",
    ),
    _exact(
        "returned values",
        "What is released depends on a record only through noisy values.",
        lambda run: returned_parts(run)[0],
        "returned values",
        cause="A checkpoint, a threshold or a metric is chosen or computed on private data.",
        remedy=_RELEASED,
    ),
    _exact(
        "logs",
        "Printed and logged lines depend on a record only through noisy values.",
        lambda run: run.lines,
        "printed and logged lines",
        cause="Losses or counts of private data are printed.",
        remedy="Do not publish the logs, or log noisy values only.",
    ),
    _exact(
        "files",
        "Files depend on a record only through noisy values.",
        lambda run: run.files,
        "files",
        cause="Names or contents of files hold counts, losses or records.",
        remedy=_RELEASED,
    ),
)
"""What is compared, in the order of the report."""

_NAMED = {
    "optimizer steps", "steps", "planned steps", "number of batches", "batches per epoch",
    "sampling rate", "accounted sampling rate", "batch size", "divisor", "learning rate",
    "noise multiplier", "accounted noise multiplier", "noise scale", "clip norm",
}  # fmt: skip


def _sizes(release: Any) -> list[int]:
    if isinstance(release, dict):
        release = list(release.values())
    if isinstance(release, list | tuple):
        return [size for part in release for size in _sizes(part)]
    return [int(np.prod(getattr(release, "shape", ()), dtype=np.int64))]


def _close(a: Any, b: Any) -> bool:
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_close, a, b))
    if isinstance(a, int | float) and isinstance(b, int | float):
        return math.isclose(a, b, rel_tol=_CLOSE) or (a != a and b != b)
    return bool(a == b)


def _words(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, int | float) else f"{value!s:.40}"


def _difference(first: Any, second: Any) -> str:
    """The first difference between two lists of lines, or two dictionaries of digests."""
    if isinstance(first, dict):
        only = [name for name in (*first, *second) if (name in first) != (name in second)]
        if only:
            return f"only one run has {only[0]}"
        changed = [name for name in first if first[name] != second[name]]
        return ", ".join(changed[:3]) + (", ..." if len(changed) > 3 else "")
    pairs = zip([*first, ""], [*second, ""], strict=False)
    a, b = next(((x, y) for x, y in pairs if x != y), ("", ""))
    if a == b:
        return f"{len(first)} and {len(second)} lines"
    return f"{a[:60]!r} and {b[:60]!r}"
