"""Insert crafted gradients into a private training that somebody else wrote.

Nothing of the user's is edited. While the context is open, *methods* of one optimizer object are
replaced; no attribute is left on a tensor or a module. A canary of gradient g enters a logical step
in one of two places:

- *through the clipping*: a further row of ``grad_sample``, ten times longer than C, and a further
  addend of the raw ``grad``, which correct code overwrites. This tests clipping, noise, accounting.
- *after the clipping*: what correct clipping leaves of it, C g / |g|, is added to ``summed_grad``,
  to which the noise is added. This tests noise and accounting.

| training | what a canary along one axis moves its axis by |
|---|---|
| flat clipping | C |
| per layer | the norm C_l of its layer, while the noise is scaled to sqrt(sum of C_l^2) |
| adaptive | the norm in force in this step; it counts as one more clipped example |
| ghost (no rows) | C, after the clipping only; through the clipping is refused |
| ``BatchMemoryManager``, several backward passes | as above, once in a logical step |
| data parallel (DPDDP) | as above, in the batch of one process |
| sharded (FSDP2) | as above, after the clipping; every process adds its part of the canary |
| clipping in the backward pass (``_ddp_per_layer_hook``) | refused: it is over before ``step`` |
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any, final

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from dpaudit import _validate
from dpaudit._arrays import Array
from dpaudit.errors import DpauditError, InvalidInput
from dpaudit.integrations.opacus.coordinates import (
    Coordinates,
    is_sharded,
    passes,
    sum_per_average,
    sum_per_gradient,
    summed_gradients,
)
from dpaudit.integrations.opacus.optimizer import (
    Canary,
    CoverageWatcher,
    Mask,
    ReplacedMethods,
    hook_variables,
    latest_rows,
    named_sizes,
    offsets_of,
    require_optimizer,
    sizes_of,
)
from dpaudit.trainings.canary import AS_LARGE_AS, GradientCanary, coins_of, require_known_clipping
from dpaudit.trainings.run import report_batch, report_start
from dpaudit.trainings.scoring import PrivateGradients

MEMORY = 2**29
"""Bytes that the rows of all canaries may take by default: half a gibibyte."""

FROM_ACCOUNTANT = "from accountant"
EVERY_STEP = "every step"
ONCE_AN_EPOCH = "once an epoch"
OWN_STEP = "own step"


def canary_for(
    optimizer: Any,
    *,
    count: int = 1,
    seed: int = 0,
    model: nn.Module | None = None,
    per_tensor: bool = False,
) -> GradientCanary:
    r"""Draw canaries for the parameters and the clip norm of an Opacus optimizer.

    With clipping per layer an axis moves by its own layer's norm :math:`C_l` at most, while the
    noise is scaled to :math:`C = \sqrt{\sum_l C_l^2}`. Axes are then drawn from the layers with the
    largest :math:`C_l`, where a canary has the largest effect.

    See also: `insert_canary`; `GradientCanary.draw` without an optimizer.

    Arguments:
        optimizer: A ``DPOptimizer``, as ``make_private`` returns it.
        count: Number of canaries, each on an axis of its own.
        seed: Random seed of the axes.
        model: Needed, here and in `insert_canary`, where the training returns a model and the
            optimizer's parameter groups are in another order than ``model.parameters()``, or omit
            some of those.
        per_tensor: Draw one canary in every tensor that the optimizer trains, instead of ``count``.
            An audit then tests every tensor by itself, and names those that refute the claim. The
            tensors have names if ``model`` is given.
    """
    if not hasattr(optimizer, "params") or not hasattr(optimizer, "max_grad_norm"):
        raise InvalidInput(
            f"optimizer must be a DPOptimizer of Opacus, got {type(optimizer).__name__}; without "
            "one use GradientCanary.draw(parameters, clip_norm=...)"
        )
    count = _validate.integer("count", count, at_least=1)
    offsets, total = offsets_of(optimizer, model)
    clip_norm = _validate.positive("max_grad_norm of the optimizer", float(optimizer.max_grad_norm))
    random = np.random.default_rng(_validate.integer("seed", seed))
    axes = [
        np.arange(start, start + parameter.numel())
        for start, parameter in zip(offsets, optimizer.params, strict=True)
    ]
    if per_tensor:
        dimensions = np.array([random.choice(of_tensor) for of_tensor in axes], dtype=np.int64)
    else:
        limits = getattr(optimizer, "max_grad_norms", None) or [clip_norm] * len(axes)
        pairs = zip(axes, limits, strict=True)
        largest = np.concatenate([of_tensor for of_tensor, c in pairs if c == max(limits)])
        if count > len(largest):
            raise InvalidInput(
                f"count must be at most {len(largest)}, the number of available axes; got {count}"
            )
        dimensions = random.choice(largest, size=count, replace=False)
    return GradientCanary(
        parameters=total,
        dimensions=dimensions,
        clip_norm=clip_norm,
        norm=AS_LARGE_AS * clip_norm,
        names=tuple(named_sizes(optimizer, model)) if per_tensor else (),
    )


@contextlib.contextmanager
def insert_canary(
    optimizer: Any,
    canary: Canary,
    inserted: ArrayLike,
    *,
    seed: int,
    sampling: str | float = FROM_ACCOUNTANT,
    through_clipping: bool = True,
    model: nn.Module | None = None,
    memory: int = MEMORY,
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
    takes a canary once. In a training of several processes it is in the batch of the first one, and
    with FSDP2 every process adds its own part of it; every process must open the block, with the
    same canary, ``inserted`` and seed. Steps that bypass the DP optimizer, by the optimizer that it
    wraps, take the canary unclipped, like any example; so keep steps on public data outside the
    block.

    The block yields a `PrivateGradients`, which records the noisy gradient of every step. A
    training that returns it is audited in the standard threat model, where the adversary sees every
    step: this finds bugs in few runs, also with Adam and sampling. A training that returns the
    model is audited in the hidden-state threat model.

    The canary is in ``grad_sample`` and ``grad`` only during the optimizer's ``step``. Changes of
    parameters outside this optimizer, or between its first two steps, are reported: an audit of
    such a training is never ``consistent``.

    See also: `canary_for`, `claim_of`; `dpaudit.audit`, which runs the audit.

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
        model: Needed, here and in `canary_for`, where the optimizer's parameter groups are in
            another order than ``model.parameters()``, or omit some of those.
        memory: Bytes that the canaries' rows may take.

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
    _require_insertable(optimizer, through_clipping)
    require_known_clipping(canary, through_clipping)
    offsets, total = offsets_of(optimizer, model)
    if canary.parameters != total:
        raise InvalidInput(
            f"canary was drawn for {canary.parameters} parameters and this training has "
            f"{total}; draw it with canary_for(optimizer), and pass the same model= to both"
        )
    report_start(sizes_of(optimizer))
    present = coins_of(inserted, canary.count)
    if int(getattr(optimizer, "rank", 0)) != 0 and not is_sharded(optimizer):
        present = np.zeros_like(present)  # the canary is in the batch of the first process
    crafted = _Crafted(optimizer, canary, present, offsets)
    if through_clipping:
        _require_memory(crafted.count * total * optimizer.params[0].element_size(), memory)
    participation = Participation(optimizer, sampling, canaries=np.flatnonzero(present), seed=seed)
    recorder = _Recorder(
        optimizer,
        _Crafted(optimizer, canary, np.ones(canary.count, dtype=bool), offsets),
        participation,
    )
    coverage = CoverageWatcher(optimizer, model)
    insertion = _Insertion(
        optimizer,
        crafted,
        canary=canary,
        participation=participation,
        through_clipping=through_clipping,
        recorder=recorder,
        coverage=coverage,
    )
    try:
        yield recorder.gradients
    finally:
        insertion.end()
        coverage.finish()
    insertion.check()


def _require_insertable(optimizer: Any, through_clipping: bool) -> None:
    """Raise an error, before anything is changed, if canaries cannot be inserted in this way."""
    require_optimizer(optimizer)
    if through_clipping and hasattr(optimizer, "accumulate"):
        raise InvalidInput(
            f"optimizer {type(optimizer).__name__} clips without per-example gradients, so a "
            "canary cannot pass through its clipping; use through_clipping=False, which tests the "
            "noise and the accounting"
        )


def _require_memory(needed: int, memory: int) -> None:
    """Raise an error if the canaries' rows exceed the allowed memory."""
    memory = _validate.integer("memory", memory, at_least=1)
    if needed > memory:
        raise InvalidInput(
            f"the canaries' rows would take {needed / 2**20:,.0f} MiB, above memory="
            f"{memory / 2**20:,.0f} MiB; use through_clipping=False, fewer canaries, or more memory"
        )


