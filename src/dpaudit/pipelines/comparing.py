"""What differs between two runs on neighbouring data sets, as findings with their epsilon.

Every rule names one quantity that must be the same with and without a record, or change only in the
record itself. Nothing is estimated: the runs are equal in all random draws, so that every
difference comes from the record.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from dpaudit.checks.findings import Finding, Outcome, Rule, broken, not_tested, passed, warning
from dpaudit.errors import InvalidInput
from dpaudit.pipelines.costs import moved_epsilon, noise_ratio_epsilon
from dpaudit.pipelines.neighbours import Neighbours
from dpaudit.pipelines.recording import Recording, digest_of
from dpaudit.trainings.scoring import as_array, named_leaves

_CLOSE = 1e-9
_UNCOUPLED = 0.5


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
    """

    neighbours: Neighbours
    first: Recording
    second: Recording
    again: Recording | None
    ratio: float | None
    delta: float

    def series(self, *names: str) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
        """The values of these quantities in both runs."""
        return tuple(  # type: ignore[return-value]
            {name: run.series[name] for name in names if name in run.series}
            for run in (self.first, self.second)
        )

    @property
    def noise_multiplier(self) -> float | None:
        """The noise multiplier of the first run, if it is known."""
        values = self.first.series.get("noise multiplier", [])
        return float(values[0]) if values and isinstance(values[0], int | float) else None

    @property
    def noisy_numbers(self) -> int:
        """Numbers that get noise in all steps of the first run, as far as they are known."""
        sizes = [sum(_sizes(release)) for release in self.first.releases]
        return sum(sizes) if sizes else sum(self.first.sizes)

    def unstable(self, part: Callable[[Recording], Any]) -> bool:
        """Whether two runs on the same data differ in this part, as clocks make them."""
        return self.again is not None and part(self.first) != part(self.again)


Judge = Callable[[Comparison], tuple[Outcome, float | None]]


def compared(comparison: Comparison) -> list[Finding]:
    """One finding for every rule that has a meaning for these runs."""
    findings = []
    for rule, judge in RULES:
        outcome, epsilon = judge(comparison)
        findings.append(rule.finding(outcome, epsilon=epsilon))
    return findings


# --- Series of values. ----------------------------------------------------------------------------


def _quantity(*names: str, scales_noise: bool = False) -> Judge:
    """Compare the values of these quantities one by one."""

    def judge(comparison: Comparison) -> tuple[Outcome, float | None]:
        first, second = comparison.series(*names)
        if not first and not second:
            return not_tested(f"No run showed a {names[0]}."), None
        for name in dict.fromkeys((*first, *second)):
            a, b = first.get(name, []), second.get(name, [])
            step = next(
                (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if not _close(x, y)), None
            )
            if bool(a) != bool(b):
                return broken(f"Only one of the runs has a {name}.", measured=name), math.inf
            if step is not None:
                where = f" (value {step + 1:,} of {len(a):,})" if step else ""
                seen = f"{_words(a[step])} and {_words(b[step])}"
                text = f"The {name} is {seen}{where}, depending on one record."
                epsilon = _scale_cost(comparison, a[step], b[step]) if scales_noise else None
                return broken(text, measured=seen, allowed="the same"), epsilon
        values = next(iter(first.values()), None) or next(iter(second.values()))
        return passed(measured=_words(values[0]), allowed="the same"), None

    return judge


def _scale_cost(comparison: Comparison, a: Any, b: Any) -> float | None:
    """The cost of noise that is scaled by a quantity, over all steps of the shorter run."""
    if not (isinstance(a, int | float) and isinstance(b, int | float) and a > 0 and b > 0):
        return None
    numbers = comparison.noisy_numbers
    return noise_ratio_epsilon(a / b, numbers, delta=comparison.delta) if numbers else None


