"""Closed forms for a landscape process: the bound of composition, and the decision point."""

from __future__ import annotations

import math

from dpaudit.curves import gaussian_epsilon
from dpaudit.mechanisms.landscape import LandscapeProcess


def accountant_mu(process: LandscapeProcess, step: int) -> float:
    r"""Gaussian DP of all iterates up to a step: :math:`\sqrt{\text{insertions}}/\sigma`.

    Steps without the canary are post-processing; that the state is hidden is not used.

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


def decision_point(process: LandscapeProcess, *, delta: float = 1e-5) -> float:
    r"""Where the first step's likelihood ratio is :math:`e^\epsilon`, in units of C.

    For two unit-spaced normals :math:`\log(p_1/p_0) = (x - 1/2)/\sigma^2`.

    Example:
        >>> from dpaudit.landscapes import Threshold
        >>> process = LandscapeProcess(
        ...     noise_multiplier=1, batch_size=16, steps=25, landscape=Threshold()
        ... )
        >>> round(decision_point(process), 3)
        4.877
    """
    sigma = process.noise_multiplier
    return 0.5 + gaussian_epsilon(delta, 1 / sigma) * sigma**2
