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

**Several clean steps** (upper bound, `at_most`). Let :math:`V_n(r, \lambda)` be the largest
:math:`h(y) - \lambda h(x)` over all landscapes of n clean steps, in any dimension, and all points
at a distance of at most r; :math:`V_1(r, \lambda) = \max_\alpha R_1(r, \alpha) - \lambda\alpha`.

1. *From pairs to a measure.* Let :math:`\nu` change its sign once, at :math:`\tau`, and match every
   y on its right with one x(y) on its left, where x decreases from :math:`\tau`. With
   :math:`\lambda(y) = \nu^-(x)|x'(y)| / \nu^+(y)`,

   .. math:: \int h\,d\nu = \int (h(y) - \lambda(y) h(x(y)))\,d\nu^+(y)
       \le \int V_n(y - x(y), \lambda(y))\,d\nu^+(y) .

   This holds for *every* matching.
2. *One step more.* The first of n + 1 clean steps moves two points to a distance of at most
   :math:`D = r + 2\beta` and adds noise, so that :math:`V_{n+1}(r, \lambda)` is at most the largest
   :math:`\int h\,d\nu` for :math:`\nu = N(D, s^2) - \lambda N(0, s^2)`, to which 1 applies. In
   several dimensions h is averaged over the orthogonal coordinates.
3. *A smaller distance is no better.* The pair at a distance D' < D is the wider pair, contracted by
   D'/D, with independent noise added. The average of h over this noise, after the contraction,
   satisfies the same constraints, because :math:`V_n` increases in r.

Later steps are post-processing, so that the bound for T holds for every longer training.

*Outward rounding.* Nothing is approximated by quadrature or interpolation. Cells right and left of
:math:`\tau` are matched such that the distance is between two nodes, :math:`r_i` and
:math:`r_{i+1} = r_i + w`. In a pair of cells :math:`\lambda` is the ratio of two masses, and only
the mean distance counts, by two inequalities. In :math:`\lambda`, :math:`V_n` is convex and below
its chords. In r, :math:`V_n(r, \lambda)` is the largest :math:`u(z') - \lambda u(z)` over
:math:`|z' - z| \le r + 2\beta` with :math:`u = h * \varphi_s`. In units of s is
:math:`u''(z) + u(z) = \int h(x)\,(x - z)^2 \varphi(x - z)\,dx \ge 0`, so that u is below the
sinusoid through its values at both ends of an interval of length w. Sines are concave, so at the
mean distance :math:`r_i + fw`, with :math:`a \sin w = \sin((1 - f)w)` and
:math:`b \sin w = \sin(fw)`, the mean of :math:`h(y) - \lambda h(x)` is at most

.. math:: a\,V_n(r_i, \lambda/(a + b)) + b\,V_n(r_{i+1}, \lambda/(a + b)) .

What remains are rounding errors of masses, means and positive sums. More than these is added, if
NumPy's and SciPy's functions are right to 15 digits.

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
from functools import lru_cache

import numpy as np
from scipy.fft import irfft, rfft
from scipy.interpolate import RectBivariateSpline
from scipy.signal import fftconvolve
from scipy.special import log_ndtr, ndtr

from dpaudit._arrays import Array, Integers
from dpaudit._roots import sign_change
from dpaudit.curves import gaussian_epsilon
from dpaudit.errors import InvalidInput
from dpaudit_paper.landscapes.moving_threshold import forward, normal_density
from dpaudit_paper.landscapes.pair import normal_mass
from dpaudit_paper.landscapes.process import LandscapeProcess

_TAILS = 9.0


def advantage(process: LandscapeProcess, *, cells: int = 30) -> Array:
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
    push = math.ceil(cells * process.reach / min(process.noise_multiplier, process.step_noise))
    # The midpoint rule's error is quadratic in the width of a cell.
    return (4 * _absorbed(process, 2 * push) - _absorbed(process, push)) / 3


