"""The base class of layer rules: a forward pass with notes, and gradients from these notes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Protocol

import torch
from torch import Tensor

from dpaudit.engine.gradients import ParameterGradients

Notes = tuple[Tensor, ...]


class Tap(Protocol):
    """Adds a zero to a value and keeps notes; the rule later gets the value's gradient."""

    def __call__(self, values: Tensor, notes: Notes, part: str = "") -> Tensor:
        """The values, unchanged.

        Arguments:
            values: The value to differentiate; its first axis is the example.
            notes: Tensors that `LayerRule.gradients` needs; their first axis is the example.
            part: Distinguishes the taps of a rule that has several.
        """


class LayerRule(ABC):
    """Norms and sums of one kind of layer's per-example gradients, without storing each gradient.

    A rule is written for one run and called inside `torch.func.vmap`: the first axis of its tensors
    is the example. It never changes the layer. Check yours with `dpaudit.testing.check_layer_rule`.
    """

    @abstractmethod
    def handles(self, layer: torch.nn.Module) -> bool:
        """Whether this rule is correct for ``layer`` with its options and its exact class."""

    @abstractmethod
    def forward(self, layer: torch.nn.Module, tap: Tap, *args: Any, **kwargs: Any) -> Any:
        """The layer's output, computed with one or several taps."""

    @abstractmethod
    def gradients(
        self, layer: torch.nn.Module, part: str, notes: Notes, outputs: Tensor
    ) -> dict[str, ParameterGradients]:
        """Gradients by parameter name, from the notes and the gradient of a tapped value."""


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
