"""Rules about contributions: one example changes a step by at most C, and nothing else.

Every probe inserts one crafted gradient and compares what it does with what a gradient of norm
exactly C would do. That unit is measured with gradients too short to be clipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import final

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
    same_output,
    smallest_ratio,
    unit_along,
)
from dpaudit.checks.subject import StepSubject, UserCodeFailed

# --- The canary has an effect: otherwise nothing can be checked. ----------------------------------

_SEEDS = 6
_EFFECT_LENGTHS = (10.0, 0.5)  # times C: a training may drop the longest, or round short ones


def _has_an_effect(measured: Measurements) -> Outcome:
    """Gradients along an axis and along all parameters, under several seeds."""
    clip_norm, subject = measured.subject.clip_norm, measured.subject
    gradients = [
        shape(length * clip_norm)
        for length in _EFFECT_LENGTHS
        for shape in (measured.dense, measured.along_axis)
    ]
    for steps in dict.fromkeys((measured.steps, max(measured.steps, subject.steps))):
        for seed in measured.seeds[:_SEEDS]:
            for gradient in gradients:
                if not np.array_equal(*subject.pair(gradient, seed, steps)):
                    return passed()
    why = (
        "train never calls canary.rows or canary.clipped_sum"
        if not subject.canary_was_read
        else f"gradients of norm {_EFFECT_LENGTHS[1]:g} C and {_EFFECT_LENGTHS[0]:g} C change "
        f"nothing under {_SEEDS} seeds"
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

    @property
    def seen(self) -> dict[str, str]:
        """What was measured, and the limit that decides, for the report."""
        return {"measured": self.words, "allowed": f"at most {self.limit + self.blur:.4g} C"}


def contribution(
    measured: Measurements, gradient: Array, unit: Unit | None = None, *, place: float = 1.0
) -> Contribution | None:
    """Measure what a gradient contributes; `None` if there is nothing to compare it with."""
    unit = unit_along(measured, gradient) if unit is None else unit
    if not unit.known:
        return None
    response = measured.response(gradient, place=place)
    with np.errstate(over="ignore"):
        length = float(np.linalg.norm(gradient)) / measured.subject.clip_norm
    size = response.size / unit.size
    blur = (response.error + size * unit.error) / unit.size if response.finite else 0.0
    limit = 1 + measured.slack
    if np.isfinite(size) and size - blur > limit:
        # Automatic clipping scales short gradients down: noise that is larger covers the others.
        limit = max(limit, 1.03 * measured.cover)
    return Contribution(length=length, size=size, blur=blur, limit=limit)


def _largest(contributions: Iterable[Contribution | None]) -> Contribution | None:
    """The one that exceeds its limit most."""
    measured = [one for one in contributions if one is not None]
    return max(measured, key=lambda one: one.excess) if measured else None


def _judged(worst: Contribution | None, words: str, **more: str) -> Outcome:
    """The outcome for the largest contribution; ``words`` say what is wrong if it is too large."""
    if worst is None:
        return not_tested("Rounding hides the contributions of such gradients.")
    if worst.excess > 0:
        return broken(words, **worst.seen, **more)
    if worst.blur > 0.5:
        return not_tested("Rounding or noise hides contributions of this size.", **worst.seen)
    return passed(**worst.seen)


_LENGTHS = (1e-3, 1.0, 10.0, 1e3, 1e6)
_AVERAGED_LENGTHS = (1e3, 1e6)


def _along_one_coordinate(measured: Measurements) -> Outcome:
    """Gradients along one axis, from a thousandth of C to a million C."""
    lengths = _LENGTHS if measured.repeatable else _AVERAGED_LENGTHS
    clip_norm = measured.subject.clip_norm
    by_length = {
        length: contribution(measured, measured.along_axis(length * clip_norm), measured.unit)
        for length in lengths
    }
    worst = _largest(by_length.values())
    if worst is None or worst.excess <= 0:
        return _judged(worst, "")
    cause, precedent = _likely(measured, by_length)
    words = f"A gradient of norm {worst.length:.3g} C contributes {worst.words}. {cause}"
    return _judged(worst, words, seen_in=precedent)


def _likely(
    measured: Measurements, by_length: Mapping[float, Contribution | None]
) -> tuple[str, str]:
    """The likely cause, from how the response grows with the gradient's norm; a precedent."""
    sizes = {length: one.size for length, one in by_length.items() if one is not None}
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
    return (
        f"It stops growing at {sizes[1e6]:.4g} C: the mean of a batch (or microbatch) is clipped "
        "instead of each example, or gradients are clipped to another norm than the claimed one.",
        "APPFL #349, tf-privacy #81 (means of microbatches)",
    )


