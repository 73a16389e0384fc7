"""What an accountant is told about a DP-SGD training: its noise, its steps, what it hides."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dpaudit import _validate
from dpaudit.errors import InvalidInput
from dpaudit.mechanisms.dpsgd import PHASES, Phase

GIVEN = "every update of the genuine examples is c-Lipschitz with the constant given by the user"
MOST_HIDDEN_STEPS = 10**7


@final
@dataclass(frozen=True, kw_only=True)
class HiddenState:
    r"""What is known about a training whose intermediate models are hidden.

    One step is :math:`\theta' = \varphi_t(\theta) - \frac\eta B (C u_t 1[t \in I] + \sigma C Z_t)`:
    :math:`\varphi_t` is the update of the genuine examples, :math:`I` are the steps with the
    record, and :math:`|u_t| \le 1` is its clipped gradient over :math:`C`.

    Arguments:
        period: The record takes part in one step of every ``period`` steps.
        phase: Whether that is the ``"first"`` or the ``"last"`` step of each period.
        insertion_steps: The steps with the record, from 0, for any other pattern; replaces
            ``period`` and ``phase``.
        step_lipschitz: A Lipschitz constant of every :math:`\varphi_t`, or one constant per step.
            `None` if none is known.
        assumption: The reason why that constant holds, as one sentence.
        domain_diameter: Diameter of the set onto which every step projects the parameters, in units
            of :math:`\eta C / B`; `None` without projection.
        batch_size: Number of genuine examples in a batch; needed by the bound that assumes only
            clipping.

    Example:
        >>> HiddenState(period=5, phase="last").inserted(10).nonzero()[0]
        array([4, 9])
    """

    period: int = 1
    phase: Phase = "first"
    insertion_steps: tuple[int, ...] | None = None
    step_lipschitz: float | Sequence[float] | None = None
    assumption: str = GIVEN
    domain_diameter: float | None = None
    batch_size: int | None = None

    def __post_init__(self) -> None:
        _validate.integer("period", self.period, at_least=1, remedy="use 1 for every step")
        _validate.one_of("phase", self.phase, PHASES)
        if self.step_lipschitz is not None:
            given = self.step_lipschitz
            constants = tuple(_validate.positive("step_lipschitz", c) for c in np.atleast_1d(given))
            several = isinstance(given, Sequence | np.ndarray)
            object.__setattr__(self, "step_lipschitz", constants if several else constants[0])
        if self.insertion_steps is not None:
            for step in self.insertion_steps:
                _validate.integer("insertion_steps", step)
            object.__setattr__(self, "insertion_steps", tuple(sorted(set(self.insertion_steps))))
        if self.domain_diameter is not None:
            _validate.positive("domain_diameter", self.domain_diameter)
        if self.batch_size is not None:
            _validate.integer("batch_size", self.batch_size, at_least=1)

    def inserted(self, steps: int) -> NDArray[np.bool_]:
        """For each of the first ``steps`` steps, whether the record takes part in it."""
        if self.insertion_steps is None:
            offset = 0 if self.phase == "first" else self.period - 1
            return np.asarray(np.arange(steps) % self.period == offset)
        pattern = np.zeros(steps, dtype=bool)
        pattern[[step for step in self.insertion_steps if step < steps]] = True
        return pattern


@final
@dataclass(frozen=True, kw_only=True)
class NoisySteps:
    r"""The part of a DP-SGD training that an accountant needs.

    Every step releases a sum of clipped gradients plus noise
    :math:`\mathcal N(0, \sigma^2 C^2 I)`, where one record moves the sum by at most the clipping
    norm :math:`C`. Neighbouring data sets differ by one record, *added or removed*.

    Arguments:
        noise_multiplier: :math:`\sigma`, the noise's standard deviation over the clipping norm.
            At 0 there is no guarantee.
        steps: :math:`T`, the number of steps that may use the record; with ``hidden_state`` all
            steps of the training.
        sampling_rate: :math:`q`, the probability with which each step uses each record (Poisson
            sampling). `None` or 1 if every step uses the record, without amplification. Fixed
            batches known to the adversary are this case, with ``steps`` the number of batches that
            contain the record.
        hidden_state: What is known about the steps if only the final model is released; `None` if
            every iterate may be.

    Example:
        >>> round(NoisySteps(noise_multiplier=4.0, steps=250).mu, 6)
        3.952847
    """

    noise_multiplier: float
    steps: int
    sampling_rate: float | None = None
    hidden_state: HiddenState | None = None

    def __post_init__(self) -> None:
        _validate.non_negative("noise_multiplier", self.noise_multiplier)
        _validate.integer("steps", self.steps, at_least=1)
        if self.sampling_rate is not None:
            _validate.between(
                "sampling_rate",
                self.sampling_rate,
                0,
                1,
                closed_high=True,
                remedy="leave it out if every step uses the record",
            )
        if self.hidden_state is not None:
            self._check_hidden(self.hidden_state)

    def _check_hidden(self, hidden: HiddenState) -> None:
        if self.sampling_rate is not None:
            raise InvalidInput(
                f"sampling_rate must be left out with hidden_state, got {self.sampling_rate!r}; "
                "the hidden-state accountants assume fixed batches"
            )
        _validate.integer("steps", self.steps, at_most=MOST_HIDDEN_STEPS)
        if not self.inserted.any():
            raise InvalidInput(
                f"steps must be at least one insertion long, got {self.steps} with {hidden!r}; "
                "train longer or insert earlier"
            )
        constants = hidden.step_lipschitz
        if isinstance(constants, tuple) and len(constants) != self.steps:
            raise InvalidInput(
                f"step_lipschitz must be one number or one per step ({self.steps}), "
                f"got {len(constants)} numbers"
            )

    @property
    def hidden(self) -> HiddenState:
        """What is known about the hidden models; raises `InvalidInput` if nothing is."""
        if self.hidden_state is None:
            raise InvalidInput(
                "hidden_state must be a HiddenState for an accountant of the final model, got None"
            )
        return self.hidden_state

    @property
    def subsampled(self) -> bool:
        """Whether a step may not use the record."""
        return self.sampling_rate is not None and self.sampling_rate < 1

    @cached_property
    def inserted(self) -> NDArray[np.bool_]:
        """For each step, whether the record may take part in it."""
        if self.hidden_state is None:
            return np.ones(self.steps, dtype=bool)
        return self.hidden_state.inserted(self.steps)

    @property
    def insertions(self) -> int:
        """The number of steps that may use the record."""
        return self.steps if self.hidden_state is None else int(self.inserted.sum())

    @property
    def mu(self) -> float:
        r"""The Gaussian-DP parameter of all iterates without sampling.

        :math:`\sqrt{\text{insertions}} / \sigma`.
        """
        if self.noise_multiplier == 0:
            return math.inf
        return math.sqrt(self.insertions) / self.noise_multiplier

    @property
    def every_iterate(self) -> NoisySteps:
        """The same training if every iterate is released: the steps without the record add none."""
        return replace(self, steps=self.insertions, hidden_state=None)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What must be true of the training for a bound on these steps to hold."""
        neighbours = "neighbours differ by one record, added or removed"
        if self.hidden_state is not None:
            return (
                neighbours,
                "only the final model is released, and the initial model is known",
                "batches are fixed and known: no amplification by sampling",
            )
        if self.subsampled:
            return (
                neighbours,
                f"Poisson sampling: a step uses a record with probability {self.sampling_rate:g}",
            )
        return neighbours, "every step uses the record: no amplification by sampling"

    @property
    def details(self) -> dict[str, Any]:
        """The description as plain data, for the details of a bound."""
        plain = {"noise_multiplier": float(self.noise_multiplier), "steps": int(self.steps)}
        if self.hidden_state is not None:
            return plain | {"insertions": self.insertions}
        rate = self.sampling_rate
        return plain | {"sampling_rate": None if rate is None else float(rate)}
