r"""What a live audit collects: canaries, coins, and the score of each canary. Needs only numpy.

A canary is one coordinate of the parameters, in the length of the clip norm: the largest gradient
that one example may contribute. A fair coin decides whether it belongs to the training. If it
does, it takes part in each step with the claimed sampling rate, like an example, and is added to
the clipped sum before the noise.

**Score.** The adversary knows the other examples, so of each step he sees
:math:`o = b\,x + \sigma z`: the noisy sum at the coordinate less the genuine clipped sum, in units
of the clip norm, with :math:`x` the participation and :math:`z` standard normal if the claim is
true. The log likelihood ratio of "in the data" against "not in the data" is

.. math:: \log\bigl(1 - q + q\, e^{(2 w o - w^2) / (2 \sigma^2)}\bigr),

and its sum over the steps is the most powerful score against the claimed training (Neyman and
Pearson). The score needs not be right for the audit to be valid: it is any function of what the
adversary sees. Starting points, batches, optimizer and schedules do not enter.

**Clipping per layer** leaves each tensor :math:`l` its share :math:`c_l` of the clip norm,
:math:`\sum_l c_l^2 = 1`. A canary at one coordinate would be shorter than an example may be; so it
has one coordinate of length :math:`c_l` in every tensor that is large enough to have one for it.
What is observed at them, times their lengths and over the length :math:`w` of the canary, has noise
:math:`\sigma` and the effect :math:`w`. Without layers :math:`w = 1`.

**Correlated noise** (matrix factorisation) is :math:`C^{-1} Z`, with :math:`C` a Toeplitz matrix of
few bands :math:`c_0, \dots, c_{b-1}`. The sums of the latest steps with these weights,
:math:`\sum_j c_j o_{t-j}`, have independent noise again and the effect :math:`\sum_{j \le t} c_j`,
if the canary is in every step: they are Gaussian steps of unequal noise, and nothing is lost.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri
from scipy.stats import rankdata

from dpaudit import _validate
from dpaudit._arrays import Array
from dpaudit.errors import InvalidInput
from dpaudit.live.betting import SUSPICIONS, evidence_of, step_bets

Places = NDArray[np.int64]
Mask = NDArray[np.bool_]

_LARGEST = 1e6  # clip norms, in place of infinity
_LARGEST_EXPONENT = 500.0


def spread(sizes: Sequence[int], canaries: int, random: np.random.Generator) -> tuple[Places, ...]:
    """Coordinates of the canaries in each tensor: every tensor has one, large ones have more.

    Arguments:
        sizes: Number of parameters of each tensor.
        canaries: Number of canaries.
        random: Draws the coordinates, without replacement.

    Example:
        >>> [len(here) for here in spread([100, 1, 10], 12, np.random.default_rng(0))]
        [10, 1, 1]
    """
    total = sum(sizes)
    if canaries > total:
        raise InvalidInput(
            f"canaries must be at most the number of trained parameters ({total:,}), because each "
            f"has a coordinate of its own; got {canaries:,}"
        )
    counts = np.zeros(len(sizes), dtype=np.int64)
    filled = np.flatnonzero(np.asarray(sizes) > 0)
    covered = filled if canaries >= len(filled) else random.permutation(filled)[:canaries]
    counts[covered] = 1
    spare = np.asarray(sizes) - counts
    left = canaries - int(counts.sum())
    if left:
        counts += random.multivariate_hypergeometric(spare, left, method="marginals")
    return tuple(
        np.sort(random.choice(size, count, replace=False)).astype(np.int64)
        for size, count in zip(sizes, counts, strict=True)
    )


def layered(sizes: Sequence[int], canaries: int, random: np.random.Generator) -> tuple[Places, ...]:
    """Coordinates with clipping per layer: in each tensor, of the first canaries for which it has.

    Arguments:
        sizes: Number of parameters of each tensor.
        canaries: Number of canaries.
        random: Draws the coordinates, without replacement.

    Example:
        >>> [len(here) for here in layered([100, 1, 10], 12, np.random.default_rng(0))]
        [12, 1, 10]
    """
    if canaries > max(sizes):
        raise InvalidInput(
            f"canaries must be at most the size of the largest tensor ({max(sizes):,}) with "
            f"clipping per layer, because each has a coordinate of its own in it; got {canaries:,}"
        )
    return tuple(
        np.sort(random.choice(size, min(size, canaries), replace=False)).astype(np.int64)
        for size in sizes
    )


@final
class LiveEvidence:
    """The canaries of one training, and what has been observed of them.

    Arguments:
        sizes: Number of parameters of each trained tensor.
        canaries: Number of canaries.
        seed: Seed of coordinates, coins and participation; drawn from the system if `None`.
        shares: With clipping per layer, the share of the clip norm that each tensor has.
        bands: With correlated noise, the coefficients of its strategy matrix.

    Example:
        >>> evidence = LiveEvidence([1000], canaries=200, seed=0)
        >>> noise = np.random.default_rng(1)
        >>> for _ in range(50):
        ...     taking_part = evidence.take_part(rate=0.5)
        ...     sums = taking_part + noise.normal(0.0, 1.0, 200)
        ...     evidence.observe(sums, rate=0.5, noise_multiplier=1.0)
        >>> evidence.steps, evidence.scores[evidence.coins].mean() > 0
        (50, np.True_)
    """

    def __init__(
        self,
        sizes: Sequence[int],
        *,
        canaries: int,
        seed: int | None = None,
        shares: Sequence[float] | None = None,
        bands: Sequence[float] = (1.0,),
    ) -> None:
        canaries = _validate.integer("canaries", canaries, at_least=2)
        self.seed = secrets.randbits(128) if seed is None else _validate.integer("seed", seed)
        children = np.random.SeedSequence(self.seed).spawn(3)
        placing, tossing = map(np.random.default_rng, children[:2])
        self._bits = np.random.PCG64(children[2])
        self._joining = np.random.Generator(self._bits)  # who takes part
        self.sizes = tuple(int(size) for size in sizes)
        self.shares, self.bands = shares, tuple(bands)
        self.places = (spread if shares is None else layered)(self.sizes, canaries, placing)
        counts = list(map(len, self.places))
        self._owners, self._lengths = np.arange(canaries), np.ones(canaries)
        if shares is not None:
            self._owners = np.concatenate([np.arange(count) for count in counts])
            self._lengths = np.repeat(np.asarray(shares, dtype=float), counts)
        self.weights: Array = np.sqrt(np.bincount(self._owners, self._lengths**2, canaries))
        self.coins: Mask = tossing.random(canaries) < 0.5
        self.scores: Array = np.zeros(canaries)
        self.log_wealth: Array = np.zeros(len(SUSPICIONS))
        self.largest_e_value = 1.0
        self.history: list[tuple[float, float]] = []
        self.not_finite = 0
        self.start: Array | None = None  # of the parameters at the canaries
        self.final: Array | None = None  # how far the final ones are below it
        self._latest: list[Array] = []  # observations that later ones are correlated with

    @property
    def steps(self) -> int:
        """Number of steps that were observed."""
        return len(self.history)

    def take_part(self, rate: float, steps: int | None = None) -> Mask:
        """The inserted canaries that take part in the next step, as an example would.

        Arguments:
            rate: The sampling rate.
            steps: Draw this many steps at once, one below the other.
        """
        shape = self.coins.shape if steps is None else (steps, *self.coins.shape)
        return np.asarray(self.coins & (self._joining.random(shape) < rate))

    def take_back(self, steps: int) -> None:
        """Forget the latest steps that were drawn, which were not made: they are drawn again."""
        self._bits.advance(-steps * len(self.coins))

    def added(self, taking_part: Mask) -> Array:
        """What these canaries add at their coordinates, in units of the clip norm."""
        if self.shares is None:
            return taking_part.astype(float)
        return np.asarray(self._lengths * taking_part[..., self._owners])

    def along(self, values: Array) -> Array:
        """Numbers at all coordinates, as the number of each canary that lies along them.

        Coordinates are along the last axis; steps may come before.
        """
        if self.shares is None:
            return values
        if values.ndim > 1:
            return np.stack([self.along(own) for own in values])
        sums = np.bincount(self._owners, self._lengths * values, len(self.coins))
        return np.asarray(sums / self.weights)

    def whitened(self, observed: Array) -> tuple[Array, float]:
        """The observations of a step without correlation, for a canary in every step.

        Returns:
            What is observed of canaries of length 1, and by how much its noise is divided.
        """
        latest = [observed, *self._latest]
        used = self.bands[: len(latest)]
        self._latest = latest[: len(self.bands) - 1]
        total = sum(c * values for c, values in zip(used, latest, strict=True))
        return np.asarray(total / sum(used)), sum(used)

    def observe(self, observed: Array, *, rate: float, noise_multiplier: float) -> None:
        """Add a step, or equal steps one below the other, to the scores and to the e-process.

        Arguments:
            observed: The noisy sum less the genuine sum `along` each canary, in units of the clip
                norm of all tensors together.
            rate: The claimed sampling rate of these steps.
            noise_multiplier: The claimed noise of these steps.
        """
        observed = np.atleast_2d(observed)
        if observed.shape[1:] != self.scores.shape:
            raise InvalidInput(
                f"observed must have one number for each of the {len(self.scores):,} canaries, "
                f"got shape {observed.shape[1:]}"
            )
        finite = np.isfinite(observed)
        if not finite.all():  # any function of the output is a valid score
            self.not_finite += int((~finite.all(axis=1)).sum())
            observed = np.clip(np.nan_to_num(observed, nan=0.0), -_LARGEST, _LARGEST)
        weights = self.weights
        slope = weights / noise_multiplier**2
        exponent = slope * observed - slope * weights / 2
        ratios = exponent
        if rate < 1:  # far out, where the exponential overflows, the logarithm is a line
            ratios = np.log1p(rate * np.expm1(np.minimum(exponent, _LARGEST_EXPONENT)))
            ratios += np.maximum(exponent - _LARGEST_EXPONENT, 0.0)
        wealth = np.zeros((len(observed), len(SUSPICIONS)))
        for weight in [1.0] if self.shares is None else np.unique(weights):
            # A canary of this length faces that much more noise.
            bets = step_bets(float(rate), float(noise_multiplier / weight))
            of_weight = weights == weight
            wealth += bets.log_growth(
                observed[:, of_weight & ~self.coins] / weight,
                observed[:, of_weight & self.coins] / weight,
            )
        for ratio in ratios:
            self.scores += ratio
        wealth = np.cumsum(np.vstack([self.log_wealth, wealth]), axis=0)
        self.log_wealth = wealth[-1]
        self.largest_e_value = max(self.largest_e_value, evidence_of(wealth))
        self.history += [(float(noise_multiplier), float(rate))] * len(observed)

    def ranks(self, scores: Array) -> tuple[Array, Mask]:
        """The order of the scores, and the coin of each, shuffled: numbers of errors, no score.

        Each score is replaced by a number that depends on its rank only: its quantile in two
        normal populations that are confused as often as these scores. So every bound that counts
        errors is the same as for the scores, and no number belongs to a coordinate.
        """
        rank, inserted = rankdata(scores), int(self.coins.sum())
        total, others = len(rank), len(rank) - inserted
        area = (rank[self.coins].sum() - inserted * (inserted + 1) / 2) / max(1, inserted * others)
        apart = math.sqrt(2) * float(ndtri(np.clip(area, 0.5, 1 - 0.5 / total**2)))
        grid = np.linspace(-9.0, apart + 9.0, 20_001)
        below = (others * ndtr(grid) + inserted * ndtr(grid - apart)) / total
        order = np.random.default_rng([self.seed, self.steps]).permutation(total)
        return np.interp((rank - 0.5) / total, below, grid)[order], self.coins[order]

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to continue after a checkpoint, as plain data. It is secret."""
        return {
            "seed": self.seed,
            "sizes": list(self.sizes),
            "scores": self.scores.tolist(),
            "log_wealth": self.log_wealth.tolist(),
            "largest_e_value": self.largest_e_value,
            "history": [list(step) for step in self.history],
            "not_finite": self.not_finite,
            "start": None if self.start is None else self.start.tolist(),
            "joining": self._bits.state,
            "latest": [values.tolist() for values in self._latest],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where `state_dict` was taken; the training must have the same tensors."""
        if tuple(state["sizes"]) != self.sizes or len(state["scores"]) != len(self.scores):
            raise InvalidInput(
                "the checkpoint of the live audit belongs to another training: it has "
                f"{len(state['scores']):,} canaries in {len(state['sizes'])} tensors, this one "
                f"has {len(self.scores):,} in {len(self.sizes)}; start a new live audit"
            )
        restored = LiveEvidence(
            self.sizes,
            canaries=len(self.scores),
            seed=int(state["seed"]),
            shares=self.shares,
            bands=self.bands,
        )
        vars(self).update(vars(restored))
        self.scores = np.array(state["scores"], dtype=float)
        self.log_wealth = np.array(state["log_wealth"], dtype=float)
        self.largest_e_value = float(state["largest_e_value"])
        self.history = [(float(noise), float(rate)) for noise, rate in state["history"]]
        self.not_finite = int(state["not_finite"])
        self.start = None if state["start"] is None else np.array(state["start"], dtype=float)
        self._bits.state = state["joining"]
        self._latest = [np.array(values, dtype=float) for values in state["latest"]]
