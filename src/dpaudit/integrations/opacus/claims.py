"""The claim of an Opacus training, read from its accountant."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpaudit import _validate
from dpaudit.claims import Claim
from dpaudit.errors import InvalidInput
from dpaudit.integrations.opacus.sampling import hook_variables
from dpaudit.upper_bounds import NoisySteps
from dpaudit.upper_bounds.composition import composed_profile

History = Sequence[tuple[float, float, int]]
"""An accountant's history: groups of (noise multiplier, sampling rate, number of steps)."""


def claim_of(
    source: Any,
    *,
    delta: float = 1e-5,
    steps: int | None = None,
    curve: bool = True,
    every_step: bool = False,
) -> Claim:
    r"""Read the privacy claim of a training from its accountant.

    An accountant holds a history of steps: noise multiplier, sampling rate, number of steps. By
    default the claim is the trade-off *curve* of exactly those steps: in closed form if no step is
    sampled, else from a pessimistic privacy-loss distribution. With ``curve=False`` it is the pair
    (epsilon, delta) of the accountant's own ``get_epsilon``: for an RDP accountant a weaker claim,
    which is harder to refute. In both cases the description quotes that pair.

    Neighbouring data sets differ by one example, added or removed. Opacus divides by the *expected*
    batch size, which is the same with and without the example. With clipping per layer the noise is
    scaled to :math:`\sqrt{\sum_l C_l^2}`, so the same curve holds.

    See also: `insert_canary`, whose ``sampling`` must agree with the claim; `Claim.from_dpsgd` for
    a claim without an accountant.

    Arguments:
        source: A ``PrivacyEngine``, an accountant, or a ``DPOptimizer`` with its step hook.
        delta: Delta at which the accountant computes epsilon.
        steps: Claim this many future steps, with the optimizer's noise multiplier and the sampling
            rate of its step hook. By default the history is read, after training.
        curve: Whether to claim the whole curve, or only the pair (epsilon, delta).
        every_step: The claim for an example that is in every step, without amplification by
            sampling. Use it with ``insert_canary(..., sampling="every step")``, which finds bugs
            with the fewest runs.

    Example:
        >>> from opacus.accountants import RDPAccountant
        >>> accountant = RDPAccountant()
        >>> for _ in range(10):
        ...     accountant.step(noise_multiplier=4.0, sample_rate=1.0)
        >>> claim_of(accountant)
        Claim(DP-SGD with noise multiplier 4, 10 steps; RDPAccountant says epsilon 3.62 at delta
        1e-05)
        >>> claim_of(accountant, curve=False)
        Claim((3.6171, 1e-05)-DP by RDPAccountant of DP-SGD with noise multiplier 4, 10 steps)
    """
    delta = _validate.between("delta", delta, 0, 1, remedy="a common choice is 1e-5")
    accountant = _accountant_of(source)
    if steps is not None:
        accountant = _planned(source, accountant, _validate.integer("steps", steps, at_least=1))
    if every_step:
        sampled, accountant = accountant.history, copy.copy(accountant)
        accountant.history = [(noise, 1.0, count) for noise, _, count in sampled]
    history = _merged(getattr(accountant, "history", None) or ())
    if not history:
        raise InvalidInput(
            "source has an accountant whose history is empty: there is no claim yet. Read the "
            "claim after training, or plan it: claim_of(optimizer, steps=...)"
        )
    parts = [_described(*group) for group in history]
    words = "; ".join(map(_words, history[:3])) + ("; ..." if len(history) > 3 else "")
    if curve:
        return _curve(parts, f"{words}; {_epsilon_in_words(accountant, delta)}")
    epsilon = float(accountant.get_epsilon(delta))
    pair = Claim.from_points([(max(epsilon, 0.0), delta)])
    return Claim(
        description=f"{pair.description} by {type(accountant).__name__} of {words}",
        epsilons=pair.epsilons,
        deltas=pair.deltas,
    )


def _epsilon_in_words(accountant: Any, delta: float) -> str:
    """The accountant's epsilon, or why it has none; the curve does not need it."""
    name = type(accountant).__name__
    with warnings.catch_warnings():
        # Opacus' accountants divide by zero, with a correct result, where nothing is sampled.
        warnings.simplefilter("ignore")
        try:
            epsilon = float(accountant.get_epsilon(delta))
        except Exception as error:
            return f"{name} has no epsilon at delta {delta:g} ({type(error).__name__}: {error})"
    return f"{name} says epsilon {epsilon:.3g} at delta {delta:g}"


def _curve(parts: Sequence[NoisySteps], description: str) -> Claim:
    if not any(part.subsampled for part in parts):
        squared = sum(part.mu**2 for part in parts)
        return Claim(description=description, mu=math.sqrt(squared))
    epsilons = np.concatenate([np.linspace(0, 4, 81), np.linspace(4.25, 40, 144)])
    deltas = composed_profile(parts, epsilons=epsilons)
    return Claim(
        description=description,
        epsilons=tuple(epsilons.tolist()),
        deltas=tuple(np.clip(deltas, 0.0, 1.0).tolist()),
    )


def _described(noise_multiplier: float, rate: float, steps: int) -> NoisySteps:
    _validate.positive(
        "noise_multiplier in the accountant's history",
        float(noise_multiplier),
        remedy="without noise there is no claim to test",
    )
    return NoisySteps(
        noise_multiplier=float(noise_multiplier),
        steps=int(steps),
        sampling_rate=None if rate >= 1 else float(rate),
    )


def _words(group: tuple[float, float, int]) -> str:
    noise, rate, steps = group
    sampled = f", Poisson sampling rate {rate:g}" if rate < 1 else ""
    return f"DP-SGD with noise multiplier {noise:g}, {steps} steps{sampled}"


def _merged(history: History) -> History:
    """Equal steps counted together; the order does not matter."""
    counts: dict[tuple[float, float], int] = {}
    for noise, rate, steps in history:
        counts[noise, rate] = counts.get((noise, rate), 0) + steps
    return [(noise, rate, steps) for (noise, rate), steps in counts.items()]


def _accountant_of(source: Any) -> Any:
    for candidate in (
        source,
        getattr(source, "accountant", None),
        hook_variables(source).get("self"),
    ):
        if hasattr(candidate, "history") and hasattr(candidate, "get_epsilon"):
            return candidate
    raise InvalidInput(
        "source must be a PrivacyEngine, an accountant, or a DPOptimizer whose step hook reports "
        f"to an accountant; got {type(source).__name__}, which leads to no accountant"
    )


def _planned(source: Any, accountant: Any, steps: int) -> Any:
    """A copy of the accountant whose history is ``steps`` future steps."""
    noise = getattr(source, "noise_multiplier", None)
    rate = hook_variables(source).get("sample_rate")
    if noise is None or rate is None:
        raise InvalidInput(
            f"steps needs a DPOptimizer as source, with its noise multiplier and sampling rate; "
            f"got {type(source).__name__}. Read the history after training, or use Claim.from_dpsgd"
        )
    planned = copy.copy(accountant)
    planned.history = [(noise, rate, steps)]
    return planned
