"""What dpaudit reads of a ``DPOptimizer``: its tensors, its sums, its accountant, its methods.

Only attributes that Opacus' optimizers and forks of them share are used, and Opacus itself is not
imported. The life of a step, by the attributes of every trained tensor:

- ``grad_sample``: after the backward pass, one gradient per example; a list after several passes.
- ``summed_grad``: after ``clip_and_accumulate`` (ghost: ``accumulate``), the clipped sum.
- ``grad``: after ``add_noise`` and ``scale_grad``, the noisy sum, divided for a mean loss.

Several processes: with data parallelism (``DistributedDPOptimizer`` and its variants) every process
clips the gradients of its own batch, and the sums are added up. With FSDP2 the sums are tensors of
which every process holds a part (``DTensor``), and they are averages over the processes.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import MethodType
from typing import Any, Protocol, final

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from dpaudit._arrays import Array
from dpaudit.errors import InvalidInput
from dpaudit.trainings.canary import GradientCanary
from dpaudit.trainings.run import report_change_between_steps, report_uncovered

Mask = NDArray[np.bool_]


# Tensors, and the axes of the flat parameter vector in them.


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Slot:
    """One trained tensor: its number in the optimizer, and its offset in the flat vector."""

    parameter: Any
    index: int
    offset: int


def trained_slots(optimizer: Any, model: nn.Module | None = None) -> tuple[tuple[Slot, ...], int]:
    """The tensors that the optimizer trains, and the length of the whole flat vector.

    The flat vector holds the trainable parameters, as `dpaudit.audit` reads them from a
    module: in the order of ``model.parameters()`` if a model is given, else in the optimizer's own
    order, which is the same for the usual ``SGD(model.parameters())``.
    """
    trained = list(optimizer.params)
    if model is None:
        everything = trained
    else:
        everything = [parameter for parameter in model.parameters() if parameter.requires_grad]
        of_model = {id(parameter) for parameter in everything}
        if any(id(parameter) not in of_model for parameter in trained):
            raise InvalidInput(
                f"model must hold every parameter that the optimizer trains; this "
                f"{type(model).__name__} does not"
            )
    offsets, total = {}, 0
    for parameter in everything:
        offsets[id(parameter)] = total
        total += parameter.numel()
    slots = (
        Slot(parameter=parameter, index=index, offset=offsets[id(parameter)])
        for index, parameter in enumerate(trained)
    )
    return tuple(slots), total


def named_sizes(optimizer: Any, model: nn.Module | None) -> dict[str, int]:
    """Names and sizes of the tensors that the optimizer trains, in its order."""
    names = {id(p): name for name, p in model.named_parameters()} if model is not None else {}
    return {
        names.get(id(p), f"tensor {place} {tuple(p.shape)}").removeprefix("_module."): p.numel()
        for place, p in enumerate(optimizer.params)
    }


class Canary(Protocol):
    """Crafted gradients of any shape: a `GradientCanary`, or a user's class with these members."""

    @property
    def parameters(self) -> int:
        """Length of the flat parameter vector."""

    @property
    def count(self) -> int:
        """Number of canaries."""

    def rows(self, inserted: ArrayLike) -> ArrayLike:
        """The gradients before clipping of the inserted canaries, one row each."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Entries:
    """The non-zero entries of canaries' gradients in one tensor.

    Arguments:
        slot: The tensor.
        rows: Number of the canary of each entry, among those that were selected.
        where: Index of each entry in the flattened tensor.
        values: Value of each entry before clipping.
    """

    slot: Slot
    rows: NDArray[np.int64]
    where: Tensor
    values: Tensor

    def __len__(self) -> int:
        return len(self.rows)

    def taking_part(self, mask: Mask | None) -> Tensor:
        """The values, with zeros for the canaries that do not take part; all do if `None`."""
        if mask is None:
            return self.values
        return self.values * torch.as_tensor(mask[self.rows], device=self.values.device)

    def read(self, tensor: Tensor) -> Array:
        """The numbers of a tensor of this shape at the entries, sharded or not, on the CPU."""
        flat = whole(tensor.detach()).reshape(-1)
        return np.asarray(flat[self.where.to(flat.device)].double().cpu())


def entries_of(
    slots: tuple[Slot, ...], canary: Canary, selected: Mask
) -> tuple[tuple[Entries, ...], int]:
    """The entries of the selected canaries, tensor by tensor, and the number of their rows."""
    if isinstance(canary, GradientCanary):  # without making its rows: there may be thousands
        axes = canary.dimensions[selected]
        count, numbers, values = len(axes), np.arange(len(axes)), np.full(len(axes), canary.norm)
    else:
        rows = np.asarray(canary.rows(selected), dtype=np.float64).reshape(-1, canary.parameters)
        numbers, axes = np.nonzero(rows)
        count, values = len(rows), rows[numbers, axes]
    entries = []
    for slot in slots:
        here = (axes >= slot.offset) & (axes < slot.offset + slot.parameter.numel())
        device = slot.parameter.device
        entries.append(
            Entries(
                slot=slot,
                rows=numbers[here],
                where=torch.as_tensor(axes[here] - slot.offset, device=device),
                values=torch.as_tensor(values[here], device=device).to(slot.parameter.dtype),
            )
        )
    placed = sum(map(len, entries))
    if placed != len(axes):
        raise InvalidInput(
            f"{len(axes) - placed} of the canaries' {len(axes)} axes lie in parameters that the "
            "optimizer does not train; draw the canary with canary_for(optimizer, model=model)"
        )
    return tuple(entries), count


def latest_rows(parameter: Any) -> Tensor | None:
    """The per-example gradients of the last backward pass."""
    rows: Tensor | list[Tensor] | None = getattr(parameter, "grad_sample", None)
    if isinstance(rows, list):
        return rows[-1] if rows else None
    return rows


def passes(parameter: Any) -> int:
    """Number of backward passes of the next step."""
    rows = getattr(parameter, "grad_sample", None)
    return len(rows) if isinstance(rows, list) else 1


# Sums, in one process or in several.


def processes(optimizer: Any) -> int:
    """Number of processes that train together."""
    return int(getattr(optimizer, "world_size", 1))


def is_sharded(optimizer: Any) -> bool:
    """Whether every process holds a part of each sum (FSDP2)."""
    return hasattr(optimizer, "grad_state")


def summed_gradient(optimizer: Any, parameter: Any) -> Tensor | None:
    """The sum of clipped gradients to which the optimizer adds noise."""
    if is_sharded(optimizer):
        total: Tensor | None = optimizer.grad_state[parameter]["summed_grad"]
        return total
    return getattr(parameter, "summed_grad", None)


def share_of_an_example(optimizer: Any) -> float:
    """What an example adds to the sum, in units of its clipped gradient: FSDP2 averages."""
    return 1.0 / processes(optimizer) if is_sharded(optimizer) else 1.0


def sum_per_gradient(optimizer: Any) -> float:
    """By what the noisy ``grad`` is multiplied to be the noisy sum, in units of C."""
    scale = 1.0
    if getattr(optimizer, "loss_reduction", "mean") == "mean":
        # Opacus counts the batch of one process.
        scale = float(getattr(optimizer, "expected_batch_size", None) or 1.0)
        scale *= processes(optimizer)
    return scale / float(optimizer.max_grad_norm)


def whole(tensor: Tensor) -> Tensor:
    """A tensor with the parts of all processes. Every process must call it."""
    full = getattr(tensor, "full_tensor", None)
    return tensor if full is None else full()


def add_at(tensor: Any, where: Tensor, values: Tensor, *, times: float = 1.0) -> None:
    """Add ``times * values`` in place, at the given indices of the flattened tensor."""
    if hasattr(tensor, "placements"):  # sharded: every process adds its own part
        from torch.distributed.tensor import distribute_tensor

        crafted = torch.zeros(tensor.shape, dtype=tensor.dtype, device=tensor.device)
        add_at(crafted, where, values, times=times)
        # src_data_rank=None: every process has the same values, so nothing is sent.
        mesh, placements = tensor.device_mesh, tensor.placements
        tensor.add_(distribute_tensor(crafted, mesh, placements, src_data_rank=None))
        return
    if values.dtype != tensor.dtype or values.device != tensor.device:
        values, where = values.to(tensor), where.to(tensor.device)
    if tensor.is_contiguous():
        tensor.view(-1).index_add_(0, where, values, alpha=times)
    else:
        places = torch.unravel_index(where, tensor.shape)
        tensor.index_put_(places, times * values, accumulate=True)


# The accountant behind the step hook.


def hook_variables(optimizer: Any) -> dict[str, Any]:
    """Variables of the optimizer's step hook: the accountant (``self``) and ``sample_rate``."""
    # Opacus keeps both in a closure only; calling the hook would count a step.
    hook = getattr(optimizer, "step_hook", None)
    if not inspect.isfunction(hook):
        return {}
    return dict(inspect.getclosurevars(hook).nonlocals)


