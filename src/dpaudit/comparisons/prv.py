r"""Privacy random variables (PRV), the accountant of the paper.

It discretises the privacy loss with unbiased rounding, composes by Fourier transform and returns a
bracket: for error parameters :math:`\epsilon_{err}` and :math:`\delta_{err}`,

.. math:: \hat\delta(\epsilon + \epsilon_{err}) - \delta_{err} \le \delta(\epsilon)
          \le \hat\delta(\epsilon - \epsilon_{err}) + \delta_{err}.

The upper end is the bound; the rest of the bracket is in the bound's details.

The public package fails for large epsilons and for few steps with little noise
(microsoft/prv_accountant, issues 36 and 42). Its failures become a `NumericalError` with a remedy.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Literal, final

from dpaudit import _validate
from dpaudit.errors import MissingExtra, NumericalError
from dpaudit.privacy import Bound
from dpaudit.upper_bounds.accountants import Accountant
from dpaudit.upper_bounds.steps import NoisySteps

# Grid points above which one composition takes a minute and gigabytes.
_MOST_POINTS = 2**22


@final
@dataclass(frozen=True, kw_only=True)
class PrvAccountant(Accountant):
    r"""Privacy random variables from the package ``prv_accountant`` (``dpaudit[prv]``).

    See also:
        `dpaudit.upper_bounds.pld.PldAccountant`, which needs no error parameters.

    References:
        Gopi, Lee, Wutschitz: *Numerical Composition of Differential Privacy* (NeurIPS 2021,
        arXiv 2106.02848), Theorem 5.5 for the grid and Remark 5.6 for its range.

    Arguments:
        epsilon_error: :math:`\epsilon_{err}`, half the width of the bracket.
        delta_error: :math:`\delta_{err}`; `None` for :math:`10^{-5}\delta`, or for
            :math:`10^{-12}` where epsilon is given.

    Example:
        >>> bound = PrvAccountant().epsilon(NoisySteps(noise_multiplier=4.0, steps=250), delta=1e-5)
        >>> bound
        Bound(epsilon <= 24.0054 at delta=1e-05, prv)
        >>> round(bound.details["epsilon_estimate"], 4)
        23.9954
    """

    name: ClassVar[str] = "prv"

    epsilon_error: float = 0.01
    delta_error: float | None = None

    def __post_init__(self) -> None:
        _validate.positive("epsilon_error", self.epsilon_error)
        if self.delta_error is not None:
            _validate.between("delta_error", self.delta_error, 0, 1)

    def _epsilon(self, steps: NoisySteps, delta: float) -> Bound:
        delta_error = self._delta_error(steps, 1e-5 * delta)
        if delta_error > delta / 2:
            raise NumericalError(
                f"accountant prv cannot resolve delta={delta:g} to {delta_error:.1g}; "
                "use a larger delta or a smaller delta_error"
            )
        with _reported_failures(steps):
            accountant = _prepared(steps, self.epsilon_error, delta_error)
            bracket = accountant.compute_epsilon(delta, [steps.steps])
        return self._upper_end(steps, "epsilon", bracket, delta)

    def _delta(self, steps: NoisySteps, epsilon: float) -> Bound:
        import numpy as np

        with _reported_failures(steps):
            accountant = _prepared(steps, self.epsilon_error, self._delta_error(steps, 1e-12))
            # The package takes e^epsilon: extended precision holds it up to 11,356.
            bracket = accountant.compute_delta(np.longdouble(epsilon), [steps.steps])
        return self._upper_end(steps, "delta", bracket, epsilon)

    def _upper_end(
        self,
        steps: NoisySteps,
        quantity: Literal["epsilon", "delta"],
        bracket: tuple[float, float, float],
        given: float,
    ) -> Bound:
        lower, estimate, upper = (max(0.0, float(end)) for end in bracket)
        if not lower <= estimate <= upper:
            raise NumericalError(f"accountant prv returned no bracket: {bracket}; use pld")
        direction = "removing the record is the worse direction (prv_accountant computes no other)"
        return self._bound(
            steps,
            quantity,
            upper,
            given,
            numerical_error=upper - lower,
            assumptions=(direction,) if steps.subsampled else (),
            details={f"{quantity}_lower": lower, f"{quantity}_estimate": estimate},
        )

    def _delta_error(self, steps: NoisySteps, default: float) -> float:
        # Not finer than the round-off of the Fourier transform.
        return self.delta_error or max(default, steps.steps * sys.float_info.epsilon)


@lru_cache(maxsize=4)
def _prepared(steps: NoisySteps, epsilon_error: float, delta_error: float) -> Any:
    """The package's accountant; cached, since bounds at several epsilons or deltas share it."""
    try:
        from prv_accountant import (
            GaussianMechanism,
            PoissonSubsampledGaussianMechanism,
            PRVAccountant,
        )
        from prv_accountant.accountant import compute_safe_domain_size
    except ModuleNotFoundError as error:
        raise MissingExtra("accountant prv", "prv") from error

    sigma = float(steps.noise_multiplier)
    if steps.subsampled:
        one_step = PoissonSubsampledGaussianMechanism(
            sampling_probability=float(steps.sampling_rate or 1.0), noise_multiplier=sigma
        )
    else:
        one_step = GaussianMechanism(sigma)
    # The grid of Theorem 5.5, counted before it is allocated.
    reach = compute_safe_domain_size([one_step], [steps.steps], epsilon_error, delta_error)
    mesh = epsilon_error / math.sqrt(steps.steps / 2 * math.log(12 / delta_error))
    if not 2 * reach / mesh <= _MOST_POINTS:
        raise NumericalError(
            f"accountant prv would need {2 * reach / mesh:.1g} grid points; "
            "use pld, or a larger epsilon_error"
        )
    return PRVAccountant(
        prvs=[one_step],
        max_self_compositions=[steps.steps],
        eps_error=epsilon_error,
        delta_error=delta_error,
        eps_max=float(reach),
    )


@contextmanager
def _reported_failures(steps: NoisySteps) -> Iterator[None]:
    """Turn exceptions of the package and numerical warnings into one error with a remedy."""
    try:
        with warnings.catch_warnings():
            # It warns if the range of its grid is given instead of computed again.
            warnings.filterwarnings("ignore", message="Assuming that true epsilon")
            # Overflow or a quadrature that does not converge would invalidate the bracket.
            warnings.simplefilter("error", RuntimeWarning)
            warnings.filterwarnings("error", module="scipy.integrate")
            yield
    except (ArithmeticError, RuntimeError, ValueError, AssertionError, Warning) as error:
        why = str(error).rstrip(".") or type(error).__name__
        raise NumericalError(
            f"accountant prv failed at noise_multiplier={steps.noise_multiplier:g}, "
            f"steps={steps.steps}, sampling_rate={steps.sampling_rate} ({why}); use pld"
        ) from error
