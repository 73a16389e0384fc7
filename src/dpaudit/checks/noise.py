"""Rules about noise: it is in every parameter, drawn anew, Gaussian, and as large as claimed.

Noise is what changes from seed to seed without a canary. Its size is measured in contributions of
norm C, so that learning rate and batch size do not matter. Limits are such that correct noise
exceeds them with probability `FALSE_ALARM` at most, for each rule.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpaudit._arrays import Array
from dpaudit.checks.findings import Outcome, Probe, Rule, broken, not_tested, passed, warning
from dpaudit.checks.measure import (
    FALSE_ALARM,
    FIRST_LOOK,
    NOT_LINEAR,
    SECOND_LOOK,
    SUSPICIOUS,
    Measurements,
    largest_ratio,
    no_transform,
    noise,
    readable,
    root_mean_square,
    same_output,
    smallest_ratio,
    standard_deviations,
    takes_steps,
)

# --- Noise in every parameter. --------------------------------------------------------------------


_LENGTH = 10.0  # times C: as much as an example can contribute
_VISIBLE = 20.0  # claimed noise below so many rounding errors could not be seen


def _silent_parameters(measured: Measurements) -> Outcome:
    """Look for coordinates that a canary moves and a seed does not."""
    if not measured.noise_is_there:
        return _silence(measured)
    scaled, hidden = measured.scales, bool(no_transform(measured))
    if scaled is None or hidden:
        return _moved_but_silent(measured, hidden or measured.bends)
    trained = measured.spread[scaled[0] > 0]
    spread = np.sqrt(np.mean(measured.noise()[:, measured.columns(trained)] ** 2, axis=0))
    # Less than a millionth of the claim is no noise; anything above is a matter of size.
    claimed = scaled[0][scaled[0] > 0] * measured.subject.noise_multiplier / measured.insertions
    silent = spread <= np.maximum(measured.rounding[trained], 1e-6 * claimed)
    silent &= claimed > _VISIBLE * measured.rounding[trained]
    return _silent(measured, trained, silent)


def _moved_but_silent(measured: Measurements, hidden: bool) -> Outcome:
    """The same where the effect of a contribution on single coordinates has no unit."""
    long = measured.dense(_LENGTH * measured.subject.clip_norm)
    plus, minus = measured.subject.pair(long, measured.seeds[0], measured.steps)
    rounding = measured.rounding[measured.watched]
    with np.errstate(invalid="ignore"):
        moved = np.abs(plus - minus)[measured.watched] > _VISIBLE * rounding
    silent = moved & (np.sqrt(np.mean(measured.noise() ** 2, axis=0)) <= rounding)
    if not moved.any():
        return not_tested("Single parameters could not be compared: no canary moves them visibly.")
    if silent.any() and hidden:
        return not_tested(
            f"{int(silent.sum()):,} of {int(moved.sum()):,} parameters that a canary moves are the "
            "same for all seeds, as behind a public transform such as top-k: check the step before "
            "it (--step)."
        )
    return _silent(measured, measured.watched[moved], silent[moved])


def _silent(
    measured: Measurements, places: NDArray[np.int64], silent: NDArray[np.bool_]
) -> Outcome:
    """The outcome for coordinates that should have noise, of which some have none."""
    if not silent.any():
        return passed(measured="all", allowed="all trained")
    names = dict.fromkeys(measured.tensor_at(int(index)).name for index in places[silent])
    return broken(
        f"{int(silent.sum()):,} of {len(places):,} trained parameters that were looked at get no "
        f"noise: in {', '.join(names)}.",
        measured=f"{1 - float(silent.mean()):.3g} of all",
        allowed="all trained",
    )


def _silence(measured: Measurements) -> Outcome:
    """No noise was seen: is there none, or does rounding hide it?"""
    claimed = measured.unit.size * measured.subject.noise_multiplier * np.sqrt(measured.steps)
    comparison = {"measured": "none", "allowed": "all trained"}
    if not measured.unit.known or claimed / measured.insertions <= _VISIBLE * measured.floor:
        return not_tested(
            "Neither noise nor canary rises above the rounding of the parameters. Use a larger "
            "learning rate for the check, return float64, or return how far the parameters moved.",
            **comparison,
        )
    return broken("All seeds give the same parameters: no noise, or always the same.", **comparison)


def _change_between_steps(measured: Measurements) -> Outcome:
    """Look for coordinates that change from one step to two, without noise in the first step."""
    second = measured.subject.output(None, measured.seeds[0], 2)
    change = np.abs(second - measured.quiet)[measured.watched]
    spread = np.sqrt(np.mean(measured.noise() ** 2, axis=0))
    rounding = measured.rounding[measured.watched]
    bare = (spread <= rounding) & (change > _VISIBLE * rounding)
    if not bare.any():
        return passed(measured="all", allowed="all trained")
    if measured.bends:
        return not_tested(NOT_LINEAR)
    names = dict.fromkeys(measured.tensor_at(int(i)).name for i in measured.watched[bare])
    return broken(
        f"{int(bare.sum()):,} parameters change during training without noise: {', '.join(names)}.",
        measured=f"{1 - float(bare.mean()):.3g} of all",
        allowed="all trained",
        cause="A tensor is trained by another optimizer, or was not registered with the private "
        "one.",
        remedy="Give all trainable parameters to the private optimizer, or freeze them.",
        seen_in="heads trained by an optimizer of their own",
    )


THERE = Rule(
    name="noise in every parameter",
    requirement="Every parameter that changes gets noise, and other noise under another seed.",
    cause="Noise is not added, or not to every tensor, or its generator is seeded with a constant.",
    remedy="Add noise to the clipped sum of every tensor, from a generator seeded with `seed`.",
    seen_in="tf-privacy #72 (DP optimizer silently inactive)",
    core=True,
    probes=(
        Probe(name="parameters that a canary moves", run=_silent_parameters),
        Probe(
            name="parameters that change between steps",
            run=_change_between_steps,
            needs=(takes_steps, noise, same_output, no_transform),
            only="training",
        ),
    ),
)

# --- Noise differs between parameters. ------------------------------------------------------------


FEWEST = 8
"""With fewer directions than this, dependence is not judged."""

TOLERANCE = 4.0
"""Directions that differ by at most so many rounding errors count as equal."""

_FINEST = 0.1  # of the noise: rounding that leaves the shape of the noise as it is
_LAGS = 4
_LONG = 128  # parameters, for the normal approximation at every distance
_TESTS = 4


class Directions(NamedTuple):
    """For each watched parameter with noise: its noise over the seeds, scaled to length one.

    Directions do not depend on learning rates. Those of independent Gaussian noise are independent
    and uniform on the sphere in (number of seeds - 1) dimensions.
    """

    rows: Array
    error: Array
    places: NDArray[np.int64]


def noise_directions(measured: Measurements, noise: Array | None = None) -> Directions:
    """The directions of all parameters whose noise is well above rounding."""
    noise = (measured.noise() if noise is None else noise).T
    length = np.linalg.norm(noise, axis=1)
    rounding = measured.rounding[measured.watched]
    count, seeds = noise.shape
    # Two entries agree by chance with probability 2 TOLERANCE times the sum of two errors times a
    # density below 0.4; two rows in all but two entries; and there are fewer than count^2 pairs.
    agreeing = (FALSE_ALARM / count**2) ** (1 / (seeds - 2))
    blur = min(_FINEST, agreeing / (2 * 0.4 * 2 * TOLERANCE))
    loud = (length > 0) & (rounding * np.sqrt(seeds) <= blur * length)
    return Directions(
        noise[loud] / length[loud, None], rounding[loud] / length[loud], measured.watched[loud]
    )


def equal_runs(measured: Measurements) -> tuple[int, int] | None:
    """The positions of two seeds that give the same output, if there are such."""
    noise = measured.noise()
    floor = 10 * root_mean_square(measured.rounding[measured.watched])
    tolerance = min(1e-3 * measured.noise_level(), floor)
    for second in range(1, len(noise)):
        apart = np.sqrt(np.mean((noise[:second] - noise[second]) ** 2, axis=1))
        if apart.min() <= tolerance:
            return int(apart.argmin()), second
    return None


def _between_parameters(measured: Measurements) -> Outcome:
    """Repeated draws, neighbours, halves, and the sum of all parameters."""
    if measured.mixes:
        return not_tested("A public linear map mixes the parameters, and their noise with them.")
    directions = noise_directions(measured)
    count = len(directions.rows)
    if count < FEWEST:
        return not_tested(f"Only {count} parameters have noise well above rounding.")
    if equal_runs(measured) is not None:
        return not_tested("Some seeds give the same noise: repair that first.")
    twins = repeated(directions)
    if twins.any():
        return broken(
            f"{int(twins.sum()):,} of {count:,} parameters have the same noise as another one "
            f"under every seed, the first of them at index {int(directions.places[twins][0]):,}.",
            measured=f"{float(twins.mean()):.2g} repeated",
            allowed="none",
        )
    excesses = dependences(directions.rows)
    name = max(excesses, key=lambda key: excesses[key])
    comparison = {"measured": f"{name}: {excesses[name]:.2g}", "allowed": "at most 1"}
    if excesses[name] <= 1:
        return passed(**comparison)
    words = f"Noise is correlated between parameters ({name})."
    return _unless_more_varies(measured, "Parameters vary together", words, **comparison)


def _unless_more_varies(
    measured: Measurements, together: str, explanation: str, /, **comparison: str
) -> Outcome:
    """Broken, if nothing but the noise varies from seed to seed."""
    if varies_too_much(measured) or measured.steps > 1:
        return not_tested(
            f"{together}, but more than the noise may depend on the seed: keep the starting point, "
            "the data and the batches fixed, and train one step.",
            **comparison,
        )
    return broken(explanation, **comparison)


def repeated(directions: Directions) -> NDArray[np.bool_]:
    """Which directions equal another one, up to sign and rounding."""
    flip = np.where(directions.rows[:, 0] < 0, -1.0, 1.0)
    order = np.argsort(directions.rows[:, 0] * flip, kind="stable")
    rows, error = (directions.rows * flip[:, None])[order], directions.error[order]
    result = np.zeros(len(rows), dtype=bool)
    for lag in range(1, min(_LAGS, len(rows) - 1) + 1):
        tolerance = TOLERANCE * (error[lag:] + error[:-lag]) + 1e-9
        same = np.all(np.abs(rows[lag:] - rows[:-lag]) <= tolerance[:, None], axis=1)
        result[order[lag:]] |= same
        result[order[:-lag]] |= same
    return result


def dependences(directions: Array) -> dict[str, float]:
    """Four dependences between parameters, relative to their limits at the false-alarm level."""
    count, seeds = directions.shape
    freedom, half = seeds - 1, count // 2
    limit = standard_deviations(FALSE_ALARM / _TESTS)
    total = directions.sum(axis=0)
    return {
        "neighbours": _mean_product(directions[:-1], directions[1:], freedom) / limit,
        "halves": _mean_product(directions[:half], directions[half : 2 * half], freedom) / limit,
        "sum of all": float(total @ total) / count / largest_ratio(freedom, FALSE_ALARM / _TESTS),
        "a fixed distance": _shifted(directions, freedom),
    }


def _shifted(directions: Array, freedom: int) -> float:
    """The strongest correlation between parameters at any fixed distance, relative to its limit."""
    count = len(directions)
    if count < _LONG:
        return 0.0
    spectrum = np.fft.rfft(directions, 2 * count, axis=0)
    products = np.fft.irfft((np.abs(spectrum) ** 2).sum(axis=1))[1 : count - _LONG // 2]
    pairs = count - np.arange(1, len(products) + 1)
    limit = standard_deviations(FALSE_ALARM / _TESTS / len(products))
    return float(np.abs(products * np.sqrt(freedom / pairs)).max()) / limit


def _mean_product(one: Array, other: Array, freedom: int) -> float:
    """The sum of inner products in standard deviations: each product has variance 1/freedom."""
    products = np.einsum("ij,ij->i", one, other)
    return abs(float(products.sum())) * float(np.sqrt(freedom / len(products)))


PARAMETERS = Rule(
    name="noise differs between parameters",
    requirement="The noise of every parameter is drawn independently.",
    cause="The same random key, or the same seed, is used for every tensor, or one draw is "
    "broadcast: differences between parameters are then free of noise.",
    remedy="Split the key (jax.random.split), or draw the noise of all tensors from one generator.",
    seen_in="jax PR #3646",
    probes=(
        Probe(name="repetition, correlation", run=_between_parameters, needs=(noise, readable)),
    ),
)

# --- Noise differs between runs. ------------------------------------------------------------------


def _equal_runs(measured: Measurements) -> Outcome:
    """Look for two seeds with the same output."""
    same = equal_runs(measured)
    if same is None:
        return passed(measured="none alike", allowed="none alike")
    first, second = (measured.seeds[i] for i in same)
    return broken(
        f"Seeds {first} and {second}, {abs(second - first):,} apart, give the same output: "
        "there are only a few different noise vectors.",
        measured=f"{first} as {second}",
        allowed="none alike",
    )


def _correlated_runs(measured: Measurements) -> Outcome:
    """The correlation of the noise of every two seeds."""
    rows = noise_directions(measured).rows
    count, seeds = rows.shape
    if count < FEWEST:
        return not_tested(f"Only {count} parameters have noise well above rounding.")
    products = seeds * (rows.T @ rows) / count
    # Subtracting the mean over seeds correlates every two of them by -1 / (seeds - 1).
    away = np.abs(products + 1 / (seeds - 1))[np.triu_indices(seeds, 1)].max()
    limit = standard_deviations(2 * FALSE_ALARM / (seeds * (seeds - 1))) / np.sqrt(count)
    comparison = {"measured": f"correlation {away:.2g}", "allowed": f"at most {limit:.2g}"}
    if away <= limit:
        return passed(**comparison)
    words = "Noise is correlated between runs with different seeds."
    return _unless_more_varies(measured, "Runs vary together", words, **comparison)


RUNS = Rule(
    name="noise differs between runs",
    requirement="Two runs with different seeds have independent noise.",
    cause="Only a few bits of the seed reach the generator of the noise, or only a part of the "
    "noise depends on it: the difference of two runs is then free of noise.",
    remedy="Pass the whole seed on; in production draw it from the operating system.",
    seen_in="fedbiomed #973; an audit of scores cannot see weak seeding",
    after=(PARAMETERS.name,),
    probes=(
        Probe(name="equal outputs", run=_equal_runs, needs=(noise,)),
        Probe(name="correlation", run=_correlated_runs, needs=(noise, readable)),
    ),
)

# --- The size of the noise. -----------------------------------------------------------------------


TOLERATED = 0.01
"""Relative error that is allowed in a standard deviation: contributions are rounded too."""


@final
@dataclass(frozen=True, kw_only=True)
class NoiseSize:
    """Noise relative to sigma C: sums of squares over their expectation.

    Arguments:
        ratio: Over all coordinates that were measured.
        degrees: Degrees of freedom of ``ratio``.
        tensors: For each tensor that is looked at by itself, both numbers.
        blur: Relative error of the unit in which noise is measured.
    """

    ratio: float
    degrees: int
    tensors: dict[str, tuple[float, int]]
    blur: float

    @property
    def give(self) -> float:
        """By what factor a ratio may leave its limits."""
        return (1 + TOLERATED + self.blur) ** 2

    def short_tensors(self, level: float, give: float = 1.0) -> dict[str, float]:
        """The tensors with too little noise at a level, with the ratio of their variance."""
        level /= max(1, len(self.tensors))
        return {
            name: ratio
            for name, (ratio, degrees) in self.tensors.items()
            if ratio < smallest_ratio(degrees, level) / give
        }


def noise_size(measured: Measurements, noise: Array) -> NoiseSize | None:
    """Noise in units of sigma C, or `None` where contributions cannot be measured."""
    if measured.scales is None:
        return None
    scales, blur = measured.scales
    places = measured.spread[scales > 0]
    noise, freedom = noise[:, measured.columns(places)], len(noise) - 1
    root = np.sqrt(measured.steps) / measured.insertions
    expected = scales[scales > 0] * root * measured.subject.noise_multiplier
    squares = ((noise / expected) ** 2).sum(axis=0) / freedom
    tensors = {}
    for tensor in () if measured.mixes else measured.tensors:
        own = squares[(places >= tensor.start) & (places < tensor.stop)]
        if len(own):
            tensors[tensor.name] = float(own.mean()), freedom * len(own)
    return NoiseSize(
        ratio=float(squares.mean()),
        # Behind a public linear map the coordinates are not independent of each other.
        degrees=freedom if measured.mixes else freedom * len(squares),
        tensors=tensors,
        blur=blur,
    )


def varies_too_much(measured: Measurements) -> bool:
    """Whether outputs vary more than the claimed noise: then not only the noise may vary."""
    size = noise_size(measured, measured.noise())
    return size is None or size.ratio > _largest_size(measured, size)


def _largest_size(measured: Measurements, size: NoiseSize) -> float:
    # Momentum spreads a step over the following ones, which makes the noise of several steps larger
    # relative to the response by sqrt(4/3) at most.
    dynamics = 1.0 if measured.steps == 1 else 1.2**2
    return largest_ratio(size.degrees, FALSE_ALARM / 2) * dynamics * size.give


def _size(measured: Measurements) -> Outcome:
    """Chi-square limits on noise over all coordinates, and over blocks of them."""
    if 1e-5 < measured.raw_share < 0.9:
        return not_tested("Part of the raw gradient gets through: there is no contribution of C.")
    size = _measured_size(measured)
    if size is None:
        return not_tested(f"Nothing to compare the noise with: {_why_no_size(measured)}.")
    sigma, times = measured.subject.noise_multiplier, float(np.sqrt(size.ratio))
    least = smallest_ratio(size.degrees, FALSE_ALARM / 2) / size.give
    most = _largest_size(measured, size)
    comparison = {
        "measured": f"sigma {sigma * times:.4g}",
        "allowed": f"{sigma * np.sqrt(least):.4g} to {sigma * np.sqrt(most):.4g}",
    }
    if size.ratio < least:
        return broken(f"Noise is {times:.3g} times as large as the claim says.", **comparison)
    short = size.short_tensors(FALSE_ALARM / 2, size.give)
    if short:
        names = (f"{name} ({np.sqrt(ratio):.3g} times)" for name, ratio in short.items())
        return broken(
            f"In some tensors noise is smaller than the claim says: {', '.join(names)}.",
            **comparison,
        )
    if size.ratio <= most:
        return passed(**comparison)
    if measured.steps > 1:
        return not_tested(
            f"Outputs vary {times:.3g} times as much as {measured.steps} steps with "
            "noise of their own would: the starting point may depend on the seed, or the same "
            "noise is added in every step, which is a leak. Let train take `steps`.",
            **comparison,
        )
    return warning(_too_large(measured, size, times), **comparison)


def _why_no_size(measured: Measurements) -> str:
    if not measured.unit.known:
        return measured.unit.why_not
    if measured.steps > 1 or measured.mixes:
        return (
            "gradients of the same norm have effects that differ by more than 10 %, or rounding "
            "hides them; let train take `steps`, so that one step can be checked"
        )
    return "rounding hides the canary"


def _measured_size(measured: Measurements) -> NoiseSize | None:
    """The size from a first sample; from a larger one if the first looks too small."""
    if (
        measured.presence_counts
        and measured.steps == 1
        and bool(np.all(np.isfinite(measured.presence)))
    ):
        return noise_size(measured, measured.noise_with_example)
    size = noise_size(measured, measured.larger_sample(FIRST_LOOK))
    if size is not None and (
        size.ratio < smallest_ratio(size.degrees, SUSPICIOUS) or size.short_tensors(SUSPICIOUS)
    ):
        return noise_size(measured, measured.larger_sample(SECOND_LOOK))
    return size


def _too_large(measured: Measurements, size: NoiseSize, times: float) -> str:
    level = FALSE_ALARM / 2 / max(1, len(size.tensors))
    uneven = any(
        not smallest_ratio(degrees, level) <= ratio / size.ratio <= largest_ratio(degrees, level)
        for ratio, degrees in size.tensors.values()
    )
    if uneven:
        return (
            f"Outputs vary {times:.3g} times as much from seed to seed as the noise should, and "
            "unevenly: more than the noise depends on the seed. This rule becomes sharp if the "
            "starting point, the data and the batches are the same for all seeds."
        )
    if abs(times / measured.subject.clip_norm - 1) < 0.05:
        return (
            f"Noise of one step is {times:.3g} times as large as claimed, which is C: its standard "
            "deviation is sigma C^2 (seen in SPRINT_gan #5). This costs accuracy, not privacy."
        )
    return (
        f"Outputs of one step vary {times:.3g} times as much from seed to seed as the claimed "
        "noise. Either the noise is larger than claimed, which costs accuracy but not privacy, or "
        "something else depends on the seed too, such as the batches; then noise that is too "
        "small cannot be seen. Use the same starting point, data and batches for all seeds."
    )


SIZE = Rule(
    name="noise size",
    requirement="Noise has standard deviation of at least sigma C on the sum of clipped gradients.",
    cause="Noise for the mean is added to the sum, or noise is divided once too often (by the "
    "batch size, by accumulation steps, by workers), or C or sigma is not what was claimed.",
    remedy="Add N(0, sigma^2 C^2) once to the sum of clipped gradients, then divide both.",
    seen_in="Tramer et al. 2022 (arXiv 2202.12219), jax_privacy #383",
    core=True,
    after=(THERE.name, RUNS.name, PARAMETERS.name),
    probes=(
        Probe(
            name="variance of all parameters and of each tensor",
            run=_size,
            needs=(noise, readable, same_output),
        ),
    ),
)

# --- Gaussian noise. ------------------------------------------------------------------------------


_FEWEST = 200  # directions, for the normal approximation of a mean of fourth powers
_FEWEST_VALUES = 2000
_FEWEST_NORMS = 30  # parameters
_EXCESS = 0.15  # kurtosis may differ from 3 by this much
_DEVIATIONS = 8.0  # a normal mean leaves this with probability 1e-15; skewed ones far below 1e-6
_TAILS = (0.1, 0.02, 0.005, 0.001, 0.0002)
_WINDOW = 0.15  # of a grid: how near a value must be to count as a multiple


def _gaussian(measured: Measurements) -> Outcome:
    """Kurtosis, tails, the norms of whole draws, and the number of different values."""
    shape = _shape(measured, FIRST_LOOK)
    if shape is not None and shape.suspicious:
        shape = _shape(measured, SECOND_LOOK)
    if shape is None:
        return not_tested("Too few parameters have noise well above rounding.")
    repeats = _coarse(measured)
    wrong = shape.tails or ("" if measured.mixes else shape.norms)
    allowed = max(_EXCESS, _DEVIATIONS * shape.error)
    comparison = {"measured": f"kurtosis {shape.kurtosis:.3g}", "allowed": f"3 ± {allowed:.2g}"}
    if not wrong and repeats is None:
        return passed(**comparison)
    if measured.bends:
        return not_tested(
            "The noise decides what a gradient does, as behind a public transform of the noisy "
            "gradient: check the step before it.",
            **comparison,
        )
    if repeats is not None:
        return broken(
            f"Noise takes few different values ({repeats:.2g} of all are repeated), while "
            "gradients do not: digits of the sum that are finer than the noise are visible.",
            measured=f"{repeats:.2g} repeated",
            allowed="none",
        )
    return _unless_more_varies(measured, "Outputs are not normal", wrong, **comparison)


@final
@dataclass(frozen=True, kw_only=True)
class _Shape:
    """The shape of a sample of noise."""

    kurtosis: float  # 3 for normal noise
    error: float  # of the kurtosis
    tail_chance: float  # that normal noise has as few large values
    largest: float  # value, in standard deviations
    norm_chance: float  # that the norms of draws of normal noise vary as little
    norm_ratio: float  # the variance of these norms over that of normal noise

    @property
    def suspicious(self) -> bool:
        """Whether a larger sample should decide."""
        deviations = abs(self.kurtosis - 3) / self.error
        chance = min(self.tail_chance, self.norm_chance)
        return chance < SUSPICIOUS or deviations > standard_deviations(SUSPICIOUS)

    @property
    def tails(self) -> str:
        """What is wrong with single values; empty if nothing is."""
        if self.tail_chance < FALSE_ALARM / 3:
            return (
                "Noise has too few large values for a normal distribution; the largest is "
                f"{self.largest:.3g} standard deviations."
            )
        if abs(self.kurtosis - 3) > max(_EXCESS, _DEVIATIONS * self.error):
            tails = "heavier" if self.kurtosis > 3 else "lighter"
            return f"Noise has {tails} tails than a normal distribution."
        return ""

    @property
    def norms(self) -> str:
        """What is wrong with whole draws; empty if nothing is."""
        # The chi-square approximation is a little too optimistic for few parameters.
        if self.norm_chance >= FALSE_ALARM / 10:
            return ""
        return (
            "The norms of whole draws of noise vary too little: their variance is "
            f"{self.norm_ratio:.2g} of that of normal noise, as if draws were chosen by their "
            "norm, or scaled to one."
        )


def _shape(measured: Measurements, wanted: tuple[int, int]) -> _Shape | None:
    directions = noise_directions(measured, measured.larger_sample(wanted)).rows
    if len(directions) < FEWEST or directions.size < _FEWEST_VALUES:
        return None
    kurtosis, error = _kurtosis(directions)
    norm_ratio, norm_chance = _norms(directions)
    return _Shape(
        kurtosis=kurtosis,
        error=error,
        tail_chance=_few_in_tails(directions),
        largest=float(np.abs(directions).max()) * float(np.sqrt(directions.shape[1] - 1)),
        norm_chance=norm_chance,
        norm_ratio=norm_ratio,
    )


def _kurtosis(directions: Array) -> tuple[float, float]:
    """Kurtosis of the noise, and its standard error."""
    count, seeds = directions.shape
    # An entry of a uniform direction in n - 1 dimensions, embedded in n: E x^4 is known.
    freedom = seeds - 1
    expected = 3 / (freedom * (freedom + 2)) * (freedom / seeds) ** 2
    fourth = directions**4
    # Rows are independent, and so, nearly, are the entries of long rows.
    each = fourth.mean(axis=1) if count >= _FEWEST else fourth.ravel()
    error = float(each.std(ddof=1)) / np.sqrt(len(each))
    return 3 * float(fourth.mean()) / expected, 3 * float(error) / expected


def _few_in_tails(directions: Array) -> float:
    """Probability that normal noise has as few values beyond one of several limits (Bonferroni).

    The square of an entry of a uniform direction has a beta distribution.
    """
    freedom = directions.shape[1] - 1
    squares = directions**2 * (directions.shape[1] / freedom)
    limits = special.betaincinv(0.5, (freedom - 1) / 2, 1 - np.array(_TAILS))
    chances = [
        special.bdtr(int((squares > limit).sum()), squares.size, share)
        for limit, share in zip(limits, _TAILS, strict=True)
    ]
    return min(1.0, len(_TAILS) * float(min(chances)))


def _norms(directions: Array) -> tuple[float, float]:
    """The variance of the squared norms of draws over its expectation, and its chance to be less.

    Every parameter is scaled to the same variance over the draws. The squared norm of a draw is
    then a sum of beta variables, with a known variance. More variance is no alarm, because data
    that depend on the seed add to it.
    """
    count, draws = directions.shape
    if count < _FEWEST_NORMS:
        return 1.0, 1.0
    squares = (directions**2).sum(axis=0)
    expected = 2 * count * (draws - 2) / (draws * (draws + 1))
    ratio = float(((squares - count / draws) ** 2).sum()) / expected
    chance = float(special.gammainc((draws - 1) / 2, ratio * (draws - 1) / 2))
    return ratio, chance


def _coarse(measured: Measurements) -> float | None:
    """The share of noise on a coarse grid, if gradients are not on it."""
    if measured.scales is None or measured.mixes or measured.steps > 1:
        return None
    scales, blur = measured.scales
    places = measured.spread[scales > 0]
    per_unit = scales[scales > 0] / measured.subject.clip_norm
    noise = measured.noise()[:2, measured.columns(places)]
    steps = np.abs(noise[1] - noise[0]) / per_unit
    error = measured.rounding[places] / per_unit + blur * steps
    wild = measured.dense(measured.subject.clip_norm, places)
    wild[places] *= 0.3 + 0.4 * np.random.default_rng(3).random(len(places))
    moved = np.abs(measured.difference(wild))[places] / per_unit
    grain = measured.grain / per_unit
    for share_of in (_repeated, _dyadic):
        share = share_of(steps, error, grain)
        if share > 0.3 and share_of(moved, error, grain) < 0.5 * share:
            return share
    return None


def _dyadic(values: Array, error: Array, grain: Array) -> float:
    """The largest share of values that are multiples of a power of two, beyond chance."""
    best = 0.0
    for power in range(2, 24):
        grid = 2.0**-power
        if max(float(np.median(error)), float(np.median(grain))) > _WINDOW * grid:
            break
        large = values[values > 2 * grid]  # every value is near zero times a large grid
        if len(large) < 0.5 * len(values):
            continue
        away = np.abs(large / grid - np.round(large / grid))
        best = max(best, (float((away < _WINDOW).mean()) - 2 * _WINDOW) / (1 - 2 * _WINDOW))
    return best


def _repeated(values: Array, error: Array, grain: Array) -> float:
    """The share of values that occur more than once, beyond chance."""
    tolerance = max(float(np.median(error)), 1e-12)
    close = np.diff(np.sort(values)) <= tolerance
    # Values on the grid of the output's own type repeat too.
    spread = root_mean_square(values) or 1.0
    chance = len(values) * (float(np.median(grain)) + tolerance) / spread
    return max(0.0, float(close.mean()) - 4 * chance)


GAUSSIAN = Rule(
    name="Gaussian noise",
    requirement="Noise has a normal distribution, as the accountant assumes.",
    cause="Noise is uniform, Laplace, truncated or clamped, or it takes only a few values: an "
    "output that noise cannot reach without the example proves that the example took part.",
    remedy="Draw noise with torch.randn, jax.random.normal or numpy's normal, do not clamp it, and "
    "draw it in the precision of the sum.",
    seen_in="Mironov 2012 (low bits); truncated noise in several forks",
    after=(THERE.name, RUNS.name, PARAMETERS.name),
    probes=(Probe(name="tails, norms, digits", run=_gaussian, needs=(noise, readable)),),
)

RULES = (THERE, PARAMETERS, RUNS, SIZE, GAUSSIAN)