def _absorbed(process: LandscapeProcess, push: int) -> Array:
    """The mass of the absorbed walk after each step, on a grid with ``push`` cells in a move."""
    sigma, noise, width = process.noise_multiplier, process.step_noise, process.reach / push
    half = 0.5 + _TAILS * (sigma + noise * math.sqrt(process.steps))
    x: Array = width * (np.arange(math.ceil(half / width), dtype=float) + 0.5)  # from C/2
    mass = width * (normal_density(x - 0.5, sigma) - normal_density(x + 0.5, sigma))
    beyond, masses = 0.0, [float(mass.sum())]  # beyond: too far away to be absorbed
    size = math.ceil(_TAILS * noise / width) + 1
    kernel = width * normal_density(width * np.arange(-size, size + 1, dtype=float), noise)
    kernel /= kernel.sum()
    for _ in range(1, process.steps):
        stays = max(0, x.size - push)
        beyond += float(mass[stays:].sum())
        moved = np.concatenate([np.zeros(x.size - stays), mass[:stays]])
        both = np.concatenate([-moved[::-1], moved])
        spread = fftconvolve(both, kernel, mode="full")[x.size + size :]
        mass, beyond = spread[: x.size], beyond + float(spread[x.size :].sum())
        masses.append(float(mass.sum()) + beyond)
    return np.array(masses)


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
    if excess(highest) <= 0:
        return highest * (1 + 1e-9)
    return sign_change(excess, 0.0, highest, tolerance=1e-9)[1]


def at_most(process: LandscapeProcess, *, delta: float = 1e-5) -> Array:
    r"""Upper bounds on epsilon for all landscapes after steps 1, …, T, rounded outwards.

    Arguments:
        process: Noise, batch size, steps and scaling; its landscape is not used.
        delta: Delta at which epsilon is bounded.

    Example:
        >>> from dpaudit_paper.landscapes import Constant
        >>> process = LandscapeProcess(
        ...     noise_multiplier=4, batch_size=4, steps=3, landscape=Constant()
        ... )
        >>> at_most(process).round(3).tolist()
        [0.926, 0.922, 0.92]
    """
    noise = process.step_noise
    mean, deviation = np.array([1 / noise]), process.noise_multiplier / noise
    bounds = [gaussian_epsilon(delta, 1 / process.noise_multiplier) * (1 + 1e-9)]

    def excess(epsilon: float) -> float:
        matched = pairs.keep(mean, np.array([epsilon]), deviation=deviation)
        return math.log(delta / float(matched[0]))

    if process.steps > 1:
        bounds.append(after_one_clean_step(process, delta=delta))
    for steps in range(2, process.steps):
        if bounds[-2] - bounds[-1] < 1e-6 * bounds[-1]:
            bounds += [bounds[-1]] * (process.steps - len(bounds))  # valid for longer trainings
            break
        pairs = pair_bound(process.reach / noise, steps)
        low = bounds[-1] / 2
        while excess(low) > 0:
            low /= 2
        worse = excess(bounds[-1]) <= 0  # where one more step gains less than the matching loses
        bounds.append(
            bounds[-1] if worse else sign_change(excess, low, bounds[-1], tolerance=1e-7)[1]
        )
    return np.array(bounds)


def composed_at_most(process: LandscapeProcess, *, delta: float = 1e-5) -> float:
    """An upper bound on epsilon for all landscapes, if every period begins with an insertion.

    Insertions compose: the next one starts from whatever model the period before gave. The least
    convex curve through the bounds of one period dominates it, because its true curve is convex.

    Arguments:
        process: Noise, batch size, steps and period; its landscape is not used.
        delta: Delta at which epsilon is bounded.
    """
    from dp_accounting.pld.pld_pmf import create_pmf_pessimistic_connect_dots
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    if process.scaling != "dpsgd" or process.period is None or process.period < 2:
        raise InvalidInput(
            f"process must have DP-SGD's scaling and a period of at least 2, got {process!r}"
        )
    sigma, interval = process.noise_multiplier, 1e-3
    most = math.ceil((0.5 / sigma**2 + _TAILS / sigma) / interval)
    logs: Array = interval * np.arange(most + 1, dtype=float)
    clean = min(process.period - 1, 100)  # a bound for fewer clean steps is valid for more
    pairs = pair_bound(process.reach / process.step_noise, clean)
    above = pairs.keep(np.full(logs.size, 1 / sigma), logs)
    below = -np.expm1(-logs[:0:-1]) + np.exp(-logs[:0:-1]) * above[:0:-1]
    curve = np.minimum(np.concatenate([below, above]), 1.0)
    ratios = np.exp(interval * np.arange(-most, most + 1))
    corners: list[int] = []
    for place in range(ratios.size):
        while len(corners) > 1:
            first, second = corners[-2:]
            slope = (curve[place] - curve[first]) / (ratios[place] - ratios[first])
            if curve[second] < curve[first] + slope * (ratios[second] - ratios[first]):
                break
            corners.pop()
        corners.append(place)
    convex = np.interp(ratios, ratios[corners], curve[corners])
    losses = create_pmf_pessimistic_connect_dots(interval, np.arange(-most, most + 1), convex)
    composed = PrivacyLossDistribution(losses).self_compose(process.insertions(process.steps))
    return float(composed.get_epsilon_for_delta(delta))


