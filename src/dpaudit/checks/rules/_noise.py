"""The size of the noise, in units of what noise of standard deviation sigma C would be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from dpaudit._arrays import Array
from dpaudit.checks.limits import FALSE_ALARM, largest_ratio
from dpaudit.checks.measuring import Measurements
from dpaudit.checks.sampling import larger_sample

TOLERATED = 0.01
"""Relative error that is allowed in a standard deviation: contributions are rounded too."""


@final
@dataclass(frozen=True, kw_only=True)
class NoiseSize:
    """Noise relative to sigma C: sums of squares over their expectation.

    Arguments:
        ratio: Over all coordinates that were measured.
        degrees: Degrees of freedom of ``ratio``.
        names: Names of the tensors that are looked at one by one.
        blocks: The same for each of them.
        block_degrees: Degrees of freedom of each of ``blocks``.
        blur: Relative error of the unit in which noise is measured.
    """

    ratio: float
    degrees: int
    names: tuple[str, ...]
    blocks: Array
    block_degrees: Array
    blur: float


def noise_size(
    measured: Measurements,
    steps: int | None = None,
    *,
    with_example: bool = False,
    sample: tuple[int, int] | None = None,
) -> NoiseSize | None:
    """Noise in units of sigma C, or `None` where contributions cannot be measured.

    Arguments:
        measured: The measurements.
        steps: Number of steps after which noise is measured.
        with_example: Whether to measure the noise of batches with one more example, where the
            batch size changes the scale of everything.
        sample: Wanted size of the sample, as in `larger_sample`; that of all rules by default.
    """
    scaled = measured.scales(steps)
    if scaled is None:
        return None
    scales, blur = scaled
    steps = measured.steps if steps is None else steps
    insertions = measured.insertions if steps == measured.steps else steps
    trained = scales > 0
    columns = measured.columns(measured.spread[trained])
    if with_example:
        noise = measured.noise_with_example[:, columns]
    elif sample is not None and steps == measured.steps:
        noise = larger_sample(measured, sample)[:, columns]
    else:
        noise = measured.noise(steps)[:, columns]
    expected = scales[trained] / insertions * np.sqrt(steps) * measured.subject.noise_multiplier
    freedom = len(noise) - 1
    squares = ((noise / expected) ** 2).sum(axis=0)
    parts = _parts(measured, measured.spread[trained])
    pieces = [squares[part] for part in parts.values()]
    return NoiseSize(
        ratio=float(squares.sum() / (freedom * len(squares))),
        # Behind a public linear map the coordinates are not independent of each other.
        degrees=freedom if measured.mixes else freedom * len(squares),
        names=() if measured.mixes else tuple(parts),
        blocks=np.array([piece.mean() / freedom for piece in pieces]),
        block_degrees=np.array([freedom * len(piece) for piece in pieces]),
        blur=blur,
    )


def _parts(measured: Measurements, places: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
    """The positions in ``places`` of the coordinates of each tensor."""
    parts = {
        tensor.name: np.flatnonzero((places >= tensor.start) & (places < tensor.stop))
        for tensor in measured.tensors
    }
    return {name: part for name, part in parts.items() if len(part)}


def varies_too_much(measured: Measurements) -> bool:
    """Whether outputs vary more than the claimed noise: then not only the noise may vary."""
    size = noise_size(measured)
    if size is None:
        return True
    high = largest_ratio(size.degrees, FALSE_ALARM / 2) * dynamics(measured)
    return size.ratio > high * (1 + TOLERATED + size.blur) ** 2


def dynamics(measured: Measurements) -> float:
    """Factor of the variance that several steps may add.

    Momentum spreads a step over the following ones, which makes noise larger relative to the
    response by sqrt(4/3) at most.
    """
    return 1.0 if measured.steps == 1 else 1.2**2
