"""What is checked: a user's training, or one private step, behind one interface.

output(gradient, seed) = the flat vector that is returned when this gradient takes part,
                         or when it does not (gradient = None)
"""

from __future__ import annotations

import abc
import inspect
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, final

import numpy as np

from dpaudit._arrays import Array
from dpaudit.checks.canaries import ShapedCanary
from dpaudit.checks.isolation import seeded_generators
from dpaudit.checks.layout import Tensor, tensors_of
from dpaudit.errors import InvalidInput
from dpaudit.trainings.parameters import flat_parameters


class UserCodeFailed(InvalidInput):
    """The code under check raised an exception."""


@dataclass(kw_only=True, eq=False)
class Subject(abc.ABC):
    """A function from gradients to a flat vector, with noise.

    Arguments:
        parameters: Length of the flat vector.
        clip_norm: The claimed clip norm C.
        noise_multiplier: The claimed sigma: noise has standard deviation sigma C on the sum.
        steps: Number of noisy steps of one output.
        insertions: Number of steps in which the crafted gradient takes part.
        tensors: Names and places of the parameter tensors; read from the output by default.
        public_transform: Whether the output is a public function of the noisy gradient, such as
            top-k, that rules about noise and contributions cannot see through.
    """

    parameters: int
    clip_norm: float
    noise_multiplier: float
    steps: int = 1
    insertions: int = 1
    tensors: tuple[Tensor, ...] = ()
    public_transform: bool = False

    noun: ClassVar[str]
    steps_can_vary: bool = field(default=False, init=False)
    calls: int = field(default=0, init=False)

    @abc.abstractmethod
    def call(
        self,
        gradient: Array | None,
        seed: int,
        steps: int,
        only: int | None,
        companions: Array | None,
    ) -> Any:
        """Run the user's code once."""

    @abc.abstractmethod
    def clipping_is_skipped(self) -> bool:
        """Whether the user's code inserts gradients that are clipped already."""

    @property
    def places_per_step(self) -> int | None:
        """How often the training reads the canary in one step, if that is the same in each."""
        return None

    @property
    def canary_was_read(self) -> bool:
        """Whether the user's code ever read the crafted gradient."""
        return True

    def output(
        self,
        gradient: Array | None,
        seed: int,
        steps: int,
        *,
        only: int | None = None,
        companions: Array | None = None,
    ) -> Array:
        """The flat vector of one call, checked for its shape.

        Arguments:
            gradient: The crafted gradient; `None` without it.
            seed: The seed that the user's code gets.
            steps: Number of steps.
            only: The gradient takes part in this step only, counted from 0; in all by default.
            companions: Gradients that are in the batch in any case, before the crafted one.
        """
        with self._calling(seed):
            returned = self.call(gradient, seed, steps, only, companions)
        shape: tuple[int, ...] = tuple(getattr(returned, "shape", ()))
        if len(shape) == 2 and shape[1] == self.parameters:
            returned = returned[-1]  # all iterates; the last one is the model
        flat = flat_parameters(returned)
        if flat.shape != (self.parameters,):
            raise InvalidInput(
                f"{self.noun} must return {self.parameters} numbers, one for each parameter, got "
                f"{flat.size}; the checks need the parameters themselves, not a score"
            )
        if not self.tensors:
            self.tensors = tensors_of(returned)
        return flat

    @contextmanager
    def _calling(self, seed: int) -> Iterator[None]:
        """Around a call of the user's code: counts it, seeds generators and silences warnings."""
        self.calls += 1
        with np.errstate(all="ignore"), warnings.catch_warnings(), seeded_generators(seed):
            # Huge gradients overflow on purpose; other warnings are shown once, not at every call.
            warnings.simplefilter("ignore", RuntimeWarning if self.calls == 1 else Warning)
            yield

    def pair(
        self, gradient: Array, seed: int, steps: int, *, only: int | None = None
    ) -> tuple[Array, Array]:
        """The outputs with a gradient and with its negative; arguments as for `output`."""
        plus = self.output(gradient, seed, steps, only=only)
        return plus, self.output(-gradient, seed, steps, only=only)


