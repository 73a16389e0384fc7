"""What an accountant is, the table of accountants, and the calls that ask them.

An accountant turns the description of noisy steps into an upper bound. A new one is a frozen
dataclass with a ``name``, ``_epsilon`` and ``_delta``, such as `dpaudit.upper_bounds.gaussian`, and
one line in a table below, or an entry point of another package. Its contract test is
`dpaudit.testing.check_accountant` or `dpaudit.testing.check_hidden_state_accountant`.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal, final

from dpaudit._registry import Registry
from dpaudit.errors import DpauditError, InvalidInput, NumericalError
from dpaudit.privacy import Bound, Bounds, Question, Unavailable
from dpaudit.upper_bounds.steps import HiddenState, NoisySteps


class Accountant(abc.ABC):
    """Upper bounds on epsilon at a delta, and on delta at an epsilon.

    The public methods handle the cases without a guarantee (no noise, delta 0) and refuse results
    that are not numbers. Subclasses are frozen dataclasses; their fields set the accuracy only.
    The bounds hold for every adversary, also if it sees all iterates. An accountant that sets
    ``supports_sampling`` to False refuses sampled steps.
    """

    name: ClassVar[str]
    supports_sampling: ClassVar[bool] = True
    hides_state: ClassVar[bool] = False

    def check(self, steps: NoisySteps) -> None:  # noqa: B027  # a hook: most have none
        """Raise `InvalidInput` unless further assumptions of this accountant are met."""

    @final
    def epsilon(self, steps: NoisySteps, *, delta: float) -> Bound:
        """The smallest epsilon this accountant can guarantee at ``delta``."""
        return self.bound(steps, delta=delta)

    @final
    def delta(self, steps: NoisySteps, *, epsilon: float) -> Bound:
        """The smallest delta this accountant can guarantee at ``epsilon``."""
        return self.bound(steps, epsilon=epsilon)

    @final
    def bound(
        self, steps: NoisySteps, *, delta: float | None = None, epsilon: float | None = None
    ) -> Bound:
        """Epsilon at a delta, or delta at an epsilon."""
        Question(delta=delta, epsilon=epsilon)  # raises unless exactly one is given
        steps, reason = self._accepted(steps), ""
        if steps.noise_multiplier == 0:
            reason = "without noise there is no guarantee"
        elif delta == 0:
            reason = "Gaussian noise has no finite epsilon at delta 0"
        quantity: Literal["epsilon", "delta"] = "delta" if delta is None else "epsilon"
        given = float(epsilon if delta is None else delta)  # type: ignore[arg-type]
        if reason:
            return self._bound(steps, quantity, math.inf, given, notes=(reason,))
        try:
            return (self._delta if delta is None else self._epsilon)(steps, given)
        except DpauditError:
            raise
        except (ArithmeticError, ValueError) as error:
            raise self._failure(f"failed ({error})", steps) from None

    @abc.abstractmethod
    def _epsilon(self, steps: NoisySteps, delta: float) -> Bound:
        """Epsilon for a noise multiplier above 0 and a delta in (0, 1), by `_bound`."""

    @abc.abstractmethod
    def _delta(self, steps: NoisySteps, epsilon: float) -> Bound:
        """Delta for a noise multiplier above 0 and an epsilon of at least 0, by `_bound`."""

    @final
    def _bound(
        self,
        steps: NoisySteps,
        quantity: Literal["epsilon", "delta"],
        value: float,
        given: float,
        *,
        assumptions: tuple[str, ...] = (),
        details: Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> Bound:
        """The upper bound ``value`` on epsilon or delta, if the other of the two is ``given``.

        Round-off may leave the range of the quantity. ``assumptions`` are those beyond the
        description of the steps; ``fields`` are further ones of `Bound`.
        """
        if math.isnan(value):
            raise self._failure("computed NaN", steps)
        value = max(float(value), 0.0)
        epsilon, delta = (value, given) if quantity == "epsilon" else (given, min(value, 1.0))
        return Bound(
            epsilon=epsilon,
            delta=delta,
            quantity=quantity,
            side="upper",
            method=self.name,
            assumptions=steps.assumptions + assumptions,
            details=steps.details | dict(details or {}),
            **fields,
        )

    def _accepted(self, steps: NoisySteps) -> NoisySteps:
        """The steps as this accountant composes them, if its assumptions are met."""
        if self.hides_state:
            _ = steps.hidden  # raises without a description
        else:
            steps = steps.every_iterate
        if steps.subsampled and not self.supports_sampling:
            raise InvalidInput(
                f"accountant {self.name} has no bound under sampling, got sampling_rate="
                f"{steps.sampling_rate!r}; use pld, prv or rdp, or leave the sampling rate out"
            )
        self.check(steps)
        return steps

    def _failure(self, reason: str, steps: NoisySteps) -> NumericalError:
        return NumericalError(
            f"accountant {self.name} {reason} for {steps}; use another accountant"
        )


class HiddenStateAccountant(Accountant):
    """An accountant whose bounds hold for the final model alone, from `NoisySteps.hidden_state`."""

    hides_state: ClassVar[bool] = True


ACCOUNTANTS: Registry[type[Accountant]] = Registry(
    "accountant",
    "dpaudit.accountants",
    {
        "gaussian": "dpaudit.upper_bounds.gaussian:GaussianAccountant",
        "pld": "dpaudit.upper_bounds.pld:PldAccountant",
        "rdp": "dpaudit.upper_bounds.rdp:RdpAccountant",
    },
)
"""The accountants by name; other packages, and `dpaudit.comparisons`, add theirs by entry points in
the group ``dpaudit.accountants``."""

HIDDEN_STATE_ACCOUNTANTS: Registry[type[HiddenStateAccountant]] = Registry(
    "accountant",
    "dpaudit.hidden_state_accountants",
    {
        "hidden-state-lipschitz": "dpaudit.upper_bounds.hidden_state:LipschitzAccountant",
        "hidden-state-clipping": "dpaudit.upper_bounds.hidden_state:ClippingAccountant",
    },
)
"""The hidden-state accountants by name; other packages add theirs by entry points."""


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
            one given by ``accountant``, or the smallest.

    Example:
        >>> upper_bound(noise_multiplier=4.0, steps=250, delta=1e-5)
        Bound(epsilon <= 23.9954 at delta=1e-05, gaussian)
        >>> hidden = HiddenState(period=5, step_lipschitz=1.0)
        >>> upper_bound(noise_multiplier=4.0, steps=1250, delta=1e-5, hidden_state=hidden)
        Bound(epsilon <= 8.5959 at delta=1e-05, hidden-state-lipschitz)
        >>> upper_bound(noise_multiplier=3**0.5, steps=3, epsilon=1.0)
        Bound(delta <= 0.1269 at epsilon=1, gaussian)
    """
    Question(delta=delta, epsilon=epsilon)
    described = NoisySteps(
        noise_multiplier=noise_multiplier,
        steps=steps,
        sampling_rate=sampling_rate,
        hidden_state=hidden_state,
    )
    if isinstance(accountant, Accountant):
        if hidden_state is not None and not accountant.hides_state:
            raise InvalidInput(
                f"accountant must be a hidden-state accountant, got {accountant!r}; "
                "leave hidden_state out for the others"
            )
        return accountant.bound(described, delta=delta, epsilon=epsilon)
    table: Mapping[str, type[Accountant]]
    table = ACCOUNTANTS if hidden_state is None else HIDDEN_STATE_ACCOUNTANTS
    if accountant is not None:
        chosen: Accountant = table[accountant]()
        return chosen.bound(described, delta=delta, epsilon=epsilon)
    if hidden_state is not None:
        results = every_bound(table, described, delta=delta, epsilon=epsilon)
        if not results.bounds:
            raise InvalidInput("; ".join(missing.reason for missing in results.unavailable))
        return min(results.bounds, key=lambda bound: bound.value)
    closed_form: Accountant = ACCOUNTANTS["gaussian"]()
    if not described.subsampled:
        return closed_form.bound(described, delta=delta, epsilon=epsilon)
    sampled = {name: ACCOUNTANTS[name] for name in ("pld", "rdp")}
    bounds: list[Bound] = [*every_bound(sampled, described, delta=delta, epsilon=epsilon)]
    # Sampling never increases the privacy loss, so the closed form without it is a bound too.
    unsampled = replace(described, sampling_rate=None)
    bounds.append(closed_form.bound(unsampled, delta=delta, epsilon=epsilon))
    return min(bounds, key=lambda bound: bound.value)


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
        >>> results = all_upper_bounds(
        ...     noise_multiplier=2.0, steps=10, sampling_rate=0.5, delta=1e-5
        ... )
        >>> [bound.method for bound in results.bounds]
        ['pld', 'rdp', 'prv']
        >>> results.unavailable[0].reason
        'accountant gaussian has no bound under sampling, ...'
    """
    Question(delta=delta, epsilon=epsilon)
    described = NoisySteps(
        noise_multiplier=noise_multiplier,
        steps=steps,
        sampling_rate=sampling_rate,
        hidden_state=hidden_state,
    )
    tables: dict[str, type[Accountant]] = dict(ACCOUNTANTS)
    if hidden_state is not None:
        tables |= HIDDEN_STATE_ACCOUNTANTS
    return every_bound(tables, described, delta=delta, epsilon=epsilon)


def every_bound(
    accountants: Mapping[str, type[Accountant]],
    steps: NoisySteps,
    *,
    delta: float | None = None,
    epsilon: float | None = None,
) -> Bounds:
    """The bound of each accountant; one without an answer is listed with its reason."""
    bounds: list[Bound] = []
    unavailable: list[Unavailable] = []
    for name, accountant in accountants.items():
        try:
            bounds.append(accountant().bound(steps, delta=delta, epsilon=epsilon))
        except DpauditError as error:
            unavailable.append(Unavailable(method=name, reason=str(error)))
    return Bounds(bounds=tuple(bounds), unavailable=tuple(unavailable))
