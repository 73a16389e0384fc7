r"""Privacy loss distributions (PLD), on a grid that rounds to less privacy.

The grid is dp-accounting's "connect the dots": each step's loss :math:`Y` is replaced by a random
:math:`\hat Y` on the two neighbouring multiples of the interval :math:`h`, such that
:math:`E[e^{-\hat Y} \mid Y] = e^{-Y}`. That makes the discretised mechanism the less private one,
so its epsilon is an upper bound. It also says how loose the bound can be: with
:math:`Z = \hat Y - Y` we have :math:`E[e^{-Z} \mid Y] = 1` and Z in an interval of length h, so
by Hoeffding's lemma :math:`E[Z \mid Y] \le h^2/8` and over T steps

.. math:: P\Big(\sum Z > c\Big) \le \eta \quad\text{for}\quad
          c = T h^2/8 + h \sqrt{T \ln(1/\eta)/2},

and surely, with :math:`\eta = 0`, for :math:`c = T h`. Hence
:math:`\hat\delta(\epsilon + c) \le \delta(\epsilon) + \eta`: numbers of the same discretised
mechanism also bound delta, and so epsilon, from below.

References:
    Doroshenko, Ghazi, Kamath, Kumar, Manurangsi: *Connect the Dots: Tighter Discrete
    Approximations of Privacy Loss Distributions* (PoPETs 2022, arXiv 2207.04380), Algorithm 1.
    The argument about the error follows Gopi, Lee, Wutschitz: *Numerical Composition of
    Differential Privacy* (NeurIPS 2021, arXiv 2106.02848), Section 5.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import ArrayLike

from dpaudit import _validate
from dpaudit._arrays import Array
from dpaudit._roots import sign_change
from dpaudit.curves import gaussian_delta
from dpaudit.errors import InvalidInput, NumericalError
from dpaudit.privacy import Bound
from dpaudit.upper_bounds.accountants import Accountant
from dpaudit.upper_bounds.steps import NoisySteps

_EPS = sys.float_info.epsilon
# Share of delta spent on the event that the roundings of all steps add up to more than c.
_SHARE = 1e-4
# Grid points of a composition; its Fourier transforms then take less than 1 GB of memory.
MOST_POINTS = 2**21
# Beyond, round-off exceeds the deltas that matter, and dp-accounting's composition takes minutes.
MOST_STEPS = 10**7


@final
@dataclass(frozen=True, kw_only=True)
class PldAccountant(Accountant):
    """Privacy loss distributions from dp-accounting, with or without Poisson sampling.

    See also:
        `dpaudit.comparisons.prv.PrvAccountant`, which discretises with unbiased rounding.

    Arguments:
        interval: Largest distance of neighbouring grid points, if ``points`` allow it.
        points: Approximate number of grid points of the composed distribution.

    Example:
        >>> steps = NoisySteps(noise_multiplier=1.0, steps=100, sampling_rate=0.01)
        >>> PldAccountant().epsilon(steps, delta=1e-5)
        Bound(epsilon <= 0.7180 at delta=1e-05, pld)
    """

    name: ClassVar[str] = "pld"

    interval: float = 1e-4
    points: int = 2**20

    def __post_init__(self) -> None:
        _validate.positive("interval", self.interval)
        _validate.integer("points", self.points, at_least=2**10)

    def _epsilon(self, steps: NoisySteps, delta: float) -> Bound:
        curve = self._curve(steps)
        epsilon, details = curve.epsilon(delta), {"interval": curve.interval}
        if math.isinf(epsilon):
            reason = f"delta is below the {curve.floor:.1g} that double precision resolves here"
            return self._bound(steps, "epsilon", epsilon, delta, notes=(reason,), details=details)
        details["epsilon_lower"] = curve.epsilon_from_below(delta)
        error = epsilon - details["epsilon_lower"]
        return self._bound(steps, "epsilon", epsilon, delta, numerical_error=error, details=details)

    def _delta(self, steps: NoisySteps, epsilon: float) -> Bound:
        curve = self._curve(steps)
        delta, details = curve.delta(epsilon), {"interval": curve.interval}
        details["delta_lower"] = curve.delta_from_below(epsilon)
        error = delta - details["delta_lower"]
        return self._bound(steps, "delta", delta, epsilon, numerical_error=error, details=details)

    def _curve(self, steps: NoisySteps) -> Curve:
        return _composed(_merged([steps]), self.interval, self.points)

    def deltas(self, steps: NoisySteps, epsilons: Array) -> Array:
        """Upper bounds on delta at many epsilons at once, for a noise multiplier above 0."""
        return self._curve(steps).deltas(epsilons)


def privacy_profile(
    *, noise_multiplier: float, steps: int, epsilons: ArrayLike, sampling_rate: float | None = None
) -> Array:
    r"""Upper bounds on delta at many epsilons: the curve :math:`\delta(\epsilon)`.

    The closed form if there is no sampling, otherwise the smaller of PLD and the closed form
    without amplification. All hold at every epsilon together.

    See also:
        `dpaudit.upper_bounds.upper_bound`, for one point of it with its numerical error;
        `composed_profile`, for unequal steps.

    Example:
        >>> privacy_profile(noise_multiplier=1.0, steps=1, epsilons=[0.0, 1.0]).round(4)
        array([0.3829, 0.1269])
    """
    described = NoisySteps(
        noise_multiplier=noise_multiplier, steps=steps, sampling_rate=sampling_rate
    )
    return composed_profile([described], epsilons=epsilons)


def composed_profile(parts: Iterable[NoisySteps], *, epsilons: ArrayLike) -> Array:
    r"""Upper bounds on delta at many epsilons, for a training whose noise or sampling changes.

    Steps without sampling compose in closed form, :math:`\mu^2 = \sum_i T_i / \sigma_i^2`. The
    privacy losses of sampled steps are convolved on one grid.

    See also:
        `privacy_profile`, for equal steps.

    Paper: Dong, Roth, Su (JRSS-B 2022), Corollary 3.3, without sampling; Doroshenko et al. (PoPETs
    2022), Algorithm 1, with it.

    Arguments:
        parts: Groups of equal steps; their order does not matter.
        epsilons: Epsilons at which delta is bounded.

    Example:
        >>> loud = NoisySteps(noise_multiplier=2.0, steps=4)
        >>> quiet = NoisySteps(noise_multiplier=1.0, steps=1)
        >>> composed_profile([loud, quiet], epsilons=[1.0]).round(4)
        array([0.2862])
        >>> privacy_profile(noise_multiplier=1.0, steps=2, epsilons=[1.0]).round(4)
        array([0.2862])
    """
    groups = _merged(parts)
    if not groups:
        raise InvalidInput("parts must describe at least one step, got none")
    wanted = np.asarray(epsilons, dtype=float)
    if not (np.isfinite(wanted).all() and (wanted >= 0).all()):
        raise InvalidInput(f"epsilons must be finite and at least 0, got {epsilons!r}")
    if any(group.noise_multiplier == 0 for group in groups):
        return np.ones_like(wanted)
    if len(groups) > 1:
        return _composed_groups(groups).deltas(wanted.ravel()).reshape(wanted.shape)
    (only,) = groups
    closed_form = gaussian_delta(wanted, only.mu)
    if not only.subsampled:
        return closed_form
    sampled = PldAccountant().deltas(only, wanted.ravel()).reshape(wanted.shape)
    return np.minimum(sampled, closed_form)


def _merged(parts: Iterable[NoisySteps]) -> tuple[NoisySteps, ...]:
    """Equal steps counted together, and all steps without sampling as a single one."""
    sampled: dict[tuple[float, float], int] = {}
    mus = []
    for part in parts:
        if part.subsampled:
            key = (float(part.noise_multiplier), float(part.sampling_rate or 1.0))
            sampled[key] = sampled.get(key, 0) + part.steps
        else:
            mus.append(part.mu)
    merged = [
        NoisySteps(noise_multiplier=noise, sampling_rate=rate, steps=steps)
        for (noise, rate), steps in sorted(sampled.items())
    ]
    if mus:
        merged.append(NoisySteps(noise_multiplier=1 / math.hypot(*mus), steps=1))
    return tuple(merged)


@dataclass(frozen=True)
class Curve:
    """The privacy profile of one discretised, composed mechanism."""

    distribution: Any
    steps: int
    interval: float
    # Allowances for round-off: a share of delta for the sums over the grid, and an addend for the
    # Fourier transform.
    relative_roundoff: float
    roundoff: float
    # The smallest delta that can be resolved: truncated mass and round-off.
    floor: float

    @classmethod
    def of(cls, distribution: Any, *, steps: int, interval: float) -> Curve:
        """The profile of a distribution on a grid that was composed of so many steps."""
        # The transform is raised to the power T, and its relative error with it. Measured against
        # the closed form, the error in delta is below a quarter of this up to a million steps.
        roundoff = steps * _EPS if steps > 1 else 0.0
        floor = float(distribution.get_delta_for_epsilon(math.inf)) + roundoff
        # Masses are differences of delta divided by the interval.
        return cls(distribution, steps, interval, _EPS / interval, roundoff, floor)

    def drift(self, delta: float) -> tuple[float, float]:
        """Eta and c of the module's docstring, fit for this delta: c holds but for eta."""
        h, steps = self.interval, self.steps
        eta = max(_SHARE * delta, sys.float_info.min)
        usually = steps * h * h / 8 + h * math.sqrt(-steps * math.log(eta) / 2)
        return (eta, usually) if usually < steps * h else (0.0, steps * h)

    def epsilon_from_below(self, delta: float) -> float:
        """A number that the epsilon of the mechanism is not below."""
        eta, drift = self.drift(delta)
        return max(0.0, self.epsilon(delta + eta + 2 * self.floor) - drift)

    def delta_from_below(self, epsilon: float) -> float:
        """A number that the delta of the mechanism is not below."""
        eta, drift = self.drift(self.delta(epsilon))
        return max(0.0, self.delta(epsilon + drift) - eta - 2 * self.floor)

    def delta(self, epsilon: float) -> float:
        return float(self._safe(self.distribution.get_delta_for_epsilon(epsilon)))

    def deltas(self, epsilons: Array) -> Array:
        if epsilons.size == 0 or epsilons.max() > 700:
            # e^epsilon overflows in dp-accounting's fast path, not in the path for one epsilon.
            return np.array([self.delta(float(epsilon)) for epsilon in epsilons.flat])
        order = np.argsort(epsilons)
        sorted_deltas = np.asarray(self.distribution.get_delta_for_epsilon(epsilons[order]))
        deltas = np.empty_like(sorted_deltas)
        deltas[order] = self._safe(sorted_deltas)
        return deltas

    def _safe(self, deltas: Any) -> Array:
        rounded_up = np.asarray(deltas) * (1 + self.relative_roundoff) + self.roundoff
        return np.asarray(np.clip(rounded_up, self.floor, 1.0))

    def epsilon(self, delta: float) -> float:
        # Not dp-accounting's own inverse: it sums e^-loss, which underflows at losses above 745.
        if self.floor >= delta:
            return math.inf
        if self.delta(0.0) <= delta:
            return 0.0

        def excess(epsilon: float) -> float:
            here = self.delta(epsilon)
            return math.inf if here == 0 else math.log(delta / here)

        # The upper end: its delta is at most the one asked for.
        return sign_change(excess, 0.0, 1.0, tolerance=1e-11)[1]


