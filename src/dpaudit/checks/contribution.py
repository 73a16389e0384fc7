"""Rules about contributions: one example changes a step by at most C, and nothing else.

Every probe inserts one crafted gradient and compares what it does with what a gradient of norm
exactly C would do. That unit is measured with gradients too short to be clipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import numpy as np

from dpaudit._arrays import Array
from dpaudit.checks.findings import Outcome, Probe, Rule, broken, not_tested, passed, warning
from dpaudit.checks.measure import (
    FALSE_ALARM,
    NOT_LINEAR,
    Measurements,
    Unit,
    centred,
    clipping,
    noise,
    one_step,
    other_examples,
    root_mean_square,
    same_output,
    smallest_ratio,
)
from dpaudit.checks.subject import StepSubject, UserCodeFailed

# --- The canary has an effect: otherwise nothing can be checked. ----------------------------------

_SEEDS = 6
_EFFECT_LENGTHS = (10.0, 0.5)  # times C: a training may drop the longest, or round short ones


def _has_an_effect(measured: Measurements) -> Outcome:
    """Gradients along an axis and along all parameters, under several seeds."""
    subject = measured.subject
    gradients = [
        shape(length * subject.clip_norm)
        for length in _EFFECT_LENGTHS
        for shape in (measured.dense, measured.along_axis)
    ]
    for steps in dict.fromkeys((measured.steps, max(measured.steps, subject.steps))):
        for seed in measured.seeds[:_SEEDS]:
            for gradient in gradients:
                if not np.array_equal(*subject.pair(gradient, seed, steps)):
                    return passed()
    why = (
        f"gradients of norm 0.5 C and 10 C change nothing under {_SEEDS} seeds"
        if subject.asked
        else "train never calls canary.rows or canary.clipped_sum"
    )
    return broken(f"The canary has no effect: {why}. No other rule was checked.")


EFFECT = Rule(
    name="canary has an effect",
    requirement="A training with the canary differs from one without it.",
    cause="The training ignores `inserted` or the canary, returns the untrained parameters, or "
    "returns another model than the one it trains.",
    remedy="Add canary.rows(inserted) to the per-example gradients of every step, before clipping, "
    "and return the trained parameters.",
    probes=(Probe(name="long and short gradients", run=_has_an_effect),),
)

# --- Contributions along the gradient itself. -----------------------------------------------------


@final
@dataclass(frozen=True, kw_only=True)
class Contribution:
    """What a gradient contributed, in multiples of C.

    Arguments:
        length: Norm of the gradient before clipping, in multiples of C.
        size: Contribution; infinite where the output was not finite.
        blur: Error of ``size``.
        limit: How large a contribution may be: C, a little more for rounding constants, and as much
            more as the noise is larger than claimed.
    """

    length: float
    size: float
    blur: float
    limit: float

    @property
    def excess(self) -> float:
        """By how much it exceeds what is allowed, after subtracting all errors."""
        return self.size - self.blur - self.limit

    @property
    def words(self) -> str:
        """The size, with its error where that matters."""
        if not np.isfinite(self.size):
            return "not a number"
        return f"{self.size:.4g} C" + (f" ± {self.blur:.2g} C" if self.blur > 1e-3 else "")


def contribution(
    measured: Measurements, gradient: Array, unit: Unit | None = None, *, place: float = 1.0
) -> Contribution | None:
    """Measure what a gradient contributes; `None` if there is nothing to compare it with."""
    unit = unit or measured.unit_along(gradient)
    if not unit.known:
        return None
    response = measured.response(gradient, place=place)
    with np.errstate(over="ignore"):
        length = float(np.linalg.norm(gradient)) / measured.subject.clip_norm
    size = response.size / unit.size
    blur = (response.error + size * unit.error) / unit.size if np.isfinite(size) else 0.0
    limit = 1 + measured.slack
    if np.isfinite(size) and size - blur > limit:
        # Automatic clipping scales short gradients down: noise that is larger covers the others.
        limit = max(limit, 1.03 * measured.cover)
    return Contribution(length=length, size=size, blur=blur, limit=limit)


def _judged(
    contributions: Iterable[Contribution | None],
    words: Callable[[Contribution], str],
    **more: str,
) -> Outcome:
    """The outcome for the contribution that exceeds its limit most."""
    worst = max(filter(None, contributions), key=lambda item: item.excess, default=None)
    if worst is None:
        return not_tested("Rounding hides the contributions of such gradients.")
    comparison = {"measured": worst.words, "allowed": f"at most {worst.limit + worst.blur:.4g} C"}
    if worst.excess > 0:
        return broken(words(worst), **comparison, **more)
    if worst.blur > 0.5:
        return not_tested("Rounding or noise hides contributions of this size.", **comparison)
    return passed(**comparison)


def _along_one_coordinate(measured: Measurements) -> Outcome:
    """Gradients along one axis, from a thousandth of C to a million C."""
    lengths = (1e-3, 1.0, 10.0, 1e3, 1e6) if measured.repeatable else (1e3, 1e6)
    clip_norm = measured.subject.clip_norm
    by_length = {
        length: contribution(measured, measured.along_axis(length * clip_norm), measured.unit)
        for length in lengths
    }
    sizes = {length: item.size for length, item in by_length.items() if item is not None}
    cause, precedent = _likely(measured, sizes) if sizes else ("", "")
    return _judged(
        by_length.values(),
        lambda worst: f"A gradient of norm {worst.length:.3g} C contributes {worst.words}. {cause}",
        seen_in=precedent,
    )


def _likely(measured: Measurements, sizes: dict[float, float]) -> tuple[str, str]:
    """The likely cause, from how the response grows with the gradient's norm; a precedent."""
    if not np.isfinite(sizes[1e6]):
        return "The output is not a number any more.", ""
    if not measured.repeatable and sizes[1e6] < 100 * sizes[1e3]:
        return "Either contributions are too large, or noise is too small.", ""
    if measured.raw_share > 0.9:
        return (
            "It grows in proportion to the gradient: nothing is clipped. Is the DP optimizer in "
            "use, and is its clip norm C?",
            "opacus PR #664 (clip norm ignored), tf-privacy #72 (optimizer silently inactive)",
        )
    if sizes[1e6] > 100 * sizes[1e3]:
        return (
            f"It grows without limit, with weight {measured.raw_share:.3g}: the raw gradient is "
            "mixed into the private one.",
            "Differentially-Private-Deep-Learning #7",
        )
    records = measured.subject.records
    if records > 1 and abs(sizes[1e6] / records - 1) < 0.02:
        return f"Each of the {records} records of a unit is clipped by itself.", ""
    return (
        f"It stops growing at {sizes[1e6]:.4g} C: the mean of a batch (or microbatch) is clipped "
        "instead of each example, or gradients are clipped to another norm than the claimed one.",
        "APPFL #349, tf-privacy #81 (means of microbatches)",
    )