@final
class _Crafted:
    """The non-zero entries of canaries' gradients before clipping, as three columns.

    Arguments:
        optimizer: The ``DPOptimizer``.
        canary: The canaries.
        selected: Which of them.
        offsets: Place of each trained tensor in the flat vector of the canary.
    """

    numbers: NDArray[np.int64]
    """Number of the canary of each entry, among the selected ones."""

    tensors: NDArray[np.int64]
    """Number of its tensor."""

    values: Array
    """The gradient there."""

    def __init__(
        self, optimizer: Any, canary: Canary, selected: Mask, offsets: NDArray[np.int64]
    ) -> None:
        if isinstance(canary, GradientCanary):  # without making its rows: there may be thousands
            axes = np.asarray(canary.dimensions)[selected]
            self.count, self.numbers = len(axes), np.arange(len(axes))
            self.values = np.full(len(axes), float(canary.norm))
        else:
            rows = np.asarray(canary.rows(selected), dtype=np.float64)
            rows = rows.reshape(-1, canary.parameters)
            self.numbers, axes = np.nonzero(rows)
            self.count, self.values = len(rows), rows[self.numbers, axes]
        sizes = np.array([parameter.numel() for parameter in optimizer.params])
        by_offset = np.argsort(offsets)
        self.tensors = by_offset[np.searchsorted(offsets[by_offset], axes, side="right") - 1]
        self._inside = axes - offsets[self.tensors]
        outside = (self._inside < 0) | (self._inside >= sizes[self.tensors])
        if outside.any():
            raise InvalidInput(
                f"{outside.sum()} of the canaries' {len(axes)} axes lie in parameters that the "
                "optimizer does not train; draw the canary with canary_for(optimizer, model=model)"
            )
        starts = np.cumsum([0, *sizes[:-1]])
        self.coordinates = Coordinates(optimizer, starts[self.tensors] + self._inside)

    def part(self, mask: Mask | None) -> Array:
        """The values, with zeros for the canaries that do not take part; all do if `None`."""
        return self.values if mask is None else self.values * mask[self.numbers]

    def add(self, tensors: list[Any], amounts: Array) -> None:
        """Add an amount at each of these entries, in place."""
        if amounts.any():
            self.coordinates.add(tensors, self.coordinates.moved(amounts))

    def rows_like(self, rows: Tensor, tensor: int) -> Tensor:
        """The canaries' rows of one tensor."""
        crafted = torch.zeros(self.count, rows[:1].numel() or int(np.prod(rows.shape[1:])))
        here = self.tensors == tensor
        crafted[self.numbers[here], self._inside[here]] = torch.as_tensor(
            self.values[here], dtype=crafted.dtype
        )
        return crafted.to(rows).view(self.count, *rows.shape[1:])


