"""What dpaudit reads of a ``DPOptimizer``: its tensors, its sums, its accountant, its methods.

Only attributes that Opacus' optimizers and forks of them share are used, and Opacus itself is not
imported. The life of a step, by the attributes of every trained tensor:

- ``grad_sample``: after the backward pass, one gradient per example; a list after several passes.
- ``summed_grad``: after ``clip_and_accumulate`` (ghost: ``accumulate``), the clipped sum.
- ``grad``: after ``add_noise`` and ``scale_grad``, the noisy sum, divided for a mean loss.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from types import MethodType
from typing import Any, Protocol, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from dpaudit.errors import InvalidInput
from dpaudit.trainings.run import report_change_between_steps, report_uncovered

Mask = NDArray[np.bool_]


def offsets_of(optimizer: Any, model: nn.Module | None) -> tuple[NDArray[np.int64], int]:
    """Place of each trained tensor in the flat vector, and the length of this vector.

    The flat vector holds the trainable parameters, as `dpaudit.audit` reads them from a
    module: in the order of ``model.parameters()`` if a model is given, else in the optimizer's own
    order, which is the same for the usual ``SGD(model.parameters())``.
    """
    trained = list(optimizer.params)
    everything = [p for p in (trained if model is None else model.parameters()) if p.requires_grad]
    ends = np.cumsum([0, *(parameter.numel() for parameter in everything)])
    offsets = {id(parameter): start for parameter, start in zip(everything, ends[:-1], strict=True)}
    if any(id(parameter) not in offsets for parameter in trained):
        raise InvalidInput(
            f"model must hold every parameter that the optimizer trains; this "
            f"{type(model).__name__} does not"
        )
    return np.array([offsets[id(parameter)] for parameter in trained]), int(ends[-1])


def named_sizes(optimizer: Any, model: nn.Module | None) -> dict[str, int]:
    """Names and sizes of the tensors that the optimizer trains, in its order."""
    names = {id(p): name for name, p in model.named_parameters()} if model is not None else {}
    return {
        names.get(id(p), f"tensor {place} {tuple(p.shape)}").removeprefix("_module."): p.numel()
        for place, p in enumerate(optimizer.params)
    }


def require_optimizer(optimizer: Any, *needed: str, otherwise: str = "") -> None:
    """Raise an error unless canaries can be inserted into the steps of this optimizer.

    Arguments:
        optimizer: What should be a ``DPOptimizer``.
        needed: Attributes that are needed beside those of every ``DPOptimizer``.
        otherwise: What to do with another optimizer, as a sentence.
    """
    name = type(optimizer).__name__
    attributes = ("step", "params", "original_optimizer", "max_grad_norm", *needed)
    missing = [attribute for attribute in attributes if not hasattr(optimizer, attribute)]
    if missing:
        raise InvalidInput(
            f"optimizer must be a DPOptimizer of Opacus, as make_private returns it; got {name}, "
            f"which has no {missing[0]}{otherwise}"
        )
    if hasattr(optimizer, "_ddp_per_layer_hook"):
        raise InvalidInput(
            f"optimizer {name} clips and adds noise in the backward pass, before a canary could be "
            "added; use SimpleDistributedPerLayerOptimizer, which make_private returns for "
            "clipping='per_layer'"
        )


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


def latest_rows(parameter: Any) -> Tensor | None:
    """The per-example gradients of the last backward pass."""
    rows: Tensor | list[Tensor] | None = getattr(parameter, "grad_sample", None)
    if isinstance(rows, list):
        return rows[-1] if rows else None
    return rows


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
        self._optimizer = optimizer
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
        if self._steps == 2 and not _equal(self._own_sizes, sizes_of(self._optimizer)):
            report_change_between_steps()

    def after_step(self) -> None:
        """Remember the parameters after the first step."""
        if self._steps == 1:
            self._own_sizes = sizes_of(self._optimizer)

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


def sizes_of(optimizer: Any) -> list[float]:
    """The norms of the parameters that an optimizer trains, to see whether they have changed."""
    return [_size(p) for p in optimizer.params if type(p) is nn.Parameter]


def _equal(sizes: Iterable[float], others: Iterable[float]) -> bool:
    return np.array_equal([*sizes], [*others], equal_nan=True)


def _size(parameter: nn.Parameter) -> float:
    return float(parameter.detach().double().norm())
