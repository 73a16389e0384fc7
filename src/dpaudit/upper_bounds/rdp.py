r"""Rényi differential privacy (RDP): valid, but looser than the others.

Rényi divergences add up over steps, and each order :math:`\alpha` gives an epsilon; the best order
is in the details of the bound. The conversion from Rényi divergence loses tightness at any order.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, final

import numpy as np

from dpaudit import _validate
from dpaudit._arrays import Array
from dpaudit.errors import InvalidInput
from dpaudit.privacy import Bound
from dpaudit.upper_bounds.accountants import Accountant
from dpaudit.upper_bounds.steps import NoisySteps

# dp-accounting's list starts at 1.1, but with little noise the best order is closer to 1.
DEFAULT_ORDERS: tuple[float, ...] = (
    *(1 + x / 100 for x in range(2, 10)),
    *(1 + x / 10 for x in range(1, 101)),
    *(float(order) for order in range(12, 64)),
    *(128.0, 256.0, 512.0, 1024.0),
)


@final
@dataclass(frozen=True, kw_only=True)
class RdpAccountant(Accountant):
    r"""Rényi differential privacy from dp-accounting, with or without Poisson sampling.

    See also:
        `renyi_divergences`, the divergences themselves.

    References:
        Mironov, Talwar, Zhang: *Rényi Differential Privacy of the Sampled Gaussian Mechanism*
        (arXiv 1908.10530), Section 3, for the divergences; Canonne, Kamath, Steinke: *The
        Discrete Gaussian for Differential Privacy* (NeurIPS 2020, arXiv 2004.00010v4),
        Proposition 12, for the conversion.

    Arguments:
        orders: The orders :math:`\alpha > 1.01`, of which the best is used.

    Example:
        >>> bound = RdpAccountant().epsilon(NoisySteps(noise_multiplier=4.0, steps=250), delta=1e-5)
        >>> bound
        Bound(epsilon <= 25.5184 at delta=1e-05, rdp)
        >>> round(bound.details["order"], 1)
        2.2
    """

    name: ClassVar[str] = "rdp"

    orders: tuple[float, ...] = DEFAULT_ORDERS

    def __post_init__(self) -> None:
        _check_orders(self.orders)

    def _epsilon(self, steps: NoisySteps, delta: float) -> Bound:
        from dp_accounting.rdp import rdp_privacy_accountant

        divergences = _rounded_up(steps, self.orders)
        epsilon, order = rdp_privacy_accountant.compute_epsilon(self.orders, divergences, delta)
        return self._bound(steps, "epsilon", epsilon, delta, details={"order": float(order)})

    def _delta(self, steps: NoisySteps, epsilon: float) -> Bound:
        from dp_accounting.rdp import rdp_privacy_accountant

        divergences = _rounded_up(steps, self.orders)
        delta, order = rdp_privacy_accountant.compute_delta(self.orders, divergences, epsilon)
        return self._bound(steps, "delta", delta, epsilon, details={"order": float(order)})


def renyi_divergences(steps: NoisySteps, orders: Sequence[float]) -> Array:
    r"""The Rényi divergence of all steps together, at each order :math:`\alpha`.

    .. math:: T \cdot \frac{1}{\alpha - 1} \ln E_{x \sim Q}
              \Big[ \Big(\frac{P(x)}{Q(x)}\Big)^\alpha \Big]

    with :math:`Q = \mathcal N(0, \sigma^2)` and
    :math:`P = (1-q) \mathcal N(0, \sigma^2) + q \mathcal N(1, \sigma^2)`.

    Example:
        >>> renyi_divergences(NoisySteps(noise_multiplier=2.0, steps=8), [1.5, 3.0])
        array([1.5, 3. ])

    Under sampling, dp-accounting's series need not converge for a fractional order near 1; its
    divergence is then infinite.
    """
    import dp_accounting
    from dp_accounting import rdp

    _check_orders(orders)
    step: Any = dp_accounting.GaussianDpEvent(float(steps.noise_multiplier))
    if steps.subsampled:
        step = dp_accounting.PoissonSampledDpEvent(float(steps.sampling_rate or 1.0), step)
    accountant = rdp.RdpAccountant(list(orders))
    with _silent_about_series():
        accountant.compose(step, steps.steps)
    return np.asarray(accountant.rdp, dtype=float)


@lru_cache(maxsize=8)
def _rounded_up(steps: NoisySteps, orders: tuple[float, ...]) -> Array:
    # Round-off can make a tiny divergence negative, and the conversion would then return 0.
    return np.maximum(renyi_divergences(steps, orders), 0.0) + 2e-14 * steps.steps


@contextmanager
def _silent_about_series() -> Iterator[None]:
    """Keep dp-accounting from logging each fractional order whose series does not converge."""
    logger = logging.getLogger("absl")

    def unrelated(record: logging.LogRecord) -> bool:
        return "failed to converge" not in str(record.msg)

    logger.addFilter(unrelated)
    try:
        yield
    finally:
        logger.removeFilter(unrelated)


def _check_orders(orders: Sequence[float]) -> None:
    if not orders:
        raise InvalidInput("orders must name at least one order, got none")
    for order in orders:
        _validate.positive("orders", order)
        if order <= 1.01:
            raise InvalidInput(f"orders must be above 1.01, got {order!r}")
