"""Canaries inside an Opacus optimizer: added to the clipped sums, observed in what is applied.

While the block is open, methods of one optimizer *object* are replaced and one hook is registered;
no attribute is left on a tensor or a module. Canaries enter where the noise is added. What is
applied is observed as late as possible, when the wrapped optimizer is about to use it, so that
noise that is missing, scaled or replaced on the way is seen. A step that reaches the wrapped
optimizer without the private step gets its canaries there, and is seen to have no noise.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from dpaudit._arrays import Array
from dpaudit.errors import InvalidInput
from dpaudit.integrations.opacus.optimizer import ReplacedMethods, hook_variables, latest_rows
from dpaudit.integrations.opacus.step import copy_of
from dpaudit.live.evidence import LiveEvidence


def require_observable(optimizer: Any) -> None:
    """Raise where an optimizer adds no noise that could be observed, before anything is changed."""
    needed = ("step", "params", "original_optimizer", "max_grad_norm", "add_noise")
    missing = [name for name in needed if not hasattr(optimizer, name)]
    name = type(optimizer).__name__
    if missing:
        raise InvalidInput(
            f"optimizer must be a DPOptimizer of Opacus, as make_private returns it; got {name}, "
            f"which has no {missing[0]}. For a loop of your own use dpaudit.live_audit(sizes=...)"
        )
    if float(optimizer.noise_multiplier) == 0:
        raise InvalidInput(
            "noise_multiplier of the optimizer must be above 0, got 0: without noise nothing is "
            "claimed, and the canaries would be visible in the model"
        )
    if hasattr(optimizer, "grad_state") or hasattr(optimizer, "_ddp_per_layer_hook"):
        raise InvalidInput(
            f"optimizer {name} adds noise to parts of the sums or in the backward pass, where a "
            "live audit cannot observe them yet; use dpaudit.integrations.opacus.insert_canary"
        )


def reported_step(optimizer: Any) -> tuple[float, float]:
    """Noise multiplier and sampling rate that the optimizer reports to its accountant."""
    rate = hook_variables(optimizer).get("sample_rate")
    if rate is None:
        raise InvalidInput(
            "the optimizer's step hook reports no sampling rate to an accountant, as "
            "PrivacyEngine.make_private attaches it; give claim=Claim.from_dpsgd(...)"
        )
    return float(optimizer.noise_multiplier), float(rate)


_LENGTHS = (10.0, 1e3)  # of the rows that must be clipped, in clip norms
_COMPANIONS = 8  # genuine rows beside them: all of a batch could be too large for the memory


def largest_contribution(optimizer: Any) -> float | None:
    """By how much one long row changes the clipped sum of a batch, in clip norms.

    Called with the first batch's gradients on the parameters. Rows in random directions take the
    place of an empty row beside a few genuine ones, on a copy of the optimizer: neither the update
    nor any random state changes. `None` where there are no rows, as with ghost clipping, or where
    clipping is not a method of the optimizer's class.
    """
    per_example = [latest_rows(parameter) for parameter in optimizer.params]
    rows = [row for row in per_example if row is not None]
    method = getattr(type(optimizer), "clip_and_accumulate", None)
    if method is None or len(rows) < len(per_example):
        return None
    twin, random = copy_of(optimizer), np.random.default_rng(0)
    long = [
        torch.as_tensor(random.normal(size=tuple(p.shape)), dtype=p.dtype, device=p.device)
        for p in twin.params
    ]
    norm = math.sqrt(sum(float(part.double().norm()) ** 2 for part in long))

    def clipped_sum(length: float) -> list[Tensor]:
        scale = length * float(optimizer.max_grad_norm) / norm
        for parameter, genuine, part in zip(twin.params, rows, long, strict=True):
            companions = genuine[:_COMPANIONS].detach()
            parameter.grad_sample = torch.cat([companions, (scale * part)[None].to(companions)])
            parameter.summed_grad = None
        method(twin)
        return [parameter.summed_grad.detach().double() for parameter in twin.params]

    without, largest = clipped_sum(0.0), 0.0
    for length in _LENGTHS:
        changes = zip(clipped_sum(length), without, strict=True)
        change = math.sqrt(sum(float((one - other).norm()) ** 2 for one, other in changes))
        largest = max(largest, change / float(optimizer.max_grad_norm))
    return largest


@final
@dataclass(frozen=True, kw_only=True)
class _Held:
    """A tensor that holds canaries."""

    parameter: Any
    where: Tensor
    canaries: slice
    index: int


@final
class OpacusSums:
    """Inserts canaries into the sums of one ``DPOptimizer``, and observes them.

    Arguments:
        optimizer: The optimizer.
        evidence: Decides who takes part, and receives the observations.
        claimed: Noise multiplier and sampling rate of the next step, as claimed.
        subtract: Whether the genuine sum is subtracted from what is observed.
        after_step: Called after each step that was observed.
        check: Whether clipping is tested at the first batch, on a copy.
    """

    def __init__(
        self,
        optimizer: Any,
        evidence: LiveEvidence,
        *,
        claimed: Callable[[], tuple[float, float]],
        subtract: bool,
        after_step: Callable[[], None],
        check: bool = True,
    ) -> None:
        self._optimizer, self._evidence = optimizer, evidence
        self._claimed, self._subtract, self._after_step = claimed, subtract, after_step
        self._held, start = [], 0
        for index, (parameter, here) in enumerate(
            zip(optimizer.params, evidence.places, strict=True)
        ):
            if len(here):
                where = torch.as_tensor(here, device=parameter.device)
                inside = slice(start, start + len(here))
                self._held.append(
                    _Held(parameter=parameter, where=where, canaries=inside, index=index)
                )
                start += len(here)
        self._genuine: Array | None = None
        self._step = (0.0, 0.0)
        self._rows: int | None = None  # of the parts of this batch, so far
        self.batch_sizes: list[int] = []
        self.expected_batch: float | None = getattr(optimizer, "expected_batch_size", None)
        self.bypassed = 0
        self._check = check
        self.largest_contribution: float | None = None
        self.check_failure = ""

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the steps of the optimizer until the block ends."""
        if "clip_and_accumulate" in vars(self._optimizer):
            self._check = False  # the copy would call a method of the original
        methods = ReplacedMethods(self._optimizer)
        methods.wrap("clip_and_accumulate", self._around_clipping)
        methods.wrap("add_noise", self._around_noise)
        hook = self._optimizer.original_optimizer.register_step_pre_hook(self._before_update)
        try:
            yield
        finally:
            hook.remove()
            methods.put_back()

    def _around_clipping(self, original: Callable[[], Any]) -> Any:
        rows = getattr(self._optimizer.params[0], "grad_sample", None)
        batches = rows if isinstance(rows, list) else [rows]
        sizes = [len(batch) for batch in batches if batch is not None]
        if len(sizes) == len(batches):
            self._rows = (self._rows or 0) + sum(sizes)
        if self._check:
            self._check = False
            try:
                self.largest_contribution = largest_contribution(self._optimizer)
            except Exception as error:  # no test of ours may end the user's training
                self.check_failure = type(error).__name__
        return original()

    def _around_noise(self, original: Callable[[], Any]) -> Any:
        self._insert([held.parameter.summed_grad for held in self._held], 1.0)
        if self._rows is not None:  # ghost clipping keeps no rows
            self.batch_sizes.append(self._rows)
        self._rows = None
        return original()

    def _before_update(self, *_: Any) -> None:
        gradients = [held.parameter.grad for held in self._held]
        divisor = self._divisor()
        if self._genuine is None:  # the private step was skipped: nothing hides the canaries
            self._insert(gradients, divisor)
            self.bypassed += 1
        applied = self._values(gradients) * divisor
        noise_multiplier, rate = self._step
        if self._subtract and self._genuine is not None:
            applied -= self._genuine
        self._genuine = None
        self._evidence.observe(
            applied / self._clip_norm(),
            rate=rate,
            noise_multiplier=noise_multiplier,
            weights=self._lengths() / self._clip_norm(),
        )
        self._after_step()

    def _insert(self, tensors: list[Tensor], divisor: float) -> None:
        """Remember the genuine sums, and add the canaries that take part in this step."""
        coarse = [t.dtype for t in tensors if t.dtype in (torch.bfloat16, torch.float16)]
        if coarse:
            raise InvalidInput(
                f"clipped sums must be at least float32, got {coarse[0]}: rounding of the noisy "
                "sum would depend on the genuine sum, which no accountant allows for; train the "
                "private parameters in float32"
            )
        noise_multiplier, rate = self._claimed()
        passes = getattr(self._optimizer, "accumulated_iterations", 1)
        self._step = noise_multiplier, min(1.0, rate * passes)
        self._genuine = self._summed(self._values(tensors) * divisor)
        taking_part = self._evidence.take_part(self._step[1])
        if getattr(self._optimizer, "rank", 0) != 0:
            return  # the canaries are in the batch of the first process
        lengths = self._lengths() / divisor * taking_part
        for held, tensor in zip(self._held, tensors, strict=True):
            mine = lengths[held.canaries]
            if mine.any():
                added = torch.as_tensor(mine, dtype=tensor.dtype, device=tensor.device)
                tensor.view(-1).index_add_(0, held.where, added)

    def _values(self, tensors: list[Tensor]) -> Array:
        """The entries of these tensors at the canaries' coordinates."""
        parts = [
            tensor.detach().reshape(-1)[held.where]
            for held, tensor in zip(self._held, tensors, strict=True)
        ]
        devices = {part.device for part in parts}
        if len(devices) > 1:
            parts = [part.cpu() for part in parts]
        together = torch.cat([part.double() for part in parts]).cpu()
        return np.array(together.numpy(), dtype=float)

    def _summed(self, local: Array) -> Array:
        """The sum over all processes, whose genuine sums are added up after the noise."""
        if getattr(self._optimizer, "world_size", 1) == 1:
            return local
        total = torch.as_tensor(local, device=self._held[0].parameter.device)
        torch.distributed.all_reduce(total)
        return np.array(total.cpu().numpy(), dtype=float)

    def _clip_norm(self) -> float:
        return float(self._optimizer.max_grad_norm)

    def _lengths(self) -> Array:
        """What each canary adds: the clip norm, or that of its tensor with clipping per layer."""
        norms = getattr(self._optimizer, "max_grad_norms", None)
        lengths = np.empty(len(self._evidence.scores))
        for held in self._held:
            lengths[held.canaries] = self._clip_norm() if norms is None else norms[held.index]
        return lengths

    def _divisor(self) -> float:
        """What the optimizer divides the sum by before it is applied."""
        optimizer = self._optimizer
        if getattr(optimizer, "loss_reduction", "mean") != "mean":
            return 1.0
        passes = getattr(optimizer, "accumulated_iterations", 1)
        processes = getattr(optimizer, "world_size", 1)
        return float(optimizer.expected_batch_size * passes * processes)
