"""Canaries inside an Opacus optimizer: added to the clipped sums, observed in what is applied.

While the block is open, methods of one optimizer *object* are replaced and hooks are registered; no
attribute is left on a tensor or a module. Canaries enter where the noise is added. What is applied
is observed as late as possible, when the wrapped optimizer is about to use it, so that noise that
is missing, scaled or replaced on the way is seen. Where ``add_noise`` was not called, canaries are
added to what is applied.

Python does not wait for a GPU. What is observed there is copied while the training goes on, and
counted in one of the next steps, or when the evidence is asked for.
"""

from __future__ import annotations

import contextlib
import math
import secrets
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from dpaudit._arrays import Array
from dpaudit.errors import InvalidInput
from dpaudit.integrations.opacus.coordinates import (
    Coordinates,
    is_sharded,
    passes,
    processes,
    sum_per_average,
    sum_per_gradient,
    summed_gradients,
    without_waiting,
)
from dpaudit.integrations.opacus.optimizer import (
    CoverageWatcher,
    ReplacedMethods,
    hook_variables,
    latest_rows,
    require_optimizer,
)
from dpaudit.integrations.opacus.step import copy_of
from dpaudit.live.evidence import LiveEvidence
from dpaudit.live.result import Watched
from dpaudit.trainings.run import collecting

Step = tuple[float, float]
"""Noise multiplier and sampling rate of a step."""


def require_observable(optimizer: Any) -> None:
    """Raise where an optimizer adds no noise that could be observed, before anything is changed."""
    require_optimizer(
        optimizer,
        "add_noise",
        otherwise=". For a loop of your own use dpaudit.live_audit(sizes, clip_norm=..., "
        "noise_multiplier=..., sampling_rate=...)",
    )
    if float(optimizer.noise_multiplier) == 0:
        raise InvalidInput(
            "noise_multiplier of the optimizer must be above 0, got 0: without noise nothing is "
            "claimed, and the canaries would be visible in the model"
        )


def reported_rate(optimizer: Any) -> float | None:
    """The sampling rate that the optimizer reports to its accountant."""
    rate = hook_variables(optimizer).get("sample_rate")
    return None if rate is None else float(rate)


def device_of(optimizer: Any) -> str:
    """The device of the trained parameters, in words."""
    device = optimizer.params[0].device
    return torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)


def shared_seed(optimizer: Any, seed: int | None) -> int | None:
    """The seed of the first process, in all of them: they insert and observe the same canaries."""
    if processes(optimizer) == 1:
        return seed
    seeds = [secrets.randbits(128) if seed is None else seed]
    torch.distributed.broadcast_object_list(seeds)
    return int(seeds[0])


_LENGTHS = (10.0, 1e3)  # of the rows that must be clipped, in clip norms
_COMPANIONS = 8  # genuine rows beside them: all of a batch could be too large for the memory


