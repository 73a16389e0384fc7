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

   This holds for *every* matching; `_matched` searches a good one.
2. *One step more.* The first of n + 1 clean steps moves two points to a distance of at most
   :math:`D = r + 2\beta` and adds noise, so that :math:`V_{n+1}(r, \lambda)` is at most the largest
   :math:`\int h\,d\nu` for :math:`\nu = N(D, s^2) - \lambda N(0, s^2)`, to which 1 applies. In
   several dimensions h is averaged over the orthogonal coordinates.
3. *A smaller distance is no better.* The pair at a distance D' < D is the wider pair, contracted by
   D'/D, with independent noise added. The average of h over this noise, after the contraction,
   satisfies the same constraints, because :math:`V_n` increases in r.

Later steps are post-processing, so that the bound for T holds for every longer training. The
theorem is proven; the integrals are evaluated in double precision, without outward rounding.

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

from dpaudit._arrays import Array
from dpaudit._roots import sign_change
from dpaudit.curves import gaussian_epsilon
from dpaudit.errors import InvalidInput
from dpaudit_paper.landscapes.moving_threshold import forward, normal_density
from dpaudit_paper.landscapes.pair import normal_mass
from dpaudit_paper.landscapes.process import LandscapeProcess

_TAILS = 9.0
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)


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
        return highest
    return sign_change(excess, 0.0, highest, tolerance=1e-9)[1]


