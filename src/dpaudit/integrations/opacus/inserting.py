"""Crafted gradients in a training that somebody else wrote.

Nothing of the user's is edited. While the context is open the *methods* of one optimizer object are
replaced; no attribute is written on a tensor or a module that would stay there. Only attributes are
relied on that Opacus' optimizers and forks of them share, so Opacus itself is not imported.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, final

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from dpaudit.errors import DpauditError, InvalidInput
from dpaudit.integrations.opacus.layout import (
    Canary,
    Entries,
    add_at,
    batches,
    entries_in,
    entries_of,
    latest_rows,
    masked,
    trained_slots,
)
from dpaudit.integrations.opacus.patching import ReplacedMethods
from dpaudit.integrations.opacus.refusals import (
    check_canary,
    check_memory,
    check_optimizer,
    coins,
)
from dpaudit.integrations.opacus.rowwise import are_the_sums, sums_by_definition
from dpaudit.integrations.opacus.sampling import FROM_ACCOUNTANT, Participation, participation

MEMORY = 2**29
"""How many bytes the rows of all canaries may take by default: half a gibibyte."""

WORTH_SPARING = 2**23
"""From how many bytes on copying a batch takes longer than clipping once more: eight mebibytes."""


@contextlib.contextmanager
def insert_canary(
    optimizer: Any,
    canary: Canary,
    inserted: ArrayLike,
    *,
    seed: int,
    sampling: str | float = FROM_ACCOUNTANT,
    through_clipping: bool = True,
    apart: bool | None = None,
    model: nn.Module | None = None,
    memory: int = MEMORY,
) -> Iterator[None]:
    r"""Insert crafted gradients into every logical step that an Opacus optimizer makes.

    The training is the user's own, unedited, inside the ``with`` block; as a decorator,
    ``insert_canary(...)(fit)`` does the same around a function. On exit, also by an exception, the
    optimizer, its parameters and its hooks are as they were.

    *Through the clipping* the canaries' gradients, ten times too long, become further rows of
    ``grad_sample``, and further addends of the raw ``grad``, which correct code overwrites: what
    is clipped, and what is not, is decided by the training alone. *After the clipping*
    (``through_clipping=False``) what correct clipping leaves of them, :math:`C e_d`, is added to
    the sum that the noise goes on. That tests the noise and the accounting, not the clipping; it
    is the way for ghost clipping, which has no rows, and for very many canaries, whose rows would
    not fit in memory.

    A step in several physical batches (``BatchMemoryManager``, accumulated ``backward`` calls)
    takes a canary once. Steps that go around the DP optimizer, by the optimizer that it wraps, take
    the canary unclipped, as they would take any example; so steps on public data belong outside
    the block.

    See also: `canary_for`, `claim_of`; `dpaudit.audit_training`, which plays the game.

    Paper: Cebere, Bellet, Papernot (ICLR 2025), A_GC; a crafted gradient in the clipped sum as in
    Nasr et al. (USENIX Security 2023), Algorithm 1.

    Arguments:
        optimizer: The ``DPOptimizer`` (flat, per layer, adaptive or ghost clipping) that trains.
        canary: The crafted gradients: a `GradientCanary`, or an object with ``parameters``,
            ``count`` and ``rows(inserted)``, which can only go through the clipping.
        inserted: One coin for each canary: whether this training holds it at all.
        seed: The run's seed. Draws in which steps a canary takes part, and nothing else.
        sampling: Who is in a step. ``"from accountant"``: each canary with the probability that the
            accountant is told, independently at each step; this is what a claim with amplification
            speaks of. A number: that probability. ``"every step"``: always, for claims that count
            on no sampling, and only for those. ``"once an epoch"``: in one random step of every
            epoch, as a loader that shuffles does it.
        through_clipping: Whether the training itself clips the canaries.
        apart: Whether it clips them in a physical batch of their own, as ``BatchMemoryManager``
            might make one, which saves copying the batch to make room for them. By default a step
            is made with the canaries in the batch and compared with the definition of clipping;
            only where it agrees, and so does not mix the rows of a batch, do later steps clip
            canaries apart, and only where the batch's rows are large.
        model: Give it, here and to `canary_for`, where the optimizer's parameter groups are in
            another order than ``model.parameters()``, or leave some of those out.
        memory: How many bytes the canaries' rows may take.

    Example:
        >>> import torch
        >>> from opacus.optimizers import DPOptimizer
        >>> from dpaudit.integrations.opacus import canary_for
        >>> weight = torch.nn.Parameter(torch.zeros(3))
        >>> optimizer = DPOptimizer(
        ...     torch.optim.SGD([weight], lr=1.0),
        ...     noise_multiplier=0.0, max_grad_norm=2.0, expected_batch_size=4,
        ... )
        >>> canary = canary_for(optimizer, seed=1)
        >>> weight.grad_sample = torch.zeros(4, 3)  # a backward pass of Opacus leaves it
        >>> with insert_canary(optimizer, canary, True, seed=0, sampling="every step"):
        ...     optimizer.step()
        >>> canary.score(weight.detach()).round(4)
        array([0.5])
    """
    insertion = _Insertion(
        optimizer,
        canary,
        inserted,
        seed=seed,
        sampling=sampling,
        through_clipping=through_clipping,
        apart=apart,
        model=model,
        memory=memory,
    )
    insertion.begin()
    try:
        yield
    finally:
        insertion.end()
    insertion.check()


@final
class _Insertion:
    """One training with its canaries."""

    def __init__(
        self,
        optimizer: Any,
        canary: Canary,
        inserted: ArrayLike,
        *,
        seed: int,
        sampling: str | float,
        through_clipping: bool,
        apart: bool | None,
        model: nn.Module | None,
        memory: int,
    ) -> None:
        check_optimizer(optimizer, through_clipping, apart)
        check_canary(canary, through_clipping)
        self._optimizer = optimizer
        self._norm, self._clip_norm = (
            getattr(canary, "norm", 0.0),
            getattr(canary, "clip_norm", 0.0),
        )
        self._through_clipping, self._apart = through_clipping, apart
        slots, total = trained_slots(optimizer, model)
        if canary.parameters != total:
            raise InvalidInput(
                f"canary was drawn for {canary.parameters} parameters and this training has "
                f"{total}; draw it with canary_for(optimizer), and pass the same model= to both"
            )
        self._count, rows, axes, values = entries_of(canary, coins(inserted, canary.count))
        self._entries = entries_in(slots, rows=rows, axes=axes, values=values)
        # Most steps touch only the tensors that hold an axis of a canary.
        self._holding = tuple(entries for entries in self._entries if len(entries))
        if through_clipping:
            check_memory(self._count * total * slots[0].parameter.element_size(), memory)
        self._participation: Participation = participation(
            optimizer, sampling, count=self._count, seed=seed
        )
        self._rows: dict[int, Tensor] = {}
        self._appended: dict[int, tuple[Tensor, int]] = {}
        self._pending: tuple[NDArray[np.bool_] | None] | None = None
        self._foreseen: list[Tensor] | None = None
        self._inside_step = False
        self._step_is_private = False
        self._chances = self._steps = 0
        self._methods = ReplacedMethods(optimizer)
        self._hook: Any = None

    def begin(self) -> None:
        self._methods.wrap("step", self._around_step)
        self._methods.wrap("pre_step", self._around_pre_step)
        if self._apart is not False or not self._through_clipping:
            name = "accumulate" if hasattr(self._optimizer, "accumulate") else "clip_and_accumulate"
            self._methods.wrap(name, self._around_summation)
        self._hook = self._optimizer.original_optimizer.register_step_pre_hook(self._before_update)

    def end(self) -> None:
        self._methods.put_back()
        self._hook.remove()
        for entries in self._entries:
            parameter: Any = entries.slot.parameter
            self._take_rows_away(parameter)
        self._appended.clear()
        self._rows.clear()

    def check(self) -> None:
        if self._steps and not self._chances:
            raise DpauditError(
                f"the training made {self._steps} steps and none had a place for the canary: the "
                "optimizer's step calls neither pre_step nor "
                "clip_and_accumulate. Nothing was audited"
            )

    # The four places of a training that are watched.

    def _around_step(
        self, original: Callable[..., Any], closure: Callable[[], Any] | None = None
    ) -> Any:
        self._inside_step = True
        try:
            if closure is None:
                self._enter_logical_step()
                return original()

            def closure_then_canary() -> Any:
                loss = closure()
                self._enter_logical_step()
                return loss

            return original(closure_then_canary)
        finally:
            self._inside_step = False

    def _around_pre_step(self, original: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        if not self._inside_step:
            self._enter_logical_step()
        return original(*arguments, **named)

    def _around_summation(self, original: Callable[..., Any]) -> Any:
        result = original()
        if self._foreseen is not None:
            self._apart = are_the_sums(self._optimizer, self._foreseen)
            self._foreseen = None
        if self._pending is not None:
            (mask,), self._pending = self._pending, None
            if self._through_clipping:
                self._clip_apart(original, mask)
            else:
                self._add_clipped(mask)
        return result

    def _before_update(self, *_: Any) -> None:
        self._steps += 1
        if self._step_is_private or self._inside_step:
            self._step_is_private = False
            return
        # The wrapped optimizer was called directly: no clipping and no noise for anyone.
        self._chances += 1
        expected = getattr(self._optimizer, "expected_batch_size", None)
        self._add_raw(self._participation.draw(1), expected)

    # What is done there.

    def _enter_logical_step(self) -> None:
        queue = getattr(self._optimizer, "_step_skip_queue", ())
        if queue and queue[0]:
            return  # a physical batch that is not the last one of its logical batch
        self._step_is_private = True
        if not self._through_clipping:
            passes = batches(self._entries[0].slot.parameter)
            self._pending = (self._participation.draw(passes),)
            return
        latest = [latest_rows(entries.slot.parameter) for entries in self._entries]
        first = next((rows for rows in latest if rows is not None), None)
        if first is None:
            raise InvalidInput(
                "the training has no per-example gradients (grad_sample) to add the canary to; "
                "with ghost clipping use through_clipping=False"
            )
        if hasattr(first, "_processed"):
            return  # rows that were used already and hold the canary: Opacus refuses this itself
        passes = batches(self._entries[0].slot.parameter)
        mask = self._participation.draw(passes)
        count = self._count if mask is None else int(mask.sum())
        if count == self._count:
            mask = None
        # Rows of several passes may be old ones that nobody cleared: a canary must be among them.
        apart = self._apart and passes == 1
        self._chances += not apart
        if apart:
            self._pending = (mask,)
        if count == 0:
            return
        self._add_raw(mask, len(first) + count)
        if apart:
            return
        for entries, rows in zip(self._entries, latest, strict=True):
            if rows is not None:
                self._append_rows(entries, rows, mask, count)
        if self._apart is None:
            # Settled by this one step: with the batch until `_around_summation` says otherwise.
            self._apart = False
            if sum(rows.nbytes for rows in latest if rows is not None) >= WORTH_SPARING:
                self._foreseen = sums_by_definition(self._optimizer)

    def _append_rows(
        self, entries: Entries, rows: Tensor, mask: NDArray[np.bool_] | None, count: int
    ) -> None:
        parameter: Any = entries.slot.parameter
        longer = torch.cat([rows, self._rows_of(entries, rows, mask)])
        if isinstance(parameter.grad_sample, list):
            parameter.grad_sample = [*parameter.grad_sample[:-1], longer]
        else:
            parameter.grad_sample = longer
        self._appended[id(parameter)] = (longer, count)

    def _clip_apart(self, clip: Callable[[], Any], mask: NDArray[np.bool_] | None) -> None:
        self._chances += 1
        if self._count == 0 or (mask is not None and not mask.any()):
            return
        genuine = []
        for entries in self._entries:
            parameter: Any = entries.slot.parameter
            genuine.append(parameter.grad_sample)
            like = latest_rows(parameter)
            if like is not None:
                # A copy: whoever clips may mark the rows as used, or write to them.
                parameter.grad_sample = self._rows_of(entries, like, mask).clone()
        try:
            clip()
        finally:
            for entries, rows in zip(self._entries, genuine, strict=True):
                entries.slot.parameter.grad_sample = rows  # type: ignore[attr-defined]

    def _rows_of(self, entries: Entries, like: Tensor, mask: NDArray[np.bool_] | None) -> Tensor:
        key = id(entries.slot.parameter)
        if key not in self._rows:
            crafted = like.new_zeros(self._count, entries.slot.parameter.numel())
            places = torch.as_tensor(entries.rows, device=like.device)
            crafted[places, entries.where.to(like.device)] = entries.values.to(like)
            self._rows[key] = crafted.view(self._count, *entries.slot.parameter.shape)
        rows = self._rows[key]
        return rows if mask is None else rows[torch.as_tensor(mask, device=rows.device)]

    def _add_raw(self, mask: NDArray[np.bool_] | None, batch: float | None) -> None:
        """What an example adds to the gradient of the loss when nothing is private."""
        share = 1.0
        if getattr(self._optimizer, "loss_reduction", "mean") == "mean" and batch:
            share = 1 / batch
        for entries in self._holding:
            gradient = entries.slot.parameter.grad
            if gradient is not None:
                values = masked(entries.values, entries, mask)
                add_at(gradient, entries.where, values, times=share)

    def _add_clipped(self, mask: NDArray[np.bool_] | None) -> None:
        self._chances += 1
        if mask is not None and not mask.any():
            return
        per_layer = getattr(self._optimizer, "max_grad_norms", None)
        for entries in self._holding:
            norm = self._optimizer.max_grad_norm if per_layer is None else per_layer[entries.index]
            parameter: Any = entries.slot.parameter
            total = parameter.summed_grad
            if total is None:
                raise InvalidInput(
                    "the optimizer keeps no summed_grad to add a clipped canary to; "
                    "use through_clipping=True"
                )
            # Never more than either the claim's clip norm or the one in force for this tensor.
            length = min(self._norm, self._clip_norm, float(norm))
            values = masked(entries.values, entries, mask)
            add_at(total, entries.where, values, times=length / self._norm)

    def _take_rows_away(self, parameter: Any) -> None:
        longer, count = self._appended.get(id(parameter), (None, 0))
        if longer is None or latest_rows(parameter) is not longer:
            return
        genuine: Any = longer[:-count]
        if hasattr(longer, "_processed"):
            genuine._processed = longer._processed
        if isinstance(parameter.grad_sample, list):
            parameter.grad_sample = [*parameter.grad_sample[:-1], genuine]
        else:
            parameter.grad_sample = genuine