# Methods, replaced for a while.

_NOTHING = object()


@final
class ReplacedMethods:
    """Replaces methods of ``target`` until `put_back`; its class and other objects do not change.

    A wrapper around a replaced method (a learning-rate scheduler makes one) keeps working: after
    `put_back` it calls the original method.

    Arguments:
        target: The object whose methods are replaced.

    Example:
        >>> class Door:
        ...     def open(self):
        ...         return "open"
        >>> door = Door()
        >>> replaced = ReplacedMethods(door)
        >>> replaced.wrap("open", lambda original: original().upper())
        >>> door.open()
        'OPEN'
        >>> replaced.put_back()
        >>> door.open(), vars(door)
        ('open', {})
    """

    def __init__(self, target: Any) -> None:
        self._target = target
        self._active = True
        self._before: dict[str, tuple[object, object]] = {}

    def wrap(self, name: str, around: Callable[..., Any]) -> None:
        """Call ``around(original, *arguments)`` in place of the method, if it exists."""
        original = getattr(self._target, name, None)
        if original is None:
            return

        # `wraps` also copies the attributes that schedulers look for on `step`.
        @functools.wraps(original)
        def replacement(_: Any, *arguments: Any, **named: Any) -> Any:
            if not self._active:
                return original(*arguments, **named)
            return around(original, *arguments, **named)

        method = MethodType(replacement, self._target)
        self._before[name] = (vars(self._target).get(name, _NOTHING), method)
        vars(self._target)[name] = method

    def put_back(self) -> None:
        """Restore the object."""
        self._active = False
        own = vars(self._target)
        for name, (before, method) in self._before.items():
            if own.get(name) is not method:
                continue
            if before is _NOTHING:
                del own[name]
            else:
                own[name] = before


