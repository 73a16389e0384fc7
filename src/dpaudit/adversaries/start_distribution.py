"""A_GC-R for an unknown start whose distribution is known."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from dpaudit._arrays import Array, Integers
from dpaudit._torch import torch
from dpaudit.adversaries.crafting import move_along_dimensions
from dpaudit.adversaries.random_dimension import RandomDimension
from dpaudit.mechanisms.dpsgd import DPSGD, Insertion
from dpaudit.threat_models import Canaries, CraftedDimensions, HiddenStateAdversary, HiddenStateView

_DRAWS = 16  # models drawn to learn the distribution of the start
_VALUES = 4096  # starting values kept of each tensor
_POINTS = 2048  # of the grid on which the density is computed


@final
@dataclass(frozen=True, kw_only=True)
class StartDistribution(HiddenStateAdversary):
    r"""Inserts :math:`C e_d` as A_GC-R does, and scores by a likelihood ratio.

    If every run draws its own start, the movement of a parameter is not known. Its distribution is:
    the adversary builds models itself and pools the values of each tensor. The score is the
    logarithm of the density of the final value with the canary over that without, for a parameter
    that only noise disturbs. Uniform initialisers have edges, and a value far beyond an edge gives
    the canary away. If the start is public, the score is that of two normal distributions.

    See also: `RandomDimension`, whose score is the movement itself.

    Example:
        >>> from dpaudit.mechanisms.dpsgd import Insertion
        >>> from dpaudit.presets import preset
        >>> training = preset("housing").training()
        >>> canaries = StartDistribution().craft(training, Insertion(), canaries=3, seed=0)
        >>> canaries.count
        3
    """

    name: ClassVar[str] = "start-distribution"
    paper: ClassVar[str] = "dpaudit (2026), after Cebere, Bellet, Papernot (ICLR 2025): A_GC-R"
    year = 2026
    canary = "gradient"

    def craft(
        self, mechanism: DPSGD, insertion: Insertion, *, canaries: int, seed: int
    ) -> CraftedDimensions:
        """Draw ``canaries`` distinct dimensions."""
        return RandomDimension().craft(mechanism, insertion, canaries=canaries, seed=seed)

    def score(self, view: HiddenStateView, canaries: Canaries) -> torch.Tensor:
        """The log-likelihood ratio of each canary under each run."""
        # Descent subtracts: against its axis, a canary moves a parameter up.
        moved = move_along_dimensions(view, canaries)
        values = moved.detach().cpu().numpy().astype(float)
        shift, noise = _shift_and_noise(view)
        if view.initial is not None:
            ratio = (values - shift / 2) * shift / noise**2
        else:
            assert isinstance(canaries, CraftedDimensions)  # move_along_dimensions checks it
            ratio = _ratios(view.mechanism, canaries.dimensions.cpu().numpy(), values, shift, noise)
        return torch.from_numpy(ratio).to(moved.device)


def _shift_and_noise(view: HiddenStateView) -> tuple[float, float]:
    """How far the insertions move a parameter, and the standard deviation of all noise."""
    mechanism = view.mechanism
    size = mechanism.batches.expected_size(len(mechanism.data))
    per_step = mechanism.learning_rate * mechanism.clip_norm / size
    shift = view.insertion.count(view.steps) * per_step
    noise = math.sqrt(view.steps) * max(mechanism.noise_multiplier, 1e-3) * per_step
    return shift, noise


def _ratios(
    mechanism: DPSGD, dimensions: Integers, values: Array, shift: float, noise: float
) -> Array:
    """The log-likelihood ratios, one tensor of the model after the other."""
    found = np.empty_like(values)
    first = 0
    for starts in _starting_values(mechanism):
        size = starts.shape[1]
        mine = (dimensions >= first) & (dimensions < first + size)
        if mine.any():
            # Against the axis, the start counts with the opposite sign, too.
            pooled = -starts.ravel()
            chosen = pooled[:: max(1, pooled.size // _VALUES)]
            at = values[:, mine]
            low = min(chosen.min(), at.min() - shift) - noise
            high = max(chosen.max() + shift, at.max()) + noise
            grid = np.linspace(low, high, max(_POINTS, math.ceil(4 * (high - low) / noise)))
            density = _log_density(grid, chosen, noise)
            found[:, mine] = np.interp(at - shift, grid, density) - np.interp(at, grid, density)
        first += size
    return found


def _starting_values(mechanism: DPSGD) -> list[Array]:
    """Of each trained tensor, its values in several drawn models, shape (draws, values)."""
    from dpaudit.engine.starting_points import build_model, trainable

    models = [trainable(build_model(mechanism, seed=seed)) for seed in range(_DRAWS)]
    return [
        np.stack([value.detach().double().flatten().numpy() for value in same])
        for same in zip(*models, strict=True)
    ]


def _log_density(grid: Array, starts: Array, noise: float) -> Array:
    """The log density of a start plus noise, up to a constant."""
    from scipy.special import logsumexp  # slow to import

    parts = [
        logsumexp(-0.5 * ((some[:, None] - starts) / noise) ** 2, axis=1)
        for some in np.array_split(grid, max(1, grid.size // 256))
    ]
    return np.asarray(np.concatenate(parts) - math.log(starts.size), dtype=float)
