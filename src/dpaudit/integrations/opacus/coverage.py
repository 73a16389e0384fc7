"""Which parameters of a model the private optimizer trains, and which it leaves to others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, final

import numpy as np
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook

from dpaudit.checks.findings import Finding
from dpaudit.checks.rules.coverage import RULE
from dpaudit.trainings.coverage import report_change_between_steps, report_uncovered


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


def named_sizes(optimizer: Any, model: nn.Module | None) -> dict[str, int]:
    """Names and sizes of the tensors that the optimizer trains, in its order."""
    names = {id(p): name for name, p in model.named_parameters()} if model is not None else {}
    return {
        names.get(id(p), f"tensor {place} {tuple(p.shape)}").removeprefix("_module."): p.numel()
        for place, p in enumerate(optimizer.params)
    }


def coverage_finding(optimizer: Any, model: nn.Module) -> Finding:
    """Whether all trainable parameters are trained privately, as a finding of a check."""
    names = uncovered_parameters(optimizer, model)
    if not names:
        return RULE.passed(measured="all", allowed="all")
    return RULE.broken(
        f"The private optimizer does not train {', '.join(names)}: freeze these parameters, or "
        "give them to it.",
        measured=f"{len(names)} outside",
        allowed="none",
    )


@final
class CoverageWatcher:
    """Reports parameters that a training changes although the private optimizer does not.

    The optimizer's own parameters are compared after its first step and before its second. Modules
    are seen when they are called, until the first step; what they hold is compared at the end. A
    module that is only evaluated, such as a public feature extractor, does not change.

    Arguments:
        optimizer: The ``DPOptimizer``.
        model: The model, if it is known; modules that are called are added to it.
    """

    def __init__(self, optimizer: Any, model: nn.Module | None) -> None:
        self._private = {id(parameter) for parameter in optimizer.params}
        self._seen: dict[int, tuple[str, nn.Parameter, float]] = {}
        self._inside: set[int] = set()
        self._own = [one for one in optimizer.params if type(one) is nn.Parameter]
        self._steps = 0
        self._own_sizes: list[float] = []
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
            self._own_sizes = [_size(one) for one in self._own]

    def finish(self) -> None:
        """Report the parameters that changed."""
        self._hook.remove()
        changed = [name for name, one, size in self._seen.values() if _size(one) != size]
        report_uncovered(changed)

    def _add(self, module: nn.Module) -> None:
        if id(module) in self._inside:
            return
        self._inside.update(map(id, module.modules()))
        for name, parameter in module.named_parameters():
            known = id(parameter) in self._private or id(parameter) in self._seen
            # Inside functorch and ExpandedWeights, modules hold tensors of other types.
            if type(parameter) is nn.Parameter and parameter.requires_grad and not known:
                shown = f"{name.removeprefix('_module.')} of {type(module).__name__}"
                self._seen[id(parameter)] = shown, parameter, _size(parameter)


def _equal(sizes: Iterable[float], others: Iterable[float]) -> bool:
    return np.array_equal([*sizes], [*others], equal_nan=True)


def _size(parameter: nn.Parameter) -> float:
    return float(parameter.detach().double().norm())