# Parameters that the private optimizer does not train.


def uncovered_parameters(optimizer: Any, model: nn.Module) -> tuple[str, ...]:
    """Names of trainable parameters that the private optimizer does not train.

    If another optimizer trains them, they have neither clipping nor noise, and an audit of the
    private optimizer says nothing about them.

    Arguments:
        optimizer: A ``DPOptimizer``.
        model: The model, wrapped by Opacus or not.
    """
    trained = {id(parameter) for parameter in optimizer.params}
    return tuple(
        name.removeprefix("_module.")
        for name, parameter in model.named_parameters()
        if parameter.requires_grad and id(parameter) not in trained
    )


@final
class CoverageWatcher:
    """Reports parameters that a training changes although the private optimizer does not.

    The optimizer's own parameters are compared after its first step and before its second. Modules
    are noticed when they are called, until the first step; what they hold is compared at the end. A
    module that is only evaluated, such as a public feature extractor, does not change.

    Arguments:
        optimizer: The ``DPOptimizer``.
        model: The model, if it is known; modules that are called are added to it.
    """

    def __init__(self, optimizer: Any, model: nn.Module | None) -> None:
        self._private = {id(parameter) for parameter in optimizer.params}
        self._own = [p for p in optimizer.params if type(p) is nn.Parameter]
        self._own_sizes: list[float] = []
        self._others: dict[int, tuple[str, nn.Parameter, float]] = {}
        self._modules: set[int] = set()
        self._steps = 0
        if model is not None:
            self._add(model)
        self._hook = register_module_forward_pre_hook(lambda module, _: self._add(module))

    def before_step(self) -> None:
        """Stop looking for modules; in the second step see whether parameters have changed."""
        self._hook.remove()
        self._steps += 1
        if self._steps == 2 and not _equal(self._own_sizes, map(_size, self._own)):
            report_change_between_steps()

    def after_step(self) -> None:
        """Remember the parameters after the first step."""
        if self._steps == 1:
            self._own_sizes = [_size(parameter) for parameter in self._own]

    def finish(self) -> None:
        """Report the parameters that changed."""
        self._hook.remove()
        report_uncovered([name for name, p, size in self._others.values() if _size(p) != size])

    def _add(self, module: nn.Module) -> None:
        if id(module) in self._modules:
            return
        self._modules.update(map(id, module.modules()))
        for name, parameter in module.named_parameters():
            listed = id(parameter) in self._private or id(parameter) in self._others
            # Inside functorch and ExpandedWeights, modules hold tensors of other types.
            if type(parameter) is nn.Parameter and parameter.requires_grad and not listed:
                shown = f"{name.removeprefix('_module.')} of {type(module).__name__}"
                self._others[id(parameter)] = shown, parameter, _size(parameter)


def _equal(sizes: Iterable[float], others: Iterable[float]) -> bool:
    return np.array_equal([*sizes], [*others], equal_nan=True)


def _size(parameter: nn.Parameter) -> float:
    return float(parameter.detach().double().norm())
