"""The claim of an Opacus training, read from its accountant."""

from __future__ import annotations

import copy
import warnings
from typing import Any

from dpaudit import _validate
from dpaudit._validate import said
from dpaudit.claims import Claim
from dpaudit.errors import InvalidInput
from dpaudit.integrations.base import curve_of, in_words, merged
from dpaudit.integrations.opacus.optimizer import hook_variables


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
    history = merged(getattr(accountant, "history", None) or ())
    if not history:
        raise InvalidInput(
            "source has an accountant whose history is empty: there is no claim yet. Read the "
            "claim after training, or plan it: claim_of(optimizer, steps=...)"
        )
    words = in_words(history)
    if curve:
        return curve_of(history, f"{words}; {_epsilon_in_words(accountant, delta)}")
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
            return f"{name} has no epsilon at delta {delta:g} ({said(error)})"
    return f"{name} says epsilon {epsilon:.3g} at delta {delta:g}"


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