def _at_other_places(measured: Measurements) -> Outcome:
    """A long gradient in the first and in the middle row, in the unit of the last row."""
    gradient = measured.along_axis(1e6 * measured.subject.clip_norm)
    names = {0.0: "first", 0.5: "middle"}
    by_place = {
        place: contribution(measured, gradient, measured.unit, place=place) for place in names
    }
    worst = _largest(by_place.values())
    where = next((names[place] for place, one in by_place.items() if one is worst), "")
    return _judged(
        worst,
        ""
        if worst is None
        else f"In the {where} row of the batch an example contributes "
        f"{worst.words}, in units of the contribution of the last row.",
        cause="Examples are weighted, by their client or their place in the batch, after they were "
        "clipped.",
        remedy="Clip after weighting, or scale the noise by the largest weight.",
        seen_in="weights of clients in federated averaging",
    )


def _spread_over_all(measured: Measurements) -> Outcome:
    """A gradient of norm one million C over all parameters."""
    worst = contribution(measured, measured.dense(1e6 * measured.subject.clip_norm))
    size = "" if worst is None else worst.words
    return _judged(
        worst,
        f"Spread over many of the {measured.subject.parameters:,} parameters, an example "
        f"contributes at least {size}, while along one coordinate it contributes at most C.",
        cause="Each parameter tensor, or each entry, is clipped to C on its own, where the claim "
        "is about the whole gradient: with K tensors an example contributes up to sqrt(K) C.",
        remedy="Clip by the norm over all tensors together, or give each tensor C / sqrt(K).",
        seen_in="fedbiomed #1443",
    )


_HALF_UNDERFLOW = 1.6e-4  # its square rounds to zero in float16


def _small_entries(measured: Measurements) -> Outcome:
    """Entries whose squares are zero in float16, enough of them to exceed C together."""
    parameters, clip_norm = measured.subject.parameters, measured.subject.clip_norm
    gradients = [measured.dense(share * clip_norm) for share in (1.5, 3.0)]
    longest = _HALF_UNDERFLOW * float(np.sqrt(parameters))
    if longest >= 1.2 * clip_norm:
        gradients.append(measured.dense(longest))
    unit = unit_along(measured, gradients[0])
    worst = _largest(contribution(measured, gradient, unit) for gradient in gradients)
    return _judged(
        worst,
        ""
        if worst is None
        else f"A gradient of norm {worst.length:.3g} C, made of many small "
        f"entries, contributes {worst.words}.",
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
    return replace(
        _with_entries(measured, {n: v for n, v in entries.items() if wide or v < 1e38}),
        cause="The square of a large entry overflows, or zero is divided by a norm of zero, so "
        "that the result is not a number, or is not clipped.",
        remedy="Scale by the largest entry before squaring, drop what is not finite, and clip with "
        "min(1, C / norm), never with C / norm alone.",
        seen_in="jax_privacy PR #309 (norms in half precision)",
    )


def _with_entries(measured: Measurements, entries: Mapping[str, float]) -> Outcome:
    """Gradients with one such entry each: parameters stay finite, and the entry is clipped."""
    worst: Contribution | None = None
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
                )
            one = contribution(measured, gradient, measured.unit)
        except UserCodeFailed as error:
            return not_tested(
                "Training stops instead of dropping the example, which can also be observed: "
                f"{error}.",
            )
        if one is not None and one.excess > 0:
            return broken(f"A gradient with {name} is not clipped.", **one.seen)
        worst = _largest((worst, one))
    return _judged(worst, "")


# --- Total change: in all coordinates, also through the other examples. ---------------------------

_TENSORS = 24  # of which each costs a call
_SCALED_DOWN = 20.0  # times the claimed noise: short gradients are scaled down, as by Adam
_ALIKE = 1.5  # scales of one tensor differ by less, up to rounding; a flat vector has no tensors
_MIXED = 1.3  # times C: noise behind a public map is measured less precisely
_NEIGHBOURS = 15


