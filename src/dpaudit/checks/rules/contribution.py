"""Each example moves the sum by at most C: along one coordinate, spread out, in small pieces."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dpaudit.checks.arithmetic import Array
from dpaudit.checks.findings import Finding, Rule
from dpaudit.checks.measuring import Measurements
from dpaudit.checks.rules.judging import (
    Contribution,
    contribution,
    hidden_by,
    judged,
    largest,
    why_not,
)

BOUNDED = Rule(
    name="bounded contribution",
    promise="However long an example's gradient is, it moves the sum by at most C.",
    cause="",
    remedy="Clip the gradient of each example on its own, before anything is summed or averaged.",
    seen_in="opacus PR #664, tf-privacy #72",
)
WHOLE_GRADIENT = Rule(
    name="one norm for the whole gradient",
    promise="A gradient spread over all parameters moves the sum by at most C in total.",
    cause="Each parameter tensor, or each entry, is clipped to C on its own, where the claim is "
    "about the whole gradient: with K tensors an example contributes up to sqrt(K) C.",
    remedy="Clip by the norm over all tensors together, or give each tensor C / sqrt(K).",
    seen_in="fedbiomed #1443",
)
SMALL_ENTRIES = Rule(
    name="small entries add up",
    promise="Many small entries are clipped as what they are together.",
    cause="Squares of small entries underflow to zero in half precision, or get lost in a long "
    "sum, so that the norm is too small and too little is clipped.",
    remedy="Compute norms in float32, whatever type the gradients are in.",
    seen_in="jax_privacy PR #309",
)

_LENGTHS = (1e-3, 1.0, 10.0, 1e3, 1e6)
_AVERAGED_LENGTHS = (1e3, 1e6)
_HALF_UNDERFLOW = 1.6e-4  # its square rounds to zero in float16


def check_bounded(measured: Measurements, found: dict[str, Finding]) -> Finding:
    """Crafted gradients along one axis, from a thousandth of C to a million C."""
    reason = why_not(measured)
    if reason:
        return Finding(rule=BOUNDED, verdict="could not tell", explanation=reason)
    lengths = _LENGTHS if measured.repeatable else _AVERAGED_LENGTHS
    unit, clip_norm = measured.unit, measured.subject.clip_norm
    seen = {
        length: contribution(measured, measured.along_axis(length * clip_norm), unit)
        for length in lengths
    }
    worst = largest(seen.values())
    if worst is None or worst.excess <= 0:
        return judged(BOUNDED, worst, broken="")
    cause, precedent = _likely(measured, seen)
    return judged(
        BOUNDED,
        worst,
        broken=f"A gradient of norm {worst.length:.3g} C contributes {worst.words}. {cause}",
        seen_in=precedent,
    )


def check_whole_gradient(measured: Measurements, found: dict[str, Finding]) -> Finding:
    """A gradient, a million C long, with a share in every coordinate; in a step, many shapes."""
    reason = why_not(measured) or hidden_by(found, BOUNDED)
    if reason:
        return Finding(rule=WHOLE_GRADIENT, verdict="could not tell", explanation=reason)
    gradients = [measured.dense(1e6 * measured.subject.clip_norm)]
    gradients += _shapes(measured, lengths=np.geomspace(1e3, 1e12, 12))
    worst = largest(contribution(measured, gradient) for gradient in gradients)
    size = "" if worst is None else worst.words
    return judged(
        WHOLE_GRADIENT,
        worst,
        broken=f"Spread over many of the {measured.subject.parameters:,} parameters, an example "
        f"contributes at least {size}, while along one coordinate it keeps to C.",
    )


def check_small_entries(measured: Measurements, found: dict[str, Finding]) -> Finding:
    """Entries so small that float16 squares them to zero, many enough to be longer than C."""
    reason = why_not(measured) or hidden_by(found, BOUNDED, WHOLE_GRADIENT)
    if reason:
        return Finding(rule=SMALL_ENTRIES, verdict="could not tell", explanation=reason)
    parameters, clip_norm = measured.subject.parameters, measured.subject.clip_norm
    gradients = [measured.dense(share * clip_norm) for share in (1.5, 3.0)]
    longest = _HALF_UNDERFLOW * float(np.sqrt(parameters))
    reaches = longest >= 1.2 * clip_norm
    if reaches:
        gradients.append(measured.dense(longest))
    gradients += _shapes(measured, lengths=np.geomspace(1.05, 100, 12))
    unit = measured.unit_along(gradients[0])
    worst = largest(
        contribution(measured, gradient, unit if place < 2 + reaches else None)
        for place, gradient in enumerate(gradients)
    )
    note = (
        ""
        if reaches
        else f"With {parameters:,} parameters, entries that float16 squares to zero have norm "
        f"{longest:.2g} at most: too short for C = {clip_norm:g} to be clipped at all."
    )
    return judged(
        SMALL_ENTRIES,
        worst,
        passed=note,
        broken=""
        if worst is None
        else f"A gradient of norm {worst.length:.3g} C, made of many "
        f"small entries, contributes {worst.words}.",
    )


def _likely(measured: Measurements, seen: Mapping[float, Contribution | None]) -> tuple[str, str]:
    """The likely cause, from how the response grows with the gradient's length; a precedent."""
    sizes = {length: one.size for length, one in seen.items() if one is not None}
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


def _shapes(measured: Measurements, *, lengths: Array) -> list[Array]:
    """Gradients of many shapes, the same ones every time; none where each costs a training."""
    if measured.subject.noun != "private_step" or not measured.repeatable:
        return []
    random = np.random.default_rng(11)
    parameters, clip_norm = measured.subject.parameters, measured.subject.clip_norm
    gradients = []
    for length in lengths:
        entries = random.standard_normal(parameters) * 10.0 ** random.uniform(-6, 0, parameters)
        entries *= random.random(parameters) < random.choice([0.02, 0.3, 1.0])
        entries[random.integers(parameters)] += 1.0
        gradients.append(entries * (length * clip_norm / np.linalg.norm(entries)))
    return gradients
