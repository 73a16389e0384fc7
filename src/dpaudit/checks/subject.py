"""What is checked: a user's training, or one private step, behind one interface.

output(gradient, seed) = the flat vector that is returned when this gradient takes part,
                         or when it does not (gradient = None)
"""

from __future__ import annotations

import abc
import inspect
import warnings
from collections.abc import Callable
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dpaudit.checks.canaries import ShapedCanary
from dpaudit.errors import InvalidInput
from dpaudit.trainings.parameters import flat_parameters

Array = NDArray[np.float64]


class Subject(abc.ABC):
    """A function from gradients to a flat vector, with noise.

    Arguments:
        parameters: Length of the flat vector.
        clip_norm: The claimed clip norm C.
        noise_multiplier: The claimed sigma: noise has standard deviation sigma C on the sum.
        steps: Number of noisy steps of one output.
        insertions: Number of steps in which the crafted gradient takes part.
    """

    noun: str
    steps_can_vary: bool

    def __init__(
        self,
        *,
        parameters: int,
        clip_norm: float,
        noise_multiplier: float,
        steps: int,
        insertions: int,
    ) -> None:
        self.parameters = parameters
        self.clip_norm = clip_norm
        self.noise_multiplier = noise_multiplier
        self.steps = steps
        self.insertions = insertions
        self.calls = 0

    @abc.abstractmethod
    def call(self, gradient: Array | None, seed: int, steps: int) -> Any:
        """Run the user's code once."""

    @abc.abstractmethod
    def clipping_is_skipped(self) -> bool:
        """Whether the user's code inserts gradients that are clipped already."""

    def output(self, gradient: Array | None, seed: int, steps: int) -> Array:
        """The flat vector of one call, checked for its shape."""
        self.calls += 1
        with np.errstate(all="ignore"), warnings.catch_warnings():
            # Huge gradients overflow on purpose; other warnings are shown once, not at every call.
            warnings.simplefilter("ignore", RuntimeWarning if self.calls == 1 else Warning)
            returned = self.call(gradient, seed, steps)
        shape: tuple[int, ...] = tuple(getattr(returned, "shape", ()))
        if len(shape) == 2 and shape[1] == self.parameters:
            returned = returned[-1]  # all iterates; the last one is the model
        flat = flat_parameters(returned)
        if flat.shape != (self.parameters,):
            raise InvalidInput(
                f"{self.noun} must return {self.parameters} numbers, one for each parameter, got "
                f"{flat.size}; the checks need the parameters themselves, not a score"
            )
        return flat


@final
class TrainingSubject(Subject):
    """A user's ``train(canary, inserted, seed)``, with ``steps=`` if it takes that argument."""

    noun = "train"

    def __init__(self, train: Callable[..., Any], **described: Any) -> None:
        super().__init__(**described)
        self._train = train
        self._asked: set[str] = set()
        self.steps_can_vary = _takes_steps(train)

    def call(self, gradient: Array | None, seed: int, steps: int) -> Any:
        absent = gradient is None
        shape = np.zeros(self.parameters) if gradient is None else gradient
        canary = ShapedCanary(gradient=shape, clip_norm=self.clip_norm, asked=self._asked)
        more = {"steps": steps} if self.steps_can_vary else {}
        try:
            return self._train(canary, not absent, seed, **more)
        except (Exception, SystemExit) as error:
            raise TrainingFailed(
                f"train failed with a canary of norm {canary.norm:g}, inserted={not absent}, "
                f"seed={seed}: {type(error).__name__}: {error}"
            ) from error

    def clipping_is_skipped(self) -> bool:
        return self._asked == {"clipped_sum"}


@final
class StepSubject(Subject):
    """A user's ``private_step(gradients, seed)``; the other rows of the batch are made here."""

    noun = "private_step"
    steps_can_vary = False

    def __init__(
        self, private_step: Callable[[Array, int], Any], *, batch_size: int, **described: Any
    ) -> None:
        super().__init__(steps=1, insertions=1, **described)
        self._step = private_step
        random = np.random.default_rng(20_250_101)
        others = random.standard_normal((batch_size - 1, self.parameters))
        others /= np.linalg.norm(others, axis=1, keepdims=True)
        # Norms from far below the clip norm to far above it.
        self._others = others * self.clip_norm * np.geomspace(0.1, 10, batch_size - 1)[:, None]

    def call(self, gradient: Array | None, seed: int, steps: int) -> Any:
        rows = self._others if gradient is None else np.vstack([self._others, gradient])
        try:
            return self._step(rows.copy(), seed)
        except (Exception, SystemExit) as error:
            raise TrainingFailed(
                f"private_step failed on gradients of shape {rows.shape} with seed={seed}: "
                f"{type(error).__name__}: {error}"
            ) from error

    def clipping_is_skipped(self) -> bool:
        return False


class TrainingFailed(InvalidInput):
    """The user's own code raised an exception."""


def _takes_steps(train: Callable[..., Any]) -> bool:
    try:
        return "steps" in inspect.signature(train).parameters
    except (TypeError, ValueError):
        return False
