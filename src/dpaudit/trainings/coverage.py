"""Parameters that a training changes outside its private optimizer.

An integration sees them while a training runs, and reports them here. An audit collects the reports
of its first trainings: it cannot call a training consistent if part of the model has no privacy.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

_collected: ContextVar[dict[str, None] | None] = ContextVar("collected", default=None)


class UncoveredParameters(UserWarning):
    """Parameters are trained outside the private optimizer."""


@contextmanager
def collecting() -> Iterator[dict[str, None]]:
    """Collect the names of reported parameters, in order, instead of warning about them."""
    found: dict[str, None] = {}
    token = _collected.set(found)
    try:
        yield found
    finally:
        _collected.reset(token)


def report_uncovered(names: Sequence[str]) -> None:
    """Report parameters that changed and that the private optimizer does not train.

    Arguments:
        names: Names of the parameters.
    """
    found = _collected.get()
    if found is not None:
        found.update(dict.fromkeys(names))
    elif names:
        warnings.warn(uncovered_sentence(names), UncoveredParameters, stacklevel=3)


def uncovered_sentence(names: Sequence[str]) -> str:
    """What it means that these parameters were trained elsewhere."""
    shown = ", ".join(list(names)[:5]) + (", ..." if len(names) > 5 else "")
    return (
        f"The private optimizer does not train {shown}, but the training changes them: they have "
        "neither clipping nor noise, and no canary tests them. Freeze them, or give them to the "
        "private optimizer."
    )
