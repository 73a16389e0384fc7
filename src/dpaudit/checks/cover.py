"""How large the noise is where short gradients are scaled down.

Automatic clipping and public maps make contributions and noise larger than what short gradients
suggest. Only the ratio of the two matters for privacy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dpaudit._arrays import Array
from dpaudit.checks.subject import StepSubject

if TYPE_CHECKING:
    from dpaudit.checks.measuring import Measurements

_ADAPTIVE = 1e3
_FEW = 6  # seeds, for an estimate that need not be sharp


def cover_of_unit(measured: Measurements) -> float:
    """How many times as large as claimed the noise is, relative to the unit along the axis."""
    scaled = measured.scales() if measured.repeatable and measured.unit.known else None
    if scaled is None or not measured.noise_is_there:
        return 1.0
    tensor = measured.tensor_at(measured.axis)
    places = measured.spread
    near = (places >= tensor.start) & (places < tensor.stop) & (scaled[0] > 0)
    around = float(np.median(scaled[0][near])) if near.any() else measured.unit.size
    return measured.cover_of_scales * around / measured.unit.size


def cover_of_scales(measured: Measurements) -> float:
    """The same relative to the scales of all coordinates.

    In a training, noise is read from the third step less the second, so that a random starting
    point does not count as noise.
    """
    scaled, subject = measured.scales(), measured.subject
    if scaled is None or not (scaled[0] > 0).any():
        return 1.0
    trained = scaled[0] > 0
    places, claimed = measured.spread[trained], subject.noise_multiplier * scaled[0][trained]
    if isinstance(subject, StepSubject):
        noise = measured.noise()[:, measured.columns(places)]
        return _deviation(noise / claimed)
    if not subject.steps_can_vary or subject.places_per_step is None:
        return 1.0
    outputs = [
        np.stack([subject.output(None, seed, steps)[places] for seed in measured.seeds[:_FEW]])
        for steps in (1, 2, 3)
    ]
    gradient = measured.along_axis(0.1 * subject.clip_norm)
    second, third = (
        [
            subject.output(sign * gradient, measured.seeds[0], steps, only=1)[measured.axis]
            for sign in (0.5, -0.5)
        ]
        for steps in (2, 3)
    )
    own = second[0] - second[1]
    if not own:
        return 1.0
    carried = (third[0] - third[1]) / own - 1  # by momentum, from the second step to the third
    noise = outputs[2] - outputs[1] - carried * (outputs[1] - outputs[0])
    growth = abs(own) / (0.1 * measured.unit.size)
    if not 1 / _ADAPTIVE < growth < _ADAPTIVE:
        return float(np.inf)  # short gradients in one step say nothing about another: Adam
    return _deviation(noise / claimed) / float(growth)


def _deviation(values: Array) -> float:
    """Standard deviation over rows, pooled over columns."""
    return float(np.sqrt(values.var(axis=0, ddof=1).mean()))
