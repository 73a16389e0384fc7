"""Upper bounds for the hidden state: contract, closed forms, an independent optimiser, refusals."""

from __future__ import annotations

import json
import math
from functools import partial

import numpy as np
import pytest
from scipy.optimize import isotonic_regression

import dpaudit
from dpaudit.curves import gaussian_epsilon
from dpaudit.errors import InvalidInput
from dpaudit.testing import check_hidden_state_accountant
from dpaudit.upper_bounds import (
    HIDDEN_STATE_ACCOUNTANTS,
    HiddenState,
    NoisySteps,
    all_upper_bounds,
)
from dpaudit.upper_bounds.hidden_state import (
    ClippingAccountant,
    _from_any_start,
    _minorant_energy,
    one_clean_step_delta,
    shifted_mu,
)

PAPER = {"noise_multiplier": 4.0, "delta": 1e-5}


@pytest.mark.parametrize("name", HIDDEN_STATE_ACCOUNTANTS)
def test_every_accountant_keeps_the_contract(name: str) -> None:
    check_hidden_state_accountant(HIDDEN_STATE_ACCOUNTANTS[name]())


@pytest.mark.parametrize(
    ("period", "phase", "expected"),
    [
        (5, "first", {0.999: 7.976, 1: 8.596, 1.01: 8.804, 1.1: 10.623, 2: 19.825, 4: 22.978}),
        (5, "last", {0.999: 8.069, 1: 8.679, 1.01: 8.886, 1.1: 10.690, 2: 19.843, 4: 22.982}),
        (25, "first", {0.999: 1.732, 1: 3.341, 1.01: 3.808, 1.1: 7.929, 2: 19.813, 4: 22.978}),
        (25, "last", {0.999: 2.024, 1: 3.521, 1.01: 3.971, 1.1: 8.019, 2: 19.830, 4: 22.982}),
        (1, "first", {1: 23.995, 1.1: 23.995, 4: 23.995}),
    ],
)
def test_bounds_of_the_papers_setting(period, phase, expected) -> None:
    for constant, epsilon in expected.items():
        hidden = HiddenState(period=period, phase=phase, step_lipschitz=constant)
        bound = dpaudit.upper_bound(**PAPER, steps=250 * period, hidden_state=hidden)
        assert bound.epsilon == pytest.approx(epsilon, abs=6e-4)


@pytest.mark.parametrize(
    ("constant", "first", "last"),
    [
        (0.7, 0.525296, 1.123243),
        (0.95, 1.079323, 1.373116),
        (1, 1.154701, 1.414214),
        (1.05, 1.210514, 1.448796),
        (1.4, 1.503075, 1.641470),
    ],
)
def test_small_cases(constant, first, last) -> None:
    assert shifted_mu(constant, [1, 0, 0] * 4) == pytest.approx(first, abs=1e-6)
    assert shifted_mu(constant, [0, 0, 1] * 4) == pytest.approx(last, abs=1e-6)


@pytest.mark.parametrize("c", [0.3, 0.9, 0.999])
def test_closed_forms_of_bok_su_altschuler(c: float) -> None:
    """Theorems on noisy gradient descent and on cyclic batches, strongly convex losses."""
    steps = 40
    power = c**steps
    expected = math.sqrt((1 - power) / (1 + power) * (1 + c) / (1 - c))
    assert shifted_mu(c, np.ones(steps)) == pytest.approx(expected)
    batches, epochs = 5, 8
    power = c ** (batches * (epochs - 1))
    tail = c ** (2 * batches - 2) * (1 - c**2) / (1 - c**batches) ** 2 * (1 - power) / (1 + power)
    pattern = np.arange(batches * epochs) % batches == batches - 1
    assert shifted_mu(c, pattern) == pytest.approx(math.sqrt(1 + tail))


def test_closed_forms_of_convex_losses() -> None:
    assert shifted_mu(1.0, np.ones(40)) == pytest.approx(math.sqrt(40))
    pattern = np.arange(40) % 5
    assert shifted_mu(1.0, pattern == 4) == pytest.approx(math.sqrt(1 + 7 / 5))
    assert shifted_mu(1.0, pattern == 0) == pytest.approx(math.sqrt(8 / 5))


