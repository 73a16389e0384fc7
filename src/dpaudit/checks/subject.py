"""What is checked: a user's training, or one private step, behind one interface.

output(gradient, seed) = the flat vector that is returned when this gradient takes part,
                         or when it does not (gradient = None)

The crafted gradient reaches a training as a `ShapedCanary`, and a step as rows of its batch.
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
        records: In how many equal rows the gradient enters, as the records of one user.
        only: The canary takes part only in these calls of `rows` or `clipped_sum`, counted from 0;
            in all of them by default.
        companions: Rows that are always there, also without the canary.
        place: Where the canary stands among the companions: 0 before, 1 after all of them.
        calls: Collects which methods the training called, and whether the canary took part.

    Example:
        >>> canary = ShapedCanary(gradient=np.array([3.0, 4.0]), clip_norm=1.0)
        >>> canary.clipped_sum(True)
        array([0.6, 0.8])
        >>> canary.rows(False).shape
        (0, 2)
    """

    gradient: Array
    clip_norm: float
    records: int = 1
    only: range | None = None
    companions: Array | None = None
    place: float = 1.0
    calls: list[tuple[str, bool]] = field(default_factory=list, repr=False)

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
        """The gradient, as equal rows whose sum it is, if it is inserted; else no row."""
        beside = np.zeros((0, self.parameters)) if self.companions is None else self.companions
        present = self._present("rows", inserted)
        if not present and not (self.only is not None and _coin(inserted)):
            return beside
        # In the steps that it is left out of, the canary is an example with a zero gradient.
        row = self.gradient / self.records if present else np.zeros(self.parameters)
        own = np.tile(row, (self.records, 1))
        return np.insert(beside, [round(self.place * len(beside))] * self.records, own, axis=0)

    def clipped_sum(self, inserted: ArrayLike) -> Array:
        """The gradient after correct clipping; zero if an entry is not finite."""
        largest = float(np.abs(self.gradient).max())
        if not self._present("clipped_sum", inserted) or not 0 < largest < np.inf:
            return np.zeros(self.parameters)
        # Divided by its largest entry first: the square of 1e300 overflows.
        norm = float(np.linalg.norm(self.gradient / largest))
        return self.gradient / largest * (min(self.clip_norm, norm * largest) / norm)

    def _present(self, method: str, inserted: ArrayLike) -> bool:
        present = _coin(inserted) and (self.only is None or len(self.calls) in self.only)
        self.calls.append((method, present))
        return present


def _coin(inserted: ArrayLike) -> bool:
    return bool(coins_of(inserted, 1)[0])


@final
@dataclass(frozen=True, kw_only=True)
class Tensor:
    """One parameter tensor in a flat vector: its name, or its range of indices, and its ends."""

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
    sizes = {name: len(flat_parameters(leaf)) for name, leaf in named_leaves(returned)}
    if len(sizes) > 1:
        return tensors_of_sizes(sizes)
    (size,) = sizes.values()
    edges = np.unique(np.linspace(0, size, min(blocks, size) + 1).astype(int))
    return tuple(
        Tensor(name=f"parameters {low:,} to {high - 1:,}", start=int(low), stop=int(high))
        for low, high in itertools.pairwise(edges)
    )