@final
@dataclass(kw_only=True, eq=False)
class TrainingSubject(Subject):
    """A user's ``train(canary, inserted, seed)``, with ``steps=`` if it takes that argument."""

    noun = "train"
    train: Callable[..., Any]

    def __post_init__(self) -> None:
        self._asked: set[str] = set()
        self._read: dict[int, int] = {}
        self.reads = 0  # of the canary, in the last call
        self.canary_took_part = False  # in the last call
        self.steps_can_vary = usual_steps(self.train) is not None

    def call(
        self,
        gradient: Array | None,
        seed: int,
        steps: int,
        only: int | None,
        companions: Array | None,
    ) -> Any:
        absent = gradient is None
        shape = np.zeros(self.parameters) if gradient is None else gradient
        each = self.places_per_step or 1
        canary = ShapedCanary(
            gradient=shape,
            clip_norm=self.clip_norm,
            asked=self._asked,
            only=None if only is None else range(only * each, (only + 1) * each),
            companions=companions,
        )
        more = {"steps": steps} if self.steps_can_vary else {}
        try:
            return self.train(canary, not absent, seed, **more)
        except (Exception, SystemExit) as error:
            raise UserCodeFailed(
                f"train failed with a canary of norm {canary.norm:g}, inserted={not absent}, "
                f"seed={seed}: {type(error).__name__}: {error}"
            ) from error
        finally:
            self._read[steps] = self.reads = canary.calls
            self.canary_took_part = canary.took_part

    def clipping_is_skipped(self) -> bool:
        return self._asked == {"clipped_sum"}

    @property
    def canary_was_read(self) -> bool:
        return bool(self._asked)

    @property
    def places_per_step(self) -> int | None:
        counts = {read / steps for steps, read in self._read.items()}
        each = counts.pop() if len(counts) == 1 else 0.0
        return int(each) if each >= 1 and each == int(each) else None


@final
@dataclass(kw_only=True, eq=False)
class StepSubject(Subject):
    """A user's ``private_step(gradients, seed)``; the other rows of the batch are made here."""

    noun = "private_step"
    private_step: Callable[[Array, int], Any]
    batch_size: int

    def __post_init__(self) -> None:
        random = np.random.default_rng(20_250_101)
        others = random.standard_normal((self.batch_size - 1, self.parameters))
        others /= np.linalg.norm(others, axis=1, keepdims=True)
        # Norms from far below the clip norm to far above it.
        norms = np.geomspace(0.1, 10, self.batch_size - 1)[:, None]
        self._others = others * self.clip_norm * norms

    def call(
        self,
        gradient: Array | None,
        seed: int,
        steps: int,
        only: int | None,
        companions: Array | None,
    ) -> Any:
        own = np.zeros((0, self.parameters)) if gradient is None else gradient[None]
        beside = np.zeros((0, self.parameters)) if companions is None else companions
        # With companions the crafted gradient is in the middle of the batch, else at its end.
        split = len(self._others) if companions is None else len(self._others) // 2
        rows = [self._others[:split], beside, own, self._others[split:]]
        return self.step(np.vstack(rows), seed)

    def step(self, rows: Array, seed: int) -> Any:
        """The user's step on these rows."""
        try:
            return self.private_step(rows.copy(), seed)
        except (Exception, SystemExit) as error:
            raise UserCodeFailed(
                f"private_step failed on gradients of shape {rows.shape} with seed={seed}: "
                f"{type(error).__name__}: {error}"
            ) from error

    def empty_batch(self, seed: int) -> Array:
        """The output of the step for a batch without examples."""
        with self._calling(seed):
            return flat_parameters(self.step(np.zeros((0, self.parameters)), seed))

    def clipping_is_skipped(self) -> bool:
        return False


def usual_steps(train: Callable[..., Any]) -> int | None:
    """The default of the argument ``steps`` of a training: 1 without one, `None` if not taken."""
    try:
        taken = inspect.signature(train).parameters.get("steps")
    except (TypeError, ValueError):
        return None
    if taken is None:
        return None
    default = taken.default
    return default if isinstance(default, int) and default >= 1 else 1
