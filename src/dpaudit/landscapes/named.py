r"""Landscapes by name, fitted to a process: what ``--shape`` and ``--width`` mean.

All fits use the decision point. A test at (epsilon, delta) rejects where the likelihood ratio of
the first step exceeds :math:`e^\epsilon`, that is beyond the *decision point*
:math:`C/2 + \epsilon\sigma^2 C`. A landscape that keeps the two sides of that point apart
keeps the whole epsilon at this delta.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from dpaudit import _validate
from dpaudit.errors import InvalidInput
from dpaudit.landscapes.clock import fitted_clock
from dpaudit.landscapes.composition import decision_point
from dpaudit.landscapes.escalator import fitted_escalator
from dpaudit.landscapes.landscapes import Constant, Literal, Staircase, Threshold, Wells
from dpaudit.landscapes.moving_threshold import fitted_moving_threshold
from dpaudit.landscapes.reading_wells import fitted_reading_wells
from dpaudit.mechanisms.landscape import BatchLandscapes, Landscape, LandscapeProcess

WELL_WIDTH = 12.0  # in step-noise deviations: half of it is overstepped once in 10^9 steps
LANDING = 7.0  # in first-step deviations: the first step ends beyond it once in 10^12 runs


def fitted_wells(process: LandscapeProcess, *, delta: float = 1e-5) -> Wells:
    """Wells as narrow as the later noise allows, with an edge at the decision point."""
    span = max(decision_point(process, delta=delta) - 0.5, 1e-3 * process.step_noise)
    return Wells(width=span / max(1, math.floor(span / (WELL_WIDTH * process.step_noise))))


def fitted_staircase(
    process: LandscapeProcess, *, delta: float = 1e-5, cell: float | None = None
) -> Staircase:
    """As many wells as one jump can reach, cells as fine as that number allows."""
    decision = decision_point(process, delta=delta)
    landing = max(LANDING * process.noise_multiplier, decision + 0.5)
    spacing = WELL_WIDTH * process.step_noise
    cells = max(1, math.floor((process.reach - landing) / spacing + 0.5))
    if cell is None and cells == 1:
        # Only one bit can be kept: the side of the decision point.
        return Staircase(cell=landing, cells=1, spacing=spacing, landing=landing, at=decision)
    if cell is None:
        # Edges at 0, cell, …, (cells - 1) cell: the last of them is the decision point.
        cell = max(decision - 0.5, 1e-3 * spacing) / (cells - 1)
    cells = max(1, min(cells, math.floor(landing / cell)))
    return Staircase(cell=min(cell, landing), cells=cells, spacing=spacing, landing=landing)


_FITS: dict[str, Callable[[LandscapeProcess, float], Landscape | BatchLandscapes]] = {
    "threshold": lambda process, delta: Threshold(),
    "decision": lambda process, delta: Threshold(at=decision_point(process, delta=delta)),
    "literal": lambda process, delta: Literal(),
    "constant": lambda process, delta: Constant(),
    "wells": lambda process, delta: fitted_wells(process, delta=delta),
    "staircase": lambda process, delta: fitted_staircase(process, delta=delta),
    "clock": lambda process, delta: fitted_clock(process),
    "escalator": lambda process, delta: fitted_escalator(process, delta=delta),
    "moving-threshold": lambda process, delta: fitted_moving_threshold(process, delta=delta),
    "reading-wells": lambda process, delta: fitted_reading_wells(process, delta=delta),
}
SHAPES = tuple(_FITS)
"""The names of landscapes."""


def named_landscape(
    shape: str, process: LandscapeProcess, *, delta: float = 1e-5, width: float | None = None
) -> Landscape | BatchLandscapes:
    """The landscape of that name, fitted to noise, batch size and delta where it has a choice.

    Arguments:
        shape: One of `SHAPES`.
        process: Gives noise, reach and period; its own landscape is not used.
        delta: Delta of the decision point.
        width: Width of a well, or of a staircase's cell, in units of C.

    Example:
        >>> process = LandscapeProcess(
        ...     noise_multiplier=2, batch_size=8, steps=100, landscape=Constant()
        ... )
        >>> round(named_landscape("wells", process).width, 3)
        3.986
    """
    _validate.one_of("shape", shape, SHAPES, remedy="or give a CSV file position,gradient")
    if width is None:
        return _FITS[shape](process, delta)
    _validate.positive("width", width)
    if shape == "wells":
        return Wells(width=width)
    if shape == "staircase":
        return fitted_staircase(process, delta=delta, cell=width)
    raise InvalidInput(
        f"width must be left out for shape {shape!r}, got {width!r}; only wells and staircase "
        "have a width"
    )