def _at_other_places(measured: Measurements) -> Outcome:
    """A long gradient in the first and in the middle row, in the unit of the last row."""
    gradient = measured.along_axis(1e6 * measured.subject.clip_norm)
    by_place = {
        name: contribution(measured, gradient, measured.unit, place=place)
        for name, place in (("first", 0.0), ("middle", 0.5))
    }

    def words(worst: Contribution) -> str:
        row = next(name for name, item in by_place.items() if item is worst)
        return (
            f"In the {row} row of the batch an example contributes {worst.words}, in units of the "
            "contribution of the last row."
        )

    return _judged(
        by_place.values(),
        words,
        cause="Examples are weighted, by their client or their place in the batch, after they were "
        "clipped.",
        remedy="Clip after weighting, or scale the noise by the largest weight.",
        seen_in="weights of clients in federated averaging",
    )


def _spread_over_all(measured: Measurements) -> Outcome:
    """A gradient of norm one million C over all parameters."""
    return _judged(
        [contribution(measured, measured.dense(1e6 * measured.subject.clip_norm))],
        lambda worst: (
            f"Spread over many of the {measured.subject.parameters:,} parameters, an "
            f"example contributes at least {worst.words}, while along one coordinate it "
            "contributes at most C."
        ),
        cause="Each parameter tensor, or each entry, is clipped to C on its own, where the claim "
        "is about the whole gradient: with K tensors an example contributes up to sqrt(K) C.",
        remedy="Clip by the norm over all tensors together, or give each tensor C / sqrt(K).",
        seen_in="fedbiomed #1443",
    )


