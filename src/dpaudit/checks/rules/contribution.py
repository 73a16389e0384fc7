"""Each example moves the sum by at most C: along one coordinate, spread out, in small pieces."""

from __future__ import annotations

import numpy as np

from dpaudit.checks.findings import Finding, Rule
from dpaudit.checks.measuring import Array, Measurements, Response
from dpaudit.checks.rules.judging import excess, hidden_by, in_units, why_not

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

_LENGTHS = (1.0, 10.0, 1e3, 1e6)
_HALF_UNDERFLOW = 1.6e-4  # its square rounds to zero in float16
_ADVERSARIAL = 24


def check_bounded(measured: Measurements, found: dict[str, Finding]) -> Finding:
    """Crafted gradients from C/1000 to a million C; in a step also many of random shape."""
    reason = why_not(measured)
    if reason:
        return Finding(rule=BOUNDED, verdict="could not tell", explanation=reason)
    clip_norm = measured.subject.clip_norm
    shares = [1e-3, *_LENGTHS] if measured.repeatable else [1e3, 1e6]
    seen = [measured.response(measured.along_axis(share * clip_norm)) for share in shares]
    lengths = list(shares)
    if measured.subject.noun == "private_step" and measured.repeatable:
        for gradient in _adversarial(measured):
            seen.append(measured.response(gradient))
            lengths.append(float(np.linalg.norm(gradient)) / clip_norm)
    worst = max(range(len(seen)), key=lambda i: excess(measured, seen[i]))
    cause, precedent = _likely(measured, dict(zip(lengths, seen, strict=True)))
    return _judged(
        measured,
        BOUNDED,
        seen[worst],
        broken=f"A gradient of norm {lengths[worst]:.3g} C contributes "
        f"{in_units(measured, seen[worst]):.4g} C. {cause}",
        seen_in=precedent,
    )


def check_whole_gradient(measured: Measurements, found: dict[str, Finding]) -> Finding:
    """One gradient, a million C long, with an equal share in every coordinate."""
    reason = why_not(measured) or hidden_by(found, BOUNDED)
    if reason:
        return Finding(rule=WHOLE_GRADIENT, verdict="could not tell", explanation=reason)
    seen = measured.response(measured.dense(1e6 * measured.subject.clip_norm))
    ratio = in_units(measured, seen)
    return _judged(
        measured,
        WHOLE_GRADIENT,
        seen,
        broken=f"Spread over all {measured.subject.parameters:,} parameters, an example "
        f"contributes {ratio:.4g} C, while along one coordinate it keeps to C.",
    )


def check_small_entries(measured: Measurements, found: dict[str, Finding]) -> Finding:
    """Entries so small that float16 squares them to zero, many enough to be longer than C."""
    reason = why_not(measured) or hidden_by(found, BOUNDED, WHOLE_GRADIENT)
    if reason:
        return Finding(rule=SMALL_ENTRIES, verdict="could not tell", explanation=reason)
    parameters, clip_norm = measured.subject.parameters, measured.subject.clip_norm
    gradients = [measured.dense(share * clip_norm) for share in (1.5, 3.0)]
    longest = _HALF_UNDERFLOW * np.sqrt(parameters)
    reaches = longest >= 1.2 * clip_norm
    if reaches:
        gradients.append(measured.dense(longest))
    seen = max(
        (measured.response(gradient) for gradient in gradients),
        key=lambda response: excess(measured, response),
    )
    note = (
        ""
        if reaches
        else f"With {parameters:,} parameters, entries that float16 squares to zero have norm "
        f"{longest:.2g} at most, less than C: nothing of theirs needs clipping."
    )
    return _judged(
        measured,
        SMALL_ENTRIES,
        seen,
        passed=note,
        broken=f"A gradient longer than C with entries of {_smallest(gradients):.2g} "
        f"contributes {in_units(measured, seen):.4g} C.",
    )


def _judged(
    measured: Measurements,
    rule: Rule,
    seen: Response,
    *,
    broken: str,
    passed: str = "",
    seen_in: str = "",
) -> Finding:
    ratio = in_units(measured, seen)
    blur = (seen.error + measured.unit.error) / measured.unit.size
    allowed = f"at most {1 + measured.slack:.4g} C"
    about = f"{ratio:.4g} C" if blur < 1e-3 else f"{ratio:.4g} C ± {blur:.2g} C"
    if not seen.finite:
        return Finding(
            rule=rule,
            verdict="broken",
            measured="not a number",
            allowed=allowed,
            explanation="The output is not a number any more.",
        )
    if excess(measured, seen) > 0:
        return Finding(
            rule=rule,
            verdict="broken",
            measured=about,
            allowed=allowed,
            explanation=broken,
            seen_in=seen_in,
        )
    if blur > 0.5:
        return Finding(
            rule=rule,
            verdict="could not tell",
            measured=about,
            allowed=allowed,
            explanation="Rounding or noise hides contributions of this size.",
        )
    return Finding(rule=rule, verdict="passed", measured=about, allowed=allowed, explanation=passed)


def _likely(measured: Measurements, seen: dict[float, Response]) -> tuple[str, str]:
    """The likely cause, from how the response grows with the gradient's length; a precedent."""
    largest = in_units(measured, seen[1e6])
    if not np.isfinite(largest):
        return "The output is not a number any more.", ""
    if measured.raw_share > 0.99:
        return (
            "It grows in proportion to the gradient: nothing is clipped. Is the DP optimizer in "
            "use, and is its clip norm C?",
            "opacus PR #664 (clip norm ignored), tf-privacy #72 (optimizer silently inactive)",
        )
    if largest > 100 * in_units(measured, seen[1e3]):
        return (
            f"It grows without limit, with weight {measured.raw_share:.3g}: the raw gradient is "
            "mixed into the private one.",
            "Differentially-Private-Deep-Learning #7",
        )
    if largest > 1 + measured.slack:
        return (
            f"It stops growing at {largest:.4g} C: the mean of a batch (or microbatch) is clipped "
            "instead of each example, or gradients are clipped to another norm than the claimed.",
            "APPFL #349, tf-privacy #81 (means of microbatches)",
        )
    return "Gradients of some shapes are clipped too little.", ""


def _adversarial(measured: Measurements) -> list[Array]:
    """Gradients of many shapes and lengths, the same ones every time."""
    random = np.random.default_rng(11)
    parameters, clip_norm = measured.subject.parameters, measured.subject.clip_norm
    gradients = []
    for length in np.geomspace(1e-4, 1e12, _ADVERSARIAL):
        entries = random.standard_normal(parameters) * 10.0 ** random.uniform(-6, 0, parameters)
        entries *= random.random(parameters) < random.choice([0.02, 0.3, 1.0])
        entries[random.integers(parameters)] += 1.0
        gradients.append(entries * (length * clip_norm / np.linalg.norm(entries)))
    return gradients


def _smallest(gradients: list[Array]) -> float:
    return float(min(np.abs(gradient).max() for gradient in gradients))
