"""Clock and escalator: the chain is the process, and it keeps what a flat landscape loses."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpaudit.curves import gaussian_epsilon
from dpaudit.errors import InvalidInput
from dpaudit.landscapes import (
    Clock,
    Constant,
    Escalator,
    accountant_mu,
    densities,
    exact_privacy,
    fitted_clock,
    fitted_escalator,
    pairs,
    simulate,
)
from dpaudit.landscapes.clock import ChainLandscape, rounding_unit
from dpaudit.landscapes.pair import DiscretePair
from dpaudit.mechanisms.landscape import LandscapeProcess

DELTA = 1e-5


def _process(
    landscape: ChainLandscape, *, insertions: int, sigma: float = 4.0, batch: int | None = None
) -> LandscapeProcess:
    return LandscapeProcess(
        noise_multiplier=sigma,
        batch_size=batch or math.ceil(landscape.least_reach),
        steps=insertions * landscape.phases,
        landscape=landscape,
        period=landscape.phases,
        scaling="dpsgd",
    )


def _blank(batch: int, period: int | None, insertions: int = 250) -> LandscapeProcess:
    return LandscapeProcess(
        noise_multiplier=4,
        batch_size=batch,
        steps=insertions * (period or 1),
        landscape=Constant(),
        period=period,
        scaling="dpsgd",
    )


def _last(process: LandscapeProcess) -> DiscretePair:
    *_, last = pairs(process)
    assert isinstance(last, DiscretePair)
    return last


def _nodes(landscape: ChainLandscape, positions: np.ndarray, size: int, steps: int) -> np.ndarray:
    """The chain's node for every position after so many steps."""
    if isinstance(landscape, Clock):
        cell = np.floor(positions / landscape.node + 0.5)
        return np.floor(cell / landscape.phases) + (size - 1) / 2
    assert isinstance(landscape, Escalator)
    here = positions + landscape.start * landscape.lane - (steps - 1) * landscape.height
    lane = np.clip(np.floor(here / landscape.lane + 0.5), 1, landscape.lanes)
    alive = (here >= landscape.lane / 2) & (here < landscape.height + landscape.bottom)
    return np.where(alive, lane, 0)


SMALL = [
    Clock(phases=2, node=5.0, unit=0.8, most=2),
    Clock(phases=3, node=7.0, unit=1.2, most=1),
    Escalator(phases=2, lanes=3, lane=4.0, unit=1.0, most=1, climb=0.6, start=2, guard=10.0),
]


@pytest.mark.parametrize("landscape", SMALL, ids=["clock 2", "clock 3", "escalator"])
def test_the_chain_is_the_coarse_grained_density(landscape: ChainLandscape) -> None:
    # Narrow nodes, so that slips are common: they must be right as well.
    process = _process(landscape, insertions=3, sigma=1.0)
    *_, smooth = densities(process)
    chain = _last(process)
    nodes = _nodes(landscape, smooth.panels.nodes, chain.without.size, process.steps)
    for density, masses in ((smooth.without, chain.without), (smooth.canary, chain.canary)):
        weights = (smooth.panels.weights * density).ravel()
        summed = np.bincount(nodes.ravel().astype(int), weights, minlength=masses.size)
        np.testing.assert_allclose(summed, masses, atol=1e-10)
    # Looking only at the node loses a little, and never gains.
    assert chain.epsilon(1e-3) <= smooth.epsilon(1e-3) + 1e-9


@pytest.mark.parametrize(
    ("landscape", "insertions"),
    [
        (Clock(phases=5, node=36.0, unit=4 * rounding_unit(7), most=3), 20),
        (
            Escalator(
                phases=5, lanes=8, lane=26.0, unit=4.2, most=2, climb=0.5, start=4, guard=40.0
            ),
            20,
        ),
    ],
    ids=["clock", "escalator"],
)
def test_the_chain_is_what_the_raw_process_does(landscape: ChainLandscape, insertions: int) -> None:
    process = _process(landscape, insertions=insertions)
    chain = _last(process)
    scores = simulate(process, runs=40_000, seed=11)
    for sample, masses in ((scores.not_inserted, chain.without), (scores.inserted, chain.canary)):
        nodes = _nodes(landscape, sample, masses.size, process.steps)
        counts = np.bincount(nodes.astype(int), minlength=masses.size)
        gap = np.abs(np.cumsum(counts) / sample.size - np.cumsum(masses)).max()
        assert gap * math.sqrt(sample.size) < 2.2