_HALF_UNDERFLOW = 1.6e-4  # its square rounds to zero in float16


def _small_entries(measured: Measurements) -> Outcome:
    """Entries whose squares are zero in float16, enough of them to exceed C together."""
    clip_norm = measured.subject.clip_norm
    lengths = [1.5 * clip_norm, 3.0 * clip_norm]
    longest = _HALF_UNDERFLOW * float(np.sqrt(measured.subject.parameters))
    if longest >= 1.2 * clip_norm:
        lengths.append(longest)
    unit = measured.unit_along(measured.dense(lengths[0]))
    return _judged(
        [contribution(measured, measured.dense(length), unit) for length in lengths],
        lambda worst: (
            f"A gradient of norm {worst.length:.3g} C, made of many small entries, "
            f"contributes {worst.words}."
        ),
        cause="Squares of small entries underflow to zero in half precision, or get lost in a long "
        "sum, so that the norm is too small and too little is clipped.",
        remedy="Compute norms in float32, whatever type the gradients have.",
        seen_in="jax_privacy PR #309",
    )


def _huge_and_zero(measured: Measurements) -> Outcome:
    """Entries of 1e30 and 1e300, where the output's own type can hold them, and all zeros."""
    # In float32, 1e300 is infinity, which another rule checks.
    wide = measured.precision < np.finfo(np.float32).eps
    entries = {"an entry of 1e30": 1e30, "an entry of 1e300": 1e300, "only zeros": 0.0}
    return _with_entries(
        measured,
        {name: value for name, value in entries.items() if wide or value < 1e38},
        cause="The square of a large entry overflows, or zero is divided by a norm of zero, so "
        "that the result is not a number, or is not clipped.",
        remedy="Scale by the largest entry before squaring, drop what is not finite, and clip with "
        "min(1, C / norm), never with C / norm alone.",
        seen_in="jax_privacy PR #309 (norms in half precision)",
    )


def _with_entries(measured: Measurements, entries: dict[str, float], **more: str) -> Outcome:
    """Gradients with one such entry each: parameters stay finite, and the entry is clipped."""
    by_name: dict[str, Contribution | None] = {}
    for name, value in entries.items():
        gradient = measured.along_axis(value)
        try:
            output = measured.subject.output(gradient, measured.seeds[0], measured.steps)
            lost = int(np.sum(~np.isfinite(output)))
            if lost:
                return broken(
                    f"An example with {name} turns {lost:,} of {len(output):,} parameters into "
                    "infinity or NaN.",
                    measured=f"{lost:,} parameters lost",
                    allowed="none",
                    **more,
                )
            by_name[name] = contribution(measured, gradient, measured.unit)
        except UserCodeFailed as error:
            return not_tested(
                "Training stops instead of dropping the example, which can also be observed: "
                f"{error}.",
            )

    def words(worst: Contribution) -> str:
        name = next(name for name, item in by_name.items() if item is worst)
        return f"A gradient with {name} is not clipped."

    return _judged(by_name.values(), words, **more)


# --- Total change: in all coordinates, also through the other examples. ---------------------------

_TENSORS = 24  # of which each costs a call
_SCALED_DOWN = 20.0  # times the claimed noise: short gradients are scaled down, as by Adam
_ALIKE = 1.5  # scales of one tensor differ by less, up to rounding; a flat vector has no tensors
_MIXED = 1.3  # times C: noise behind a public map is measured less precisely
_NEIGHBOURS = 15


@final
@dataclass(frozen=True, kw_only=True)
class _Ruler:
    """How the size of a change is measured."""

    scales: Array
    limit: float

    def size(self, change: Array) -> float:
        """The norm of a change, in multiples of C."""
        trained = self.scales > 0
        return float(np.linalg.norm(change[trained] / self.scales[trained]))


def _ruler(measured: Measurements) -> _Ruler | None:
    """Changes are measured by what short gradients do, or by the noise behind a linear map."""
    if measured.mixes and measured.noise_is_there:
        scale = measured.noise_level() / measured.subject.noise_multiplier
        return _Ruler(scales=np.full(measured.subject.parameters, scale), limit=_MIXED)
    if measured.mixes or measured.scales is None:
        return None
    cover = measured.cover_of_scales
    limit = 1 + measured.slack + 2 * measured.unit.error / measured.unit.size
    return _Ruler(
        scales=_scales_everywhere(measured, measured.scales[0]),
        limit=max(limit, 1.03 * cover) if cover > 1.1 else limit,
    )


