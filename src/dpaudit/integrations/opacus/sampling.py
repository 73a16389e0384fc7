r"""In which steps a canary takes part.

A claim with amplification by sampling is about an example that is *sampled*: a canary in every
batch would contradict any such claim, also a correct one. So a canary takes part as the claim
assumes of an example, with random decisions of its own that the adversary does not see.
"""

from __future__ import annotations

import abc
import inspect
import warnings
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dpaudit import _validate
from dpaudit.errors import InvalidInput

Mask = NDArray[np.bool_]

FROM_ACCOUNTANT = "from accountant"
EVERY_STEP = "every step"
ONCE_AN_EPOCH = "once an epoch"
OWN_STEP = "own step"
# Separates these random numbers from every other use of the run's seed.
_PURPOSE = 0x0C0175


class Participation(abc.ABC):
    """Decides which canaries take part in the next step."""

    rate: float
    """Probability that a canary takes part in a step."""

    @abc.abstractmethod
    def draw(self, batches: int) -> Mask | None:
        """One boolean for each canary, or `None` if all take part.

        Arguments:
            batches: Number of batches of the loader in this step.
        """


@final
class EveryStep(Participation):
    """Every canary takes part in every step: no amplification by sampling."""

    rate = 1.0

    def draw(self, batches: int) -> Mask | None:
        return None


@final
class Poisson(Participation):
    """Each canary takes part in each step with the same probability, independently."""

    def __init__(self, rate: float, count: int, random: np.random.Generator) -> None:
        self.rate, self._count, self._random = rate, count, random

    def draw(self, batches: int) -> Mask | None:
        rate = self.rate * batches
        return None if rate >= 1 else self._random.random(self._count) < rate


@final
class OnceAnEpoch(Participation):
    """Each canary takes part in one step of every epoch, as with a shuffling loader."""

    def __init__(self, steps: int, count: int, random: np.random.Generator) -> None:
        self._steps, self._count, self._random = steps, count, random
        self.rate = 1 / steps
        self._done = 0
        self._turns = np.zeros(count, dtype=np.int64)

    def draw(self, batches: int) -> Mask | None:
        if self._done % self._steps == 0:
            self._turns = self._random.integers(self._steps, size=self._count)
        turn = self._done % self._steps
        self._done += 1
        return np.asarray(self._turns == turn)


@final
class OwnStep(Participation):
    """Canary ``i`` takes part in step ``i`` only: every canary tests one step."""

    rate = 1.0

    def __init__(self, canaries: NDArray[np.int64]) -> None:
        self._canaries, self._done = canaries, 0

    def draw(self, batches: int) -> Mask | None:
        self._done += 1
        return np.asarray(self._canaries == self._done - 1)


def participation(
    optimizer: Any, sampling: str | float, *, canaries: NDArray[np.int64], seed: int
) -> Participation:
    """The participation named by ``sampling``, for these canaries of the run with this seed."""
    count = len(canaries)
    random = np.random.default_rng([_PURPOSE, _validate.integer("seed", seed)])
    if not isinstance(sampling, str):
        rate = _validate.between("sampling", sampling, 0, 1, closed_high=True)
        return Poisson(rate, count, random)
    _validate.one_of(
        "sampling",
        sampling,
        (FROM_ACCOUNTANT, EVERY_STEP, ONCE_AN_EPOCH, OWN_STEP),
        remedy="or give the probability with which a step takes an example",
    )
    if sampling == OWN_STEP:
        return OwnStep(canaries)
    if sampling == EVERY_STEP:
        assumed = hook_variables(optimizer).get("sample_rate")
        if assumed is not None and assumed < 1:
            warnings.warn(
                f"the canary is in every step, but the accountant uses a sampling rate of "
                f"{assumed:g}: its claim assumes sampling, so a correct training would seem to "
                "violate it. Use claim_of(..., every_step=True), or sampling='from accountant'",
                stacklevel=2,
            )
        return EveryStep()
    rate = accountants_rate(optimizer)
    if sampling == ONCE_AN_EPOCH:
        return OnceAnEpoch(max(1, round(1 / rate)), count, random)
    return Poisson(rate, count, random)


def accountants_rate(optimizer: Any) -> float:
    """The sampling rate that the optimizer's step hook reports to the accountant."""
    rate = hook_variables(optimizer).get("sample_rate")
    if rate is None:
        raise InvalidInput(
            "sampling='from accountant' needs an optimizer whose step hook reports the sampling "
            "rate to an accountant, as PrivacyEngine.make_private attaches it; found none. Give "
            "the probability, sampling=RATE, or sampling='every step' for a claim without sampling"
        )
    return _validate.between("sample_rate of the accountant", rate, 0, 1, closed_high=True)


def hook_variables(optimizer: Any) -> dict[str, Any]:
    """Variables of the optimizer's step hook: the accountant (``self``) and ``sample_rate``."""
    # Opacus keeps both in a closure only; calling the hook would count a step.
    hook = getattr(optimizer, "step_hook", None)
    if not inspect.isfunction(hook):
        return {}
    return dict(inspect.getclosurevars(hook).nonlocals)