def test_the_rejection_region_has_the_probabilities_that_the_chain_says() -> None:
    """At 1e-16 only importance sampling sees it: insertions carry more, weights put it right."""
    clock = Clock(phases=5, node=36.0, unit=4 * rounding_unit(7), most=3)
    process = _process(clock, insertions=250)
    chain = _last(process)
    epsilon = chain.epsilon(DELTA)
    rejected = np.log(chain.canary + 1e-300) - np.log(chain.without + 1e-300) > epsilon
    speed, runs = 0.5 + epsilon * 16 / 250, 6000
    generator = np.random.default_rng(2)
    total, position = np.zeros(runs), np.zeros(runs)
    for step in range(1, process.steps + 1):
        noise = 4 * generator.standard_normal(runs)
        if process.inserts(step):
            noise += speed
            total += noise
        position = noise if step == 1 else position + process.drift(position) + noise
    hit = rejected[_nodes(clock, position, rejected.size, process.steps).astype(int)]
    for shift, masses in ((1.0, chain.canary), (0.0, chain.without)):
        weights = hit * np.exp((shift - speed) * (total - 125 * (shift + speed)) / 16)
        error = weights.std() / math.sqrt(runs)
        assert weights.mean() == pytest.approx(masses[rejected].sum(), abs=4 * error)
        assert error < 0.3 * weights.mean()
    assert masses[rejected].sum() < 1e-14


def test_at_period_5_a_clock_keeps_23_with_b_below_4000() -> None:
    # The construction of the issue: q = sigma / 4, W = 12 sigma.
    clock = Clock(phases=5, node=48.0, unit=1.0, most=16)
    assert clock.least_reach <= 4000
    process = _process(clock, insertions=250)
    last = _last(process)
    assert last.epsilon(DELTA) == pytest.approx(23.91, abs=0.01)
    assert max(last.stray) < 1e-30


def test_at_period_5_b_570_is_enough_for_23() -> None:
    clock = fitted_clock(_blank(600, 5))
    assert clock.least_reach <= 600
    assert _last(_process(clock, insertions=250)).epsilon(DELTA) >= 23


def test_at_period_25_an_escalator_keeps_21_with_b_700() -> None:
    blank = _blank(700, 25)
    escalator = fitted_escalator(blank)
    assert escalator.least_reach <= 700
    last = escalator.after(250, noise_multiplier=4.0)
    assert last.epsilon(DELTA) >= 21
    assert max(last.stray) < 1e-18


@pytest.mark.slow
def test_at_period_25_a_clock_keeps_21_with_b_below_8000() -> None:
    clock = fitted_clock(_blank(8000, 25))
    assert clock.least_reach <= 8000
    assert _last(_process(clock, insertions=250)).epsilon(DELTA) >= 23


def test_an_escalators_reach_does_not_grow_with_the_period() -> None:
    for period in (5, 100, 1000):
        escalator = fitted_escalator(_blank(1600, period))
        assert escalator.after(250, noise_multiplier=4.0).epsilon(DELTA) >= 22.5


def test_the_accountant_stands_above_every_step_of_a_chain() -> None:
    process = _process(fitted_clock(_blank(1000, 5, 12)), insertions=12, batch=1000)
    result = exact_privacy(process)
    assert result.method == "chain"
    for step, epsilon in enumerate(result.epsilon, start=1):
        assert epsilon <= gaussian_epsilon(DELTA, accountant_mu(process, step)) + 1e-9
    flat = exact_privacy(process.with_landscape(Constant()))
    assert result.epsilon[-1] > 1.5 * flat.epsilon[-1]


def test_a_period_at_a_time_is_a_step_at_a_time() -> None:
    escalator = SMALL[2]
    assert isinstance(escalator, Escalator)
    quick = escalator.after(7, noise_multiplier=1.0)
    slow = _last(_process(escalator, insertions=7, sigma=1.0))
    np.testing.assert_allclose(quick.without, slow.without, rtol=1e-12)
    np.testing.assert_allclose(quick.canary, slow.canary, rtol=1e-12)


def test_nothing_is_lost_from_the_chains() -> None:
    for landscape in SMALL:
        last = _last(_process(landscape, insertions=5, sigma=1.0))
        for masses, stray in ((last.without, last.stray[0]), (last.canary, last.stray[1])):
            assert masses.sum() + stray == pytest.approx(1.0, abs=1e-12)


def test_what_cannot_work_is_refused() -> None:
    clock = Clock(phases=5, node=48.0, unit=1.0, most=16)
    with pytest.raises(InvalidInput, match="batch_size must be at least 3872"):
        exact_privacy(_process(clock, insertions=2, batch=100))
    paper = LandscapeProcess(
        noise_multiplier=4, batch_size=4000, steps=10, landscape=clock, period=5
    )
    with pytest.raises(InvalidInput, match="scaling must be 'dpsgd'"):
        exact_privacy(paper)
    other = LandscapeProcess(
        noise_multiplier=4, batch_size=4000, steps=10, landscape=clock, period=2, scaling="dpsgd"
    )
    with pytest.raises(InvalidInput, match="period must be 5"):
        exact_privacy(other)
    for fit in (fitted_clock, fitted_escalator):
        with pytest.raises(InvalidInput, match="period must be given"):
            fit(_blank(1000, None))
        with pytest.raises(InvalidInput, match="batch_size must be at least"):
            fit(_blank(50, 5))