def largest_contribution(optimizer: Any) -> float | None:
    """By how much one long row changes the clipped sum of a batch, in clip norms.

    Called with the first batch's gradients on the parameters. Rows in random directions take the
    place of an empty row beside a few genuine ones, on a copy of the optimizer: neither the update
    nor any random state changes. `None` where there are no rows, as with ghost clipping.
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
        change = math.sqrt(
            sum(float((there - not_there).norm()) ** 2 for there, not_there in changes)
        )
        largest = max(largest, change / float(optimizer.max_grad_norm))
    return largest


def shares_of(optimizer: Any) -> list[float] | None:
    """The share of the clip norm that each tensor has; `None` unless clipping is per layer."""
    norms = getattr(optimizer, "max_grad_norms", None)
    return None if norms is None else [float(c) / float(optimizer.max_grad_norm) for c in norms]


def _steps_together(device: torch.device) -> int:
    """Number of steps whose canaries are drawn, and whose observations are copied, at once."""
    return 16 if device.type == "cuda" else 1


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class _Observed:
    """What was observed in equal steps, which may still be on its way from a GPU."""

    values: Tensor
    step: Step
    clip_norm: float
    arrived: Any  # an event of CUDA, or `None`

    def is_here(self) -> bool:
        return self.arrived is None or self.arrived.query()


@final
class OpacusSums:
    """Inserts canaries into the sums of one ``DPOptimizer``, and observes them.

    Arguments:
        optimizer: The optimizer.
        evidence: Decides who takes part, and receives the observations.
        watched: Receives what else is seen of the training.
        claimed: The claimed step; by default what the optimizer reports, step by step.
        subtract: Whether the genuine sum is subtracted from what is observed.
        check: Whether clipping is tested at the first batch, on a copy.
    """

    def __init__(
        self,
        optimizer: Any,
        evidence: LiveEvidence,
        watched: Watched,
        *,
        claimed: Step | None = None,
        subtract: bool = True,
        check: bool = True,
    ) -> None:
        self._optimizer, self._evidence, self._watched = optimizer, evidence, watched
        self._claimed, self._subtract, self._check = claimed, subtract, check
        self.after_step: Callable[[], None] = lambda: None
        rate = reported_rate(optimizer)
        if rate is None and claimed is None:
            raise InvalidInput(
                "the optimizer's step hook reports no sampling rate to an accountant, as "
                "PrivacyEngine.make_private attaches it; give claim=Claim.from_dpsgd(...)"
            )
        self._rate = rate
        self._step: Step = (0.0, 0.0)
        self._rows: int | None = None  # of the parts of this batch, so far
        self._drawn: deque[Tensor | None] = deque()  # what is added in the next steps
        self._drawn_rate = 0.0
        self._inserted = False  # the canaries of this step
        self._genuine: Tensor | None = None  # sums of this step; `None` if not subtracted
        self._has_summed = False
        self._latest: list[tuple[Tensor, Tensor | None]] = []  # of equal steps, not yet copied
        self._settings = (0.0, 0.0), 0.0, 0.0  # of these steps, with clip norm and scale
        self._copied: deque[_Observed] = deque()
        watched.expected_batch = getattr(optimizer, "expected_batch_size", None)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the steps of the optimizer until the block ends."""
        optimizer, evidence = self._optimizer, self._evidence
        starts = np.cumsum([0, *evidence.sizes])
        flat = [here + start for here, start in zip(evidence.places, starts[:-1], strict=True)]
        self._coordinates = Coordinates(optimizer, np.concatenate(flat))
        self._together = _steps_together(optimizer.params[0].device)
        plain = type(optimizer.original_optimizer) is torch.optim.SGD
        plain = plain and not any(group["maximize"] for group in optimizer.param_groups)
        if plain and evidence.start is None and evidence.steps == 0:
            evidence.start = self._parameters()
        if "clip_and_accumulate" in vars(optimizer):
            self._check = False  # the copy would call a method of the original
        methods = ReplacedMethods(optimizer)
        methods.wrap("clip_and_accumulate", self._around_clipping)
        methods.wrap("accumulate", self._around_clipping)  # ghost clipping, and FSDP2
        methods.wrap("add_noise", self._around_noise)
        wrapped = optimizer.original_optimizer
        coverage = CoverageWatcher(optimizer, None)
        hooks = [
            wrapped.register_step_pre_hook(self._before_update),
            wrapped.register_step_post_hook(lambda *_: coverage.after_step()),
        ]
        self._coverage = coverage
        with collecting() as outside:
            try:
                yield
                if evidence.start is not None:
                    evidence.final = evidence.along(evidence.start - self._parameters())
            finally:
                for hook in hooks:
                    hook.remove()
                methods.put_back()
                coverage.finish()
                self._watched.outside = tuple(outside)

    def _around_clipping(self, original: Callable[[], Any]) -> Any:
        rows = getattr(self._optimizer.params[0], "grad_sample", None)
        batches = rows if isinstance(rows, list) else [rows]
        if not any(batch is None for batch in batches):  # ghost clipping keeps no rows
            self._rows = (self._rows or 0) + sum(map(len, batches))
        if self._check:
            self._check = False
            try:
                self._watched.clipping = largest_contribution(self._optimizer)
            except Exception as error:  # no test of ours may end the user's training
                self._watched.check_failure = type(error).__name__
        result = original()
        self._has_summed = True
        return result

    def _around_noise(self, original: Callable[[], Any]) -> Any:
        self._begin_step()
        sums = summed_gradients(self._optimizer)
        self._require_exact(sums)
        if self._subtract:
            self._genuine = self._genuine_sums(sums)
        self._insert(sums, sum_per_average(self._optimizer))
        return original()

    def _before_update(self, *_: Any) -> None:
        self._coverage.before_step()
        gradients = [parameter.grad for parameter in self._optimizer.params]
        scale = sum_per_gradient(self._optimizer)
        if not self._inserted:  # add_noise was not called
            self._begin_step()
            self._watched.bypassed += 1
            if self._subtract:
                self._genuine = self._applied_without_noise(gradients, scale)
            self._insert(gradients, scale)
        settings = self._step, float(self._optimizer.max_grad_norm), scale
        if settings != self._settings:
            self._copy()
        self._settings = settings
        self._latest.append((self._coordinates.read(gradients), self._genuine))
        self._genuine, self._inserted, self._has_summed = None, False, False
        if len(self._latest) >= self._together:
            self._copy()
        while self._copied and (len(self._copied) > 2 or self._copied[0].is_here()):
            self._count()

    def settle(self) -> None:
        """Count what was observed, but has not been counted, and draw nothing ahead."""
        self._evidence.take_back(len(self._drawn))
        self._drawn.clear()
        self._copy()
        while self._copied:
            self._count()

    def _copy(self) -> None:
        """Begin to copy the latest steps from a GPU."""
        if not self._latest:
            return
        noisy, genuine = zip(*self._latest, strict=True)
        step, clip_norm, scale = self._settings
        values = scale * torch.stack(noisy).double()
        if self._subtract:
            values -= torch.stack(genuine).double()
        self._latest, arrived = [], None
        copied = without_waiting(values, torch.device("cpu"))
        if values.device.type == "cuda":
            arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
            arrived.record(torch.cuda.current_stream(values.device))
        self._copied.append(
            _Observed(values=copied, step=step, clip_norm=clip_norm, arrived=arrived)
        )

    def _count(self) -> None:
        """Add the earliest copy to the evidence, when it is here."""
        copied = self._copied.popleft()
        if copied.arrived is not None:
            copied.arrived.synchronize()
        noise_multiplier, rate = copied.step
        self._evidence.observe(
            self._evidence.along(copied.values.numpy() / copied.clip_norm),
            rate=rate,
            noise_multiplier=noise_multiplier,
        )
        self.after_step()

    def _begin_step(self) -> None:
        """Settle the claimed step, and remember what is reported of it and its batch."""
        times, told = passes(self._optimizer), None
        if self._rate is not None:
            told = float(self._optimizer.noise_multiplier), min(1.0, self._rate * times)
            self._watched.reported.append(told)
        if self._claimed is not None:
            noise_multiplier, rate = self._claimed
            self._step = noise_multiplier, min(1.0, rate * times)
        elif told is not None:
            self._step = told
        if self._rows is not None:
            self._watched.batch_sizes.append(self._rows)
        self._rows = None

    def _genuine_sums(self, sums: list[Any]) -> Tensor:
        """The sums over all processes, which Opacus adds up after the noise."""
        several = processes(self._optimizer) > 1
        values = self._coordinates.read(sums, summed=several)
        scale = sum_per_average(self._optimizer)
        return values if scale == 1 else scale * values

    def _applied_without_noise(self, gradients: list[Any], scale: float) -> Tensor:
        """What may be subtracted in a step in which ``add_noise`` was not called.

        Opacus's own ``step`` has then been left out: the gradient has no noise. Another ``step``
        may add noise in its own way, which must not be taken for genuine gradients.
        """
        if self._has_summed:
            return self._genuine_sums(summed_gradients(self._optimizer))
        kind = type(self._optimizer)
        stock = all(f.__module__.startswith("opacus.") for f in (kind.step, kind.pre_step))
        return self._coordinates.read(gradients).double() * (scale if stock else 0.0)

    def _insert(self, tensors: list[Any], scale: float) -> None:
        """Add the canaries that take part in this step, in tensors that are sums / scale."""
        rate = self._step[1]
        if not self._drawn or rate != self._drawn_rate:
            self._draw(rate)
        added, self._inserted = self._drawn.popleft(), True
        inserts = getattr(self._optimizer, "rank", 0) == 0 or is_sharded(self._optimizer)
        if added is not None and inserts:
            times = float(self._optimizer.max_grad_norm) / scale
            self._coordinates.add(tensors, added, times=times)

    def _draw(self, rate: float) -> None:
        """Draw who takes part in the next steps, and begin to copy it to a GPU."""
        self._evidence.take_back(len(self._drawn))
        taking_part = self._evidence.take_part(rate, self._together)
        rows = self._coordinates.moved(self._evidence.added(taking_part)).unbind()
        self._drawn = deque(
            row if mask.any() else None for row, mask in zip(rows, taking_part, strict=True)
        )
        self._drawn_rate = rate

    def _require_exact(self, sums: list[Any]) -> None:
        coarse = {t.dtype for t in sums} & {torch.bfloat16, torch.float16}
        if coarse:
            raise InvalidInput(
                f"clipped sums must be at least float32, got {coarse.pop()}: rounding of the noisy "
                "sum would depend on the genuine sum, which no accountant allows for; train the "
                "private parameters in float32"
            )

    def _parameters(self) -> Array:
        return np.array(self._coordinates.read(self._optimizer.params).double().cpu().numpy())
