"""Comparing a fast step with its slow twin.

A compiler error would not be visible in an audit, so the first calls of a fast step are also made
by the slow one. In a large model the noise is much longer than the clipped sum and would hide a
wrong gradient; therefore the first call is also compared without noise, tensor by tensor.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

from dpaudit.engine.speed import Precision

TOLERANCE: dict[Precision, float] = {
    "float64": 1e-6,
    "float32": 1e-3,
    "tf32": 0.02,
    "bfloat16": 0.1,
}
"""Largest distance of a compiled step from the uncompiled one, relative to the step's length.
Rounding errors are far smaller; wrong noise gives a distance above 1."""

SUM_TOLERANCE: dict[Precision, float] = {
    "float64": 1e-4,
    "float32": 0.01,
    "tf32": 0.2,
    "bfloat16": 0.7,
}
"""The same without noise, for every tensor of parameters. Compiling in bfloat16 changed the clipped
sums of a tensor by up to 11 per cent, and rounding a ResNet18 to bfloat16 by up to 32; a wrong
gradient changes it by about its length."""

SMALL_SHARE = 0.01
"""A tensor with a smaller share of a step's length is compared relative to this share, because its
gradients may be nothing but rounding, as those of the biases of attention keys."""

CHECKED_CALLS = 3
CHECKED_RUNS = 4

Quiet = Callable[[tuple[Any, ...]], tuple[tuple[Any, ...], float]]


@final
@dataclass(frozen=True, kw_only=True)
class Comparison:
    """How the result of a fast step is compared with that of the slow one.

    Arguments:
        tolerance: Largest distance of the results, relative to the length of the step.
        sum_tolerance: The same for a call without noise, and for every tensor.
        tensors: Sizes of the tensors of parameters, which are compared one by one without noise: a
            wrong gradient of one may be short beside those of the others.
        moves: Whether the step leads from a starting point to the result; otherwise the result is a
            sum without noise.
        quiet: Changes the arguments of a call such that it adds no noise, and gives the length of
            the longest step without noise; `None` if no call adds noise.
    """

    tolerance: float
    sum_tolerance: float = math.inf
    tensors: tuple[int, ...] = ()
    moves: bool = True
    quiet: Quiet | None = None

    def distance(self, result: Tensor, plain: Tensor, start: Tensor) -> float:
        """The distance of two results, relative to the length of the step."""
        if self.moves:
            return _apart(result, plain, start)
        return _apart(result, plain, torch.zeros_like(plain), tensors=self.tensors)

    def wrong(self, result: Tensor, plain: Tensor, start: Tensor) -> float:
        """The distance if it is too large, otherwise 0."""
        found = self.distance(result, plain, start)
        return found if found > self.tolerance else 0.0

    def wrong_without_noise(
        self, result: Tensor, plain: Tensor, start: Tensor, longest: float
    ) -> float:
        """The same for a call without noise; ``longest`` is as in the result of ``quiet``."""
        found = _apart(result, plain, start, longest, self.tensors)
        return found if found > self.sum_tolerance else 0.0


UNCOMPARED = Comparison(tolerance=math.inf)
"""For steps that are not compared."""


@final
class Verified:
    """A fast step whose first calls are compared with a slow one for the first few runs.

    The first call is also compared without noise.

    Several threads may call it; the slow step, which taps a module, is called by one at a time.

    Arguments:
        fast: The step to use; its first argument has one row for each run.
        slow: The same step, which is called for one run at a time in comparisons.
        rows: Selects runs in a step's arguments.
        comparison: How the results are compared.
        name: What compiled ``fast``, for the notice.
    """

    def __init__(
        self,
        fast: Callable[..., Tensor],
        slow: Callable[..., Tensor],
        rows: Callable[[slice, tuple[Any, ...]], tuple[Any, ...]],
        *,
        comparison: Comparison,
        name: str,
    ) -> None:
        self._fast, self._slow, self._rows = fast, slow, rows
        self._comparison, self._quiet, self._name = comparison, comparison.quiet, name
        self._unchecked, self._wrong, self._lock = CHECKED_CALLS, False, threading.Lock()
        self.notices: tuple[str, ...] = ()

    def __call__(self, *args: Any) -> Tensor:
        with torch.no_grad():
            if self._unchecked > 0:
                self._check(args)
            if not self._wrong:
                return self._fast(*args)
            with self._lock:
                return self._slow(*args)

    @property
    def trusted(self) -> bool:
        """Whether the fast step has passed all comparisons."""
        return self._unchecked <= 0 and not self._wrong

    def _check(self, args: tuple[Any, ...]) -> None:
        with self._lock:
            if self._wrong or self._unchecked <= 0:
                return
            self._unchecked -= 1
            few = self._rows(slice(CHECKED_RUNS), args)
            difference = self._comparison.wrong(*self._both(few), few[0])
            if not difference and self._quiet is not None:
                (calm, longest), self._quiet = self._quiet(few), None
                both = self._both(calm)
                difference = self._comparison.wrong_without_noise(*both, few[0], longest)
            if difference:
                self._wrong = True
                self.notices = (miscompiled(self._name, difference),)

    def _both(self, few: tuple[Any, ...]) -> tuple[Tensor, Tensor]:
        """The results of the fast and of the slow step."""
        each = [self._rows(slice(run, run + 1), few) for run in range(len(few[0]))]
        return self._fast(*few), torch.cat([self._slow(*one) for one in each])


def _apart(
    result: Tensor,
    plain: Tensor,
    start: Tensor,
    longest: float = 0.0,
    tensors: Sequence[int] = (),
) -> float:
    """The distance of two end points of a step, relative to its length and without rounding.

    Arguments:
        result: The end point by the fast step.
        plain: The end point by the slow step.
        start: The starting point.
        longest: Length of the step if its terms did not cancel; 0 if they do not.
        tensors: Sizes of tensors along the last axis, of which the one with the largest relative
            distance counts; by default the whole is one.
    """
    sizes = list(tensors) or [plain.shape[-1]]
    whole = float((plain - start).norm())
    least = math.inf if math.isnan(whole) else SMALL_SHARE * whole
    parts = zip(*(torch.split(one, sizes, -1) for one in (result, plain, start)), strict=True)
    return max(_part_apart(*part, longest=longest, least=least) for part in parts)


def _part_apart(
    result: Tensor, plain: Tensor, start: Tensor, *, longest: float, least: float
) -> float:
    length, apart = max(least, float((plain - start).norm())), float((result - plain).norm())
    # For a short step, the rounding of its end point or of its terms dominates.
    rounding = 8 * torch.finfo(plain.dtype).eps * max(float(plain.norm()), longest)
    if not math.isfinite(apart):
        # A run that diverged is reported elsewhere; only the fast step's failure counts here.
        return math.inf if bool(plain.isfinite().all()) else 0.0
    return max(0.0, apart - rounding) / length if length else float(apart > rounding)


def miscompiled(compiler: str, difference: float) -> str:
    """The notice that a fast step is not used."""
    return (
        f"{compiler} compiled the step incorrectly (it differs by {difference:.2g} of its length "
        "from the uncompiled step), so the slower uncompiled step is used"
    )
