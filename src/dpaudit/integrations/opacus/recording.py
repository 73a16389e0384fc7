"""Record the noisy gradients of an Opacus optimizer, projected on the canaries."""

from __future__ import annotations

from typing import Any, final

import numpy as np
import torch

from dpaudit.integrations.opacus.distributed import processes, whole
from dpaudit.integrations.opacus.layout import Canary, Slot, entries_in, entries_of
from dpaudit.trainings.private_gradients import PrivateGradients


@final
class GradientRecorder:
    """Reads ``grad`` just before the wrapped optimizer uses it.

    Arguments:
        optimizer: The ``DPOptimizer``.
        canary: The canaries, all of which are scored, inserted or not.
        slots: The tensors that the optimizer trains.
        rate: Probability that a canary takes part in a step.
        own_step: Whether every canary takes part in a step of its own only.
    """

    def __init__(
        self,
        optimizer: Any,
        canary: Canary,
        slots: tuple[Slot, ...],
        *,
        rate: float,
        own_step: bool,
    ) -> None:
        self._optimizer = optimizer
        everyone = np.ones(canary.count, dtype=bool)
        self._count, rows, axes, values = entries_of(canary, everyone)
        lengths = np.sqrt(np.bincount(rows, values**2, minlength=self._count))
        self._unit = np.where(lengths > 0, lengths, 1.0)
        self._entries = [
            entries
            for entries in entries_in(slots, rows=rows, axes=axes, values=values)
            if len(entries)
        ]
        sigma = float(getattr(optimizer, "noise_multiplier", 0.0) or 0.0)
        self.gradients = PrivateGradients(
            count=self._count, noise_multiplier=sigma or None, sampling_rate=rate, own_step=own_step
        )

    def record(self) -> None:
        """Add the projections of the current gradient, in units of the clip norm on the sum."""
        total = np.zeros(self._count)
        for entries in self._entries:
            gradient = entries.slot.parameter.grad
            if gradient is None:
                continue
            flat = whole(gradient.detach()).reshape(-1)
            found = (flat[entries.where.to(flat.device)] * entries.values.to(flat)).double().cpu()
            total += np.bincount(entries.rows, torch.Tensor.numpy(found), minlength=self._count)
        self.gradients.record(total / self._unit * self._scale())

    def _scale(self) -> float:
        """From the gradient that the optimizer uses to the sum, in units of C."""
        optimizer = self._optimizer
        scale = 1.0
        if getattr(optimizer, "loss_reduction", "mean") == "mean":
            # Opacus counts the batch of one process.
            scale = float(getattr(optimizer, "expected_batch_size", None) or 1.0)
            scale *= processes(optimizer)
        return scale / float(optimizer.max_grad_norm)
