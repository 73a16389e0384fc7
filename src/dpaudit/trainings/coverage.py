"""Changes of parameters that no canary tests, because they are made outside a private optimizer.

An integration sees them while a training runs, and reports them here. An audit collects the reports
of its first trainings: it cannot call a training consistent if part of it has no privacy.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

_collected: ContextVar[dict[str, None] | None] = ContextVar("collected", default=None)


class UncoveredParameters(UserWarning):
    """Parameters are changed outside the private optimizer."""


@contextmanager
def collecting() -> Iterator[dict[str, None]]:
    """Collect the reports, as sentences in their order, instead of warning about them."""
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
    if names:
        shown = ", ".join(list(names)[:5]) + (", ..." if len(names) > 5 else "")
        _report(
            f"The private optimizer does not train {shown}, but the training changes them: they "
            "have neither clipping nor noise, and no canary tests them. Freeze them, or give them "
            "to the private optimizer."
        )


def report_change_between_steps() -> None:
    """Report that the training changed private parameters between two private steps."""
    _report(
        "Between the steps of the private optimizer, the training changes the parameters that it "
        "trains. No canary tests these changes: if they use gradients or losses of the data, they "
        "have neither clipping nor noise. Make them after training, or audit the noisy gradients "
        "without them."
    )


def _report(sentence: str) -> None:
    found = _collected.get()
    if found is not None:
        found[sentence] = None
    else:
        warnings.warn(sentence, UncoveredParameters, stacklevel=4)