def _steps(comparison: Comparison) -> tuple[Outcome, float | None]:
    """Steps of optimizers, releases, entries of the accountant, or draws of noise."""
    counts: dict[str, tuple[int, int]] = {}
    first, second = comparison.first, comparison.second
    for name in ("optimizer steps", "accounted sampling rate"):
        counts[name] = len(first.series.get(name, ())), len(second.series.get(name, ()))
    counts["private releases"] = first.steps, second.steps
    for name in ("steps", "planned steps", "number of batches", "batches per epoch"):
        values = [run.series.get(name, [0])[-1] for run in (first, second)]
        if all(isinstance(value, int | float) for value in values):
            counts[name] = int(values[0]), int(values[1])
    sizes = first.sizes | second.sizes
    if not any(counts["optimizer steps"]) and sizes:
        counts["draws of noise"] = len(first.noise_of(sizes)), len(second.noise_of(sizes))
    if not any(any(pair) for pair in counts.values()):
        return not_tested(
            "No step was seen: no known optimizer, and no noise as large as the result. Mark the "
            "noisy gradient with dpaudit.pipelines.release(...)."
        ), None
    for name, (a, b) in counts.items():
        if a != b:
            name = {"accounted sampling rate": "accounted steps"}.get(name, name)
            return (
                broken(
                    f"The number of {name} is {a:,} and {b:,}, depending on one record. Whoever "
                    "learns this number knows whether the record is in the data.",
                    measured=f"{a:,} and {b:,}",
                    allowed="the same",
                ),
                math.inf,
            )
    shown = max(a for a, _ in counts.values())
    return passed(measured=f"{shown:,}", allowed="the same"), None


def _result_noise(comparison: Comparison) -> tuple[Outcome, float | None]:
    """The noise of the result, where everything but noise is negligible."""
    ratio = comparison.ratio
    if ratio is None:
        why = (
            "Steps are observed one by one."
            if comparison.first.releases
            else "No noise as large as the result was seen."
        )
        return Outcome(verdict="left out", explanation=why), None
    if abs(ratio - 1) <= 1e-3:
        return passed(measured=f"ratio {ratio:.4g}", allowed="1"), None
    numbers = sum(comparison.first.sizes)
    return (
        broken(
            f"The noise of the result is {ratio:.4g} times as large with one more or another "
            "record: a divisor, a learning rate, a noise scale or the number of steps depends on "
            "it.",
            measured=f"ratio {ratio:.4g}",
            allowed="1",
        ),
        noise_ratio_epsilon(ratio, numbers, delta=comparison.delta),
    )


# --- Batches and contents of the other records. ---------------------------------------------------


def _batches(comparison: Comparison) -> tuple[Outcome, float | None]:
    """Which of the other records are in which batch."""
    extra = comparison.neighbours.extra
    first, second = (
        [frozenset(batch) - {extra} for batch in run.batches]
        for run in (comparison.first, comparison.second)
    )
    if not first or not second:
        return not_tested(
            "The records of the batches are not known. Name them with "
            "dpaudit.pipelines.batch(places)."
        ), None
    rates = comparison.series("sampling rate")
    if rates[0] != rates[1]:
        return not_tested("The sampling rate differs; repair that first."), None
    moved = [len(a ^ b) for a, b in zip(first, second, strict=False)]
    total = sum(len(a) + len(b) for a, b in zip(first, second, strict=False))
    if not any(moved):
        return passed(measured=f"{len(moved):,} batches", allowed="the same records"), None
    in_order = [
        [one for batch in run.batches for one in batch if one != extra]
        for run in (comparison.first, comparison.second)
    ]
    length = min(map(len, in_order))
    shifted = in_order[0][:length] == in_order[1][:length]
    if not shifted and sum(moved) > _UNCOUPLED * total:
        return not_tested(
            "The batches could not be coupled: the sampling uses a generator that dpaudit does not "
            "know. Only its rate was compared."
        ), None
    place = next(step for step, count in enumerate(moved) if count)
    seen = f"{max(moved)} of the other records in a batch, first in batch {place + 1:,}"
    own = [int(extra in batch) for batch in comparison.second.batches[: len(moved)]]
    contributions = [count + one for count, one in zip(moved, own, strict=True)]
    sigma = comparison.noise_multiplier
    epsilon = None if sigma is None else moved_epsilon(contributions, sigma, delta=comparison.delta)
    if max(moved) <= 1 and not comparison.neighbours.replaced:
        return (
            warning(
                "Batches have a fixed size: a record that is added takes the place of another one, "
                "which moves to another batch. Records can be replaced with this sampling; for "
                "records that are added, the claim must allow a change of 2 C in a step.",
                measured=seen,
                allowed="none",
            ),
            epsilon,
        )
    how = (
        "One more record shifts all later records to other batches."
        if shifted
        else "One record decides which batch other records are in."
    )
    return broken(how, measured=seen, allowed="none"), epsilon


