"""What a layer rule is: a forward pass that keeps notes, and gradients made from those notes."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from dpaudit.engine.gradients import ParameterGradients

Notes = tuple[Tensor, ...]


class LayerRule(ABC):
    """How one kind of layer gives per-example gradients without a gradient for each example.

    A rule is called inside `torch.func.vmap`, so it is written for one run: the first axis of its
    tensors is the example. It reads the layer, and never writes on it.
    """

    @abstractmethod
    def handles(self, layer: torch.nn.Module) -> bool:
        """Whether this rule is right for ``layer``, options and subclass included."""

    @abstractmethod
    def forward(self, layer: torch.nn.Module, inputs: Tensor) -> tuple[Tensor, Notes]:
        """The layer's output, and what `gradients` will need besides."""

    @abstractmethod
    def gradients(
        self, layer: torch.nn.Module, notes: Notes, outputs: Tensor
    ) -> dict[str, ParameterGradients]:
        """Gradients by parameter name, from the notes and the gradient of the output."""


def is_plain(layer: torch.nn.Module, kind: type[torch.nn.Module]) -> bool:
    """Whether ``layer`` computes exactly what ``kind`` does, from parameters of its own.

    A subclass with another ``forward``, or a layer whose weight is computed from something else
    (`torch.nn.utils.parametrize`), is not plain.
    """
    return (
        isinstance(layer, kind)
        and type(layer).forward is kind.forward
        and not any(layer.children())
        and (getattr(layer, "weight", None) is None or "weight" in layer._parameters)
    )
