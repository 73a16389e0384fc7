r"""Hidden-state adversaries that insert a gradient: along an axis, or along a random direction.

The gradient is :math:`C e_d` or :math:`C u`, and the score is how far the final model moved against
it. The adversaries differ in how they choose :math:`d` and in what they know of the start.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, final

import numpy as np

from dpaudit import _validate
from dpaudit._arrays import Array
from dpaudit._torch import torch
from dpaudit.adversaries.crafting import (
    drawn_dimensions,
    generator,
    move_along_dimensions,
    movement,
    of_kind,
    parameter_count,
)
from dpaudit.errors import InvalidInput
from dpaudit.mechanisms.dpsgd import DPSGD, Insertion
from dpaudit.mechanisms.final_model import gradient_weights, noise_of_weighted_sum, start_weight
from dpaudit.mechanisms.optimizers import Adam
from dpaudit.threat_models import (
    Canaries,
    CraftedDimensions,
    CraftedGradients,
    HiddenStateAdversary,
    HiddenStateView,
)


@final
@dataclass(frozen=True, kw_only=True)
class RandomDimension(HiddenStateAdversary):
    r"""Inserts :math:`C e_d` for a random dimension :math:`d`.

    The score is :math:`-(\theta_T - \theta_0)_d`, or :math:`-(\theta_T)_d` if the initialisation is
    not public. Every canary has its own dimension.

    See also: `SimulatedDimension`, which chooses the dimension by simulation.

    Paper: Cebere, Bellet, Papernot (ICLR 2025), section 4 and the appendix's algorithm "Random
    Biased Dimension".

    Example:
        >>> from dpaudit.presets import preset
        >>> training = preset("housing").training()
        >>> canaries = RandomDimension().craft(training, Insertion(), canaries=3, seed=0)
        >>> canaries.count, canaries.norm
        (3, 1.0)
    """

    name = "random-dimension"
    paper = "Cebere, Bellet, Papernot (ICLR 2025): A_GC-R"
    year = 2025
    canary = "gradient"

    def craft(
        self, mechanism: DPSGD, insertion: Insertion, *, canaries: int, seed: int
    ) -> CraftedDimensions:
        """Draw ``canaries`` different dimensions."""
        return drawn_dimensions(mechanism, canaries, seed)

    def score(self, view: HiddenStateView, canaries: Canaries) -> torch.Tensor:
        """How far each run moved against each canary's axis."""
        return move_along_dimensions(view, canaries)


Simulation = Literal["noiseless", "noisy"]
Ranking = Literal["per-step", "final-model"]