def _scales_everywhere(measured: Measurements, at_places: Array) -> Array:
    """The effect of a contribution of C along each coordinate, between the measured ones."""
    places, parameters = measured.spread, np.arange(measured.subject.parameters)
    right = np.searchsorted(places, parameters)  # the first place that is not before
    left = np.searchsorted(places, parameters, side="right") - 1
    # Between two measured coordinates the larger scale: their tensors may differ.
    scales: Array = np.maximum(at_places[left], at_places[np.minimum(right, len(places) - 1)])
    for tensor in measured.tensors:
        inside = at_places[(places >= tensor.start) & (places < tensor.stop)]
        if len(inside) and inside.max() <= _ALIKE * inside.min():
            scales[tensor.start : tensor.stop] = np.median(inside)
    if measured.unit.kind == "linear":
        scales[measured.axis] = measured.unit.size
    return scales


def _comparable(measured: Measurements) -> str:
    """The changes of all coordinates can be added up."""
    if measured.presence_counts and "fixed_batch_size" not in measured.subject.declared:
        return f"One more example changes the others: see '{INDEPENDENT}' first."
    if measured.cover > _SCALED_DOWN:
        return NOT_LINEAR
    if measured.mixes and not measured.white:
        return "A public linear map leaves noise in few directions, so that changes do not add up."
    return ""


def _changes(measured: Measurements, changes: dict[str, Any], **words: str) -> Outcome:
    """The outcome for some changes, by name, each made on demand."""
    ruler = _ruler(measured)
    if ruler is None:
        return not_tested("Rounding hides contributions in single tensors.")
    floor = ruler.size(measured.rounding)
    sizes: list[float] = []
    comparison = {"measured": "", "allowed": f"at most {ruler.limit + floor:.4g} C"}
    for name, change in changes.items():
        try:
            changed = change()
        except UserCodeFailed as error:
            failure = str(error)  # such as: the training expects exactly one row
            continue
        if not np.all(np.isfinite(changed)):
            failure = "The output is not finite."  # another probe's business
            continue
        sizes.append(ruler.size(changed))
        comparison["measured"] = f"{max(sizes):.4g} C"
        if sizes[-1] - floor > ruler.limit:
            if measured.bends:
                return not_tested(NOT_LINEAR)
            return broken(
                f"{name} changes the update by {sizes[-1]:.4g} C in total.", **comparison, **words
            )
    if not sizes:
        return not_tested(f"No such change could be measured: {failure}")
    if floor > 0.5 * ruler.limit:
        return not_tested("Rounding hides changes of this size.", **comparison)
    return passed(**comparison)


_TOTAL = {
    "cause": "A sum or a mean of several examples is clipped, so that one of them rescales the "
    "others; or a tensor is left out of the norm that decides the clipping; or the clip norm is "
    "computed from the batch.",
    "remedy": "Clip each example by itself, by the norm over all tensors, to a constant C.",
    "seen_in": "APPFL #349, tf-privacy #81",
}


def _change(
    measured: Measurements,
    gradient: Array,
    companions: Array | None = None,
    *,
    place: float = 1.0,
    instead: Array | None = None,
) -> Array:
    """The change against another gradient in its place, or against one example less."""
    seed, steps = measured.seeds[0], measured.steps
    where: dict[str, Any] = {"companions": companions, "place": place}
    own = measured.subject.output(gradient, seed, steps, **where)
    return own - measured.subject.output(instead, seed, steps, **where)


def _one_tensor_at_a_time(measured: Measurements) -> Outcome:
    """Long gradients in one coordinate and in one tensor at a time, against a zero gradient."""
    tensors, long = measured.tensors, 1e6 * measured.subject.clip_norm
    chosen = np.unique(np.linspace(0, len(tensors) - 1, min(len(tensors), _TENSORS)).astype(int))
    places = {"one coordinate": np.array([measured.axis])} | {
        tensor.name: np.arange(tensor.start, tensor.stop)
        for tensor in (tensors[int(place)] for place in chosen)
        if tensor.size
    }

    def change(where: Any) -> Array:
        gradient = measured.dense(long, where)
        return _change(measured, gradient, instead=np.zeros_like(gradient))

    changes = {
        f"A gradient of norm 1e+06 C in {name}": partial(change, where)
        for name, where in places.items()
    }
    return _changes(measured, changes, **_TOTAL)


