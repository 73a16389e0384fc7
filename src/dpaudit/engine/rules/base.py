"""The base class of layer rules: a forward pass with notes, and gradients from these notes."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from dpaudit.engine.gradients import ParameterGradients

Notes = tuple[Tensor, ...]


class LayerRule(ABC):
    """Norms and sums of one kind of layer's per-example gradients, without storing each gradient.

    A rule is written for one run and called inside `torch.func.vmap`: the first axis of its tensors
    is the example. It never changes the layer. Check yours with `dpaudit.testing.check_layer_rule`.
    """

    @abstractmethod
    def handles(self, layer: torch.nn.Module) -> bool:
        """Whether this rule is correct for ``layer`` with its options and its exact class."""

    @abstractmethod
    def forward(self, layer: torch.nn.Module, inputs: Tensor) -> tuple[Tensor, Notes]:
        """The layer's output, and the notes that `gradients` needs."""

    @abstractmethod
    def gradients(
        self, layer: torch.nn.Module, notes: Notes, outputs: Tensor
    ) -> dict[str, ParameterGradients]:
        """Gradients by parameter name, from the notes and the gradient of the output."""


def is_plain(layer: torch.nn.Module, kind: type[torch.nn.Module]) -> bool:
    """Whether ``layer`` computes exactly what ``kind`` does, with its own parameters.

    False for a subclass with another ``forward``, and for a layer whose weight is computed from
    other parameters (`torch.nn.utils.parametrize`).
    """
    return (
        isinstance(layer, kind)
        and type(layer).forward is kind.forward
        and not any(layer.children())
        and (getattr(layer, "weight", None) is None or "weight" in layer._parameters)
    )
