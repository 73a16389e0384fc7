"""Which parameters of a model the private optimizer trains, and which it leaves to others."""

from __future__ import annotations

from typing import Any

from torch import nn

from dpaudit.checks.findings import Finding
from dpaudit.checks.rules.coverage import RULE


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
