"""Contract test for hidden-state accountants: `check_hidden_state_accountant`.

The bounds are compared with exact values of trainings that meet the assumptions: linear updates,
whose final position is Gaussian, and one-dimensional landscapes.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np

from dpaudit._arrays import Array
from dpaudit.curves import gaussian_delta, gaussian_epsilon
from dpaudit.errors import InvalidInput
from dpaudit.testing._requiring import requiring
from dpaudit.upper_bounds import HiddenState, HiddenStateAccountant, NoisySteps

_DELTA = 1e-5
_CONSTANTS = (0.9, 1.0, 1.05, 2.0)
_SLACK = 1e-6

_require = requiring("accountant")


def check_hidden_state_accountant(accountant: HiddenStateAccountant) -> None:
    """Raise `AssertionError`, with the failing case, if ``accountant`` breaks the contract.

    Arguments:
        accountant: The accountant to check.

    Example:
        >>> from dpaudit.upper_bounds.hidden_state import LipschitzAccountant
        >>> check_hidden_state_accountant(LipschitzAccountant())
    """
    cases = [case for case in _cases() if _accepts(accountant, case)]
    _require(cases, "no case meets the assumptions")
    for case in cases:
        check_range(accountant, case)
        check_linear_trace(accountant, case)
        check_monotone(accountant, case)
    check_landscapes(accountant)


def check_range(accountant: HiddenStateAccountant, steps: NoisySteps) -> None:
    """A bound names its method and assumptions, and composition is never smaller."""
    mu = math.sqrt(steps.insertions) / steps.noise_multiplier
    for delta in (1e-7, _DELTA, 1e-2):
        bound = accountant.epsilon(steps, delta=delta)
        _require(0 <= bound.epsilon <= gaussian_epsilon(delta, mu) + 1e-2, bound, steps)
        _require((bound.side, bound.method) == ("upper", accountant.name), bound, steps)
        _require(len(bound.assumptions) > 3, bound, steps)
        back = accountant.delta(steps, epsilon=bound.epsilon).delta
        _require(bound.epsilon == 0 or abs(back / delta - 1) < 1e-2, bound, back, steps)
    silent = replace(steps, noise_multiplier=0.0)
    _require(math.isinf(accountant.epsilon(silent, delta=_DELTA).epsilon), silent)
    _require(math.isinf(accountant.epsilon(steps, delta=0.0).epsilon), steps)


def check_linear_trace(accountant: HiddenStateAccountant, steps: NoisySteps) -> None:
    """Never below a linear training: the update multiplies by c, and noise and canaries add up.

    An expanding update is not within the reach of clipped gradients, so that an accountant that
    knows only the clipping is compared with c = 1.
    """
    constant = steps.hidden.step_lipschitz
    c = 1.0 if constant is None else float(np.min(constant))
    weights = c ** np.arange(steps.steps - 1, -1, -1.0)
    signal = float(weights[steps.inserted].sum())
    mu = signal / (math.sqrt(float((weights**2).sum())) * steps.noise_multiplier)
    for epsilon in (0.0, 0.5, 2.0, 8.0):
        exact = float(gaussian_delta(epsilon, mu))
        bound = accountant.delta(steps, epsilon=epsilon)
        _require(bound.delta >= exact * (1 - _SLACK), bound, exact, steps)


def check_monotone(accountant: HiddenStateAccountant, steps: NoisySteps) -> None:
    """More noise, a smaller constant or rarer insertions never give a larger epsilon."""

    def epsilon(case: NoisySteps) -> float:
        return accountant.epsilon(case, delta=_DELTA).epsilon

    hidden, sigma = steps.hidden, steps.noise_multiplier
    ladders = [[epsilon(replace(steps, noise_multiplier=m * sigma)) for m in (1.0, 1.3, 2.0)]]
    if hidden.step_lipschitz is not None:
        ladders.append(
            [
                epsilon(replace(steps, hidden_state=replace(hidden, step_lipschitz=c)))
                for c in sorted(_CONSTANTS, reverse=True)
            ]
        )
    if hidden.insertion_steps is None:
        ladders.append(
            [epsilon(replace(steps, hidden_state=replace(hidden, period=k))) for k in (2, 4, 8)]
        )
    for ladder in ladders:
        for larger, smaller in itertools.pairwise(ladder):
            _require(smaller <= larger * (1 + 1e-4) + 1e-4, ladder, steps)


def check_landscapes(accountant: HiddenStateAccountant) -> None:
    """Never below one insertion followed by clean steps over a crafted loss landscape."""
    for sigma, batch, steps in ((1.0, 1, 2), (1.0, 1, 6), (4.0, 4, 2), (2.0, 2, 4)):
        for c in (None, 1.2, 2.0):
            hidden = HiddenState(insertion_steps=(0,), batch_size=batch, step_lipschitz=c)
            case = NoisySteps(noise_multiplier=sigma, steps=steps, hidden_state=hidden)
            if _accepts(accountant, case):
                bound = accountant.epsilon(case, delta=_DELTA)
                exact = landscape_delta(case, bound.epsilon)
                _require(exact <= _DELTA * 1.002, bound, exact, case)


def landscape_delta(steps: NoisySteps, epsilon: float) -> float:
    r"""The exact delta at ``epsilon`` of one parameter over a strong loss landscape.

    The first step has the record and gives :math:`N(0, \sigma^2)` or :math:`N(1, \sigma^2)`, in
    units of the clipping norm. Every later step moves a position x by a drift of at most the batch
    size, away from the point where :math:`\nu = p_1 - e^\epsilon p_0` changes sign, and adds noise
    :math:`\sigma`. With a Lipschitz constant c the drift is at most (c - 1) times the distance from
    that point. Delta is the positive mass of :math:`\nu` at the end. Midpoint rule; the landscape
    may only jump at the edge of a cell.
    """
    sigma, hidden = steps.noise_multiplier, steps.hidden
    batch, c = float(hidden.batch_size or 0), hidden.step_lipschitz
    width = sigma / 40
    reach = 8 * sigma * math.sqrt(steps.steps) + batch * steps.steps + 1
    half = math.ceil(reach / width)
    x: Array = width * (np.arange(-half, half, dtype=np.float64) + 0.5)

    def normal(distance: Array) -> Array:
        return np.asarray(np.exp(-((distance / sigma) ** 2) / 2) / (sigma * math.sqrt(2 * math.pi)))

    nu = normal(x - 1) - math.exp(epsilon) * normal(x)
    for _ in range(1, steps.steps):
        away = x - (x[np.argmin(np.cumsum(nu))] + width / 2)
        slope = np.inf if c is None else float(np.min(c)) - 1
        landed = x + np.clip(slope * away, -batch, batch)
        nu = width * normal(x[:, None] - landed) @ nu
    return float(np.maximum(nu, 0).sum() * width)


def _cases() -> list[NoisySteps]:
    patterns = [
        HiddenState(period=period, phase=phase, batch_size=4)  # type: ignore[arg-type]
        for period, phase in ((1, "first"), (2, "first"), (5, "last"))
    ] + [HiddenState(insertion_steps=(0, 1, 7), batch_size=4)]
    hidden = [
        replace(pattern, step_lipschitz=c) for pattern in patterns for c in (*_CONSTANTS, None)
    ]
    return [NoisySteps(noise_multiplier=2.0, steps=20, hidden_state=each) for each in hidden]


def _accepts(accountant: HiddenStateAccountant, steps: NoisySteps) -> bool:
    try:
        accountant.check(steps)
    except InvalidInput:
        return False
    return True