def tensors_of_sizes(sizes: Any) -> tuple[Tensor, ...]:
    """Tensors with these names and sizes, one after the other."""
    edges = [0, *itertools.accumulate(sizes.values())]
    return tuple(
        Tensor(name=name, start=start, stop=stop)
        for name, (start, stop) in zip(sizes, itertools.pairwise(edges), strict=True)
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
        records: In how many rows a gradient enters.
        steps: Number of noisy steps of one output.
        insertions: Number of steps in which the crafted gradient takes part.
        tensors: Names and places of the parameter tensors; read from the output by default.
        declared: What the caller knows, by names that `dpaudit.checks.findings.DECLARED` explains.
    """

    parameters: int
    clip_norm: float
    noise_multiplier: float
    records: int = 1
    steps: int = 1
    insertions: int = 1
    tensors: tuple[Tensor, ...] = ()
    declared: frozenset[str] = frozenset()

    noun: ClassVar[str]
    kinds: frozenset[str] = field(default=frozenset(), init=False)
    steps_can_vary: bool = field(default=False, init=False)
    calls: int = field(default=0, init=False)
    canary: ShapedCanary | None = field(default=None, init=False)  # of the last call
    reads: dict[int, int] = field(default_factory=dict, init=False)  # by number of steps
    asked: set[str] = field(default_factory=set, init=False)  # methods of the canary

    @abc.abstractmethod
    def call(self, canary: ShapedCanary, inserted: bool, seed: int, steps: int) -> Any:
        """Run the user's code once."""

    @property
    def local(self) -> bool:
        """Whether one row is a whole batch."""
        return False

    @property
    def places_per_step(self) -> int | None:
        """How often the crafted gradient is read in one step, if that is the same in each."""
        counts = {read / steps for steps, read in self.reads.items()}
        each = counts.pop() if len(counts) == 1 else 0.0
        return int(each) if each >= 1 and each == int(each) else None

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
        each = self.places_per_step or 1
        self.canary = canary = ShapedCanary(
            gradient=np.zeros(self.parameters) if gradient is None else gradient,
            clip_norm=self.clip_norm,
            records=self.records,
            only=None if only is None else range(only * each, (only + 1) * each),
            companions=companions,
            place=place,
        )
        inserted = gradient is not None
        returned = self.protected(lambda: self.call(canary, inserted, seed, steps), seed)
        self.reads[steps] = len(canary.calls)
        self.asked |= {method for method, _ in canary.calls}
        shape: tuple[int, ...] = tuple(getattr(returned, "shape", ()))
        if len(shape) == 2 and shape[1] == self.parameters:
            returned = returned[-1]  # all iterates; the last one is the model
        flat = flat_parameters(returned)
        if flat.shape != (self.parameters,):
            raise InvalidInput(
                f"{self.noun} must return {self.parameters} numbers, one for each parameter, got "
                f"{flat.size}; the checks need the parameters themselves, not a score"
            )
        self.tensors = self.tensors or tensors_of(returned)
        return flat

    def protected(self, call: Callable[[], Any], seed: int) -> Any:
        """Call the user's code: counted, with seeded generators and without warnings."""
        self.calls += 1
        with np.errstate(all="ignore"), warnings.catch_warnings(), seeded_generators(seed):
            # Huge gradients overflow on purpose; other warnings are shown once, not at every call.
            warnings.simplefilter("ignore", RuntimeWarning if self.calls == 1 else Warning)
            try:
                return call()
            except (Exception, SystemExit) as error:
                norm = (
                    "" if self.canary is None else f" with a gradient of norm {self.canary.norm:g}"
                )
                raise UserCodeFailed(
                    f"{self.noun} failed{norm}, seed={seed}: {said(error)}"
                ) from error

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
        self.kinds = frozenset({"training", "several steps"})
        self.steps_can_vary = usual_steps(self.train) is not None

    def call(self, canary: ShapedCanary, inserted: bool, seed: int, steps: int) -> Any:
        more = {"steps": steps} if self.steps_can_vary else {}
        return self.train(canary, inserted, seed, **more)


@final
@dataclass(kw_only=True, eq=False)
class StepSubject(Subject):
    """A user's ``private_step(gradients, seed)``; the other rows of the batch are made here."""

    noun = "private_step"
    private_step: Callable[..., Any]
    batch_size: int
    weights: Array | None = None
    rounds: int = 0  # of a step that keeps a state, such as an adaptive clip norm

    def __post_init__(self) -> None:
        self.kinds = frozenset({"step", "several steps"} if self.rounds else {"step"})
        self.steps_can_vary = bool(self.rounds)
        if self.local:
            self.declared |= {"fixed_batch_size"}
        drawn = np.random.default_rng(20_250_101)
        others = drawn.standard_normal((self.batch_size - 1, self.parameters))
        others /= np.linalg.norm(others, axis=1, keepdims=True)
        # Norms from far below the clip norm to far above it.
        norms = np.geomspace(0.1, 10, self.batch_size - 1)[:, None]
        self._others = others * self.clip_norm * norms

    @property
    def local(self) -> bool:
        """Whether one row is a whole batch, as in local privacy."""
        return self.batch_size == 1

    def call(self, canary: ShapedCanary, inserted: bool, seed: int, steps: int) -> Any:
        split = round(canary.place * len(self._others))
        before, after = self._others[:split], self._others[split:]
        batches = []
        for _ in range(steps):
            crafted = canary.rows(inserted)
            if self.local and not len(crafted):
                crafted = np.zeros((1, self.parameters))  # local: an absent example is zero
            batches.append(np.vstack([before, crafted, after]))
        weights: tuple[Array, ...] = ()
        if self.weights is not None:
            # The crafted row has the largest weight: what bounds it bounds the others.
            *light, heavy = np.sort(self.weights).tolist()
            weights = (np.array([*light[:split], *[heavy] * len(crafted), *light[split:]]),)
        if not self.rounds:
            return self.private_step(batches[0], seed, *weights)
        rounds = self.private_step(np.stack(batches), seed, *weights)
        if len(rounds) != steps:
            raise InvalidInput(f"private_step must return {steps} rounds, got {len(rounds)}")
        return np.sum([flat_parameters(update) for update in rounds], axis=0)

    def empty_batch(self, seed: int) -> Array:
        """The output of the step for a batch without examples."""
        none = np.zeros((0, self.parameters))
        weights = () if self.weights is None else (np.ones(0),)
        rows = none[None] if self.rounds else none
        return flat_parameters(
            self.protected(lambda: self.private_step(rows, seed, *weights), seed)
        )


def usual_steps(train: Callable[..., Any]) -> int | None:
    """The default of the argument ``steps`` of a training: 1 without one, `None` if not taken."""
    try:
        taken = inspect.signature(train).parameters.get("steps")
    except (TypeError, ValueError):
        return None
    if taken is None:
        return None
    return taken.default if isinstance(taken.default, int) and taken.default >= 1 else 1


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
    cuda = torch is not None and torch.cuda.is_initialized()
    of_torch = torch.get_rng_state() if torch is not None else None
    of_cuda = torch.cuda.get_rng_state_all() if cuda else []
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    if torch is not None:
        # Without an accelerator, torch.manual_seed formats a stack trace for each kind of
        # accelerator, which took up to a third of the time of a check.
        seeded = torch if torch.accelerator.is_available() else torch.default_generator
        seeded.manual_seed(seed % 2**63)
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
        if torch is not None:
            torch.set_rng_state(of_torch)
            if cuda:
                torch.cuda.set_rng_state_all(of_cuda)
