"""The closed form: exact if every step uses the record.

T Gaussian steps with noise multiplier sigma are together exactly mu-GDP with mu = sqrt(T) / sigma.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, final

from dpaudit.curves import gaussian_delta, gaussian_epsilon
from dpaudit.privacy import Bound
from dpaudit.upper_bounds.accountants import Accountant
from dpaudit.upper_bounds.steps import NoisySteps


@final
@dataclass(frozen=True, kw_only=True)
class GaussianAccountant(Accountant):
    r"""The exact closed form for composed Gaussian steps without sampling.

    See also:
        `dpaudit.curves.gaussian_epsilon`, the formula.

    References:
        Dong, Roth, Su: *Gaussian Differential Privacy* (JRSS-B 2022, arXiv 1905.02383v3),
        Corollaries 2.13 and 3.3. Balle, Wang: *Improving the Gaussian Mechanism for Differential
        Privacy* (ICML 2018, arXiv 1805.06530), Theorem 8.

    Example:
        >>> GaussianAccountant().epsilon(NoisySteps(noise_multiplier=4.0, steps=250), delta=1e-5)
        Bound(epsilon <= 23.9954 at delta=1e-05, gaussian)
    """

    name: ClassVar[str] = "gaussian"
    supports_sampling: ClassVar[bool] = False

    def _epsilon(self, steps: NoisySteps, delta: float) -> Bound:
        epsilon = gaussian_epsilon(delta, steps.mu)
        # Tests compare with 60 digits. The curve is flat as delta nears 1, hence 1 - delta.
        error = 1e-12 * max(1.0, epsilon) / (1 - delta)
        return self._bound(steps, "epsilon", epsilon, delta, mu=steps.mu, numerical_error=error)

    def _delta(self, steps: NoisySteps, epsilon: float) -> Bound:
        delta = float(gaussian_delta(epsilon, steps.mu))
        # The arguments of the normal distribution are of the size of mu, and rounded.
        error = 1e-14 * max(1.0, steps.mu / 25)
        return self._bound(steps, "delta", delta, epsilon, mu=steps.mu, numerical_error=error)


def classical_epsilon(noise_multiplier: float, delta: float) -> float:
    """What the classical formula claims of one release; it is proven up to epsilon 1 only.

    References:
        Dwork, Roth: *The Algorithmic Foundations of Differential Privacy* (2014), Theorem 3.22.

    Example:
        >>> round(classical_epsilon(0.48448, 1e-5), 3)
        10.0
    """
    return math.sqrt(2 * math.log(1.25 / delta)) / noise_multiplier
