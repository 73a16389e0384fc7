"""RDP: the divergences against quadrature, and no epsilon of 0 out of round-off."""

from __future__ import annotations

import logging
import math

import numpy as np
import pytest

from dpaudit.errors import InvalidInput
from dpaudit.upper_bounds import NoisySteps, RdpAccountant, renyi_divergences, upper_bound


@pytest.mark.parametrize(("sigma", "rate"), [(1.0, 0.1), (2.0, 0.5), (4.0, 0.01)])
def test_divergences_by_quadrature(sigma: float, rate: float) -> None:
    orders = [2.0, 4.5, 8.0]
    x, width = np.linspace(-12 * sigma, 8 + 12 * sigma, 200_001, retstep=True)
    without = -((x / sigma) ** 2) / 2 - math.log(sigma * math.sqrt(2 * math.pi))
    loss = np.log1p(rate * np.expm1((2 * x - 1) / (2 * sigma**2)))
    exact = [
        math.log(np.exp(without + order * loss).sum() * width) / (order - 1) for order in orders
    ]
    steps = NoisySteps(noise_multiplier=sigma, steps=7, sampling_rate=rate)
    divergences = renyi_divergences(steps, orders)
    # dp-accounting may round fractional orders up, never down.
    np.testing.assert_allclose(divergences[[0, 2]], 7 * np.array(exact)[[0, 2]], rtol=1e-7)
    assert 7 * exact[1] * (1 - 1e-7) <= divergences[1] <= 7 * exact[1] * 1.01


def test_never_below_the_closed_form_and_always_above_pld() -> None:
    for sigma, count in ((0.05, 10), (1.0, 1), (30.0, 100)):
        described = {"noise_multiplier": sigma, "steps": count, "delta": 1e-5}
        rdp = upper_bound(**described, accountant="rdp").epsilon
        exact = upper_bound(**described).epsilon
        assert exact < rdp < 1.2 * exact + 0.2


def test_next_to_no_loss_is_not_no_loss() -> None:
    # Divergences here are of the size of round-off; dp-accounting alone answers 0.
    steps = NoisySteps(noise_multiplier=100.0, steps=1, sampling_rate=1e-6)
    assert RdpAccountant().delta(steps, epsilon=0.0).delta > 1e-9
    assert RdpAccountant().epsilon(steps, delta=1e-12).epsilon > 0


def test_orders_whose_series_fail_are_left_out_in_silence(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    steps = NoisySteps(noise_multiplier=2.0, steps=10, sampling_rate=0.5)
    with caplog.at_level(logging.WARNING):
        assert math.isinf(renyi_divergences(steps, [1.1])[0])
    assert not caplog.records
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("orders", [(), (1.0,), (2.0, -1.0)])
def test_refuses_orders_out_of_range(orders: tuple[float, ...]) -> None:
    with pytest.raises(InvalidInput, match="orders"):
        RdpAccountant(orders=orders)
