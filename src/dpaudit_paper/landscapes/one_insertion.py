r"""One insertion, then clean steps: what is proven about every landscape, from both sides.

Units: the insertion gives :math:`N(0, \sigma^2)` or :math:`N(1, \sigma^2)`; a clean step moves
every position by at most :math:`\beta` and adds noise :math:`s`. Fix :math:`\lambda = e^\epsilon`,
and let :math:`V_n(\nu)` be the largest positive mass that n clean steps and a test can keep of a
signed measure :math:`\nu`, so that :math:`\delta_T(\epsilon) = V_{T-1}(p_1 - \lambda p_0)`. Let
:math:`h(x)` be the probability that a run is accepted which is at x before these n steps.

**One clean step** (exact). By Neyman and Pearson, for all x and y,

.. math:: h(y) \le R_1(|y - x|, h(x)), \qquad
    R_1(r, \alpha) = \Phi(\Phi^{-1}(\alpha) + (r + 2\beta)/s) ,

and if :math:`\nu` changes its sign once, a push away from the sign change attains the maximum.

**Several clean steps** (upper bound, `at_most`). For two points at a distance r let
:math:`V_n(r, \lambda)` be the largest :math:`h(y) - \lambda h(x)`. The first step moves the points
to a distance of at most :math:`D = r + 2\beta` and adds noise, so that for n = 2 one clean step
remains for :math:`N(D, s^2) - \lambda N(0, s^2)`, which changes its sign once: :math:`V_2` is
exact. (A smaller distance is no better: the contraction of the wider pair keeps
:math:`h(y) \le R_1(|y - x|, h(x))`, because :math:`R_1` increases in r and is concave in
:math:`\alpha`.) Hence :math:`h(y) \le V_2(y - x, \lambda) + \lambda h(x)` for all x, y and
:math:`\lambda`, in any dimension, and the largest :math:`\int h\,d\nu` under a finite number of
these constraints, averaged over pairs of cells, is a linear program. Every feasible point of its
dual is an upper bound. Later steps are post-processing, so that it holds for all :math:`T \ge 3`.

**The advantage** (exact for every T, `advantage`). At :math:`\epsilon = 0` couple the runs with
and without the canary by reflection, and let them stay together once they meet. A move changes
their distance by at most :math:`2\beta`; a fixed threshold at C/2 changes it by exactly that. So
the mirrored pair meets last, and its probability of not having met is its total variation, by the
reflection principle. It is the mass of a walk that is absorbed at 0 *inside* the steps.

**Long trainings** (lower bound, `lasts`). After T steps of a moving threshold the last threshold
stays. A run at a distance y from it, which is pushed away by :math:`\beta` in every step, ever
crosses it with probability at most :math:`\exp(-2\beta y/s^2)` (Lundberg). Positions are rounded
down with the canary and up without it: pushes away from a threshold are increasing maps, so that
the bound holds at every later step.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.interpolate import CubicSpline
from scipy.optimize import linprog
from scipy.signal import fftconvolve
from scipy.sparse import coo_matrix
from scipy.special import ndtr

from dpaudit._arrays import Array
from dpaudit._roots import sign_change
from dpaudit.curves import gaussian_epsilon
from dpaudit_paper.landscapes.moving_threshold import forward
from dpaudit_paper.landscapes.process import LandscapeProcess

_TAILS = 9.0
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)


def advantage(process: LandscapeProcess, *, cells: int = 60) -> Array:
    r"""The largest advantage of any landscape after steps 1, …, T: delta at epsilon = 0.

    Arguments:
        process: Noise, batch size, steps and scaling; its landscape is not used.
        cells: Cells of the grid in the smaller of the two noise deviations.

    Example:
        >>> from dpaudit_paper.landscapes import Constant
        >>> process = LandscapeProcess(
        ...     noise_multiplier=1, batch_size=1, steps=3, landscape=Constant()
        ... )
        >>> advantage(process).round(4).tolist()
        [0.3829, 0.3637, 0.3585]
    """
    sigma, noise, reach = process.noise_multiplier, process.step_noise, process.reach
    width = min(sigma, noise) / cells
    half = 0.5 + _TAILS * (sigma + noise * math.sqrt(process.steps))
    x: Array = width * (
        np.arange(math.ceil(half / width), dtype=np.float64) + 0.5
    )  # distances from C/2
    mass = width * (_normal(x - 0.5, sigma) - _normal(x + 0.5, sigma))
    beyond, kept = 0.0, [float(mass.sum())]  # beyond: too far away to be absorbed
    size = math.ceil(_TAILS * noise / width) + 1
    offsets: Array = width * np.arange(-size, size + 1, dtype=np.float64)
    kernel = width * _normal(offsets, noise)
    kernel /= kernel.sum()
    whole, part = divmod(reach / width, 1.0)
    for _ in range(1, process.steps):
        # A push by a fraction of a cell is split between two cells.
        moved = np.zeros(x.size)
        for cells_on, share in ((int(whole), 1 - part), (int(whole) + 1, part)):
            stays = max(0, x.size - cells_on)
            beyond += share * float(mass[stays:].sum())
            moved[x.size - stays :] += share * mass[:stays]
        both = np.concatenate([-moved[::-1], moved])
        spread = fftconvolve(both, kernel, mode="full")[x.size + size :]
        mass, beyond = spread[: x.size], beyond + float(spread[x.size :].sum())
        kept.append(float(mass.sum()) + beyond)
    return np.array(kept)


def after_one_clean_step(process: LandscapeProcess, *, delta: float = 1e-5) -> float:
    """The exact epsilon of the best landscape at T = 2, an upper bound for every T >= 2.

    Arguments:
        process: Noise, batch size and scaling; its landscape and steps are not used.
        delta: Delta at which epsilon is computed.

    Example:
        >>> from dpaudit_paper.landscapes import Constant
        >>> process = LandscapeProcess(
        ...     noise_multiplier=1, batch_size=1, steps=2, landscape=Constant()
        ... )
        >>> round(after_one_clean_step(process), 4)
        4.0765
    """
    sigma = process.noise_multiplier
    step = {"before": sigma, "noise": process.step_noise, "reach": process.reach}

    def excess(epsilon: float) -> float:
        return delta - float(one_clean_step(np.array([epsilon]), apart=1.0, **step)[0])

    highest = gaussian_epsilon(delta, 1 / sigma)
    return highest if excess(highest) <= 0 else sign_change(excess, 0.0, highest)[1]


def at_most(process: LandscapeProcess, *, delta: float = 1e-5, cells: int = 20) -> float:
    r"""An upper bound on epsilon for all landscapes and every :math:`T \ge 3`.

    Arguments:
        process: Noise, batch size and scaling; its landscape and steps are not used.
        delta: Delta at which epsilon is bounded.
        cells: Cells of the signed measure on each side of its sign change.

    Example:
        >>> from dpaudit_paper.landscapes import Constant
        >>> process = LandscapeProcess(
        ...     noise_multiplier=1, batch_size=1, steps=3, landscape=Constant()
        ... )
        >>> 3.99 < at_most(process, cells=8) < 4.0765
        True
    """
    sigma, noise, reach = process.noise_multiplier, process.step_noise, process.reach
    highest = gaussian_epsilon(delta, 1 / sigma)
    # How far cells reach on both sides of the sign change, and the multipliers that are tried.
    spans = 4 * sigma, 8 * min(sigma, 1 / highest)
    logs = np.linspace(-1.0, 18.0, 48)
    # The largest value is smooth in the distance.
    nodes = sum(spans) * np.linspace(0.0, 1.0, 41)
    moved = {"before": noise, "noise": noise, "reach": reach}
    values = np.array([one_clean_step(logs, apart=each + 2 * reach, **moved) for each in nodes])
    largest = CubicSpline(nodes, values)

    def excess(epsilon: float) -> float:
        bound = _dual_bound(epsilon, sigma, spans, cells, largest, np.exp(logs))
        return math.log(delta / bound)

    one_step = after_one_clean_step(process, delta=delta)
    if excess(one_step) <= 0:
        return one_step
    low = one_step / 2
    while excess(low) > 0:
        low /= 2
    return sign_change(excess, low, one_step, tolerance=2e-5 * one_step)[1]


def one_clean_step(
    logs: Array, *, apart: float, before: float, noise: float, reach: float
) -> Array:
    r"""The largest mass that one clean step keeps of two normals, for many :math:`\lambda`.

    The measure is :math:`N(D, b^2) - \lambda N(0, b^2)`; see `one_clean_step_delta` of
    `dpaudit.upper_bounds.hidden_state`, which shares no code with this.

    Arguments:
        logs: The logarithms of :math:`\lambda`.
        apart: Distance D of the means.
        before: Deviation b before the step.
        noise: Noise s of the step.
        reach: Longest move :math:`\beta` of the step.
    """
    apart = apart / before
    change = apart / 2 + logs / apart  # where the measure changes its sign
    panels = math.ceil(_TAILS + np.abs(logs).max() / apart + apart)
    y = (np.arange(panels)[:, None] + 0.5 + _NODES / 2).ravel()
    weights = np.tile(_WEIGHTS / 2, panels)
    above = weights * _normal(change[:, None] + y - apart, 1.0) * -np.expm1(-apart * y)
    below = weights * _normal(change[:, None] - y, 1.0) * -np.expm1(-apart * y)
    below *= np.exp(logs)[:, None]
    pushed = (before * y + reach) / noise
    low = np.full(logs.size, -pushed[-1] - _TAILS)
    high = -low
    for _ in range(40):  # the mass beyond a cut increases and then decreases in the cut
        cut = ((low + high) / 2)[:, None]
        gain, loss = above * _normal(pushed - cut, 1.0), below * _normal(pushed + cut, 1.0)
        rising = loss.sum(axis=1) > gain.sum(axis=1)
        low, high = np.where(rising, cut[:, 0], low), np.where(rising, high, cut[:, 0])
    cut = ((low + high) / 2)[:, None]
    kept = (above * ndtr(pushed - cut)).sum(axis=1) - (below * ndtr(-pushed - cut)).sum(axis=1)
    return np.asarray(np.maximum(kept * (1 + 1e-9), np.maximum(-np.expm1(logs), 0.0)))


_PARTS = 4  # of a cell, over which the constraints are averaged


def _dual_bound(
    epsilon: float,
    sigma: float,
    spans: tuple[float, float],
    cells: int,
    largest: CubicSpline,
    ratios: Array,
) -> float:
    """The value of a feasible point of the dual, computed from its multipliers alone."""
    change, size = 0.5 + epsilon * sigma**2, cells * _PARTS
    ends, masses, places = [], [], []
    for side, span in zip((-1, 1), spans, strict=True):
        edges = change + side * span * np.linspace(0.0, 1.0, size + 1) ** 1.5  # finer near it
        inserted, ordinary = np.diff(ndtr((edges - 1) / sigma)), np.diff(ndtr(edges / sigma))
        masses.append(np.abs(inserted - math.exp(epsilon) * ordinary).reshape(cells, -1))
        places.append(np.abs((edges[1:] + edges[:-1]) / 2 - change).reshape(cells, -1))
        ends.append(edges[-1])
    negative, positive = (side.sum(axis=1) for side in masses)
    far = float(ndtr(-(ends[1] - 1) / sigma) - math.exp(epsilon) * ndtr(-ends[1] / sigma))
    # The mean of h over a cell on the right is at most the mean of V, and lambda times the mean of
    # h over a cell on the left: V is averaged over both cells.
    table = np.asarray(largest(np.add.outer(*places)))
    shares = [side / side.sum(axis=1, keepdims=True) for side in masses]
    mean = np.einsum("ip,jq,ipjqk->ijk", *shares, table, optimize=True)
    i, j, k = (grid.ravel() for grid in np.indices(mean.shape))
    row = np.arange(i.size)
    matrix = coo_matrix(
        (
            np.concatenate([-ratios[k], np.ones(i.size)]),
            (np.tile(row, 2), np.concatenate([i, cells + j])),
        )
    ).tocsr()
    scale = 1 / float(positive.sum())
    gains = np.concatenate([-negative, positive])
    solved = linprog(
        -scale * gains, A_ub=matrix, b_ub=mean.ravel(), bounds=(0, 1), method="highs-ds"
    )
    multipliers = np.maximum(-solved.ineqlin.marginals, 0.0) / scale
    # Weak duality: whatever the multipliers, no h in [0, 1] exceeds this.
    rest = np.maximum(gains - matrix.T @ multipliers, 0.0)
    return float(multipliers @ mean.ravel() + rest.sum()) + max(far, 0.0)


def lasts(
    process: LandscapeProcess, *, delta: float = 1e-5, cells: int = 1600, guess: float | None = None
) -> float:
    """An epsilon that the moving threshold keeps at T and at every later step.

    Arguments:
        process: Noise, batch size, steps T and scaling; its landscape is not used.
        delta: Delta at which epsilon is bounded.
        cells: Cells of the grid in a move.
        guess: The epsilon whose thresholds are used; by default the one kept after T steps.
    """
    sigma, noise, reach = process.noise_multiplier, process.step_noise, process.reach
    highest = gaussian_epsilon(delta, 1 / sigma)
    if guess is None:
        guess = sign_change(lambda e: delta - forward(process, e)[0], 0.0, highest)[0]
    width = reach / cells
    size = math.ceil((_TAILS * (sigma + noise * 2) + 2 + guess * sigma**2) / width)
    edges = width * np.arange(-size, size + 1)
    masses = [-np.diff(ndtr(-(edges - mean) / sigma)) for mean in (0.0, 1.0)]
    spread = math.ceil(_TAILS * noise / width)
    kernel = -np.diff(ndtr(-width * np.arange(-spread, spread + 1) / noise))
    # Lattice points: without the canary at upper ends of cells, with it at lower ends.
    places = [edges[1:].copy(), edges[:-1].copy()]
    accepted = [0.0, 0.0]
    thresholds = forward(process, guess)[1]
    for threshold in thresholds[: process.steps - 1]:
        for canary in range(2):
            right = places[canary] >= threshold
            first = int(np.argmax(right)) if right.any() else right.size
            pushed = np.zeros(masses[canary].size + 2 * cells)
            pushed[:first] = masses[canary][:first]
            pushed[first + 2 * cells :] = masses[canary][first:]
            masses[canary] = np.maximum(fftconvolve(pushed, kernel), 0.0)
            start = places[canary][0] - reach + width * (-spread + (canary == 0))
            places[canary] = start + width * np.arange(masses[canary].size)
    last = thresholds[-1]
    slope = 2 * reach / noise**2
    away = np.maximum(np.abs(places[0] - last), 0.0)
    accepted[0] = float((masses[0] * np.where(places[0] < last, np.exp(-slope * away), 1.0)).sum())
    away = np.maximum(places[1] - last, 0.0)
    accepted[1] = float((masses[1] * -np.expm1(-slope * away)).sum())
    accepted[0] += 1e-13  # rounding, and the tails that were cut
    accepted[1] -= 1e-13
    return math.log((accepted[1] - delta) / accepted[0])


def _normal(x: Array, deviation: float) -> Array:
    return np.asarray(np.exp(-0.5 * (x / deviation) ** 2) / (deviation * math.sqrt(2 * math.pi)))
