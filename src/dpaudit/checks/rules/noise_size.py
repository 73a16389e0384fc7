"""Noise is as large as claimed, measured in contributions of norm C."""

from __future__ import annotations

import numpy as np

from dpaudit.checks.findings import Finding, Rule
from dpaudit.checks.limits import FALSE_ALARM, largest_ratio, smallest_ratio
from dpaudit.checks.measuring import Measurements
from dpaudit.checks.rules import _noise
from dpaudit.checks.rules._needs import readable, same_output
from dpaudit.checks.rules._noise import NoiseSize, dynamics, noise_size
from dpaudit.checks.rules.base import Check, Found
from dpaudit.checks.sampling import FIRST_LOOK, SECOND_LOOK, SUSPICIOUS

RULE = Rule(
    name="noise size",
    requirement="Noise has standard deviation of at least sigma C on the sum of clipped gradients.",
    cause="Noise for the mean is added to the sum, or noise is divided once too often (by the "
    "batch size, by accumulation steps, by workers), or C or sigma is not what was claimed.",
    remedy="Add N(0, sigma^2 C^2) once to the sum of clipped gradients, then divide both.",
    seen_in="Tramer et al. 2022 (arXiv 2202.12219), jax_privacy #383",
)


def check(measured: Measurements, found: Found) -> Finding:
    """Chi-square limits on noise over all coordinates, and over blocks of them."""
    if 1e-5 < measured.raw_share < 0.9:
        return RULE.unknown("Part of the raw gradient gets through: there is no contribution of C.")
    rescaled = (
        found["zero-gradient"].verdict != "passed"
        and measured.steps == 1
        and bool(np.all(np.isfinite(measured.presence)))
    )
    size = _measured_size(measured, with_example=rescaled)
    if size is None:
        return RULE.unknown(f"Nothing to compare the noise with: {_why_no_size(measured)}.")
    sigma = measured.subject.noise_multiplier
    low = smallest_ratio(size.degrees, FALSE_ALARM / 2)
    high = largest_ratio(size.degrees, FALSE_ALARM / 2) * dynamics(measured)
    give = (1 + _noise.TOLERATED + size.blur) ** 2
    seen = {
        "measured": f"sigma {sigma * np.sqrt(size.ratio):.4g}",
        "allowed": f"{sigma * np.sqrt(low / give):.4g} to {sigma * np.sqrt(high * give):.4g}",
    }
    if size.ratio < low / give:
        return RULE.broken(
            f"Noise is {np.sqrt(size.ratio):.3g} times as large as the claim says.", **seen
        )
    short = _short_tensors(size, give, FALSE_ALARM / 2)
    if short:
        return RULE.broken(
            "In some tensors noise is smaller than the claim says: "
            + ", ".join(f"{name} ({np.sqrt(ratio):.3g} times)" for name, ratio in short.items())
            + ".",
            **seen,
        )
    if size.ratio > high * give and measured.steps > 1:
        return RULE.unknown(
            f"Outputs vary {np.sqrt(size.ratio):.3g} times as much as {measured.steps} steps with "
            "noise of their own would: the starting point may depend on the seed, or the same "
            "noise is added in every step, which is a leak. Let train take `steps`.",
            **seen,
        )
    if size.ratio > high * give:
        return RULE.warning(_too_large(measured, size), **seen)
    return RULE.passed(**seen)


def _why_no_size(measured: Measurements) -> str:
    if not measured.unit.known:
        return measured.unit.why_not
    if measured.steps > 1 or measured.mixes:
        return (
            "gradients of the same norm have effects that differ by more than 10 %, or rounding "
            "hides them; let train take `steps`, so that one step can be checked"
        )
    return "rounding hides the canary"


def _measured_size(measured: Measurements, *, with_example: bool) -> NoiseSize | None:
    """The size from a first sample; from a larger one if the first looks too small."""
    size = noise_size(measured, with_example=with_example, sample=FIRST_LOOK)
    if size is None or with_example:
        return size
    small = size.ratio < smallest_ratio(size.degrees, SUSPICIOUS)
    if small or _short_tensors(size, 1.0, SUSPICIOUS):
        return noise_size(measured, sample=SECOND_LOOK)
    return size


def _short_tensors(size: NoiseSize, give: float, level: float) -> dict[str, float]:
    """The tensors with too little noise at a level, with the ratio of their variance."""
    level /= len(size.blocks)
    parts = zip(size.names, size.blocks, size.block_degrees, strict=False)
    return {
        name: float(ratio)
        for name, ratio, degrees in parts
        if ratio < smallest_ratio(int(degrees), level) / give
    }


def _too_large(measured: Measurements, size: NoiseSize) -> str:
    times = float(np.sqrt(size.ratio))
    level = FALSE_ALARM / 2 / len(size.blocks)
    uneven = any(
        not smallest_ratio(int(degrees), level) <= block / size.ratio
        or not block / size.ratio <= largest_ratio(int(degrees), level)
        for block, degrees in zip(size.blocks, size.block_degrees, strict=True)
    )
    if uneven:
        return (
            f"Outputs vary {times:.3g} times as much from seed to seed as the noise should, and "
            "unevenly: more than the noise depends on the seed. This rule becomes sharp if the "
            "starting point, the data and the batches are the same for all seeds."
        )
    if abs(times / measured.subject.clip_norm - 1) < 0.05:
        return (
            f"Noise of one step is {times:.3g} times as large as claimed, which is C: its standard "
            "deviation is sigma C^2 (seen in SPRINT_gan #5). This costs accuracy, not privacy."
        )
    return (
        f"Outputs of one step vary {times:.3g} times as much from seed to seed as the claimed "
        "noise. Either the noise is larger than claimed, which costs accuracy but not privacy, or "
        "something else depends on the seed too, such as the batches; then noise that is too "
        "small cannot be seen. Use the same starting point, data and batches for all seeds."
    )


CHECK = Check(
    rule=RULE,
    run=check,
    after=("noise-between-runs", "noise-between-parameters"),
    passed=("noise-presence",),
    needs=(readable, same_output),
)