@final
@dataclass(frozen=True, kw_only=True)
class _Ruler:
    """How the size of a change is measured.

    Arguments:
        scales: What a contribution of C does along each coordinate; zero if it is not trained.
        floor: What rounding may add.
        limit: The largest allowed size.
    """

    scales: Array
    floor: float
    limit: float

    def size(self, change: Array) -> float:
        """The norm of a change, in multiples of C."""
        trained = self.scales > 0
        return float(np.linalg.norm(change[trained] / self.scales[trained]))


def _ruler(measured: Measurements) -> _Ruler | None:
    """Changes are measured by what short gradients do, or by the noise behind a linear map."""
    if measured.mixes:
        if not measured.noise_is_there:
            return None
        scale = measured.noise_level() / measured.subject.noise_multiplier
        return _Ruler(
            scales=np.full(measured.subject.parameters, scale),
            floor=float(np.linalg.norm(measured.rounding)) / scale,
            limit=_MIXED,
        )
    scales = _scales_everywhere(measured)
    if scales is None:
        return None
    trained = scales > 0
    cover = measured.cover_of_scales
    limit = 1 + measured.slack + 2 * measured.unit.error / measured.unit.size
    return _Ruler(
        scales=scales,
        floor=float(np.linalg.norm(measured.rounding[trained] / scales[trained])),
        limit=max(limit, 1.03 * cover) if cover > 1.1 else limit,
    )


def _scales_everywhere(measured: Measurements) -> Array | None:
    """The effect of a contribution of C along each coordinate, between the measured ones."""
    scaled = measured.scales
    if scaled is None:
        return None
    places, parameters = measured.spread, np.arange(measured.subject.parameters)
    right = np.searchsorted(places, parameters)  # the first place that is not before
    left = np.searchsorted(places, parameters, side="right") - 1
    # Between two measured coordinates the larger scale: their tensors may differ.
    scales: Array = np.maximum(scaled[0][left], scaled[0][np.minimum(right, len(places) - 1)])
    for tensor in measured.tensors:
        inside = scaled[0][(places >= tensor.start) & (places < tensor.stop)]
        if len(inside) and inside.max() <= _ALIKE * inside.min():
            scales[tensor.start : tensor.stop] = np.median(inside)
    if measured.unit.kind == "linear":
        scales[measured.axis] = measured.unit.size
    return scales


def _comparable(measured: Measurements) -> str:
    """The changes of all coordinates can be added up."""
    if measured.presence_counts and not measured.subject.fixed_batch_size:
        return f"One more example changes the others: see '{INDEPENDENT}' first."
    if measured.cover > _SCALED_DOWN:
        return NOT_LINEAR
    if measured.mixes and not measured.white:
        return "A public linear map leaves noise in few directions, so that changes do not add up."
    return ""


Change = tuple[str, Callable[[], Array]]


def _changes(measured: Measurements, changes: Iterable[Change], **words: str) -> Outcome:
    """The outcome for some changes, each named and made on demand."""
    ruler = _ruler(measured)
    if ruler is None:
        return not_tested("Rounding hides contributions in single tensors.")
    sizes: list[float] = []
    seen = {"measured": "", "allowed": f"at most {ruler.limit + ruler.floor:.4g} C"}
    for name, change in changes:
        try:
            changed = change()
        except UserCodeFailed as error:
            failure = str(error)  # such as: the training expects exactly one row
            continue
        if not np.all(np.isfinite(changed)):
            failure = "The output is not finite."  # another probe's business
            continue
        size = ruler.size(changed)
        seen["measured"] = f"{max([size, *sizes]):.4g} C"
        if size - ruler.floor > ruler.limit:
            if measured.bends:
                return not_tested(NOT_LINEAR)
            return broken(f"{name} changes the update by {size:.4g} C in total.", **seen, **words)
        sizes.append(size)
    if not sizes:
        return not_tested(f"No such change could be measured: {failure}")
    if ruler.floor > 0.5 * ruler.limit:
        return not_tested("Rounding hides changes of this size.", **seen)
    return passed(**seen)


