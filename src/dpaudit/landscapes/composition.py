"""The bound of composition for a landscape process: it does not use that the state is hidden."""

from __future__ import annotations

import math

from dpaudit.mechanisms.landscape import LandscapeProcess


def accountant_mu(process: LandscapeProcess, step: int) -> float:
    r"""Gaussian DP of all iterates up to a step: :math:`\sqrt{\text{insertions}}/\sigma`.

    Steps without the canary are post-processing.

    Arguments:
        process: The process.
        step: The last step, from 1.

    Example:
        >>> from dpaudit.landscapes import Constant
        >>> process = LandscapeProcess(
        ...     noise_multiplier=4, batch_size=1, steps=10, period=5, landscape=Constant()
        ... )
        >>> round(accountant_mu(process, 10), 4)
        0.3536
    """
    return math.sqrt(process.insertions(step)) / process.noise_multiplier