# Separates the random numbers of `Participation` from every other use of the run's seed.
_PURPOSE = 0x0C0175


@final
class Participation:
    """Decides which canaries take part in the next step.

    A claim with amplification by sampling is about an example that is *sampled*: a canary in every
    batch would contradict any such claim, also a correct one. So a canary takes part as the claim
    assumes of an example, with random decisions of its own that the adversary does not see.

    Arguments:
        optimizer: The ``DPOptimizer``, whose step hook has the accountant's sampling rate.
        sampling: As in `insert_canary`.
        canaries: Numbers of the canaries that are inserted in this run.
        seed: Seed of the run.
    """

    rate: float
    """Probability that a canary takes part in a step."""

    def __init__(
        self, optimizer: Any, sampling: str | float, *, canaries: NDArray[np.int64], seed: int
    ) -> None:
        self.sampling, self._canaries, self._done = sampling, canaries, 0
        self._random = np.random.default_rng([_PURPOSE, _validate.integer("seed", seed)])
        if not isinstance(sampling, str):
            self.rate = _validate.between("sampling", sampling, 0, 1, closed_high=True)
            return
        _validate.one_of(
            "sampling",
            sampling,
            (FROM_ACCOUNTANT, EVERY_STEP, ONCE_AN_EPOCH, OWN_STEP),
            remedy="or give the probability with which a step takes an example",
        )
        assumed = hook_variables(optimizer).get("sample_rate")
        if sampling in (EVERY_STEP, OWN_STEP):
            self.rate = 1.0
            if sampling == EVERY_STEP and assumed is not None and assumed < 1:
                warnings.warn(
                    f"the canary is in every step, but the accountant uses a sampling rate of "
                    f"{assumed:g}: its claim assumes sampling, so a correct training would seem to "
                    "violate it. Use claim_of(..., every_step=True), or sampling='from accountant'",
                    stacklevel=2,
                )
            return
        if assumed is None:
            raise InvalidInput(
                f"sampling={sampling!r} needs an optimizer whose step hook reports the sampling "
                "rate to an accountant, as PrivacyEngine.make_private attaches it; there is none. "
                "Give the probability, sampling=RATE, or sampling='every step' for a claim without "
                "sampling"
            )
        self.rate = _validate.between(
            "sample_rate of the accountant", assumed, 0, 1, closed_high=True
        )
        if sampling == ONCE_AN_EPOCH:
            self._steps = max(1, round(1 / self.rate))
            self.rate = 1 / self._steps

    def draw(self, batches: int) -> Mask | None:
        """One boolean for each canary, or `None` if all take part.

        Arguments:
            batches: Number of batches of the loader in this step.
        """
        step, count = self._done, len(self._canaries)
        self._done += 1
        if self.sampling == OWN_STEP:
            return np.asarray(self._canaries == step)
        if self.sampling == ONCE_AN_EPOCH:
            if step % self._steps == 0:
                self._turns = self._random.integers(self._steps, size=count)
            return np.asarray(self._turns == step % self._steps)
        rate = self.rate * batches
        return None if rate >= 1 else self._random.random(count) < rate