_TOTAL = {
    "cause": "A sum or a mean of several examples is clipped, so that one of them rescales the "
    "others; or a tensor is left out of the norm that decides the clipping; or the clip norm is "
    "computed from the batch.",
    "remedy": "Clip each example by itself, by the norm over all tensors, to a constant C.",
    "seen_in": "APPFL #349, tf-privacy #81",
}


def _change(measured: Measurements, gradient: Array, companions: Array | None = None) -> Array:
    """The change against a zero gradient, so that the batch size is the same."""
    ends = [
        measured.subject.output(
            one,
            measured.seeds[0],
            measured.steps,
            companions=companions,
            place=1.0 if companions is None else 0.5,
        )
        for one in (gradient, np.zeros_like(gradient))
    ]
    return ends[0] - ends[1]


def _one_tensor_at_a_time(measured: Measurements) -> Outcome:
    """Long gradients in one coordinate and in one tensor at a time, against a zero gradient."""
    tensors, long = measured.tensors, 1e6 * measured.subject.clip_norm
    chosen = np.unique(np.linspace(0, len(tensors) - 1, min(len(tensors), _TENSORS)).astype(int))

    def changes() -> Iterator[Change]:
        axis = measured.along_axis(long)
        yield "A gradient of norm 1e+06 C in one coordinate", partial(_change, measured, axis)
        for tensor in (tensors[int(place)] for place in chosen):
            if tensor.size:
                gradient = measured.dense(long, np.arange(tensor.start, tensor.stop))
                name = f"A gradient of norm 1e+06 C in {tensor.name}"
                yield name, partial(_change, measured, gradient)

    return _changes(measured, changes(), **_TOTAL)


def _beside_others(measured: Measurements) -> Outcome:
    """A long gradient in the micro-batch of others that point in the opposite direction."""
    clip_norm = measured.subject.clip_norm
    long = measured.along_axis(1e6 * clip_norm)
    opposite = np.tile(measured.along_axis(-2 * clip_norm), (3, 1))
    name = "A gradient of norm 1e+06 C beside three other examples"
    return _changes(measured, [(name, partial(_change, measured, long, opposite))], **_TOTAL)


