"""The state of all runs, and how a step changes it: noise, optimizer and averaging."""

from __future__ import annotations

from typing import Any, final

import torch
from torch import Tensor

from dpaudit.engine import noise
from dpaudit.engine.comparing import Quiet
from dpaudit.engine.training import Training
from dpaudit.mechanisms.optimizers import SGD, ConstantRate


@final
class Updates:
    """The update of a training's states by clipped sums.

    A state is the parameters, shape (runs, parameters). If a step needs more, it is a stack of
    tensors of this shape: the parameters, the optimizer's state, past noise that later noise is
    correlated with, and the average of the iterates.

    Arguments:
        training: The training.
        parameters: Number of parameters of one model.
        dtype: Type of the parameters.
    """

    def __init__(self, training: Training, parameters: int, dtype: torch.dtype) -> None:
        mechanism = training.mechanism
        self._training, self._parameters, self._dtype = training, parameters, dtype
        self._memory = 0 if mechanism.correlation is None else mechanism.correlation.memory
        self._slots = mechanism.optimizer.slots + self._memory
        self._stacked = self._slots > 0 or mechanism.averaging is not None

    def parameters_in(self, state: Tensor) -> Tensor:
        """The parameters (runs, parameters) in a state."""
        return state[0] if self._stacked else state

    def released_in(self, state: Tensor) -> Tensor:
        """The model that a training would release: the average of iterates, if there is one."""
        averaged = self._training.mechanism.averaging is not None
        return state[-1] if averaged else self.parameters_in(state)

    def first(self, start: Tensor) -> Tensor:
        """The state before the first step, from the initial parameters."""
        if not self._stacked:
            return start
        average = [] if self._training.mechanism.averaging is None else [start]
        return torch.stack([start, *[torch.zeros_like(start)] * self._slots, *average])

    def scalars(self, device: torch.device) -> Tensor:
        """For each step what may change without compiling again, shape (steps, 6).

        The learning rate over the batch size, the clip norm, the noise, the factor of weight decay,
        the learning rate, and one over the batch size.
        """
        mechanism = self._training.mechanism
        size = mechanism.batches.expected_size(len(mechanism.data))
        clip_norm = mechanism.clip_norm if self._training.clipped else float("inf")
        spread = mechanism.noise_multiplier * mechanism.clip_norm
        constant = isinstance(mechanism.schedule, ConstantRate)
        rates = [mechanism.rate(step) for step in range(1 if constant else mechanism.steps)]
        rows = [
            [rate / size, clip_norm, spread, 1 - rate * mechanism.weight_decay, rate, 1 / size]
            for rate in rates
        ]
        scalars = torch.tensor(rows, dtype=self._dtype, device=device)
        return scalars.expand(mechanism.steps, -1)

    def quiet(self) -> Quiet | None:
        """Sets the noise to 0 in the arguments of a step, the last of which are its scalars.

        Also gives the length of the longest step without noise, in which gradients do not cancel.

        `None` if a step has no noise, or if its length would not be that of the clipped sums: other
        optimizers rescale them, and a state with past noise is as long as that noise.
        """
        plain = isinstance(self._training.mechanism.optimizer, SGD) and not self._memory
        if not self._training.adds_noise or not plain:
            return None

        def without_noise(args: tuple[Any, ...]) -> tuple[tuple[Any, ...], float]:
            *others, scalars = args
            scalars = scalars.clone()
            scalars[2] = 0
            longest = float(scalars[4] * scalars[1]) if self._training.clipped else 0.0
            return (*others, scalars), longest

        return without_noise

    def next(
        self, state: Tensor, sums: Tensor, runs: Tensor, step: Tensor, key: Tensor, scalars: Tensor
    ) -> Tensor:
        """The state after a step whose clipped sums, with canaries, are ``sums``."""
        mechanism, current = self._training.mechanism, self.parameters_in(state)
        past: tuple[Tensor, ...] = ()
        if self._training.adds_noise:
            fresh, past = self._noise(state, runs, step, key)
            sums = sums + scalars[2] * fresh
        if mechanism.weight_decay:
            current = current * scalars[3]
        if not self._stacked and isinstance(mechanism.optimizer, SGD):
            return current - scalars[0] * sums
        return self._updated(current, sums * scalars[5], state, past, step, scalars[4])

    def _noise(
        self, state: Tensor, runs: Tensor, step: Tensor, key: Tensor
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The noise of a step, and the noise to remember for later steps."""
        training, correlation = self._training, self._training.mechanism.correlation
        fresh = noise.normals(key, training.stream, runs, step, self._parameters, self._dtype)
        if correlation is None:
            return fresh, ()
        first = 1 + training.mechanism.optimizer.slots
        past = tuple(state[first : first + self._memory])
        fresh = correlation.next(fresh, past)
        return fresh, (fresh, *past)[: self._memory]

    def _updated(
        self,
        current: Tensor,
        gradient: Tensor,
        state: Tensor,
        past: tuple[Tensor, ...],
        step: Tensor,
        rate: Tensor,
    ) -> Tensor:
        """The next state by the optimizer, the noise ``past`` to remember, and the averaging."""
        mechanism, count = self._training.mechanism, (step + 1).to(self._dtype)
        slots = tuple(state[1 : 1 + mechanism.optimizer.slots])
        current, slots = mechanism.optimizer.step(current, gradient, slots, rate=rate, count=count)
        # Without noise there is nothing to remember, and the zeros stay.
        slots = (*slots, *(past or [torch.zeros_like(current)] * self._memory))
        if mechanism.averaging is not None:
            slots = (*slots, mechanism.averaging.update(state[-1], current, count=count))
        return torch.stack([current, *slots]) if self._stacked else current
