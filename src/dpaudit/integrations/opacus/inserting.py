"""Insert crafted gradients into a training that somebody else wrote.

Nothing of the user's is edited. While the context is open, the *methods* of one optimizer object
are replaced; no attribute is left on a tensor or a module. Only attributes that Opacus' optimizers
and forks of them share are used, so Opacus itself is not imported.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor, nn

from dpaudit.errors import DpauditError, InvalidInput
from dpaudit.integrations.opacus.coverage import CoverageWatcher
from dpaudit.integrations.opacus.distributed import inserts_here
from dpaudit.integrations.opacus.layout import (
    Canary,
    Entries,
    batches,
    entries_in,
    entries_of,
    latest_rows,
    trained_slots,
)
from dpaudit.integrations.opacus.patching import ReplacedMethods
from dpaudit.integrations.opacus.recording import GradientRecorder
from dpaudit.integrations.opacus.refusals import require_insertable, require_memory
from dpaudit.integrations.opacus.rows import CanaryRows, Mask
from dpaudit.integrations.opacus.rowwise import are_the_sums, sums_by_definition
from dpaudit.integrations.opacus.sampling import (
    FROM_ACCOUNTANT,
    OWN_STEP,
    Participation,
    participation,
)
from dpaudit.integrations.opacus.sums import add_clipped, add_raw
from dpaudit.trainings.canaries import require_known_clipping
from dpaudit.trainings.coins import coins_of
from dpaudit.trainings.private_gradients import PrivateGradients

MEMORY = 2**29
"""Bytes that the rows of all canaries may take by default: half a gibibyte."""

WORTH_SPARING = 2**23
"""Bytes from which copying a batch takes longer than clipping once more: eight mebibytes."""


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
    rank: int = 0,
) -> Iterator[PrivateGradients]:
    r"""Insert crafted gradients into every logical step of an Opacus optimizer.

    The user's own training runs unedited inside the ``with`` block; as a decorator,
    ``insert_canary(...)(fit)`` does the same around a function. On exit, also by an exception, the
    optimizer, its parameters and its hooks are as before.

    *Through the clipping*, the canaries' gradients, ten times too long, become further rows of
    ``grad_sample`` and further addends of the raw ``grad``, which correct code overwrites: the
    training itself clips them or fails to. *After the clipping* (``through_clipping=False``), what
    correct clipping leaves of them, :math:`C e_d`, is added to the sum that gets the noise. That
    tests the noise and the accounting, not the clipping. It is the way for ghost clipping, which
    has no rows, and for so many canaries that their rows do not fit in memory.

    A step in several physical batches (``BatchMemoryManager``, accumulated ``backward`` calls)
    takes a canary once. In a training of several processes one of them, that of ``rank``, inserts
    it. Steps that bypass the DP optimizer, by the optimizer that it wraps, take
    the canary unclipped, like any example; so keep steps on public data outside the block.

    The block yields a `PrivateGradients`, which records the noisy gradient of every step. A
    training that returns it is audited in the standard threat model, where the adversary sees every
    step: this finds bugs in few runs, also with Adam and sampling. A training that returns the
    model is audited in the hidden-state threat model.

    The canary is in ``grad_sample`` and ``grad`` only during the optimizer's ``step``. Changes of
    parameters outside this optimizer, or between its first two steps, are reported: an audit of
    such a training is never ``consistent``.

    See also: `canary_for`, `claim_of`; `dpaudit.audit_training`, which runs the audit.

    Paper: Cebere, Bellet, Papernot (ICLR 2025), A_GC; a crafted gradient in the clipped sum as in
    Nasr et al. (USENIX Security 2023), Algorithm 1.

    Arguments:
        optimizer: The ``DPOptimizer`` (flat, per layer, adaptive or ghost clipping) that trains.
        canary: The crafted gradients: a `GradientCanary`, or an object with ``parameters``,
            ``count`` and ``rows(inserted)``, which can only go through the clipping.
        inserted: One boolean for each canary: whether this training contains it.
        seed: Seed of the run. It decides in which steps a canary takes part, and nothing else.
        sampling: In which steps a canary takes part. ``"from accountant"``: in each step
            independently, with the sampling rate that the accountant uses, as a claim with
            amplification by sampling assumes. A number: with that probability. ``"every step"``:
            in all steps, for claims without sampling only. ``"once an epoch"``: in one random step
            of every epoch, as with a shuffling loader. ``"own step"``: canary ``i`` in step ``i``
            only, so that one training of T steps with T canaries gives T trials of a single step;
            its claim is ``claim_of(optimizer, steps=1, every_step=True)``.
        through_clipping: Whether the training itself clips the canaries.
        apart: Whether it clips them in a physical batch of their own, as ``BatchMemoryManager``
            might make one, which saves copying the batch. By default one step is made with the
            canaries in the batch and compared with the definition of clipping; only if it agrees,
            and if the batch's rows are large, do later steps clip canaries apart.
        model: Needed, here and in `canary_for`, where the optimizer's parameter groups are in
            another order than ``model.parameters()``, or omit some of those.
        memory: Bytes that the canaries' rows may take.
        rank: With several processes, the rank of the one whose batch contains the canary. Every
            process must open the block, with the same canary, ``inserted`` and seed. With FSDP2
            every process adds its own part of the canary, whatever the rank.

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
    require_insertable(optimizer, through_clipping, apart)
    require_known_clipping(canary, through_clipping)
    slots, total = trained_slots(optimizer, model)
    if canary.parameters != total:
        raise InvalidInput(
            f"canary was drawn for {canary.parameters} parameters and this training has "
            f"{total}; draw it with canary_for(optimizer), and pass the same model= to both"
        )
    present = coins_of(inserted, canary.count) & inserts_here(optimizer, rank)
    count, rows, axes, values = entries_of(canary, present)
    if through_clipping:
        require_memory(count * total * slots[0].parameter.element_size(), memory)
    taking_part = participation(optimizer, sampling, canaries=np.flatnonzero(present), seed=seed)
    insertion = _Insertion(
        optimizer,
        canary,
        entries=entries_in(slots, rows=rows, axes=axes, values=values),
        count=count,
        participation=taking_part,
        through_clipping=through_clipping,
        apart=apart,
    )
    recorder = GradientRecorder(
        optimizer, canary, slots, rate=taking_part.rate, own_step=sampling == OWN_STEP
    )
    coverage = CoverageWatcher(optimizer, model)
    insertion.begin(recorder, coverage)
    try:
        yield recorder.gradients
    finally:
        insertion.end()
        coverage.finish()
    insertion.check()