@final
class _Insertion:
    """One training with its canaries: in which method calls they are inserted, and how."""

    def __init__(
        self,
        optimizer: Any,
        crafted: _Crafted,
        *,
        canary: Any,
        participation: Participation,
        through_clipping: bool,
        recorder: _Recorder,
        coverage: CoverageWatcher,
    ) -> None:
        self._optimizer, self._canary, self._crafted = optimizer, canary, crafted
        self._participation, self._through_clipping = participation, through_clipping
        self._recorder, self._coverage = recorder, coverage
        self._rows: dict[int, Tensor] = {}
        self._appended: dict[int, tuple[Tensor, int]] = {}
        self._pending: tuple[Mask | None] | None = None
        self._inside_step = self._step_is_private = False
        self._chances = self._steps = 0
        self._methods = ReplacedMethods(optimizer)
        self._methods.wrap("step", self._around_step)
        self._methods.wrap("pre_step", self._around_pre_step)
        if not through_clipping:
            name = "accumulate" if hasattr(optimizer, "accumulate") else "clip_and_accumulate"
            self._methods.wrap(name, self._around_summation)
        wrapped = optimizer.original_optimizer
        self._hooks = (
            wrapped.register_step_pre_hook(self._before_update),
            wrapped.register_step_post_hook(lambda *_: coverage.after_step()),
        )

    def end(self) -> None:
        """Restore the optimizer, its hooks, and the rows that are still the latest ones."""
        self._methods.put_back()
        for hook in self._hooks:
            hook.remove()
        for number, parameter in enumerate(self._optimizer.params):
            longer, count = self._appended.get(number, (None, 0))
            if longer is None or latest_rows(parameter) is not longer:
                continue
            genuine: Any = longer[:-count]
            if hasattr(longer, "_processed"):
                genuine._processed = longer._processed
            _replace_latest(parameter, genuine)

    def check(self) -> None:
        """Raise an error if the training never had a place for the canary."""
        if self._steps and not self._chances:
            raise DpauditError(
                f"the training made {self._steps} steps and none had a place for the canary: the "
                "optimizer's step calls neither pre_step nor clip_and_accumulate. Nothing was "
                "audited"
            )

    # The methods that are watched.

    def _around_step(
        self, original: Callable[..., Any], closure: Callable[[], Any] | None = None
    ) -> Any:
        def closure_then_canary() -> Any:
            loss = None if closure is None else closure()
            self._enter_logical_step()
            return loss

        self._inside_step = True
        try:
            if closure is None:
                closure_then_canary()
                return original()
            return original(closure_then_canary)
        finally:
            self._inside_step = False

    def _around_pre_step(self, original: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        if not self._inside_step:
            self._enter_logical_step()
        return original(*arguments, **named)

    def _around_summation(self, original: Callable[..., Any]) -> Any:
        result = original()
        if self._pending is not None:
            (mask,), self._pending = self._pending, None
            self._chances += 1
            self._add_clipped(mask)
        return result

    def _before_update(self, *_: Any) -> None:
        self._coverage.before_step()
        self._steps += 1
        if self._step_is_private or self._inside_step:
            self._step_is_private = False
        else:
            # The wrapped optimizer was called directly: its step neither clips nor adds noise.
            self._chances += 1
            batch = getattr(self._optimizer, "expected_batch_size", None)
            self._add_raw(self._participation.draw(1), batch)
        self._recorder.record()

    # What happens in them.

    def _enter_logical_step(self) -> None:
        queue = getattr(self._optimizer, "_step_skip_queue", ())
        if queue and queue[0]:
            return  # a physical batch that is not the last one of its logical batch
        if not self._steps and not self._step_is_private:
            gradients = [p.grad for p in self._optimizer.params if p.grad is not None]
            report_batch([float(gradient.detach().norm()) for gradient in gradients])
        self._step_is_private = True
        batches = passes(self._optimizer)
        if not self._through_clipping:
            self._pending = (self._participation.draw(batches),)
            return
        parameters = self._optimizer.params
        first = next((rows for p in parameters if (rows := latest_rows(p)) is not None), None)
        if first is None:
            raise InvalidInput(
                "the training has no per-example gradients (grad_sample) to add the canary to; "
                "with ghost clipping use through_clipping=False"
            )
        if hasattr(first, "_processed"):
            return  # rows that were used already and hold the canary: Opacus refuses this itself
        mask = self._participation.draw(batches)
        self._chances += 1
        count = self._crafted.count if mask is None else int(mask.sum())
        if count:
            self._add_raw(mask, len(first) + count)
            self._append_rows(mask, count)

    def _append_rows(self, mask: Mask | None, count: int) -> None:
        """Append the rows of the canaries in ``mask`` to the last batch of every tensor."""
        for number, parameter in enumerate(self._optimizer.params):
            rows = latest_rows(parameter)
            if rows is None:
                continue
            if number not in self._rows:
                self._rows[number] = self._crafted.rows_like(rows, number)
            crafted = self._rows[number]
            if mask is not None:
                crafted = crafted[torch.as_tensor(mask, device=rows.device)]
            longer = torch.cat([rows, crafted])
            _replace_latest(parameter, longer)
            self._appended[number] = (longer, count)

    def _add_raw(self, mask: Mask | None, batch: float | None) -> None:
        """Add to ``grad`` what examples add to the gradient of the loss without privacy.

        Arguments:
            mask: The canaries that take part; all if `None`.
            batch: Number of examples of the mean, if it is known.
        """
        mean = getattr(self._optimizer, "loss_reduction", "mean") == "mean"
        times = 1 / batch if mean and batch else 1.0
        gradients = [parameter.grad for parameter in self._optimizer.params]
        self._crafted.add(gradients, times * self._crafted.part(mask))

    def _add_clipped(self, mask: Mask | None) -> None:
        """Add to ``summed_grad`` what correct clipping leaves of the canaries in ``mask``."""
        optimizer, canary, crafted = self._optimizer, self._canary, self._crafted
        sums = summed_gradients(optimizer)
        if any(total is None for total in sums):
            raise InvalidInput(
                "the optimizer keeps no summed_grad to add a clipped canary to; "
                "use through_clipping=True"
            )
        # At most the claimed clip norm and the one in force for this tensor.
        limits = np.broadcast_to(
            getattr(optimizer, "max_grad_norms", None) or optimizer.max_grad_norm, len(sums)
        )
        lengths = np.minimum(limits[crafted.tensors], min(canary.norm, canary.clip_norm))
        share = 1 / sum_per_average(optimizer)  # FSDP2 keeps averages over processes
        crafted.add(sums, share * lengths / canary.norm * crafted.part(mask))


def _replace_latest(parameter: Any, rows: Tensor) -> None:
    if isinstance(parameter.grad_sample, list):
        parameter.grad_sample = [*parameter.grad_sample[:-1], rows]
    else:
        parameter.grad_sample = rows


@final
class _Recorder:
    """Projects ``grad`` on every canary, inserted or not, just before it is used.

    Arguments:
        optimizer: The ``DPOptimizer``.
        crafted: The gradients of all canaries.
        participation: In which steps canaries take part.
    """

    def __init__(self, optimizer: Any, crafted: _Crafted, participation: Participation) -> None:
        self._optimizer, self._crafted, count = optimizer, crafted, crafted.count
        squares = np.bincount(crafted.numbers, crafted.values**2, minlength=count)
        norms = np.sqrt(np.where(squares > 0, squares, 1.0))
        self._weights = crafted.values / norms[crafted.numbers]
        sigma = float(getattr(optimizer, "noise_multiplier", 0.0) or 0.0)
        self.gradients = PrivateGradients(
            count=count,
            noise_multiplier=sigma or None,
            sampling_rate=participation.rate,
            own_step=participation.sampling == OWN_STEP,
        )

    def record(self) -> None:
        """Add the projections of the current gradient, as a sum in units of the clip norm."""
        optimizer, crafted = self._optimizer, self._crafted
        gradients = [parameter.grad for parameter in optimizer.params]
        products = crafted.coordinates.read(gradients).double().cpu().numpy() * self._weights
        total = np.bincount(crafted.numbers, products, minlength=crafted.count)
        self.gradients.record(total * sum_per_gradient(optimizer) / float(optimizer.max_grad_norm))
