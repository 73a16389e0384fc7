"""Upper bounds on epsilon or delta: one call for every accountant."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from dpaudit._arrays import Array
from dpaudit.curves import gaussian_delta
from dpaudit.errors import InvalidInput
from dpaudit.privacy import Bound, Bounds, Question, question_of
from dpaudit.upper_bounds.base import Accountant, NoisySteps, every_bound
from dpaudit.upper_bounds.gaussian import GaussianAccountant
from dpaudit.upper_bounds.hidden_state import HIDDEN_STATE_ACCOUNTANTS, HiddenState, HiddenSteps
from dpaudit.upper_bounds.privacy_loss import PldAccountant
from dpaudit.upper_bounds.registry import ACCOUNTANTS


def upper_bound(
    *,
    noise_multiplier: float,
    steps: int,
    delta: float | None = None,
    epsilon: float | None = None,
    sampling_rate: float | None = None,
    accountant: str | Accountant | None = None,
    hidden_state: HiddenState | None = None,
) -> Bound:
    r"""An upper bound on the privacy loss of DP-SGD.

    Neighbouring data sets differ by one record, added or removed; the noise has standard deviation
    ``noise_multiplier`` times the clipping norm. The bound holds for every threat model, also if
    the adversary sees all iterates.

    See also:
        `all_upper_bounds` for all accountants, `noise_multiplier_for` for the inverse.

    Arguments:
        noise_multiplier: :math:`\sigma \ge 0`; at 0 the bound is infinite.
        steps: Number of steps that may use the record.
        delta: Bound epsilon at this delta.
        epsilon: Bound delta at this epsilon; give either this or ``delta``.
        sampling_rate: Probability with which each step takes a record (Poisson sampling). `None`
            where the record is in every step, as with fixed batches known to the adversary.
        accountant: A name in `ACCOUNTANTS`, such as ``"pld"``, or an `Accountant` with
            settings of your own. `None` for the closed form if there is no sampling (it is
            exact), otherwise the least of PLD, RDP and the closed form without amplification.
            Memory stays below 1 GB.
        hidden_state: What is known about a training of which only the final model is released.
            ``steps`` then counts all steps, and the bound is that of a hidden-state accountant: the
            one named by ``accountant``, or the smallest.

    Example:
        >>> upper_bound(noise_multiplier=4.0, steps=250, delta=1e-5)
        Bound(epsilon <= 23.9954 at delta=1e-05, gaussian)
        >>> hidden = HiddenState(period=5, step_lipschitz=1.0)
        >>> upper_bound(noise_multiplier=4.0, steps=1250, delta=1e-5, hidden_state=hidden)
        Bound(epsilon <= 8.5959 at delta=1e-05, hidden-state-lipschitz)
        >>> upper_bound(noise_multiplier=3**0.5, steps=3, epsilon=1.0)
        Bound(delta <= 0.1269 at epsilon=1, gaussian)
    """
    question = question_of(delta, epsilon)
    if hidden_state is not None:
        hidden = _hidden(noise_multiplier, steps, sampling_rate, hidden_state)
        return _of_hidden_state(hidden, accountant, question)
    described = NoisySteps(
        noise_multiplier=noise_multiplier, steps=steps, sampling_rate=sampling_rate
    )
    if accountant is None and described.subsampled:
        return _least(described, question)
    return choose(accountant, described).bound(described, question)


def all_upper_bounds(
    *,
    noise_multiplier: float,
    steps: int,
    delta: float | None = None,
    epsilon: float | None = None,
    sampling_rate: float | None = None,
    hidden_state: HiddenState | None = None,
) -> Bounds:
    """Every accountant's bound; one without an answer is listed with its reason.

    With ``hidden_state`` the standard accountants compose the steps with the record, and the
    hidden-state accountants follow them.

    See also:
        `upper_bound`, for one accountant and for the arguments.

    Example:
        >>> both = all_upper_bounds(
        ...     noise_multiplier=2.0, steps=10, sampling_rate=0.5, delta=1e-5
        ... )
        >>> [bound.method for bound in both.bounds]
        ['pld', 'prv', 'rdp']
        >>> both.unavailable[0].reason
        'accountant gaussian has no closed form under sampling, ...'
    """
    question, last = question_of(delta, epsilon), Bounds(bounds=())
    if hidden_state is not None:
        hidden = _hidden(noise_multiplier, steps, sampling_rate, hidden_state)
        last = every_bound(HIDDEN_STATE_ACCOUNTANTS, hidden, question)
        steps = hidden.insertions
    described = NoisySteps(
        noise_multiplier=noise_multiplier, steps=steps, sampling_rate=sampling_rate
    )
    first = every_bound(ACCOUNTANTS, described, question)
    return Bounds(
        bounds=first.bounds + last.bounds, unavailable=first.unavailable + last.unavailable
    )


def privacy_profile(
    *, noise_multiplier: float, steps: int, epsilons: ArrayLike, sampling_rate: float | None = None
) -> Array:
    r"""Upper bounds on delta at many epsilons: the curve :math:`\delta(\epsilon)`.

    The closed form if there is no sampling, otherwise the smaller of PLD and the closed form
    without amplification. All hold at every epsilon together.

    See also:
        `upper_bound`, for one point of it with its numerical error.

    Example:
        >>> privacy_profile(noise_multiplier=1.0, steps=1, epsilons=[0.0, 1.0]).round(4)
        array([0.3829, 0.1269])
    """
    described = NoisySteps(
        noise_multiplier=noise_multiplier, steps=steps, sampling_rate=sampling_rate
    )
    wanted = np.asarray(epsilons, dtype=float)
    if not (np.isfinite(wanted).all() and (wanted >= 0).all()):
        raise InvalidInput(f"epsilons must be finite and at least 0, got {epsilons!r}")
    if described.noise_multiplier == 0:
        return np.ones_like(wanted)
    if not described.subsampled:
        return gaussian_delta(wanted, described.mu)
    sampled = PldAccountant().deltas(described, wanted.ravel()).reshape(wanted.shape)
    return np.minimum(sampled, gaussian_delta(wanted, described.mu))


def _least(steps: NoisySteps, question: Question) -> Bound:
    """The least of the valid bounds on sampled steps: PLD, RDP, and the closed form.

    Sampling never increases the privacy loss, so the closed form without it is a bound too.
    """
    sampled = {name: ACCOUNTANTS[name] for name in ("pld", "rdp")}
    without = GaussianAccountant().bound(replace(steps, sampling_rate=None), question)
    bounds: list[Bound] = [*every_bound(sampled, steps, question), without]
    return min(bounds, key=lambda bound: bound.value)


def _hidden(
    noise_multiplier: float, steps: int, sampling_rate: float | None, hidden_state: HiddenState
) -> HiddenSteps:
    if sampling_rate is not None:
        raise InvalidInput(
            f"sampling_rate must be left out with hidden_state, got {sampling_rate!r}; the "
            "hidden-state accountants assume fixed batches"
        )
    return HiddenSteps(noise_multiplier=noise_multiplier, steps=steps, hidden_state=hidden_state)


def _of_hidden_state(
    steps: HiddenSteps, accountant: str | Accountant | None, question: Question
) -> Bound:
    """The bound of one hidden-state accountant, or the smallest of all: each of them holds."""
    if isinstance(accountant, Accountant):
        raise InvalidInput(
            f"accountant must be the name of a hidden-state accountant, got {accountant!r}"
        )
    if accountant is not None:
        return HIDDEN_STATE_ACCOUNTANTS[accountant]().bound(steps, question)
    found = every_bound(HIDDEN_STATE_ACCOUNTANTS, steps, question)
    if not found.bounds:
        raise InvalidInput("; ".join(missing.reason for missing in found.unavailable))
    return min(found, key=lambda bound: bound.value)


def choose(accountant: str | Accountant | None, steps: NoisySteps) -> Accountant:
    """The accountant of that name; without one the closed form, or PLD if steps are sampled."""
    if isinstance(accountant, Accountant):
        return accountant
    default = "pld" if steps.subsampled else "gaussian"
    return ACCOUNTANTS[default if accountant is None else accountant]()