@pytest.mark.parametrize("seed", range(6))
def test_isotonic_regression_gives_the_same(seed: int) -> None:
    """The slopes of a greatest convex minorant are an isotonic regression."""
    random = np.random.default_rng(seed)
    c = random.uniform(0.6, 1.6, 12)
    inserted = random.random(12) < 0.5
    inserted[random.integers(12)] = True
    weights = np.array([np.prod(c[t + 1 :]) for t in range(12)])
    slopes = isotonic_regression(inserted / weights, weights=weights**2).x
    sequence = weights * slopes
    assert shifted_mu(c, inserted) == pytest.approx(math.sqrt((sequence**2).sum()))
    # The sequence is feasible: the shift stays above 0 and ends there.
    shift = 0.0
    for constant, new, taken in zip(c, inserted, sequence, strict=True):
        shift = constant * shift + new - taken
        assert shift > -1e-9
    assert shift == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("c", [0.5, 0.999, 1.0, 1.05, 3.0])
def test_stable_for_many_steps(c: float) -> None:
    many = np.arange(100_000) % 5 == 0
    assert 0 < shifted_mu(c, many) <= math.sqrt(20_000) * (1 + 1e-9)
    # Repeating a long pattern changes nothing for a contraction that forgets its past.
    if c < 0.9:
        assert shifted_mu(c, many) == pytest.approx(shifted_mu(c, many[:200]))


@pytest.mark.parametrize("seed", range(30))
def test_the_best_start_is_the_best_of_all_starts_one_by_one(seed: int) -> None:
    random = np.random.default_rng(seed)
    signal = random.uniform(0, 1, 40) * (random.random(40) < random.uniform(0.1, 1))
    weights, entering = random.uniform(0.2, 2, (2, 40))
    entering *= 10 ** random.uniform(-1, 1)
    energies = [
        _minorant_energy(np.append(signal[t] + entering[t], signal[t + 1 :]), weights[t:])
        for t in range(40)
    ]
    assert _from_any_start(signal, weights, entering) == pytest.approx(min(energies))


def test_a_bounded_domain_helps_and_a_huge_one_does_not() -> None:
    many = np.arange(400) % 4 == 0
    for c in (0.9, 1.0, 1.1):
        free = shifted_mu(c, many)
        assert shifted_mu(c, many, domain_diameter=1e9) == pytest.approx(free)
        assert shifted_mu(c, many, domain_diameter=2.0) < free or c < 1
        # By hand: the best of all starts, each with the diameter as a first insertion.
        slow = min(shifted_mu_from(c, many, start, diameter=2.0) for start in range(len(many)))
        assert shifted_mu(c, many, domain_diameter=2.0) == pytest.approx(min(slow, free))


def shifted_mu_from(c: float, inserted, start: int, *, diameter: float) -> float:
    """The energy of a start at one step, with the diameter as part of its first rise."""
    from dpaudit.upper_bounds import hidden_state as module

    signal = inserted[start:].astype(float)
    signal[0] += c * diameter
    weights = np.arange(len(signal) - 1, -1, -1) * math.log(c)
    return math.sqrt(module._minorant_energy(signal, weights))


def test_clipping_alone_amplifies() -> None:
    """One clean step, for every landscape: equal to the best threshold's exact epsilon."""
    for sigma, reach, noise, epsilon in (
        (1.0, 1.0, 1.0, 4.0765),
        (4.0, 4.0, 4.0, 0.8683),
        (4.0, 1.0, 1.0, 0.9216),
    ):
        found = one_clean_step_delta(
            np.array([epsilon]), sigma=sigma, reach=reach, step_noise=noise
        )
        assert found[0] == pytest.approx(1e-5, rel=2e-3)


@pytest.mark.parametrize(
    ("batch", "epsilon"), [(1, 17.74), (2, 19.74), (4, 22.29), (8, 23.85), (64, 23.996)]
)
def test_composed_clipping_bounds(batch: int, epsilon: float) -> None:
    hidden = HiddenState(period=2, batch_size=batch)
    bound = dpaudit.upper_bound(**PAPER, steps=500, hidden_state=hidden)
    assert bound.method == "hidden-state-clipping"
    assert bound.epsilon == pytest.approx(epsilon, abs=0.01)


