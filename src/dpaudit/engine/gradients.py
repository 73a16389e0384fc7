"""Per-example gradients of one parameter, in the cheapest form.

Clipping needs only their norms and a weighted sum. Neither needs the gradients themselves if each
gradient is a short sum of outer products.

The code is written for one run; `torch.func.vmap` adds the axis of runs.

Paper:
    Goodfellow: Efficient per-example gradient computations (arXiv 1510.01799), equation 4.
    Li, Tramer, Liang, Hashimoto: Large language models can be strong differentially private
    learners (ICLR 2022), section 4: the Gram form for sequences ("ghost clipping").
    Bu, Wang, Zha, Karypis: Differentially private optimization on large model at small cost
    (ICML 2023), algorithm 1: no second backward pass ("book-keeping"), and choosing a form by cost.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import final

import torch
from torch import Tensor

from dpaudit.engine import products

MEMORY_WEIGHT = 60
"""Number of multiplications that take as long as moving one number to memory and back, measured on
several processors. It only selects between two equivalent computations."""


class ParameterGradients(ABC):
    """The gradients of one parameter, one for each example of a batch."""

    @abstractmethod
    def squared_norms(self) -> Tensor:
        """The squared norm of every example's gradient, shape (examples,)."""

    def squares(self) -> Tensor:
        """Numbers whose sum is the squared norm, shape (examples, numbers).

        A subclass may return more than one if this needs fewer kernels on a GPU, where the numbers
        of all parameters are added at once.
        """
        return self.squared_norms().unsqueeze(1)

    @abstractmethod
    def weighted_sum(self, weights: Tensor) -> Tensor:
        """The sum of the gradients with ``weights`` (examples,), shaped like the parameter."""

    @abstractmethod
    def materialise(self) -> Tensor:
        """The gradients themselves, shape (examples, *parameter)."""

    @abstractmethod
    def grouped(self, views: int) -> ParameterGradients:
        """The sums of every ``views`` consecutive examples: the views of one example."""

    def plus(self, other: ParameterGradients) -> ParameterGradients:
        """The sums with the gradients of another use of the parameter."""
        return Explicit(self.materialise() + other.materialise())


@final
class Explicit(ParameterGradients):
    """Gradients that are stored explicitly."""

    def __init__(self, gradients: Tensor) -> None:
        self._gradients = gradients

    def squared_norms(self) -> Tensor:
        return sum_of_squares(self._gradients)

    def squares(self) -> Tensor:
        if self._gradients.ndim == 2:
            return wide(self._gradients).square()
        return super().squares()  # adding all numbers of a matrix later would move more bytes

    def weighted_sum(self, weights: Tensor) -> Tensor:
        gradients, weights = self._gradients, weights.to(self._gradients.dtype)
        if gradients.ndim <= 2:
            # A product with a single row; the compiler fuses a sum with the surrounding loops.
            return (gradients * weights.view(-1, *(1,) * (gradients.ndim - 1))).sum(0)
        return (weights @ gradients.flatten(1)).reshape(gradients.shape[1:])

    def materialise(self) -> Tensor:
        return self._gradients

    def grouped(self, views: int) -> ParameterGradients:
        return Explicit(torch.unflatten(self._gradients, 0, (-1, views)).sum(1))


@final
class OuterProducts(ParameterGradients):
    r"""Gradients of a matrix that multiplies ``inputs``: :math:`G_b = \sum_l g_{bl} a_{bl}^\top`.

    Arguments:
        outputs: :math:`g`, gradients of the products, shape (examples, places, rows).
        inputs: :math:`a`, the multiplied values, shape (examples, places, columns). Columns
            beyond those of the parameter are zeros and do not change norms.
        shape: Shape of the parameter, with rows times columns numbers.
    """

    def __init__(self, outputs: Tensor, inputs: Tensor, shape: torch.Size) -> None:
        self.outputs, self.inputs, self._shape = outputs, inputs, shape
        self._explicit: Explicit | None = None

    def squared_norms(self) -> Tensor:
        if not self._gram_is_cheaper():
            self._explicit = Explicit(self._products())
            return self._explicit.squared_norms()
        if self.outputs.shape[1] == 1:
            return sum_of_squares(self.outputs) * sum_of_squares(self.inputs)
        return self._gram_products().sum((1, 2))

    def squares(self) -> Tensor:
        if self._gram_is_cheaper() and self.outputs.shape[1] > 1:
            return self._gram_products().sum(2)
        return super().squares()

    def weighted_sum(self, weights: Tensor) -> Tensor:
        if self._explicit is not None:
            summed = self._explicit.weighted_sum(weights)
        else:
            outputs, inputs = self.outputs, self.inputs
            factors = weights.to(outputs.dtype)[:, None, None]
            if products.on_gpu(outputs) and inputs.shape[2] < outputs.shape[2]:
                inputs = inputs * factors  # fewer bytes to move
            else:
                outputs = outputs * factors
            summed = outputs.flatten(0, 1).transpose(0, 1) @ inputs.flatten(0, 1)
        return self._shaped(summed)

    def materialise(self) -> Tensor:
        return self._shaped(self._products())

    def grouped(self, views: int) -> ParameterGradients:
        return OuterProducts(merged(self.outputs, views), merged(self.inputs, views), self._shape)

    def plus(self, other: ParameterGradients) -> ParameterGradients:
        if not isinstance(other, OuterProducts):
            return super().plus(other) if isinstance(other, Explicit) else other.plus(self)
        outputs = torch.cat([self.outputs, other.outputs], dim=1)
        return OuterProducts(outputs, torch.cat([self.inputs, other.inputs], dim=1), self._shape)

    def _gram_products(self) -> Tensor:
        gram_outputs = torch.bmm(self.outputs, self.outputs.transpose(1, 2))
        gram_inputs = torch.bmm(self.inputs, self.inputs.transpose(1, 2))
        return wide(gram_outputs) * wide(gram_inputs)

    def _products(self) -> Tensor:
        return products.per_example_product(self.outputs.transpose(1, 2), self.inputs)

    def _shaped(self, matrix: Tensor) -> Tensor:
        columns = self._shape.numel() // matrix.shape[-2]
        return matrix[..., :columns].reshape(*matrix.shape[:-2], *self._shape)

    def _gram_is_cheaper(self) -> bool:
        places, rows = self.outputs.shape[1:]
        columns = self.inputs.shape[2]
        gram = places**2 * (rows + columns + 2 * MEMORY_WEIGHT)
        return places == 1 or gram < rows * columns * MEMORY_WEIGHT


def merged(values: Tensor, views: int) -> Tensor:
    """(examples times views, places, …) to (examples, views times places, …)."""
    return torch.unflatten(values, 0, (-1, views)).flatten(1, 2)


def sum_of_squares(values: Tensor) -> Tensor:
    """The sum of squares over all axes but the first, in float32 at least."""
    squares = wide(values).square()
    return squares.flatten(1).sum(1) if squares.ndim > 1 else squares


def wide(values: Tensor) -> Tensor:
    """float32 for half precisions, so that a sum of squares keeps its small terms."""
    return values.float() if values.dtype in (torch.bfloat16, torch.float16) else values
