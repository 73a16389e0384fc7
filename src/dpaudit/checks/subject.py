"""What is checked: a user's training, or one private step, behind one interface.

output(gradient, seed) = the flat vector that is returned when this gradient takes part,
                         or when it does not (gradient = None)

The crafted gradient reaches a training as a `ShapedCanary`, and a step as one row of its batch.
"""

from __future__ import annotations

import abc
import inspect
import itertools
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import ArrayLike

from dpaudit._arrays import Array
from dpaudit._validate import said
from dpaudit.errors import InvalidInput
from dpaudit.trainings.canary import coins_of
from dpaudit.trainings.scoring import flat_parameters, named_leaves


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class ShapedCanary:
    """One crafted gradient before clipping: along an axis, dense, huge, or not finite.

    See also: `dpaudit.trainings.GradientCanary`, which an audit inserts and which has the same
    methods.

    Arguments:
        gradient: The gradient before clipping, flat.
        clip_norm: C, the norm that the training claims to clip to.
        asked: Collects the names of the methods that the training called.
        only: The canary takes part only in these calls of `rows` or `clipped_sum`, counted from 0;
            in all of them by default.
        companions: Rows that are always there, also without the canary.
        place: Where the canary stands among the companions: 0 before, 1 after all of them.

    Example:
        >>> canary = ShapedCanary(gradient=np.array([3.0, 4.0]), clip_norm=1.0)
        >>> canary.clipped_sum(True)
        array([0.6, 0.8])
        >>> canary.rows(False).shape
        (0, 2)
    """

    gradient: Array
    clip_norm: float
    asked: set[str] = field(default_factory=set, repr=False)
    only: range | None = None
    companions: Array | None = None
    place: float = 1.0
    _calls: list[bool] = field(default_factory=list, repr=False)

    @property
    def parameters(self) -> int:
        """Length of the flat parameter vector."""
        return len(self.gradient)

    @property
    def count(self) -> int:
        """Always one."""
        return 1

    @property
    def norm(self) -> float:
        """The norm before clipping."""
        with np.errstate(all="ignore"):
            return float(np.linalg.norm(self.gradient))

    def rows(self, inserted: ArrayLike) -> Array:
        """The gradient as one row if it is inserted, else no row."""
        beside = np.zeros((0, self.parameters)) if self.companions is None else self.companions
        present = self._present("rows", inserted)
        if not present and not (self.only is not None and _coin(inserted)):
            return beside
        # In the steps that it is left out of, the canary is an example with a zero gradient.
        own = self.gradient if present else np.zeros(self.parameters)
        return np.insert(beside, round(self.place * len(beside)), own, axis=0)

    def clipped_sum(self, inserted: ArrayLike) -> Array:
        """The gradient after correct clipping; zero if an entry is not finite."""
        present = self._present("clipped_sum", inserted)
        return self._clipped() if present else np.zeros(self.parameters)

    @property
    def calls(self) -> int:
        """Number of calls of `rows` and `clipped_sum` so far."""
        return len(self._calls)

    @property
    def took_part(self) -> bool:
        """Whether the canary was in any call so far."""
        return any(self._calls)

    def _present(self, method: str, inserted: ArrayLike) -> bool:
        self.asked.add(method)
        present = _coin(inserted) and (self.only is None or self.calls in self.only)
        self._calls.append(present)
        return present

    def _clipped(self) -> Array:
        if not np.all(np.isfinite(self.gradient)):
            return np.zeros(self.parameters)
        largest = float(np.abs(self.gradient).max())
        if largest == 0:
            return np.zeros(self.parameters)
        # Divided by its largest entry first: the square of 1e300 overflows.
        norm = float(np.linalg.norm(self.gradient / largest))
        length = min(self.clip_norm, norm * largest)
        return self.gradient / largest * (length / norm)

    def score(self, final: ArrayLike, initial: ArrayLike | None = None) -> Array:
        """How far the parameters moved against the gradient."""
        moved = np.asarray(final, dtype=np.float64)
        if initial is not None:
            moved = moved - np.asarray(initial, dtype=np.float64)
        direction = self._clipped()
        length = float(np.linalg.norm(direction)) or 1.0
        return np.array([-float(moved @ direction) / length])


def _coin(inserted: ArrayLike) -> bool:
    return bool(coins_of(inserted, 1)[0])


@final
@dataclass(frozen=True, kw_only=True)
class Tensor:
    """One parameter tensor in a flat vector.

    Arguments:
        name: Its name in the user's code, or its range of indices.
        start: Index of its first entry.
        stop: Index after its last entry.
    """

    name: str
    start: int
    stop: int

    @property
    def size(self) -> int:
        """Number of entries."""
        return self.stop - self.start