class PairBound:
    r"""An upper bound on :math:`V_n(r, \lambda)`; lengths are in units of the step's noise.

    Arguments:
        reach: Longest move of a step.
        values: The bound at `DISTANCES` and, for each of them, at the logarithms of
            :math:`\lambda` given by `PLACES`; by default that of one clean step.
        bends: The best matching at each node.
    """

    DISTANCES = np.linspace(0.0, 12.0, 161)
    PLACES = 7 * np.linspace(0.0, 1.0, 241) ** 1.5  # of the sign change of a pair at r + 2 reach

    def __init__(
        self, reach: float, values: Array | None = None, bends: Array | None = None
    ) -> None:
        self.reach = reach
        self.widths = self.DISTANCES + 2 * reach
        self.logs = self.PLACES * self.widths[:, None]
        if values is None:
            values = _difference(self.widths[:, None], self.logs) * (1 + 1e-10)
        self.values = values
        self.bends = np.broadcast_to(self.PLACES / 3, values.shape) if bends is None else bends

    def __call__(self, node: Integers, logs: Array) -> Array:
        """The bound at some of the `DISTANCES`: a chord between two nodes, for any lambda."""
        size = np.abs(logs)
        width, last = self.widths[node], len(self.PLACES) - 1
        share = np.minimum(size / width / self.PLACES[-1], 1.0)
        left = np.minimum((last * share ** (2 / 3)).astype(int), last - 1)
        low, high = self.PLACES[left] * width, self.PLACES[left + 1] * width
        part = np.clip(np.expm1(size - low) / np.expm1(high - low), 0.0, 1.0)
        value = (1 - part) * self.values[node, left] + part * self.values[node, left + 1]
        # The test that rejects where another accepts: V(r, 1/l) = 1 - 1/l + V(r, l)/l.
        return np.asarray(np.where(logs >= 0, value, -np.expm1(-size) + np.exp(-size) * value))

    def keep(self, means: Array, logs: Array, *, deviation: float = 1.0) -> Array:
        r"""An upper bound on what many :math:`N(D, b^2) - \lambda N(0, b^2)` keep.

        Arguments:
            means: The distances D.
            logs: The logarithms of :math:`\lambda`.
            deviation: The deviation b.
        """
        rows = max(1, 200_000 // len(self.DISTANCES))
        parts = [slice(start, start + rows) for start in range(0, len(logs), rows)]
        return np.concatenate(
            [
                self._best(means[part], logs[part], np.full(len(logs[part]), 0.6), deviation)[1]
                for part in parts
            ]
        )

    def one_step_more(self) -> PairBound:
        """The bound for one more clean step."""
        widths = np.broadcast_to(self.widths[:, None], self.logs.shape)
        means, logs, bends = (each[::8, ::8].ravel() for each in (widths, self.logs, self.bends))
        best = self._best(means, logs, bends, 1.0)[0].reshape(widths[::8, ::8].shape)
        nodes = [np.arange(size) for size in widths.shape]
        spline = RectBivariateSpline(nodes[0][::8], nodes[1][::8], best, kx=1, ky=1)
        every = spline(*nodes)
        values = [
            self._matched(np.full(row.size, width), row, bend, 1.0)
            for width, row, bend in zip(self.widths, self.logs, every, strict=True)
        ]
        return PairBound(self.reach, np.minimum(np.array(values), self.values), every)

    def _best(
        self, means: Array, logs: Array, bends: Array, deviation: float
    ) -> tuple[Array, Array]:
        """The best matchings of a search from some, and what they prove."""
        least = self._matched(means, logs, bends, deviation)
        for step in 0.8 * 0.5 ** np.arange(7):
            for trial in (bends + step, bends - step):
                value = self._matched(means, logs, trial, deviation)
                bends = np.where(value < least, trial, bends)
                least = np.minimum(least, value)
        return bends, least

    def _matched(self, means: Array, logs: Array, bends: Array, deviation: float) -> Array:
        r"""The first step of the proof, with any matching.

        Two points at a distance r divide it in a ratio of :math:`e^{a/(1 + 0.35 r)}`, which tends
        to 1, as both tails are normal. Both move away from the sign change for every a.
        """
        apart, logs = (means / deviation)[:, None], logs[:, None]
        change = apart / 2 + logs / apart
        right = self.DISTANCES / (
            1 + np.exp(bends[:, None] / (1 + 0.35 * self.DISTANCES / deviation))
        )
        above, more, high = _cells(right / deviation, change - apart, change, logs)
        left = (self.DISTANCES - right) / deviation
        below, less, low = _cells(left, -change, apart - change, -logs)
        width = self.DISTANCES[1]
        share = np.clip(((high + low) * deviation - self.DISTANCES[:-1]) / width, 0.0, 1.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = logs + np.log(below - less) - np.log(above + more) - 1e-9
        near, far = (np.sin(part * width) / np.sin(width) + 1e-6 for part in (1 - share, share))
        ratio = np.where(np.isfinite(ratio), ratio - np.log(near + far), -700.0)
        node = np.arange(share.shape[1])
        pairs = np.minimum(near * self(node, ratio) + far * self(node + 1, ratio), 1.0)
        last = change[:, 0] + right[:, -1] / deviation
        beyond = ndtr(apart[:, 0] - last) - np.exp(logs[:, 0]) * ndtr(-last) * (1 - 1e-12)
        kept = ((above + more) * pairs).sum(axis=1) + beyond
        return np.asarray(np.minimum(kept * (1 + 1e-9), 1.0))


def _cells(edges: Array, near: Array, far: Array, logs: Array) -> tuple[Array, Array, Array]:
    r"""Masses of :math:`\varphi(x + near) - \lambda\varphi(x + far)` in cells, and means of x.

    The second of the three results bounds the error of the masses. Where it matters, the means are
    the upper ends of the cells.
    """
    masses, moments, error = [], [], np.zeros(())
    for shift, ratio in ((near, np.ones(())), (far, np.exp(logs))):
        place = edges + shift
        tails, peaks = ndtr(-np.abs(place)), normal_density(place, 1.0)
        across = (place[:, :-1] < 0) & (place[:, 1:] > 0)
        mass = np.where(across, 1 - tails[:, :-1] - tails[:, 1:], np.abs(np.diff(tails)))
        masses.append(ratio * mass)
        moments.append(-ratio * (np.diff(peaks) + shift * mass))
        wrong = 1e-15 * (4 + place**2) * tails  # rounding of the place counts for large ones
        error = error + ratio * (wrong[:, :-1] + wrong[:, 1:] + 1e-15 * across)
    mass, moment = masses[0] - masses[1], moments[0] - moments[1]
    sure = mass > 1e9 * error
    mean = np.clip(moment / np.where(sure, mass, 1.0), edges[:, :-1], edges[:, 1:])
    return np.maximum(mass, 0.0), error, np.where(sure, mean, edges[:, 1:])


@lru_cache(maxsize=256)
def pair_bound(reach: float, steps: int) -> PairBound:
    """The bound for a number of clean steps.

    Arguments:
        reach: Longest move of a step, in units of its noise.
        steps: Number of clean steps.
    """
    return PairBound(reach) if steps == 1 else pair_bound(reach, steps - 1).one_step_more()


def _difference(apart: Array, logs: Array) -> Array:
    r"""The largest mass of :math:`N(D, 1) - \lambda N(0, 1)` on any set."""
    above = log_ndtr(apart / 2 - logs / apart)
    below = log_ndtr(-apart / 2 - logs / apart) + logs
    return np.asarray(-np.exp(above) * np.expm1(np.minimum(below - above, 0.0)))


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
    span = _TAILS + float(np.abs(logs).max()) / apart + apart
    edges = np.linspace(0.0, span, math.ceil(500 * span * max(1.0, before / noise)))[None]
    logs = logs[:, None]
    change = apart / 2 + logs / apart
    above, more, high = _cells(edges, change - apart, change, logs)
    below, less, low = _cells(edges, -change, apart - change, -logs)
    above, below = above + more, np.exp(logs) * (below - less)
    right, left = (reach + before * high) / noise, -(reach + before * low) / noise
    last = np.full(logs.shape, right.max() + _TAILS)
    first = -last
    for _ in range(40):  # the mass beyond a cut increases and then decreases in the cut
        cut = (first + last) / 2
        gain = (above * normal_density(right - cut, 1.0)).sum(axis=1)
        rising = ((below * normal_density(left - cut, 1.0)).sum(axis=1) > gain)[:, None]
        first, last = np.where(rising, cut, first), np.where(rising, last, cut)
    # Far enough apart that the signs at both are certain.
    first, last = first - 1e-5, last + 1e-5
    width = edges[0, 1] * before / noise
    leak = (above * _in_cells(right - first, width, 1)).sum(axis=1)
    leak -= (below * _in_cells(left - last, width, -1)).sum(axis=1) * (1 - 1e-8)
    leak += ndtr(apart - span - change[:, 0])
    return np.asarray(np.maximum(leak * (1 + 1e-8), np.maximum(-np.expm1(logs[:, 0]), 0.0)))


def _in_cells(means: Array, width: float, sign: int) -> Array:
    """Upper (sign 1) or lower bounds (-1) on means of ndtr in cells, from those of its argument."""
    peaks = normal_density(np.maximum(np.abs(means) - width, 0.0), 1.0)
    curvature = np.maximum(width - sign * means, 0.0) * peaks
    return np.asarray(ndtr(means) + sign * width**2 / 8 * curvature)


def lasts(
    process: LandscapeProcess, *, delta: float = 1e-5, cells: int = 6400, guess: float | None = None
) -> float:
    """An epsilon that the moving threshold keeps at T and at every later step, rounded outwards.

    Positions are whole numbers of cells, and thresholds lie between two of them, so that no
    comparison is rounded. Masses are differences of normal probabilities, each with a relative
    error of a few units of rounding u: the errors of all cells add up to less than 1e-15 deviations
    per cell's width, with the tails that are cut.

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
    thresholds = [math.floor(place / width) for place in forward(process, guess)[1]]
    size = math.ceil((_TAILS * (sigma + noise * 2) + 2 + guess * sigma**2) / width)
    edges = width * np.arange(-size, size + 1)
    spread = math.ceil(_TAILS * noise / width)
    steps = width * np.arange(-spread, spread + 1) / noise
    kernel = normal_mass(steps[:-1], steps[1:])
    ends = []
    for canary in range(2):
        # A cell's mass lies at its lower end with the canary, and at its upper end without.
        places = (edges - canary) / sigma
        masses, first = normal_mass(places[:-1], places[1:]), 1 - canary - size
        error = 1e-15 * (1 + 2 * sigma / width)
        for threshold in thresholds[: process.steps - 1]:
            left = min(max(threshold + 1 - first, 0), masses.size)
            pushed = np.zeros(masses.size + 2 * cells)
            pushed[:left], pushed[left + 2 * cells :] = masses[:left], masses[left:]
            masses, wrong = _convolved(pushed, kernel)
            first -= cells + spread - (1 - canary)
            error += wrong + 1e-15 * (1 + 2 * noise / width)
        away = width * (first + np.arange(masses.size) - (thresholds[-1] + 0.5))
        crosses = np.exp(-2 * reach / noise**2 * np.abs(away))  # Lundberg
        stays = np.where(away > 0, 1 - crosses, 0.0) if canary else np.where(away > 0, 1.0, crosses)
        ends.append(float((masses * stays).sum()) + (-error if canary else error))
    without, with_canary = ends
    return math.log((with_canary - delta) / without) - 1e-9


def _convolved(masses: Array, kernel: Array) -> tuple[Array, float]:
    """Two vectors of masses convolved, and a bound on the sum of the absolute errors.

    A transform of :math:`n = 2^m` numbers is wrong by at most 8 u m of its length (Higham,
    *Accuracy and Stability of Numerical Algorithms*, theorem 24.2, with 6.7 u m), and a transform
    of masses is nowhere above 1.
    """
    size = masses.size + kernel.size - 1
    power = math.ceil(math.log2(size))
    product = rfft(masses, 2**power) * rfft(kernel, 2**power)
    result = np.maximum(irfft(product, 2**power)[:size], 0.0)
    lengths = sum(float(np.linalg.norm(vector)) for vector in (masses, kernel, result))
    return result, 8 * 1.2e-16 * power * math.sqrt(2**power) * lengths