@pytest.mark.parametrize(
    ("sigma", "insertions", "delta"), [(30.0, 5000, 1e-10), (30.0, 5000, 1e-12), (0.3, 250, 1e-14)]
)
def test_round_off_of_composed_clipping_bounds_is_covered(
    sigma: float, insertions: int, delta: float
) -> None:
    # A step this long keeps everything: the truth is the closed form.
    hidden = HiddenState(period=2, batch_size=10**6)
    bound = dpaudit.upper_bound(
        noise_multiplier=sigma, steps=2 * insertions, delta=delta, hidden_state=hidden
    )
    assert bound.epsilon >= gaussian_epsilon(delta, math.sqrt(insertions) / sigma) * (1 - 1e-12)


def test_many_insertions_stay_within_memory() -> None:
    steps = NoisySteps(
        noise_multiplier=4.0, steps=200_000, hidden_state=HiddenState(period=2, batch_size=1)
    )
    bound = ClippingAccountant().epsilon(steps, delta=1e-5)
    everything = gaussian_epsilon(1e-5, math.sqrt(100_000) / 4)
    assert 0.6 * everything < bound.epsilon < 0.7 * everything


def test_bounds_whose_assumptions_are_not_met_are_refused() -> None:
    both = all_upper_bounds(**PAPER, steps=10, hidden_state=HiddenState(step_lipschitz=1.0))
    assert both["hidden-state-lipschitz"].epsilon == pytest.approx(both["gaussian"].epsilon)
    with pytest.raises(InvalidInput, match="batch_size"):
        both["hidden-state-clipping"]
    with pytest.raises(InvalidInput, match="step without the record"):
        dpaudit.upper_bound(
            **PAPER,
            steps=10,
            hidden_state=HiddenState(batch_size=3),
            accountant="hidden-state-clipping",
        )
    hidden = HiddenState(period=2, batch_size=3)
    with pytest.raises(InvalidInput, match=r"noise_multiplier .* got 0\.01"):
        dpaudit.upper_bound(noise_multiplier=0.01, delta=1e-5, steps=10, hidden_state=hidden)
    with pytest.raises(InvalidInput, match="sampling_rate"):
        dpaudit.upper_bound(
            **PAPER, steps=10, sampling_rate=0.1, hidden_state=HiddenState(step_lipschitz=1.0)
        )
    with pytest.raises(InvalidInput, match="step_lipschitz"):
        HiddenState(step_lipschitz=-1.0)
    with pytest.raises(InvalidInput, match="one per step"):
        dpaudit.upper_bound(**PAPER, steps=10, hidden_state=HiddenState(step_lipschitz=(1.0, 1.0)))


def test_numbers_of_numpy_and_the_largest_domains() -> None:
    plain = HiddenState(step_lipschitz=0.5)
    for other in (
        HiddenState(step_lipschitz=np.float32(0.5)),  # type: ignore[arg-type]
        HiddenState(step_lipschitz=0.5, domain_diameter=1e300),
    ):
        found = (dpaudit.upper_bound(**PAPER, steps=9, hidden_state=one) for one in (plain, other))
        assert len({bound.epsilon for bound in found}) == 1


def test_one_constant_per_step_is_the_same_as_one_for_all() -> None:
    single = HiddenState(period=5, step_lipschitz=1.05)
    listed = HiddenState(period=5, step_lipschitz=(1.05,) * 50)
    one, many = (
        dpaudit.upper_bound(**PAPER, steps=50, hidden_state=hidden) for hidden in (single, listed)
    )
    assert one.epsilon == pytest.approx(many.epsilon)


def test_the_command_prints_both_kinds_of_bounds(run) -> None:
    options = "--step-lipschitz 1.05 --period 5 --phase last --noise-multiplier 4 --steps 1250"
    account = partial(run, "account", *options.split(), "--delta", "1e-5")
    code, out, _ = account("--hidden-state", "--json")
    assert code == 0
    found = json.loads(out)
    methods = [bound["method"] for bound in found["bounds"]]
    assert methods == ["gaussian", "hidden-state-lipschitz"]
    assert found["bounds"][0]["epsilon"] == pytest.approx(23.995, abs=1e-3)
    assert found["unavailable"][0]["method"] == "hidden-state-clipping"
    code, _, err = account()
    assert code == 2
    assert "--hidden-state" in err
