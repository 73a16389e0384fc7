"""Whether an optimizer clips row by row, so that a canary may be clipped in a batch of its own."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

# Opacus divides by the norm plus this.
_STABILISER = 1e-6
_RELATIVE, _SHARE_OF_CLIP = 1e-3, 1e-4


def sums_by_definition(optimizer: Any) -> list[Tensor] | None:
    r"""The correct sums after the next summation, :math:`\sum_i g_i \min(1, C/|g_i|)` each.

    With clipping per layer the norm is that of each tensor. `None` if there are no plain
    per-example gradients.
    """
    rows: list[Any] = [getattr(parameter, "grad_sample", None) for parameter in optimizer.params]
    if not all(isinstance(some, Tensor) for some in rows):
        return None
    norms = [some.reshape(len(some), -1).float().norm(dim=1) for some in rows]
    limits = getattr(optimizer, "max_grad_norms", None)
    if limits is None:
        limits = [float(optimizer.max_grad_norm)] * len(rows)
        norms = [torch.stack(norms).norm(dim=0)] * len(rows)
    sums = []
    for parameter, some, norm, limit in zip(optimizer.params, rows, norms, limits, strict=True):
        factors = (limit / (norm + _STABILISER)).clamp(max=1.0).to(parameter.dtype)
        total = torch.einsum("i,i...", factors, some.to(parameter.dtype))
        before = getattr(parameter, "summed_grad", None)
        sums.append(total if before is None else total + before)
    return sums


def are_the_sums(optimizer: Any, expected: list[Tensor]) -> bool:
    """Whether the optimizer's sums equal ``expected`` up to rounding."""
    tolerance = _SHARE_OF_CLIP * float(optimizer.max_grad_norm)
    for parameter, total in zip(optimizer.params, expected, strict=True):
        found = getattr(parameter, "summed_grad", None)
        if found is None or found.shape != total.shape:
            return False
        if not torch.allclose(found, total, rtol=_RELATIVE, atol=tolerance):
            return False
    return True