def at_most(process: LandscapeProcess, *, delta: float = 1e-5) -> Array:
    r"""Upper bounds on epsilon for all landscapes after steps 1, …, T.

    Arguments:
        process: Noise, batch size, steps and scaling; its landscape is not used.
        delta: Delta at which epsilon is bounded.

    Example:
        >>> from dpaudit_paper.landscapes import Constant
        >>> process = LandscapeProcess(
        ...     noise_multiplier=1, batch_size=1, steps=3, landscape=Constant()
        ... )
        >>> at_most(process).round(3).tolist()
        [4.377, 4.076, 3.994]
    """
    mean, deviation = 1 / process.step_noise, process.noise_multiplier / process.step_noise
    bounds = [gaussian_epsilon(delta, 1 / process.noise_multiplier)]
    if process.steps > 1:
        bounds.append(after_one_clean_step(process, delta=delta))

    def excess(epsilon: float) -> float:
        matched = _matched(pairs, np.array([mean]), deviation, np.array([epsilon]))
        return math.log(delta / float(matched[0]))

    for steps in range(2, process.steps):
        if bounds[-2] - bounds[-1] < 1e-6 * bounds[-1]:  # also valid for longer trainings
            bounds += [bounds[-1]] * (process.steps - len(bounds))
            break
        pairs = pair_bound(process.reach / process.step_noise, steps)
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
    above = _matched(pairs, np.full(logs.size, 1 / sigma), 1.0, logs)
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

    It is kept as the distance at which two normals differ by as much, which varies slowly. Outside
    the table :math:`V_1` holds, because later steps are post-processing.

    Arguments:
        reach: Longest move of a step.
        effective: The distances at `DISTANCES` and `PLACES`; by default those of one clean step.
    """

    DISTANCES = 14 * np.linspace(0.0, 1.0, 28) ** 1.5
    PLACES = np.linspace(0.0, 10.0, 24)  # where two normals at r + 2 reach change their order

    def __init__(self, reach: float, effective: Array | None = None) -> None:
        self.reach, self._spline = reach, None
        if effective is not None:
            self._spline = RectBivariateSpline(self.DISTANCES, self.PLACES, effective)

    def __call__(self, apart: Array, logs: Array) -> Array:
        size, effective = np.abs(logs), apart + 2 * self.reach
        if self._spline is not None:
            place = size / effective
            inside = (apart <= self.DISTANCES[-1]) & (place <= self.PLACES[-1])
            effective = np.where(inside, self._spline.ev(apart, place), effective)
        value = _difference(effective, size)
        # The test that rejects where another accepts: V(r, 1/l) = 1 - 1/l + V(r, l)/l.
        return np.where(logs >= 0, value, -np.expm1(-size) + np.exp(-size) * value)

    def one_step_more(self) -> PairBound:
        """The bound for one more clean step."""
        apart, place = np.meshgrid(self.DISTANCES, self.PLACES, indexing="ij")
        high = apart + 2 * self.reach
        logs = place * high
        wanted = _matched(self, high.ravel(), 1.0, logs.ravel()).reshape(high.shape)
        low = np.full(high.shape, 1e-9)
        for _ in range(50):
            middle = (low + high) / 2
            short = _difference(middle, logs) < wanted
            low, high = np.where(short, middle, low), np.where(short, high, middle)
        return PairBound(self.reach, high)


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


def _matched(bound: PairBound, means: Array, deviation: float, logs: Array) -> Array:
    r"""The first step of the proof: an upper bound for many :math:`N(D, b^2) - \lambda N(0, b^2)`.

    A point at a distance t right of the sign change is matched with one at :math:`t\,
    e^{a/(1 + ct)}` left of it, in units of b: the ratio tends to 1, as both tails are normal. The
    best of some a and c counts; the match moves away for every :math:`a < 4`.
    """
    apart = (means / deviation)[:, None]
    logs = logs[:, None]
    change = apart / 2 + logs / apart
    # The positive part decays within 1 / (change - apart), or has its peak at apart - change.
    beyond = change - apart
    length = np.where(beyond > 3, 3 / np.maximum(beyond, 3), 1 + np.maximum(-beyond, 0) / _TAILS)
    panels = math.ceil(4 * max(1.0, deviation))
    places = ((np.arange(panels)[:, None] + 0.5 + _NODES / 2) / panels).ravel()
    y = _TAILS * length * places
    weights = _TAILS * length * np.tile(_WEIGHTS / 2, panels) / panels
    above = -0.5 * (y + beyond) ** 2 + np.log(-np.expm1(-apart * y))
    tail = ndtr(-(_TAILS * length + beyond))[:, 0]

    def value(bend: Array, rate: float) -> Array:
        share = 1 / (1 + rate * y)
        ratio = np.exp(bend[:, None] * share)
        x = y * ratio
        slope = ratio * (1 - bend[:, None] * rate * y * share**2)
        below = -0.5 * (change - x) ** 2 + logs + np.log(-np.expm1(-apart * x))
        pairs = bound((x + y) * deviation, below - above + np.log(slope))
        inside = (weights * np.exp(above) * pairs).sum(axis=1) / math.sqrt(2 * math.pi)
        return np.asarray(inside + tail)

    least = np.full(len(means), np.inf)
    for rate in (0.3, 0.7, 1.2, 2.0):
        bend = np.zeros(len(means))
        kept = value(bend, rate)
        for step in 1.6 * 0.5 ** np.arange(7):
            for trial in (bend + step, bend - step):
                value_there = value(trial, rate)
                bend = np.where(value_there < kept, trial, bend)
                kept = np.minimum(kept, value_there)
        least = np.minimum(least, kept)
    return least


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
    span = _TAILS + float(np.abs(logs).max()) / apart + apart
    panels = math.ceil(span * max(1.0, before / noise))
    y = span / panels * (np.arange(panels)[:, None] + 0.5 + _NODES / 2).ravel()
    weights = span / panels * np.tile(_WEIGHTS / 2, panels)
    above = weights * normal_density(change[:, None] + y - apart, 1.0) * -np.expm1(-apart * y)
    below = weights * normal_density(change[:, None] - y, 1.0) * -np.expm1(-apart * y)
    below *= np.exp(logs)[:, None]
    pushed = (before * y + reach) / noise
    low = np.full(logs.size, -pushed[-1] - _TAILS)
    high = -low
    for _ in range(40):  # the mass beyond a cut increases and then decreases in the cut
        cut = ((low + high) / 2)[:, None]
        gain, loss = (
            above * normal_density(pushed - cut, 1.0),
            below * normal_density(pushed + cut, 1.0),
        )
        rising = loss.sum(axis=1) > gain.sum(axis=1)
        low, high = np.where(rising, cut[:, 0], low), np.where(rising, high, cut[:, 0])
    cut = ((low + high) / 2)[:, None]
    leak = (above * ndtr(pushed - cut)).sum(axis=1) - (below * ndtr(-pushed - cut)).sum(axis=1)
    return np.asarray(np.maximum(leak * (1 + 1e-9), np.maximum(-np.expm1(logs), 0.0)))


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