def tensors_of(returned: Any, blocks: int = 8) -> tuple[Tensor, ...]:
    """The tensors of what a training returned, in the order of `flat_parameters`.

    A single flat array has no names: it is divided into ``blocks`` equal ranges.

    Example:
        >>> [tensor.name for tensor in tensors_of({"weight": np.eye(3), "bias": np.zeros(3)})]
        ['weight', 'bias']
        >>> tensors_of(np.zeros(6), blocks=2)[1]
        Tensor(name='parameters 3 to 5', start=3, stop=6)
    """
    found, start = [], 0
    for name, leaf in named_leaves(returned):
        size = len(flat_parameters(leaf))
        found.append(Tensor(name=name, start=start, stop=start + size))
        start += size
    if len(found) > 1:
        return tuple(found)
    edges = np.unique(np.linspace(0, start, min(blocks, start) + 1).astype(int))
    return tuple(
        Tensor(name=f"parameters {low:,} to {high - 1:,}", start=int(low), stop=int(high))
        for low, high in itertools.pairwise(edges)
    )


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
        finite_gradients: The caller's declaration that gradients are always finite, as a sentence;
            empty without one.
        fixed_batch_size: The declaration that the batch size is fixed and public, as a sentence.
        public_transform: Whether the output is a public function of the noisy gradient, such as
            top-k, that rules about noise and contributions cannot see through.
    """

    parameters: int
    clip_norm: float
    noise_multiplier: float
    steps: int = 1
    insertions: int = 1
    tensors: tuple[Tensor, ...] = ()
    finite_gradients: str = ""
    fixed_batch_size: str = ""
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
        place: float,
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
        place: float = 1.0,
    ) -> Array:
        """The flat vector of one call, checked for its shape.

        Arguments:
            gradient: The crafted gradient; `None` without it.
            seed: The seed that the user's code gets.
            steps: Number of steps.
            only: The gradient takes part in this step only, counted from 0; in all by default.
            companions: Gradients that are in the batch in any case.
            place: Where in the batch the crafted gradient stands: 0 is first, 1 is last.
        """
        with self._calling(seed):
            returned = self.call(gradient, seed, steps, only, companions, place)
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

    def pair(self, gradient: Array, seed: int, steps: int, **where: Any) -> tuple[Array, Array]:
        """The outputs with a gradient and with its negative; arguments as for `output`."""
        plus = self.output(gradient, seed, steps, **where)
        return plus, self.output(-gradient, seed, steps, **where)


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
        place: float,
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
            place=place,
        )
        more = {"steps": steps} if self.steps_can_vary else {}
        try:
            return self.train(canary, not absent, seed, **more)
        except (Exception, SystemExit) as error:
            raise UserCodeFailed(
                f"train failed with a canary of norm {canary.norm:g}, inserted={not absent}, "
                f"seed={seed}: {said(error)}"
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
    private_step: Callable[..., Any]
    batch_size: int
    weights: Array | None = None

    def __post_init__(self) -> None:
        if self.batch_size == 1:
            self.fixed_batch_size = "A batch is one row."
        drawn = np.random.default_rng(20_250_101)
        others = drawn.standard_normal((self.batch_size - 1, self.parameters))
        others /= np.linalg.norm(others, axis=1, keepdims=True)
        # Norms from far below the clip norm to far above it.
        norms = np.geomspace(0.1, 10, self.batch_size - 1)[:, None]
        self._others = others * self.clip_norm * norms
        self._weights = None if self.weights is None else np.sort(self.weights)

    def call(
        self,
        gradient: Array | None,
        seed: int,
        steps: int,
        only: int | None,
        companions: Array | None,
        place: float,
    ) -> Any:
        # Where a batch is one row, an absent example is a row of zeros.
        absent = np.zeros((int(self.batch_size == 1), self.parameters))
        own = absent if gradient is None else gradient[None]
        beside = np.zeros((0, self.parameters)) if companions is None else companions
        split = round(place * len(self._others))
        rows = np.vstack([self._others[:split], beside, own, self._others[split:]])
        if self._weights is None:
            return self.step(rows, seed)
        # The crafted row has the largest weight: what bounds it bounds the others.
        *light, heavy = self._weights.tolist()
        crafted = [heavy] * (len(beside) + len(own))
        return self.step(rows, seed, np.array([*light[:split], *crafted, *light[split:]]))

    def step(self, rows: Array, seed: int, weights: Array | None = None) -> Any:
        """The user's step on these rows, with their weights if the step takes any."""
        if self.weights is not None and weights is None:
            weights = np.ones(len(rows))
        try:
            if weights is not None:
                return self.private_step(rows.copy(), seed, weights)
            return self.private_step(rows.copy(), seed)
        except (Exception, SystemExit) as error:
            raise UserCodeFailed(
                f"private_step failed on gradients of shape {rows.shape} with seed={seed}: "
                f"{said(error)}"
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


@contextmanager
def seeded_generators(seed: int) -> Iterator[None]:
    """Seed ``random``, ``numpy.random`` and torch with ``seed`` inside the block.

    Torch is seeded only if it is loaded. Generators that the user's code makes itself are not
    touched.

    Example:
        >>> before = np.random.get_state()[1][0]
        >>> with seeded_generators(5):
        ...     first = np.random.normal()
        >>> with seeded_generators(5):
        ...     np.random.normal() == first
        True
        >>> bool(np.random.get_state()[1][0] == before)
        True
    """
    states = random.getstate(), np.random.get_state()  # noqa: NPY002
    torch: Any = sys.modules.get("torch")
    of_torch = _torch_states(torch)
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    if torch is not None:
        _seed_torch(torch, seed % 2**63)
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
        if of_torch is not None:
            torch.set_rng_state(of_torch[0])
            if of_torch[1]:
                torch.cuda.set_rng_state_all(of_torch[1])


def _torch_states(torch: Any) -> tuple[Any, Any] | None:
    if torch is None:
        return None
    cuda = torch.cuda.is_initialized()
    return torch.get_rng_state(), torch.cuda.get_rng_state_all() if cuda else []


def _seed_torch(torch: Any, seed: int) -> None:
    # Without an accelerator, torch.manual_seed formats a stack trace for each kind of accelerator,
    # which took up to a third of the time of a check.
    generators = torch if torch.accelerator.is_available() else torch.default_generator
    generators.manual_seed(seed)