def _contents(comparison: Comparison) -> tuple[Outcome, float | None]:
    """What the training gets for the other records."""
    first, second, extra = (
        comparison.first.contents,
        comparison.second.contents,
        comparison.neighbours.extra,
    )
    both = [key for key in first.keys() & second.keys() if key[0] != extra]
    if not both:
        return not_tested("The records that the training reads are not known."), None
    again = comparison.again.contents if comparison.again is not None else first
    changed = {key[0] for key in both if first[key] != second[key] and again.get(key) == first[key]}
    records = {key[0] for key in both}
    if not changed:
        return passed(measured=f"0 of {len(records):,} records", allowed="0"), None
    sigma, seen = comparison.noise_multiplier, f"{len(changed):,} of {len(records):,} records"
    epsilon = None
    if sigma is not None and comparison.first.batches:
        steps = [2 * len(changed & set(batch)) for batch in comparison.first.batches]
        epsilon = moved_epsilon(steps, sigma, delta=comparison.delta)
    return (
        broken(
            f"The features of {seen} change with another record, as with means, vocabularies or "
            "limits that are computed from the data without noise.",
            measured=seen,
            allowed="0",
        ),
        epsilon,
    )


# --- What is released beside the noisy gradients. -------------------------------------------------


def _exact(part: Callable[[Recording], Any], what: str) -> Judge:
    """Compare what a run shows exactly, given that its private releases are those of the other.

    Whoever sees the releases, too, tells the data sets apart with certainty. What a difference
    costs without them depends on the noise that they leave in it, and is not computed.
    """

    def judge(comparison: Comparison) -> tuple[Outcome, float | None]:
        first, second = part(comparison.first), part(comparison.second)
        if not first and not second:
            return Outcome(verdict="left out", explanation=f"There are no {what}."), None
        if first == second:
            return passed(measured=_count(first), allowed="the same"), None
        if not comparison.second.complete:
            return not_tested(
                "Mark the noisy gradients with dpaudit.pipelines.release(...): without them, a "
                "difference can come from what noise covers."
                if not comparison.first.releases
                else "The runs have different private releases; repair what is above first."
            ), None
        public = comparison.series(*_NAMED)
        if public[0] != public[1]:
            return not_tested("Repair what is above first: it changes the result, too."), None
        if comparison.unstable(part):
            return not_tested(f"The {what} differ between two runs on the same data."), None
        seen = _difference(first, second)
        return (
            broken(
                f"The {what} depend on one record beyond everything that noise covers: {seen}.",
                measured=seen,
                allowed="the same",
            ),
            None,
        )

    return judge


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

