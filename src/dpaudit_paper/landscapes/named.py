"""Landscapes by name, fitted to a process: what ``dpaudit landscape --shape`` means."""

from __future__ import annotations

from collections.abc import Callable

from dpaudit import _validate
from dpaudit_paper.landscapes.moving_threshold import fitted_moving_threshold
from dpaudit_paper.landscapes.process import (
    BatchLandscapes,
    Landscape,
    LandscapeProcess,
    decision_point,
)
from dpaudit_paper.landscapes.reading_wells import fitted_reading_wells
from dpaudit_paper.landscapes.shapes import Constant, Threshold, fitted_wells

_FITS: dict[str, Callable[[LandscapeProcess, float], Landscape | BatchLandscapes]] = {
    "threshold": lambda process, delta: Threshold(),
    "decision": lambda process, delta: Threshold(at=decision_point(process, delta=delta)),
    "moving-threshold": lambda process, delta: fitted_moving_threshold(process, delta=delta),
    "reading-wells": lambda process, delta: fitted_reading_wells(process, delta=delta),
    "wells": lambda process, delta: fitted_wells(process, delta=delta),
    "constant": lambda process, delta: Constant(),
    "literal": lambda process, delta: Threshold(away=False),
}
SHAPES = tuple(_FITS)
"""The names of landscapes."""


def named_landscape(
    shape: str, process: LandscapeProcess, *, delta: float = 1e-5
) -> Landscape | BatchLandscapes:
    """The landscape of that name, fitted to noise, batch size and delta where it has a choice.

    Arguments:
        shape: One of `SHAPES`.
        process: Gives noise, reach and period; its own landscape is not used.
        delta: Delta at which the landscape should keep epsilon.

    Example:
        >>> from dpaudit_paper.landscapes import Constant, LandscapeProcess
        >>> process = LandscapeProcess(
        ...     noise_multiplier=2, batch_size=8, steps=100, landscape=Constant()
        ... )
        >>> named_landscape("wells", process).knots.round(3)
        array([0.5  , 4.486])
    """
    _validate.one_of("shape", shape, SHAPES, remedy="or give a CSV file position,gradient")
    return _FITS[shape](process, delta)
