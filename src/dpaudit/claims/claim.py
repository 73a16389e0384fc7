"""Privacy claims as trade-off functions.

A claim may be given as (epsilon, delta) pairs, as Gaussian DP, as the settings of a DP-SGD
training, or as the single pair of such a training. Each is a trade-off function.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from dpaudit import _validate
from dpaudit._arrays import Array
from dpaudit._numbers import counted
from dpaudit.curves import (
    Curve,
    approximate_tradeoff,
    gaussian_epsilon,
    gaussian_mu,
    gaussian_tradeoff,
    kinks_of,
)
from dpaudit.errors import InvalidInput
from dpaudit.mechanisms.correlation import CorrelatedNoise


@final
@dataclass(frozen=True, kw_only=True)
class Claim:
    """The claim that a mechanism's trade-off function is nowhere below this one.

    Create one with `from_points`, `from_mu`, `from_dpsgd` or `from_epsilon`.

    Arguments:
        description: The claim in words.
        mu: The trade-off function is that of mu-GDP.
        largest_epsilon: If given, mu-GDP is claimed only up to this epsilon; beyond it the
            function continues along its tangents.
        epsilons: Instead of ``mu``: the mechanism satisfies all these (epsilon, delta) pairs.
        deltas: One delta for each epsilon.
        assumptions: What was assumed to turn the claim into a trade-off function.
        pair: The (epsilon, delta) that `from_epsilon` extended to a trade-off function.
        mechanism: Whether a mechanism with independent Gaussian noise in every coordinate is
            claimed (`from_dpsgd`, `from_matrix_factorisation`), and not its privacy only.
        settings: The arguments from which the claim was made, if they say all of it.
        unit: What neighbouring data sets differ by: a ``record``, or a ``user`` with all records, a
            ``client``; see `per`.
        records: The most records that a unit may have under this claim; any number by default.

    Example:
        >>> Claim.from_mu(1.0)
        Claim(1-GDP)
        >>> float(Claim.from_points([(0.0, 0.0)]).tradeoff(0.25))
        0.75
    """

    description: str
    mu: float | None = None
    largest_epsilon: float | None = None
    epsilons: tuple[float, ...] = ()
    deltas: tuple[float, ...] = ()
    assumptions: tuple[str, ...] = ()
    pair: tuple[float, float] | None = None
    mechanism: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    unit: str = "record"
    records: int | None = None

    def __post_init__(self) -> None:
        if self.mu is not None and not self.epsilons and not self.deltas:
            _validate.non_negative("mu of a Claim", self.mu)
            if self.largest_epsilon is not None:
                _validate.non_negative("largest_epsilon of a Claim", self.largest_epsilon)
            return
        if self.mu is not None or not self.epsilons or len(self.epsilons) != len(self.deltas):
            raise InvalidInput(
                "a Claim needs either mu or at least one epsilon with a delta for each, got "
                f"mu={self.mu!r}, {len(self.epsilons)} epsilons and {len(self.deltas)} deltas; use "
                "Claim.from_mu, from_points, from_dpsgd or from_epsilon"
            )
        for epsilon, delta in zip(self.epsilons, self.deltas, strict=True):
            _validate.non_negative("epsilon of a Claim", epsilon)
            _validate.between("delta of a Claim", delta, 0, 1, closed_low=True, closed_high=True)

    def __getstate__(self) -> dict[str, Any]:
        # The curve is computed again: it holds functions, which cannot be pickled.
        return {name: value for name, value in vars(self).items() if name != "curve"}

    def to_dict(self) -> dict[str, Any]:
        """The claim as plain data."""
        plain = dataclasses.asdict(self)
        return {
            key: list(value) if isinstance(value, tuple) else value for key, value in plain.items()
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Claim:
        """Read what `to_dict` wrote."""
        fields: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in plain.items()
        }
        return cls(**fields)

    @property
    def bare(self) -> Claim | None:
        """The claimed pair alone, if it was extended to a trade-off function; otherwise `None`."""
        if self.pair is None:
            return None
        alone = Claim.from_points([self.pair])
        return alone if self.unit == "record" else alone.per(self.unit, records=self.records)

    def per(self, unit: str, *, records: int | None = None) -> Claim:
        """The same claim for another unit of privacy, such as a user with all records.

        An audit refuses a canary of another unit, or with more than ``records`` records, on which
        a claim by group privacy depends.

        Example:
            >>> Claim.from_mu(1.0).per("user")
            Claim(1-GDP per user)
            >>> Claim.from_mu(4.0).per("user", records=4)
            Claim(4-GDP per user with at most 4 records)
        """
        unit = _validate.name_of_unit(unit)
        if records is not None:
            _validate.integer("records", records, at_least=1)
            if unit == "record":
                raise InvalidInput(f"unit must say what owns {records} records, got 'record'")
        if self.unit not in ("record", unit):
            raise InvalidInput(f"unit must be {self.unit!r}, which this claim has, got {unit!r}")
        if unit == self.unit:
            return self
        size = "" if records is None else f" with at most {counted(records, 'record')}"
        described = f"{self.description} per {unit}{size}"
        return dataclasses.replace(self, unit=unit, records=records, description=described)

    @classmethod
    def from_points(cls, points: Iterable[tuple[float, float]]) -> Claim:
        """The mechanism is (epsilon, delta)-DP for each of these pairs."""
        pairs = [
            (_validate.non_negative("epsilon", epsilon), _validate.delta(delta))
            for epsilon, delta in points
        ]
        if not pairs:
            raise InvalidInput("points must hold at least one (epsilon, delta) pair, got none")
        words = ", ".join(f"({epsilon:g}, {delta:g})" for epsilon, delta in pairs[:3])
        more = f" and {len(pairs) - 3} more" if len(pairs) > 3 else ""
        epsilons, deltas = zip(*pairs, strict=True)
        given = {"epsilon": epsilons[0], "delta": deltas[0]} if len(pairs) == 1 else {}
        return cls(
            description=f"{words}{more}-DP", epsilons=epsilons, deltas=deltas, settings=given
        )

    @classmethod
    def from_mu(cls, mu: float) -> Claim:
        """The mechanism is mu-GDP."""
        mu = _validate.non_negative("mu", mu)
        return cls(description=f"{mu:g}-GDP", mu=mu, settings={"mu": mu})

    @classmethod
    def from_dpsgd(
        cls, *, noise_multiplier: float, steps: int, sampling_rate: float | None = None
    ) -> Claim:
        """The privacy profile of a DP-SGD training, from an accountant.

        Without sampling the trade-off function is Gaussian and exact. With Poisson sampling it is
        that of a pessimistic privacy-loss distribution, never above the true one.
        """
        from dpaudit.upper_bounds import privacy_profile

        noise = _noise(noise_multiplier)
        steps = _validate.integer("steps", steps, at_least=1)
        words = f"DP-SGD with noise multiplier {noise:g}, {steps} step{'s' if steps > 1 else ''}"
        given = {"noise_multiplier": noise, "steps": steps}
        if sampling_rate is None:
            return cls(
                description=words, mu=math.sqrt(steps) / noise, mechanism=True, settings=given
            )
        epsilons = np.concatenate([np.linspace(0, 4, 81), np.linspace(4.25, 40, 144)])
        deltas = privacy_profile(
            noise_multiplier=noise, steps=steps, sampling_rate=sampling_rate, epsilons=epsilons
        )
        return cls(
            description=f"{words}, Poisson sampling rate {sampling_rate:g}",
            epsilons=tuple(epsilons.tolist()),
            deltas=tuple(np.clip(deltas, 0.0, 1.0).tolist()),
            mechanism=True,
            settings={**given, "sampling_rate": float(sampling_rate)},
        )

    @classmethod
    def from_shuffled(cls, *, noise_multiplier: float, epochs: int) -> Claim:
        r"""What is proven for DP-SGD on shuffled epochs: no amplification by the shuffling.

        In every epoch the record is in one batch, so that ``epochs`` Gaussian releases of it are
        :math:`\sqrt{E} / \sigma`-GDP, for any order of the batches, if the batches of the *other*
        records do not depend on the record: nothing is in its place in the data set without it. If
        another record is, a sum moves by up to 2 C, and the claim is that of half the noise
        multiplier. No accountant for Poisson sampling is true of shuffled epochs: see
        docs/pipeline.md.

        Paper: Chua et al. (ICML 2024) and Annamalai et al. (arXiv 2411.10614).

        Example:
            >>> Claim.from_shuffled(noise_multiplier=2.0, epochs=4).mu
            1.0
        """
        noise = _noise(noise_multiplier)
        epochs = _validate.integer("epochs", epochs, at_least=1)
        return cls(
            description=f"DP-SGD with noise multiplier {noise:g}, "
            f"{epochs} shuffled epoch{'s' if epochs > 1 else ''}, no amplification",
            mu=math.sqrt(epochs) / noise,
            assumptions=("the batches of the other records do not depend on the record",),
            mechanism=True,
        )

    @classmethod
    def from_matrix_factorisation(
        cls,
        *,
        noise_multiplier: float,
        coefficients: Sequence[float],
        steps: int,
        used: Sequence[int] | None = None,
    ) -> Claim:
        r"""The privacy of a training with correlated noise (DP-FTRL, banded matrix factorisation).

        The trade-off function is Gaussian and exact: :math:`\mu = |C 1_{used}| / \sigma`.

        See also: `dpaudit.mechanisms.CorrelatedNoise`, for the conventions and the papers.

        Arguments:
            noise_multiplier: Noise multiplier sigma, for a strategy matrix with columns of norm 1.
            coefficients: The coefficients of the banded Toeplitz strategy matrix, in any scale.
            steps: Number of steps.
            used: The steps that contain the example, such as those of its batch; all by default.

        Example:
            >>> claim = Claim.from_matrix_factorisation(
            ...     noise_multiplier=4.0, coefficients=[1.0, 0.5], steps=16
            ... )
            >>> round(claim.mu, 4)
            1.3181
        """
        noise = _noise(noise_multiplier)
        steps = _validate.integer("steps", steps, at_least=1)
        correlation = CorrelatedNoise(coefficients=tuple(coefficients))
        present = range(steps) if used is None else used
        return cls(
            description=f"{correlation.bands}-banded matrix factorisation with noise multiplier "
            f"{noise:g}, {len(present)} of {counted(steps, 'step')}",
            mu=correlation.mu(noise, present, steps=steps),
            mechanism=True,
        )

    @classmethod
    def from_epsilon(cls, epsilon: float, delta: float) -> Claim:
        r"""The claim of a DP-SGD training of which only (epsilon, delta) is known.

        A bare pair claims little in the middle of the trade-off function, where an audit of a few
        hundred runs has power. But the profile :math:`\delta(\epsilon)` of a DP-SGD training lies
        below that of :math:`\mu`-GDP through the same pair, up to its epsilon: checked for
        Poisson-sampled Gaussian steps (docs/your-training.md has the grid). This is an assumption,
        and every result states it. Beyond the claimed epsilon only the pair is claimed.

        See also: `from_dpsgd`, which needs the settings of the training but not this assumption;
        `from_points`, for the bare pair.

        Example:
            >>> claim = Claim.from_epsilon(8.0, 1e-5)
            >>> claim
            Claim((8, 1e-05)-DP, read as 1.67-GDP up to epsilon 8)
            >>> bool(claim.tradeoff(0.1) > Claim.from_points([(8.0, 1e-5)]).tradeoff(0.1))
            True
        """
        epsilon, delta = _validate.positive("epsilon", epsilon), _validate.delta(delta)
        if delta == 0:
            return cls.from_points([(epsilon, 0.0)])
        mu = gaussian_mu(epsilon, delta)
        pair = f"({epsilon:g}, {delta:g})"
        return cls(
            description=f"{pair}-DP, read as {mu:.3g}-GDP up to epsilon {epsilon:g}",
            mu=mu,
            largest_epsilon=epsilon,
            settings={"epsilon": epsilon, "delta": delta},
            assumptions=(
                f"the claimed {pair} belongs to a training whose delta at every epsilon up to "
                f"{epsilon:g} is at most that of {mu:.3g}-GDP, as it is for DP-SGD (and is not for "
                "pure epsilon-DP mechanisms such as randomised response or Laplace noise)",
            ),
            pair=(epsilon, delta),
        )

    @cached_property
    def curve(self) -> Curve:
        """The trade-off function with its kinks, for the joint test."""
        kinks = kinks_of(self.epsilons, self.deltas)
        return Curve(tradeoff=self.tradeoff, inverse=self.tradeoff, kinks=kinks)

    def tradeoff(self, alpha: ArrayLike) -> Array:
        """The smallest false-negative rate that the claim allows at each false-positive rate."""
        if self.mu is None:
            return approximate_tradeoff(alpha, self.epsilons, self.deltas)
        if self.largest_epsilon is None:
            return gaussian_tradeoff(alpha, self.mu)
        return _gaussian_up_to(alpha, self.mu, self.largest_epsilon)

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon that is claimed at this delta; infinite if none is.

        Example:
            >>> round(Claim.from_epsilon(8.0, 1e-5).epsilon(1e-5), 6)
            8.0
        """
        delta = _validate.delta(delta)
        if self.mu is None:
            claimed = zip(self.epsilons, self.deltas, strict=True)
            return min((epsilon for epsilon, at in claimed if at <= delta), default=math.inf)
        epsilon = gaussian_epsilon(delta, self.mu)
        beyond = self.largest_epsilon is not None and epsilon > self.largest_epsilon * (1 + 1e-9)
        return math.inf if beyond else epsilon

    def __repr__(self) -> str:
        return f"Claim({self.description})"


def _noise(multiplier: float) -> float:
    remedy = "without noise there is no claim to test"
    return _validate.positive("noise_multiplier", multiplier, remedy=remedy)


def _gaussian_up_to(alpha: ArrayLike, mu: float, epsilon: float) -> Array:
    """The curve of mu-GDP where its slope is between e^-epsilon and e^epsilon, and its tangents.

    The curve is its own inverse, so one tangent is the mirror image of the other.
    """
    rate = np.asarray(alpha, dtype=float)
    touch = float(ndtr(-epsilon / mu - mu / 2))
    mirrored = float(gaussian_tradeoff(touch, mu))
    # Both tangents lie below the curve, and each is the larger of the two on its own side.
    with np.errstate(over="ignore", invalid="ignore"):  # beyond e^709
        steep = mirrored - np.exp(epsilon) * (rate - touch)
        flat = touch - np.exp(-epsilon) * (rate - mirrored)
    curve = np.where(
        rate < touch, steep, np.where(rate > mirrored, flat, gaussian_tradeoff(rate, mu))
    )
    return np.asarray(np.maximum(curve, 0.0))