def _beside_others(measured: Measurements) -> Outcome:
    """A long gradient in the micro-batch of short and of long ones in the opposite direction."""
    clip_norm = measured.subject.clip_norm
    long = measured.along_axis(1e6 * clip_norm)
    changes = {
        f"A gradient of norm 1e+06 C beside three {name} ones against it": partial(
            _change,
            measured,
            long,
            np.tile(measured.along_axis(-length * clip_norm), (3, 1)),
            place=0.5,
            instead=np.zeros_like(long),
        )
        for name, length in (("short", 2.0), ("long", 1e6))
    }
    return _changes(measured, changes, **_TOTAL)


def _inserted_between(measured: Measurements) -> Outcome:
    """A record before and between others with long gradients, so that micro-batches shift."""
    clip_norm, subject = measured.subject.clip_norm, measured.subject
    count = max(3, min(_NEIGHBOURS, _MOST_NUMBERS // subject.parameters))
    others = np.random.default_rng(17).standard_normal((count, subject.parameters))
    others *= 1e3 * clip_norm / np.linalg.norm(others, axis=1, keepdims=True)
    others[1::2] = -others[: 2 * (count // 2) : 2]
    gradient = measured.along_axis(clip_norm)
    changes = {
        f"A record inserted {where} the others": partial(
            _change, measured, gradient, others, place=place
        )
        for where, place in (("before", 0.0), ("between", 0.5))
    }
    return _changes(
        measured,
        changes,
        cause="Examples are grouped by their place in the batch (micro-batches, accumulation) and "
        "sums of a group are clipped: one more record moves the others to other groups.",
        remedy="Clip each example by itself; then it does not matter how they are grouped.",
        seen_in="PyVacy (micro-batches by position)",
    )


_TOTAL_NEEDS = (clipping, same_output, one_step, _comparable)

BOUNDED = Rule(
    name="bounded contribution",
    requirement="One example changes the whole update by at most C: however long its gradient is, "
    "wherever it lies, and whatever it does to the other examples.",
    remedy="Clip the gradient of each example on its own, before anything is summed or averaged.",
    seen_in="opacus PR #664, tf-privacy #72",
    core=True,
    probes=(
        Probe(name="one coordinate", run=_along_one_coordinate, needs=(clipping,)),
        Probe(name="one tensor at a time", run=_one_tensor_at_a_time, needs=_TOTAL_NEEDS),
        Probe(
            name="beside opposite gradients",
            run=_beside_others,
            needs=(other_examples, *_TOTAL_NEEDS),
        ),
        Probe(name="all parameters", run=_spread_over_all, needs=(clipping,)),
        Probe(name="small entries", run=_small_entries, needs=(clipping,)),
        Probe(name="huge and zero entries", run=_huge_and_zero, needs=(clipping,)),
        Probe(
            name="first and middle row",
            run=_at_other_places,
            needs=(clipping, same_output),
            only="step",
        ),
        Probe(
            name="inserted between others",
            run=_inserted_between,
            needs=(other_examples, *_TOTAL_NEEDS),
            unless="fixed_batch_size",
        ),
    ),
)

# --- Infinite and NaN gradients. ------------------------------------------------------------------


def _not_finite(measured: Measurements) -> Outcome:
    """One entry that is infinite, or not a number.

    It is a warning, whatever library clips: whether a gradient can be infinite or NaN depends on
    the loss and the data, which a check does not see.
    """
    entries = {"an infinite entry": float(np.inf), "a NaN entry": float(np.nan)}
    outcome = _with_entries(measured, entries)
    if outcome.verdict != "broken":
        return outcome
    return warning(
        f"{outcome.explanation} The claim holds only if no gradient is infinite or NaN.",
        measured=outcome.measured,
        allowed=outcome.allowed,
    )


FINITE = Rule(
    name="infinite and NaN gradients",
    requirement="An example with an infinite or NaN gradient leaves the parameters finite.",
    cause="min(1, C / norm) is 0 or NaN for such an example, and 0 times infinity is NaN: the "
    "parameters become NaN if and only if that example took part.",
    remedy="Replace what is not finite by zero in each example's gradient before clipping, for "
    "instance with torch.nan_to_num(grad_sample, 0.0, 0.0, 0.0). If no gradient can be infinite or "
    "NaN, declare it: finite_gradients=True, --finite-gradients.",
    seen_in="dp-recorder's tests; stock Opacus 1.6",
    after=(BOUNDED.name,),
    probes=(
        Probe(
            name="infinite and NaN entries",
            run=_not_finite,
            needs=(clipping,),
            unless="finite_gradients",
        ),
    ),
)

# --- Noise and the other examples do not depend on the batch. -------------------------------------

INDEPENDENT = "noise independent of the data"

_COMPANIONS = 256
_MOST_NUMBERS = 1 << 24
_SHORT, _LONG = 1e-3, 1e3  # times C
_TOLERATED = 0.01
_UNCHANGED = 1e-5  # a mean over a batch of B rescales by 1 / B


def _zero_gradient(measured: Measurements) -> Outcome:
    """Outputs with and without an example whose gradient is zero."""
    changed, level = measured.presence, measured.noise_level()
    if not np.all(np.isfinite(changed)):
        return not_tested(
            f"A zero gradient makes the output infinite or NaN; see '{BOUNDED.name}'."
        )
    size = root_mean_square(changed)
    comparison = {
        "measured": f"{size / (level or 1.0):.2g} x noise",
        "allowed": "no more than rounding",
    }
    if not measured.presence_counts:
        return passed(**comparison)
    if level > 0 and size > level:
        return not_tested(
            "With one more example the training draws other noise under the same seed. This is no "
            "leak, but it hides this rule: draw the noise from a generator of its own.",
            **comparison,
        )
    factor = _rescaling(measured)
    if abs(factor - 1) < _UNCHANGED:
        return broken(
            "An example with a zero gradient changes what others contribute, and not the noise.",
            cause="The weight of an example, or its group, depends on its place in the batch.",
            remedy="Give every example a weight of its own, and scale the noise by the largest "
            "weight.",
            seen_in="weights of clients in federated averaging",
            **comparison,
        )
    about = f", by a factor of about {factor:.4g}" if np.isfinite(factor) else ""
    return broken(
        f"An example with a zero gradient rescales all the others and the noise{about}.",
        cause="The noisy sum is divided by the actual number of examples in the batch, so one more "
        "example rescales the noise and all other gradients.",
        remedy="Divide by the expected batch size, a constant; with Poisson sampling that is "
        "sampling rate times size of the data set. If the batch size is fixed and public "
        "(neighbours replace a record), this is no leak: say so (fixed_batch_size=True, "
        "--fixed-batch-size).",
        seen_in="loops that take the mean over a Poisson batch; optax's "
        "differentially_private_aggregate does, and is meant for batches of a fixed size",
        **comparison,
    )


def _rescaling(measured: Measurements) -> float:
    """By how much the noise is rescaled, B / (B + 1) for a mean, from two seeds; or NaN."""
    if not measured.noise_is_there:
        return np.nan
    zeros = np.zeros(measured.subject.parameters)
    with_example = measured.subject.output(zeros, measured.seeds[1], measured.steps)
    between = measured.noise()[1] - measured.noise()[0]
    other = (with_example - measured.quiet)[measured.watched] - between
    rescaled = other - measured.presence[measured.watched]
    return 1 + float(rescaled @ between / (between @ between))


def _long_gradients(measured: Measurements) -> Outcome:
    """The noise beside many short gradients, and beside many long ones, under the same seeds."""
    count = max(3, min(_COMPANIONS, _MOST_NUMBERS // measured.subject.parameters))
    short, error = _noise_beside(measured, count, _SHORT)
    long, more = _noise_beside(measured, count, _LONG)
    if not (np.all(np.isfinite(long)) and short @ short > 0):
        return not_tested("Outputs beside long gradients are not finite.")
    factor = float(long @ short / (short @ short))
    comparison = {
        "measured": f"{factor:.4g} times",
        "allowed": f"{1 - _TOLERATED:g} to {1 + _TOLERATED:g} times",
    }
    if abs(factor - 1) <= _TOLERATED:
        return passed(**comparison)
    # A public function of the noisy gradient, such as its normalisation, does not scale the noise
    # of two seeds by exactly the same factor.
    tolerance = min(1e-3, 0.2 / float(np.sqrt(len(short))))
    rest = float(np.linalg.norm(long - factor * short))
    if rest > tolerance * float(np.linalg.norm(long)) + abs(factor) * error + more:
        return not_tested(
            "Outputs vary by another amount beside long gradients, but not in proportion to the "
            "noise, as behind a public transform of the noisy gradient.",
            **comparison,
        )
    return broken(
        f"With {count:,} long gradients in the batch, noise is {factor:.4g} times as "
        "large as with as many short ones: the batch decides the size of the noise.",
        **comparison,
    )


def _noise_beside(measured: Measurements, count: int, length: float) -> tuple[Array, float]:
    """The difference of two seeds beside many gradients of this norm, and its rounding error."""
    subject = measured.subject
    rows = np.random.default_rng(13).standard_normal((count, subject.parameters))
    rows *= length * subject.clip_norm / np.linalg.norm(rows, axis=1, keepdims=True)
    outputs = [
        subject.output(None, seed, measured.steps, companions=rows) for seed in measured.seeds[:2]
    ]
    rounding = 4 * measured.precision * max(float(np.linalg.norm(output)) for output in outputs)
    return outputs[0] - outputs[1], rounding + 2 * float(np.linalg.norm(measured.rounding))


def _empty_batch(measured: Measurements) -> Outcome:
    """The step on an array of no rows, under several seeds."""
    assert isinstance(measured.subject, StepSubject)
    words = {
        "cause": "Empty batches of Poisson sampling are skipped: then noise in a step proves that "
        "the batch had an example.",
        "remedy": "Make the step with noise only; do not skip it.",
        "seen_in": "opacus #80 and loops that continue on empty batches",
    }
    rows = np.stack([measured.subject.empty_batch(seed) for seed in measured.seeds])
    if not np.all(np.isfinite(rows)):
        return broken(
            "On an empty batch the output is infinite or NaN, which can be observed.",
            measured="not finite",
            allowed="noise",
            **words,
        )
    draws = centred(rows)[:, measured.watched]
    degrees = (len(rows) - 1) * draws.shape[1]
    usual = measured.noise_level()
    ratio = float(np.sqrt((draws**2).sum() / degrees)) / usual if usual else 1.0
    # A mean over the actual batch divides an empty one by 1, which another probe reports.
    least = 0.95 * float(np.sqrt(smallest_ratio(degrees, FALSE_ALARM))) - 0.02
    comparison = {"measured": f"{ratio:.3g} x noise", "allowed": f"at least {least:.3g} x noise"}
    if ratio < least:
        text = f"On an empty batch noise is {ratio:.3g} times as large as on other batches."
        return broken(text, **comparison, **words)
    return passed(**comparison)


DATA = Rule(
    name=INDEPENDENT,
    requirement="The noise, and what the other examples contribute, do not depend on the batch: "
    "not on its size, nor on its longest gradients.",
    cause="Noise, or the whole update, is scaled by a number computed from the raw batch: its "
    "median or largest norm, its loss, or a learning rate chosen by the raw gradient.",
    remedy="Scale noise by the constant C. A clip norm or learning rate that adapts to the data "
    "needs a private estimate, from noisy values only, that the accountant counts.",
    seen_in="clipping to the batch's true median (arXiv 1905.03871 makes it private)",
    after=(BOUNDED.name,),
    probes=(
        Probe(
            name="a zero gradient",
            run=_zero_gradient,
            needs=(same_output, one_step),
            unless="fixed_batch_size",
        ),
        Probe(
            name="many long gradients",
            run=_long_gradients,
            needs=(other_examples, noise, same_output, one_step, clipping),
        ),
        Probe(
            name="an empty batch",
            run=_empty_batch,
            needs=(noise,),
            only="step",
            unless="fixed_batch_size",
        ),
    ),
)

RULES = (EFFECT, BOUNDED, DATA, FINITE)