@final
@dataclass(frozen=True, kw_only=True)
class SimulatedDimension(HiddenStateAdversary):
    r"""Simulates the training and inserts :math:`C e_d` in the dimension that moved least.

    Genuine gradients then hardly change the canary's trace. The score is
    :math:`-(\theta_T - \theta_0)_d`. If the initialisation is not public, the score is
    :math:`-(\theta_T)_d`, and the simulations start from models drawn by the adversary. Several
    canaries take the least-moved dimensions, one each.

    See also: `RandomDimension`, which is as good when the model has many more parameters than the
    batch has examples.

    Paper: Cebere, Bellet, Papernot (ICLR 2025), section 4 and the appendix's algorithm "Simulated
    Biased Dimension", with two corrections: movements add up over the simulations, and the noise
    has standard deviation :math:`\sigma C`.

    Arguments:
        simulation: ``"noiseless"`` trains without noise and without clipping; ``"noisy"`` trains
            as the mechanism does, with noise drawn by the adversary.
        ranking: ``"per-step"`` ranks dimensions by :math:`\sqrt{\sum_t (\theta_{t+1} -
            \theta_t)_d^2}`, ``"final-model"`` by :math:`|\theta_T - \theta_0|_d`.
        simulations: Number of simulated trainings. Noiseless simulations from a public start are
            identical, so only one is run.

    Example:
        >>> SimulatedDimension(ranking="final-model")
        SimulatedDimension(simulation='noiseless', ranking='final-model', simulations=4)
    """

    name = "simulated-dimension"
    paper = "Cebere, Bellet, Papernot (ICLR 2025): A_GC-S"
    year = 2025
    canary = "gradient"

    simulation: Simulation = "noiseless"
    ranking: Ranking = "per-step"
    simulations: int = 4

    def __post_init__(self) -> None:
        _validate.one_of("simulation", self.simulation, ("noiseless", "noisy"))
        _validate.one_of("ranking", self.ranking, ("per-step", "final-model"))
        _validate.integer("simulations", self.simulations, at_least=1)

    def craft(
        self, mechanism: DPSGD, insertion: Insertion, *, canaries: int, seed: int
    ) -> CraftedDimensions:
        """Take the dimensions that moved least; among equals, the first."""
        from dpaudit.engine.simulation import simulate

        parameter_count(mechanism, canaries=canaries)
        simulated = simulate(
            mechanism, noisy=self.simulation == "noisy", runs=self.simulations, seed=seed
        )
        moved = simulated.per_step if self.ranking == "per-step" else simulated.final
        order = moved.argsort(stable=True)
        return CraftedDimensions(dimensions=order[:canaries].clone(), norm=mechanism.clip_norm)

    def score(self, view: HiddenStateView, canaries: Canaries) -> torch.Tensor:
        """How far each run moved against each canary's axis."""
        return move_along_dimensions(view, canaries)


@final
@dataclass(frozen=True, kw_only=True)
class RandomDirection(HiddenStateAdversary):
    r"""Inserts :math:`C u` for a direction :math:`u` drawn uniformly from the sphere.

    The score is the cosine of :math:`u` with :math:`-(\theta_T - \theta_0)`, or with
    :math:`-\theta_T` if the initialisation is not public. The directions of several canaries are
    independent and therefore only nearly orthogonal: they disturb each other a little. They are
    dense: ``canaries`` times the parameters must fit in memory.

    See also: `RandomDimension`.

    Paper: Andrew et al., *One-shot empirical privacy estimation* (ICLR 2024), in the form of
    Cebere, Bellet, Papernot (ICLR 2025), appendix: A_CotS.
    """

    name = "random-direction"
    paper = "Andrew et al. (arXiv 2023, ICLR 2024): Algorithm 2; Cebere et al. (ICLR 2025): A_CotS"
    year = 2023
    canary = "gradient"

    def craft(
        self, mechanism: DPSGD, insertion: Insertion, *, canaries: int, seed: int
    ) -> CraftedGradients:
        """Draw ``canaries`` independent directions."""
        return drawn_directions(mechanism, canaries, seed)

    def score(self, view: HiddenStateView, canaries: Canaries) -> torch.Tensor:
        """The cosine of each run's negative movement with each canary."""
        from torch.nn.functional import normalize

        moved = normalize(movement(view), dim=1)
        return -moved @ normalize(of_kind(canaries, CraftedGradients).gradients.to(moved), dim=1).T


def drawn_directions(mechanism: DPSGD, canaries: int, seed: int) -> CraftedGradients:
    """Independent directions of the full clip norm, uniform on the sphere."""
    parameters = parameter_count(mechanism, canaries=canaries)
    normals = generator(seed).standard_normal((canaries, parameters), dtype="float32")
    drawn = torch.from_numpy(normals)
    lengths = drawn.double().norm(dim=1, keepdim=True)
    return CraftedGradients(gradients=(mechanism.clip_norm * drawn / lengths).float())


