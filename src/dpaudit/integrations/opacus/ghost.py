"""Check ghost clipping, which clips in the backward pass and never forms per-example gradients."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from dpaudit._arrays import Array
from dpaudit.checks.findings import Finding
from dpaudit.checks.rules import CHECKS
from dpaudit.checks.rules.bounded import RULE as BOUNDED

_ABOUT_CLIPPING = (
    "bounded", "whole-gradient", "small-entries", "huge", "not-finite", "total-change",
)  # fmt: skip
_EXAMPLES = 8
_FACTORS = (1.0, 1e3)
_SLACK = 0.01


def clipped_rows(gradients: Array, clip_norm: float) -> Array:
    """Rows clipped by the definition; rows that are not finite become zero."""
    finite = np.isfinite(gradients).all(axis=1, keepdims=True)
    rows = np.where(finite, gradients, 0.0)
    largest = np.maximum(np.abs(rows).max(axis=1, keepdims=True, initial=0.0), 1e-300)
    norms = np.linalg.norm(rows / largest, axis=1, keepdims=True) * largest
    clipped: Array = rows * np.minimum(1.0, clip_norm / np.maximum(norms, 1e-300))
    return clipped


def ghost_findings(
    findings: Sequence[Finding],
    model: Any,
    criterion: Any,
    examples: tuple[Any, Any] | None,
    *,
    clip_norm: float,
) -> list[Finding]:
    """The findings about an optimizer, with those about clipping taken from the backward pass."""
    about = {CHECKS[name].rule.name for name in _ABOUT_CLIPPING}
    kept = [found for found in findings if found.rule.name not in about]
    if model is None or criterion is None or examples is None:
        reason = (
            "Ghost clipping clips in the backward pass: give model=, criterion= and "
            "examples=(inputs, labels) to check_optimizer to check it."
        )
        return [BOUNDED.unknown(reason), *kept]
    return [ghost_clipping_finding(model, criterion, examples, clip_norm=clip_norm), *kept]


def ghost_clipping_finding(
    model: Any, criterion: Any, examples: tuple[Any, Any], *, clip_norm: float
) -> Finding:
    """Compare the summed gradient of a batch with and without each of a few examples.

    Arguments:
        model: The model that ``make_private`` returned.
        criterion: The loss function that it returned.
        examples: Inputs and labels of a batch. Inputs of floating point are scaled up too, for
            long gradients.
        clip_norm: The claimed clip norm C.
    """
    inputs, labels = examples
    factors = _FACTORS if torch.is_floating_point(inputs) else _FACTORS[:1]
    worst = 0.0
    with _unchanged(model):
        for place in range(min(len(inputs), _EXAMPLES)):
            others = [index for index in range(len(inputs)) if index != place]
            without = _summed(model, criterion, inputs[others], labels[others])
            for factor in factors:
                scaled = inputs.clone()
                scaled[place] = factor * scaled[place]
                change = _summed(model, criterion, scaled, labels) - without
                worst = max(worst, float(change.norm()) / clip_norm)
    seen = {"measured": f"{worst:.4g} C", "allowed": f"at most {1 + _SLACK:.4g} C"}
    if worst <= 1 + _SLACK:
        return BOUNDED.passed(**seen)
    return BOUNDED.broken(
        f"One example changes the clipped sum of a batch by {worst:.4g} C in the backward pass.",
        **seen,
    )


def _summed(model: Any, criterion: Any, inputs: Any, labels: Any) -> Any:
    """The sum of clipped gradients that ghost clipping leaves in ``grad``, flat."""
    model.zero_grad(set_to_none=True)
    if len(inputs) == 0:
        return torch.zeros(sum(p.numel() for p in model.parameters() if p.requires_grad))
    criterion(model(inputs), labels).backward()
    return torch.cat([p.grad.reshape(-1).clone() for p in model.parameters() if p.requires_grad])


@contextlib.contextmanager
def _unchanged(model: Any) -> Iterator[None]:
    """Restore gradients and what a backward pass leaves on the parameters."""
    before = [(p, p.grad, dict(vars(p))) for p in model.parameters()]
    try:
        yield
    finally:
        for parameter, gradient, attributes in before:
            parameter.grad = gradient
            vars(parameter).clear()
            vars(parameter).update(attributes)