def _inserted_between(measured: Measurements) -> Outcome:
    """A record before and between others with long gradients, so that micro-batches shift."""
    clip_norm, subject = measured.subject.clip_norm, measured.subject
    count = max(3, min(_NEIGHBOURS, _MOST_NUMBERS // subject.parameters))
    others = np.random.default_rng(17).standard_normal((count, subject.parameters))
    others *= 1e3 * clip_norm / np.linalg.norm(others, axis=1, keepdims=True)
    others[1::2] = -others[: 2 * (count // 2) : 2]
    seed, steps = measured.seeds[0], measured.steps

    def change(place: float) -> Array:
        gradient = measured.along_axis(clip_norm)
        without = subject.output(None, seed, steps, companions=others)
        return subject.output(gradient, seed, steps, companions=others, place=place) - without

    changes: list[Change] = [
        (f"A record inserted {where} the others", partial(change, place))
        for where, place in (("before", 0.0), ("between", 0.5))
    ]
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
        Probe(name="beside opposite gradients", run=_beside_others, needs=_TOTAL_NEEDS),
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
            needs=_TOTAL_NEEDS,
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
    outcome = _with_entries(
        measured, {"an infinite entry": float(np.inf), "a NaN entry": float(np.nan)}
    )
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
    after=("bounded contribution",),
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


def _zero_gradient(measured: Measurements) -> Outcome:
    """Outputs with and without an example whose gradient is zero."""
    changed = measured.presence
    if not np.all(np.isfinite(changed)):
        return not_tested(
            f"A zero gradient makes the output infinite or NaN; see '{BOUNDED.name}'."
        )
    size = float(np.sqrt(np.mean(changed**2)))
    level = measured.noise_level()
    seen = {"measured": f"{size / (level or 1.0):.2g} x noise", "allowed": "no more than rounding"}
    if not measured.presence_counts:
        return passed(**seen)
    if level > 0 and size > level:
        return not_tested(
            "With one more example the training draws other noise under the same seed. This is no "
            "leak, but it hides this rule: draw the noise from a generator of its own.",
            **seen,
        )
    factor = _rescaling(measured)
    about = f", by a factor of about {1 + factor:.4g}" if factor else ""
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
        **seen,
    )


def _rescaling(measured: Measurements) -> float:
    """By how much the noise is rescaled, B / (B + 1) - 1 for a mean, from two seeds."""
    if not measured.noise_is_there:
        return 0.0
    zeros = np.zeros(measured.subject.parameters)
    with_example = measured.subject.output(zeros, measured.seeds[1], measured.steps)
    draws = measured.noise()
    between = draws[1] - draws[0]
    other = (with_example - measured.quiet)[measured.watched] - between
    rescaled = other - measured.presence[measured.watched]
    return float(rescaled @ between / (between @ between))


def _long_gradients(measured: Measurements) -> Outcome:
    """The noise beside many short gradients, and beside many long ones, under the same seeds."""
    short, error = _noise_beside(measured, _SHORT)
    long, more = _noise_beside(measured, _LONG)
    if not (np.all(np.isfinite(long)) and short @ short > 0):
        return not_tested("Outputs beside long gradients are not finite.")
    factor = float(long @ short / (short @ short))
    seen = {
        "measured": f"{factor:.4g} times",
        "allowed": f"{1 - _TOLERATED:g} to {1 + _TOLERATED:g} times",
    }
    if abs(factor - 1) <= _TOLERATED:
        return passed(**seen)
    # A public function of the noisy gradient, such as its normalisation, does not scale the noise
    # of two seeds by exactly the same factor.
    tolerance = min(1e-3, 0.2 / float(np.sqrt(len(short))))
    rest = float(np.linalg.norm(long - factor * short))
    if rest > tolerance * float(np.linalg.norm(long)) + abs(factor) * error + more:
        return not_tested(
            "Outputs vary by another amount beside long gradients, but not in proportion to the "
            "noise, as behind a public transform of the noisy gradient.",
            **seen,
        )
    return broken(
        f"With {_count(measured):,} long gradients in the batch, noise is {factor:.4g} times as "
        "large as with as many short ones: the batch decides the size of the noise.",
        **seen,
    )


def _count(measured: Measurements) -> int:
    return max(3, min(_COMPANIONS, _MOST_NUMBERS // measured.subject.parameters))


def _noise_beside(measured: Measurements, length: float) -> tuple[Array, float]:
    """The difference of two seeds beside many gradients of this norm, and its rounding error."""
    subject = measured.subject
    rows = np.random.default_rng(13).standard_normal((_count(measured), subject.parameters))
    rows *= length * subject.clip_norm / np.linalg.norm(rows, axis=1, keepdims=True)
    outputs = [
        subject.output(None, seed, measured.steps, companions=rows) for seed in measured.seeds[:2]
    ]
    rounding = 4 * measured.precision * max(float(np.linalg.norm(one)) for one in outputs)
    return outputs[0] - outputs[1], rounding + 2 * float(np.linalg.norm(measured.rounding))


def _empty_batch(measured: Measurements) -> Outcome:
    """The step on an array of no rows, under several seeds."""
    assert isinstance(measured.subject, StepSubject)
    rows = np.stack([measured.subject.empty_batch(seed) for seed in measured.seeds])
    if not np.all(np.isfinite(rows)):
        return broken(
            "On an empty batch the output is infinite or NaN, which can be observed.",
            measured="not finite",
            allowed="noise",
            **_EMPTY,
        )
    draws = centred(rows)[:, measured.watched]
    degrees = (len(rows) - 1) * draws.shape[1]
    usual = measured.noise_level()
    ratio = float(np.sqrt((draws**2).sum() / degrees)) / usual if usual else 1.0
    # A mean over the actual batch divides an empty one by 1, which another probe reports.
    least = 0.95 * float(np.sqrt(smallest_ratio(degrees, FALSE_ALARM))) - 0.02
    seen = {"measured": f"{ratio:.3g} x noise", "allowed": f"at least {least:.3g} x noise"}
    if ratio < least:
        return broken(
            f"On an empty batch noise is {ratio:.3g} times as large as on other batches.",
            **seen,
            **_EMPTY,
        )
    return passed(**seen)


_EMPTY = {
    "cause": "Empty batches of Poisson sampling are skipped: then noise in a step proves that the "
    "batch had an example.",
    "remedy": "Make the step with noise only; do not skip it.",
    "seen_in": "opacus #80 and loops that continue on empty batches",
}

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
            needs=(noise, same_output, one_step, clipping),
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