_DRAWS = 16  # models drawn to learn the distribution of the start
_VALUES = 4096  # starting values used of each tensor
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

    Shift and noise of the final value follow from optimizer, schedule, averaging, weight decay,
    sampling rate and correlation of the noise. Adam's root of the mean square is taken to be that
    of the noise.

    See also: `RandomDimension`, whose score is the movement itself.
    """

    name = "start-distribution"
    paper = "dpaudit (2026), after Cebere, Bellet, Papernot (ICLR 2025): A_GC-R"
    year = 2026
    canary = "gradient"

    def craft(
        self, mechanism: DPSGD, insertion: Insertion, *, canaries: int, seed: int
    ) -> CraftedDimensions:
        """Draw ``canaries`` different dimensions."""
        _step_weights(mechanism, mechanism.steps)  # refuse before the training, not after it
        return drawn_dimensions(mechanism, canaries, seed)

    def score(self, view: HiddenStateView, canaries: Canaries) -> torch.Tensor:
        """The log-likelihood ratio of each canary under each run."""
        # Descent subtracts: against its axis, a canary moves a parameter up.
        moved = move_along_dimensions(view, canaries)
        values = moved.detach().cpu().numpy().astype(float)
        shift, noise = _shift_and_noise(view)
        if view.initial is not None:
            ratio = (values - shift / 2) * shift / noise**2
        else:
            ratio = _ratios(view, of_kind(canaries, CraftedDimensions), values, shift, noise)
        return torch.from_numpy(ratio).to(moved.device)


def _step_weights(mechanism: DPSGD, steps: int) -> Array:
    """The weight in the released model of each step's noisy sum, in units of the clip norm."""
    weights = gradient_weights(mechanism, steps=steps)
    if weights is None:
        raise InvalidInput(
            f"optimizer must be SGD or Adam for start-distribution, got {mechanism.optimizer!r}; "
            "use the adversary random-dimension"
        )
    unit = mechanism.clip_norm / mechanism.batches.expected_size(len(mechanism.data))
    if isinstance(mechanism.optimizer, Adam):
        weights = weights / (_noise_multiplier(mechanism) * unit + mechanism.optimizer.epsilon)
    return np.asarray(weights * unit)


def _shift_and_noise(view: HiddenStateView) -> tuple[float, float]:
    """How far the insertions move a parameter, and the standard deviation of all noise."""
    mechanism = view.mechanism
    weights = _step_weights(mechanism, view.steps)
    inserted = [step for step in range(view.steps) if view.insertion.at(step)]
    shift = (mechanism.sampling_rate or 1.0) * float(weights[inserted].sum())
    return shift, _noise_multiplier(mechanism) * noise_of_weighted_sum(mechanism, weights)


def _noise_multiplier(mechanism: DPSGD) -> float:
    """The noise multiplier; a little noise where there is none, for a density."""
    return max(mechanism.noise_multiplier, 1e-3)


def _ratios(
    view: HiddenStateView, canaries: CraftedDimensions, values: Array, shift: float, noise: float
) -> Array:
    """The log-likelihood ratios, one tensor of the model after the other."""
    dimensions = canaries.dimensions.cpu().numpy()
    # Against the axis, the start counts with the opposite sign, too.
    start = -start_weight(view.mechanism, view.steps)
    ratios = np.empty_like(values)
    first = 0
    for starts in _starting_values(view.mechanism):
        size = starts.shape[1]
        columns = (dimensions >= first) & (dimensions < first + size)
        if columns.any():
            pooled = start * starts.ravel()
            pooled = pooled[:: max(1, pooled.size // _VALUES)]
            at = values[:, columns]
            low = min(pooled.min(), at.min() - shift) - noise
            high = max(pooled.max() + shift, at.max()) + noise
            grid = np.linspace(low, high, max(_POINTS, math.ceil(4 * (high - low) / noise)))
            density = _log_density(grid, pooled, noise)
            ratios[:, columns] = np.interp(at - shift, grid, density) - np.interp(at, grid, density)
        first += size
    return ratios


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
        logsumexp(-0.5 * ((part[:, None] - starts) / noise) ** 2, axis=1)
        for part in np.array_split(grid, max(1, grid.size // 256))
    ]
    return np.asarray(np.concatenate(parts) - math.log(starts.size), dtype=float)
