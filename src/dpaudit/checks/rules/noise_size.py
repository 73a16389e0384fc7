"""Noise is there, and as large as the claim says, measured in contributions of norm C."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from dpaudit.checks.arithmetic import Array
from dpaudit.checks.findings import Finding, Rule
from dpaudit.checks.limits import FALSE_ALARM, largest_ratio, smallest_ratio
from dpaudit.checks.measuring import Measurements

THERE = Rule(
    name="noise is there",
    promise="Every trained parameter gets noise, and other noise under another seed.",
    cause="Noise is not added, or not to every tensor, or its generator is seeded with a constant.",
    remedy="Add noise to the clipped sum of every tensor, from a generator that `seed` decides.",
    seen_in="tf-privacy #72 (DP optimizer silently inactive)",
)
SIZE = Rule(
    name="noise size",
    promise="Noise has standard deviation of at least sigma C on the sum of clipped gradients.",
    cause="Noise for the mean is added to the sum, or noise is divided once too often (by the "
    "batch size, by accumulation steps, by workers), or C or sigma is not what was claimed.",
    remedy="Add N(0, sigma^2 C^2) once to the sum of clipped gradients, then divide both.",
    seen_in="Tramer et al. 2022 (arXiv 2202.12219), jax_privacy #383",
)

_BLOCKS = 8
_VISIBLE = 20.0  # times the rounding: what must be seen, if it is there
_TOLERATED = 0.01  # of the standard deviation: measured contributions are rounded too


@final
@dataclass(frozen=True, kw_only=True)
class NoiseSize:
    """Noise relative to what sigma C would give: squares over their expectation.

    Arguments:
        ratio: Over all coordinates that were looked at.
        degrees: Degrees of freedom of ``ratio``.
        blocks: The same for eight stretches of neighbouring coordinates.
        block_degrees: Degrees of freedom of each of ``blocks``.
        blur: Relative error of the unit that noise is measured in.
    """

    ratio: float
    degrees: int
    blocks: Array
    block_degrees: Array
    blur: float


def noise_size(
    measured: Measurements, steps: int | None = None, *, with_example: bool = False
) -> NoiseSize | None:
    """Noise in units of sigma C, or `None` where contributions cannot be measured.

    Arguments:
        measured: The measurements.
        steps: After so many steps.
        with_example: Measure the noise of batches with one more example, where the size of a batch
            changes the scale of everything.
    """
    scaled = measured.scales(steps)
    if scaled is None:
        return None
    scales, blur = scaled
    steps = measured.steps if steps is None else steps
    insertions = measured.insertions if steps == measured.steps else steps
    trained = scales > 0
    columns = np.searchsorted(measured.watched, measured.spread[trained])
    noise = (measured.noise_with_example if with_example else measured.noise(steps))[:, columns]
    expected = scales[trained] / insertions * np.sqrt(steps) * measured.subject.noise_multiplier
    freedom = len(noise) - 1
    squares = ((noise / expected) ** 2).sum(axis=0)
    pieces = np.array_split(squares, min(_BLOCKS, len(squares)))
    return NoiseSize(
        ratio=float(squares.sum() / (freedom * len(squares))),
        degrees=freedom * len(squares),
        blocks=np.array([piece.mean() / freedom for piece in pieces]),
        block_degrees=np.array([freedom * len(piece) for piece in pieces]),
        blur=blur,
    )


def check_there(measured: Measurements, found: dict[str, Finding]) -> Finding:
    """Look for coordinates that a canary moves and a seed does not."""
    told = {"allowed": "all trained"}
    if not measured.noise_is_there:
        return _check_silence(measured)
    scaled = measured.scales()
    if scaled is None or not measured.repeatable:
        return Finding(rule=THERE, verdict="passed", measured="some", **told)
    trained = measured.spread[scaled[0] > 0]
    columns = np.searchsorted(measured.watched, trained)
    spread = np.sqrt(np.mean(measured.noise()[:, columns] ** 2, axis=0))
    # A millionth of what is claimed is no noise; anything between is a matter of size.
    claimed = scaled[0][scaled[0] > 0] * measured.subject.noise_multiplier / measured.insertions
    silent = spread <= np.maximum(measured.rounding[trained], 1e-6 * claimed)
    silent &= claimed > _VISIBLE * measured.rounding[trained]
    share = float(silent.mean())
    told["measured"] = "all" if share == 0 else f"{1 - share:.3g} of all"
    if share > 0:
        return Finding(
            rule=THERE,
            verdict="broken",
            explanation=f"{int(silent.sum()):,} of {len(trained):,} trained parameters get no "
            f"noise, the first of them at place {int(trained[silent][0]):,}.",
            **told,
        )
    return Finding(rule=THERE, verdict="passed", **told)


def _check_silence(measured: Measurements) -> Finding:
    """No noise was seen: is there none, or does rounding hide it?"""
    floor = float(np.sqrt(np.mean(measured.rounding**2)))
    claimed = measured.unit.size * measured.subject.noise_multiplier * np.sqrt(measured.steps)
    if not measured.unit.known or claimed / measured.insertions <= _VISIBLE * floor:
        return Finding(
            rule=THERE,
            verdict="could not tell",
            measured="none",
            allowed="all trained",
            explanation="Neither noise nor canary rises above the rounding of the parameters. Take "
            "a larger learning rate for the check, return float64, or return how far the "
            "parameters moved.",
        )
    return Finding(
        rule=THERE,
        verdict="broken",
        measured="none",
        allowed="all trained",
        explanation="All seeds give the same parameters: no noise, or always the same.",
    )


def check_size(measured: Measurements, found: dict[str, Finding]) -> Finding:
    """Chi-square limits on noise over all coordinates, and over stretches of them."""
    if found[THERE.name].verdict != "passed":
        return _unknown(f"See '{THERE.name}' first.")
    for name in ("noise differs between runs", "noise differs between parameters"):
        if found[name].verdict == "broken":
            return _unknown(f"Put '{name}' right first: size is judged by independent noise.")
    if 1e-5 < measured.raw_share < 0.9:
        return _unknown("The raw gradient gets through too: nothing has norm C to compare with.")
    if not measured.repeatable:
        return _unknown("The same seed must give the same output for this.")
    rescaled = (
        found["batch size stays private"].verdict != "passed"
        and measured.steps == 1
        and bool(np.all(np.isfinite(measured.presence)))
    )
    size = noise_size(measured, with_example=rescaled)
    if size is None:
        reason = measured.unit.why_not if not measured.unit.known else "rounding hides the canary"
        return _unknown(f"Nothing to compare the noise with: {reason}.")
    sigma = measured.subject.noise_multiplier
    low = smallest_ratio(size.degrees, FALSE_ALARM / 2)
    high = largest_ratio(size.degrees, FALSE_ALARM / 2) * _dynamics(measured)
    give = (1 + _TOLERATED + size.blur) ** 2
    seen = sigma * np.sqrt(size.ratio)
    told = {
        "measured": f"sigma {seen:.4g}",
        "allowed": f"{sigma * np.sqrt(low / give):.4g} to {sigma * np.sqrt(high * give):.4g}",
    }
    if size.ratio < low / give:
        return Finding(
            rule=SIZE,
            verdict="broken",
            explanation=f"Noise is {np.sqrt(size.ratio):.3g} times as large as the claim says.",
            **told,
        )
    worst = _smallest_block(size, give)
    if worst is not None:
        return Finding(
            rule=SIZE,
            verdict="broken",
            explanation=f"In a part of the parameters noise is only {np.sqrt(worst):.3g} times as "
            "large as the claim says.",
            **told,
        )
    if size.ratio > high * give:
        return Finding(rule=SIZE, verdict="warning", explanation=_too_large(measured, size), **told)
    return Finding(rule=SIZE, verdict="passed", **told)


def varies_too_much(measured: Measurements) -> bool:
    """Whether outputs vary more than the claimed noise: then it may not be noise alone."""
    size = noise_size(measured)
    if size is None:
        return True
    high = largest_ratio(size.degrees, FALSE_ALARM / 2) * _dynamics(measured)
    return size.ratio > high * (1 + _TOLERATED + size.blur) ** 2


def _dynamics(measured: Measurements) -> float:
    """How much more variance than T single steps have is no waste.

    Momentum spreads a step over the following ones, which makes noise larger relative to the
    response by sqrt(4/3) at most.
    """
    return 1.0 if measured.steps == 1 else 1.2**2


def _smallest_block(size: NoiseSize, give: float) -> float | None:
    """The ratio of a stretch with too little noise, if there is one."""
    level = FALSE_ALARM / 2 / len(size.blocks)
    limits = np.array([smallest_ratio(int(degrees), level) for degrees in size.block_degrees])
    short = size.blocks < limits / give
    return float(size.blocks[short].min()) if short.any() else None


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
            "unevenly: more than the noise depends on the seed. Keep the starting point, the data "
            "and the batches fixed, and this rule becomes sharp."
        )
    square = measured.subject.clip_norm
    if abs(times / square - 1) < 0.05:
        return (
            f"Noise is {times:.3g} times as large as claimed, which is C: its standard deviation "
            "is sigma C^2. Wasteful, not a leak (seen in SPRINT_gan #5)."
        )
    return (
        f"Noise is {times:.3g} times as large as claimed, or more than the noise depends on the "
        "seed. Wasteful, not a leak."
    )


def _unknown(reason: str) -> Finding:
    return Finding(rule=SIZE, verdict="could not tell", explanation=reason)