RULES: tuple[tuple[Rule, Judge], ...] = (
    (
        Rule(
            name="number of steps",
            requirement="The number of steps is the same with and without a record.",
            cause="Steps are counted in epochs of the data, or end early by a private loss.",
            remedy="Fix the number of steps; stop early only on public data or noisy values.",
            seen_in="Opacus (opacus#571)",
            core=True,
        ),
        _steps,
    ),
    (
        Rule(
            name="sampling rate",
            requirement="The sampling rate is the same with and without a record.",
            cause="The rate is computed from the number of records.",
            remedy="Fix the sampling rate, and let the batch size follow.",
            seen_in="Opacus (opacus#571)",
        ),
        _quantity("sampling rate", "accounted sampling rate", "batch size"),
    ),
    (
        Rule(
            name="divisor",
            requirement="The sum is divided by the same number with and without a record.",
            cause="The divisor is computed from the number of records or from the batch.",
            remedy="Divide by a constant, such as the expected batch size that you publish.",
            seen_in="Opacus (opacus#571)",
        ),
        _quantity("divisor", scales_noise=True),
    ),
    (
        Rule(
            name="learning rate",
            requirement="The learning rate is the same with and without a record.",
            cause="A schedule counts batches or epochs of the data, or follows a private loss.",
            remedy=_PUBLIC,
        ),
        _quantity("learning rate", scales_noise=True),
    ),
    (
        Rule(
            name="noise scale",
            requirement="The noise is the same with and without a record.",
            cause="The noise is calibrated with the number of records.",
            remedy=_PUBLIC,
        ),
        _quantity(
            "noise multiplier", "accounted noise multiplier", "noise scale", scales_noise=True
        ),
    ),
    (
        Rule(
            name="clip norm",
            requirement="The clip norm is the same with and without a record.",
            cause="The clip norm follows the norms of private gradients without noise.",
            remedy="Fix the clip norm, or adapt it by a noisy count (Andrew et al. 2021).",
        ),
        _quantity("clip norm", scales_noise=True),
    ),
    (
        Rule(
            name="noise of the result",
            requirement="The noise in the result is the same with and without a record.",
            cause="A divisor, a rate or the number of steps is computed from the data.",
            remedy=_PUBLIC,
        ),
        _result_noise,
    ),
    (
        Rule(
            name="batches of other records",
            requirement="A record does not decide which batch other records are in.",
            cause="Batches or micro-batches are cut from a list of the records.",
            remedy="Sample every record independently, and clip every record by itself.",
            seen_in="PyVacy (sampling/batch_samplers.py)",
        ),
        _batches,
    ),
    (
        Rule(
            name="features of other records",
            requirement="A record does not change what is computed from other records.",
            cause="Normalisation, a vocabulary or deduplication uses all records without noise.",
            remedy="Use public statistics, or release them with noise and account for them.",
        ),
        _contents,
    ),
    (
        Rule(
            name="buffers of the model",
            requirement="Buffers such as running means do not depend on a record.",
            cause="Batch normalisation keeps means of private batches without noise.",
            remedy="Use group or layer normalisation, or do not release these buffers.",
        ),
        _exact(lambda run: returned_parts(run)[1], "buffers of the model"),
    ),
    (
        Rule(
            name="returned values",
            requirement="What is released depends on a record only through noisy values.",
            cause="A checkpoint, a threshold or a metric is chosen or computed on private data.",
            remedy=_RELEASED,
        ),
        _exact(lambda run: returned_parts(run)[0], "returned values"),
    ),
    (
        Rule(
            name="logs",
            requirement="Printed and logged lines depend on a record only through noisy values.",
            cause="Losses or counts of private data are printed.",
            remedy="Do not publish the logs, or log noisy values only.",
        ),
        _exact(lambda run: run.lines, "printed and logged lines"),
    ),
    (
        Rule(
            name="files",
            requirement="Files depend on a record only through noisy values.",
            cause="Names or contents of files hold counts, losses or records.",
            remedy=_RELEASED,
        ),
        _exact(lambda run: run.files, "files"),
    ),
)
"""What is compared, in the order of the report."""


def named_rule(name: str) -> Rule:
    """A rule for a quantity that the training itself reported as public."""
    return Rule(
        name=name,
        requirement=f"The {name} is the same with and without a record.",
        remedy=_PUBLIC,
    )


def further(comparison: Comparison, judged: Mapping[str, Finding]) -> list[Finding]:
    """Findings about quantities that no rule names."""
    findings = []
    for name in dict.fromkeys((*comparison.first.series, *comparison.second.series)):
        if name not in _NAMED and name not in judged:
            outcome, epsilon = _quantity(name)(comparison)
            findings.append(named_rule(name).finding(outcome, epsilon=epsilon))
    return findings


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


def _count(shown: Any) -> str:
    return f"{len(shown):,} compared"


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
