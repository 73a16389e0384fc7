"""The examples of each step, and what an accountant may assume about them.

The genuine examples of a step are the same in every run: a batch plan is a function of its seed and
the step, and the adversary knows it, as in the paper. Plans differ in the canary: under Poisson
sampling it participates in a step only with probability ``rate``, by a secret coin of each run.
Privacy amplification depends on this coin only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import final

import numpy as np

from dpaudit import _validate
from dpaudit._arrays import Integers
from dpaudit.errors import InvalidInput


class BatchPlan(ABC):
    """Gives the indices of the genuine examples of every step."""

    @abstractmethod
    def indices(self, step: int, examples: int) -> Integers:
        """The examples of ``step`` (0, 1, …) out of ``examples``; their number may vary by step."""

    @abstractmethod
    def expected_size(self, examples: int) -> float:
        """The B by which the noisy sum is divided; it does not depend on the sampled batch."""

    @abstractmethod
    def check(self, examples: int) -> None:
        """Raise `InvalidInput` if the plan is impossible with that many examples."""

    @property
    def sampling_rate(self) -> float | None:
        """The probability with which the canary takes part in an insertion step, by a secret coin.

        Accountants use it. `None`: the canary is in every insertion step.
        """
        return None


@dataclass(frozen=True, kw_only=True)
class _ShuffledBatches(BatchPlan):
    """Batches of equal size, cut from shuffles of all examples."""

    batch_size: int
    seed: int = 0

    def __post_init__(self) -> None:
        _validate.integer("batch_size", self.batch_size, at_least=1)
        _validate.seed(self.seed)

    def check(self, examples: int) -> None:
        if self.batch_size > examples:
            raise InvalidInput(
                f"batch_size must be at most the number of examples ({examples}), got "
                f"{self.batch_size}; use a smaller batch or more data"
            )

    def expected_size(self, examples: int) -> float:
        return float(self.batch_size)

    def _batch(self, epoch: int, place: int, examples: int) -> Integers:
        """Batch number ``place`` of the shuffle of an epoch."""
        first = place * self.batch_size
        return np.sort(_shuffled(self.seed, epoch, examples)[first : first + self.batch_size])


@final
@dataclass(frozen=True, kw_only=True)
class FixedBatches(_ShuffledBatches):
    """Fixed batches from one shuffle, used in turn and known to the adversary, as in the paper.

    Example:
        >>> plan = FixedBatches(batch_size=2, seed=0)
        >>> [plan.indices(step, examples=5).tolist() for step in range(3)]
        [[2, 4], [0, 3], [2, 4]]
    """

    def indices(self, step: int, examples: int) -> Integers:
        return self._batch(0, step % (examples // self.batch_size), examples)


@final
@dataclass(frozen=True, kw_only=True)
class ReshuffledEpochs(_ShuffledBatches):
    """Batches from a new shuffle in each epoch, as in most training loops."""

    def indices(self, step: int, examples: int) -> Integers:
        return self._batch(*divmod(step, examples // self.batch_size), examples)


@final
@dataclass(frozen=True, kw_only=True)
class PoissonBatches(BatchPlan):
    """Every example participates in every step independently with probability ``rate``.

    The canary participates by a secret coin of each run and step, which is what the accountant's
    sampling rate refers to. The adversary knows the coins of the genuine examples, which can only
    help it.
    """

    rate: float
    seed: int = 0

    def __post_init__(self) -> None:
        _validate.between("rate", self.rate, 0, 1, closed_high=True)
        _validate.seed(self.seed)

    def check(self, examples: int) -> None:
        if self.rate * examples < 1:
            raise InvalidInput(
                f"rate must give at least one example per step on average: {self.rate!r} times "
                f"{examples} examples is {self.rate * examples:g}; use at least {1 / examples:g}"
            )

    def indices(self, step: int, examples: int) -> Integers:
        chosen = np.random.default_rng((self.seed, step)).random(examples) < self.rate
        return np.flatnonzero(chosen).astype(np.int64)

    def expected_size(self, examples: int) -> float:
        return self.rate * examples

    @property
    def sampling_rate(self) -> float | None:
        return self.rate if self.rate < 1 else None


@final
@dataclass(frozen=True, kw_only=True)
class FullBatch(BatchPlan):
    """All examples at every step."""

    def check(self, examples: int) -> None:
        """Any number of examples is possible."""

    def indices(self, step: int, examples: int) -> Integers:
        return np.arange(examples, dtype=np.int64)

    def expected_size(self, examples: int) -> float:
        return float(examples)


@lru_cache(maxsize=4)  # every step of an epoch asks for the same one
def _shuffled(seed: int, epoch: int, examples: int) -> Integers:
    order = np.random.default_rng((seed, epoch)).permutation(examples)
    order.setflags(write=False)
    return order