def coarse_profile(parts: Iterable[NoisySteps]) -> Curve:
    """The profile of groups of steps on a grid that takes a tenth of a second, not seconds."""
    groups = _merged(parts)
    return _composed(groups, 1e-3, 2**16) if len(groups) == 1 else _composed_groups(groups)


def _composed_groups(groups: tuple[NoisySteps, ...]) -> Curve:
    # Ten times coarser than for equal steps, since every group costs a convolution. The roundings
    # still vary far less than the privacy loss itself does.
    return _composed(groups, 1e-3, 2**17, rounding=0.1)


@lru_cache(maxsize=8)
def _composed(
    groups: tuple[NoisySteps, ...], interval: float, points: int, rounding: float = 0.01
) -> Curve:
    """Discretise and compose merged groups; cached, since epsilon, delta and profiles share it."""

    def grid(wanted: float, points: int) -> float:
        return max(affordable(float(each.noise_multiplier), wanted, points) for each in groups)

    if not any(each.subsampled for each in groups):  # one step: no round-off of a transform
        return compose(groups, grid(interval, points))
    # Roundings of many steps add up like the square root of their number.
    wanted = min(interval, rounding / math.sqrt(sum(each.steps for each in groups)))
    least = sum(map(composed_range, groups)) / MOST_POINTS
    # A coarse grid finds the range of the composed loss.
    sketch = compose(groups, max(grid(10 * wanted, points // 8), 8 * least))
    reach = sketch.epsilon(max(1e-13, 10 * sketch.floor))
    return compose(groups, max(grid(wanted, points), 2 * reach / points, least))


def composed_range(steps: NoisySteps) -> float:
    """About the range of losses that dp-accounting keeps of all steps together.

    It bounds the tails by moments of limited order, which leaves more than the losses need where
    steps are many.
    """
    sigma, rate = steps.noise_multiplier, float(steps.sampling_rate or 1.0)
    one_step = 1 / sigma**2 + 24 / sigma
    mixed = rate / sigma**2 + rate * (1 - rate) / (4 * sigma**4)
    variance = min(mixed, rate**2 * math.expm1(min(1 / sigma**2, 500.0)))
    return min(steps.steps * one_step, steps.steps * variance / one_step + 8 * one_step)


def affordable(sigma: float, wanted: float, points: int) -> float:
    """The grid interval nearest to ``wanted`` with which one step takes 4,096 to ``points``."""
    # What dp-accounting keeps of the losses of one Gaussian step, to the mass of e^-50.
    one_step_range = 1 / sigma**2 + 24 / sigma
    return max(one_step_range / points, min(wanted, one_step_range / 2**12))


def compose(parts: Iterable[NoisySteps], interval: float) -> Curve:
    """Discretise the privacy losses of groups of equal steps, and compose them."""
    from dp_accounting.pld import privacy_loss_distribution

    parts = tuple(parts)
    steps = sum(part.steps for part in parts)
    if steps > MOST_STEPS:
        raise NumericalError(
            f"accountant pld composes at most {MOST_STEPS:,} sampled steps, got {steps:,}: its "
            "round-off grows with their number; use rdp"
        )
    composed: Any = None
    for part in parts:
        distribution = privacy_loss_distribution.from_gaussian_mechanism(
            float(part.noise_multiplier),
            value_discretization_interval=interval,
            sampling_prob=float(part.sampling_rate or 1.0),
        )
        if part.steps > 1:
            distribution = distribution.self_compose(part.steps)
        composed = distribution if composed is None else composed.compose(distribution)
    return Curve.of(composed, steps=steps, interval=interval)