@final
class _Insertion:
    """One training with its canaries: in which method calls they are inserted, and how."""

    def __init__(
        self,
        optimizer: Any,
        canary: Canary,
        *,
        entries: tuple[Entries, ...],
        count: int,
        participation: Participation,
        through_clipping: bool,
        apart: bool | None,
    ) -> None:
        self._optimizer, self._canary = optimizer, canary
        self._entries, self._count = entries, count
        # Most steps touch only the tensors that hold an axis of a canary.
        self._holding = tuple(here for here in entries if len(here))
        self._rows = CanaryRows(entries, count)
        self._participation = participation
        self._through_clipping, self._apart = through_clipping, apart
        self._pending: tuple[Mask | None] | None = None
        self._foreseen: list[Tensor] | None = None
        self._inside_step = False
        self._step_is_private = False
        self._chances = self._steps = 0
        self._methods = ReplacedMethods(optimizer)
        self._hooks: tuple[Any, ...] = ()

    def begin(self, recorder: GradientRecorder, coverage: CoverageWatcher) -> None:
        self._recorder, self._coverage = recorder, coverage
        self._methods.wrap("step", self._around_step)
        self._methods.wrap("pre_step", self._around_pre_step)
        if self._apart is not False or not self._through_clipping:
            name = "accumulate" if hasattr(self._optimizer, "accumulate") else "clip_and_accumulate"
            self._methods.wrap(name, self._around_summation)
        wrapped = self._optimizer.original_optimizer
        self._hooks = (
            wrapped.register_step_pre_hook(self._before_update),
            wrapped.register_step_post_hook(lambda *_: coverage.after_step()),
        )

    def end(self) -> None:
        self._methods.put_back()
        for hook in self._hooks:
            hook.remove()
        self._rows.remove()

    def check(self) -> None:
        if self._steps and not self._chances:
            raise DpauditError(
                f"the training made {self._steps} steps and none had a place for the canary: the "
                "optimizer's step calls neither pre_step nor clip_and_accumulate. Nothing was "
                "audited"
            )

    # The four methods that are watched.

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
            self._chances += 1
            if self._through_clipping:
                self._rows.clip_apart(original, mask)
            elif mask is None or mask.any():
                add_clipped(self._optimizer, self._canary, self._holding, mask)
        return result

    def _before_update(self, *_: Any) -> None:
        self._coverage.before_step()
        self._steps += 1
        if self._step_is_private or self._inside_step:
            self._step_is_private = False
            self._recorder.record()
            return
        # The wrapped optimizer was called directly: its step neither clips nor adds noise.
        self._chances += 1
        expected = getattr(self._optimizer, "expected_batch_size", None)
        add_raw(self._optimizer, self._holding, self._participation.draw(1), expected)
        self._recorder.record()

    # What happens in them.

    def _enter_logical_step(self) -> None:
        queue = getattr(self._optimizer, "_step_skip_queue", ())
        if queue and queue[0]:
            return  # a physical batch that is not the last one of its logical batch
        self._step_is_private = True
        passes = batches(self._entries[0].slot.parameter)
        if not self._through_clipping:
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
        mask = self._participation.draw(passes)
        count = self._count if mask is None else int(mask.sum())
        if count == self._count:
            mask = None
        # Rows of several passes may be old ones that were not cleared: a canary must be among them.
        apart = self._apart and passes == 1
        self._chances += not apart
        if apart:
            self._pending = (mask,)
        if count == 0:
            return
        add_raw(self._optimizer, self._holding, mask, len(first) + count)
        if apart:
            return
        self._rows.append(latest, mask)
        if self._apart is None:
            # Decided by this one step: with the batch unless `_around_summation` finds otherwise.
            self._apart = False
            if sum(rows.nbytes for rows in latest if rows is not None) >= WORTH_SPARING:
                self._foreseen = sums_by_definition(self._optimizer)
