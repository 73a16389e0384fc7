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

import functools
from abc import ABC, abstractmethod
from typing import Any, cast, final

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


@final
class Explicit(ParameterGradients):
    """Gradients that are stored explicitly."""

    def __init__(self, gradients: Tensor) -> None:
        self._gradients = gradients

    def squared_norms(self) -> Tensor:
        return sum_of_squares(self._gradients)

    def squares(self) -> Tensor:
        if self._gradients.ndim == 2:
            return _wide(self._gradients).square()
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
        self._outputs, self._inputs, self._shape = outputs, inputs, shape
        self._explicit: Explicit | None = None

    def squared_norms(self) -> Tensor:
        if not self._gram_is_cheaper():
            self._explicit = Explicit(self._products())
            return self._explicit.squared_norms()
        if self._outputs.shape[1] == 1:
            return sum_of_squares(self._outputs) * sum_of_squares(self._inputs)
        return self._gram_products().sum((1, 2))

    def squares(self) -> Tensor:
        if self._gram_is_cheaper() and self._outputs.shape[1] > 1:
            return self._gram_products().sum(2)
        return super().squares()

    def weighted_sum(self, weights: Tensor) -> Tensor:
        if self._explicit is not None:
            summed = self._explicit.weighted_sum(weights)
        else:
            outputs, inputs = self._outputs, self._inputs
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
        return OuterProducts(
            _merged(self._outputs, views), _merged(self._inputs, views), self._shape
        )

    def joined(self, other: OuterProducts) -> OuterProducts:
        """The sum of both: the products of the one and of the other."""
        outputs = torch.cat([self._outputs, other._outputs], dim=1)
        return OuterProducts(outputs, torch.cat([self._inputs, other._inputs], dim=1), self._shape)

    def _gram_products(self) -> Tensor:
        gram_outputs = torch.bmm(self._outputs, self._outputs.transpose(1, 2))
        gram_inputs = torch.bmm(self._inputs, self._inputs.transpose(1, 2))
        return _wide(gram_outputs) * _wide(gram_inputs)

    def _products(self) -> Tensor:
        return products.per_example_product(self._outputs.transpose(1, 2), self._inputs)

    def _shaped(self, matrix: Tensor) -> Tensor:
        columns = self._shape.numel() // matrix.shape[-2]
        return matrix[..., :columns].reshape(*matrix.shape[:-2], *self._shape)

    def _gram_is_cheaper(self) -> bool:
        places, rows = self._outputs.shape[1:]
        columns = self._inputs.shape[2]
        gram = places**2 * (rows + columns + 2 * MEMORY_WEIGHT)
        return places == 1 or gram < rows * columns * MEMORY_WEIGHT


@final
class EmbeddedRows(ParameterGradients):
    r"""Gradients of a table by its looked-up rows: row i is the sum of :math:`g_{bl}` for that row.

    Arguments:
        outputs: :math:`g`, shape (examples, places, columns).
        rows: The row that each place looked up, shape (examples, places).
        shape: Shape of the table.
    """

    def __init__(self, outputs: Tensor, rows: Tensor, shape: torch.Size) -> None:
        self._outputs, self._rows, self._shape = outputs, rows, shape

    def squared_norms(self) -> Tensor:
        gram = _wide(torch.bmm(self._outputs, self._outputs.transpose(1, 2)))
        same_row = self._rows.unsqueeze(1) == self._rows.unsqueeze(2)
        return (gram * same_row).sum((1, 2))

    def weighted_sum(self, weights: Tensor) -> Tensor:
        scaled = self._outputs * weights.to(self._outputs.dtype)[:, None, None]
        return sum_rows(self._rows.flatten(), scaled.flatten(0, 1), self._shape[0])

    def materialise(self) -> Tensor:
        examples = len(self._outputs)
        table = torch.zeros(
            (examples, *self._shape), dtype=self._outputs.dtype, device=self._outputs.device
        )
        places = self._rows.unsqueeze(-1).expand_as(self._outputs)
        return table.scatter_add(1, places, self._outputs)

    def grouped(self, views: int) -> ParameterGradients:
        return EmbeddedRows(_merged(self._outputs, views), _merged(self._rows, views), self._shape)

    def joined(self, other: EmbeddedRows) -> EmbeddedRows:
        """The sum of both: the looked-up rows of the one and of the other."""
        outputs = torch.cat([self._outputs, other._outputs], dim=1)
        return EmbeddedRows(outputs, torch.cat([self._rows, other._rows], dim=1), self._shape)


@final
class TiedTable(ParameterGradients):
    r"""Gradients of a table that is looked up and also multiplied, as in tied language models.

    .. math:: \|E + G\|^2 = \|E\|^2 + \|G\|^2 + 2 \sum_{l, m} g_{bm, i_l} \, a_{bm}^\top e_{bl}
    """

    def __init__(self, looked_up: EmbeddedRows, multiplied: OuterProducts) -> None:
        self._looked_up, self._multiplied = looked_up, multiplied

    def squared_norms(self) -> Tensor:
        rows, outputs = self._looked_up._rows, self._looked_up._outputs
        weights = self._multiplied._outputs  # (examples, places, table rows)
        inputs = self._multiplied._inputs[..., : outputs.shape[2]]
        places = rows.unsqueeze(1).expand(-1, weights.shape[1], -1)
        both = _wide(weights.gather(2, places)) * _wide(inputs @ outputs.transpose(1, 2))
        own = self._looked_up.squared_norms() + self._multiplied.squared_norms()
        return (own + 2 * both.sum((1, 2))).clamp(min=0)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        return self._looked_up.weighted_sum(weights) + self._multiplied.weighted_sum(weights)

    def materialise(self) -> Tensor:
        return self._looked_up.materialise() + self._multiplied.materialise()

    def grouped(self, views: int) -> ParameterGradients:
        return add([self._looked_up.grouped(views), self._multiplied.grouped(views)])


def add(parts: list[ParameterGradients]) -> ParameterGradients:
    """The gradients of a parameter that was used several times: they add before the norm."""
    if len(parts) == 1:
        return parts[0]
    outer = [part for part in parts if isinstance(part, OuterProducts)]
    rows = [part for part in parts if isinstance(part, EmbeddedRows)]
    if len(outer) + len(rows) < len(parts):
        return Explicit(functools.reduce(torch.add, [part.materialise() for part in parts]))
    product = functools.reduce(OuterProducts.joined, outer) if outer else None
    row = functools.reduce(EmbeddedRows.joined, rows) if rows else None
    if product is None or row is None:
        return cast(ParameterGradients, product or row)
    return TiedTable(row, product)


def _merged(values: Tensor, views: int) -> Tensor:
    """(examples times views, places, …) to (examples, views times places, …)."""
    return torch.unflatten(values, 0, (-1, views)).flatten(1, 2)


def sum_of_squares(values: Tensor) -> Tensor:
    """The sum of squares over all axes but the first, in float32 at least."""
    squares = _wide(values).square()
    return squares.flatten(1).sum(1) if squares.ndim > 1 else squares


def _wide(values: Tensor) -> Tensor:
    """float32 for half precisions, so that a sum of squares keeps its small terms."""
    return values.float() if values.dtype in (torch.bfloat16, torch.float16) else values


# Sums of rows in a fixed order. The compiler would turn `index_add` into atomic additions, whose
# order and rounding vary on a GPU. It does not change a custom operation, and torch's accumulating
# `index_put_` sorts on a GPU.


@torch.library.custom_op(
    "dpaudit::sum_rows", mutates_args=(), schema="(Tensor rows, Tensor values, int count) -> Tensor"
)
def _sum_rows(rows: Tensor, values: Tensor, count: int) -> Tensor:
    table = values.new_zeros(count, values.shape[1])
    return table.index_put_((rows,), values, accumulate=True)


@_sum_rows.register_fake
def _shape(rows: Tensor, values: Tensor, count: int) -> Tensor:
    return values.new_empty(count, values.shape[1])


@_sum_rows.register_vmap
def _for_runs(
    info: Any,
    in_dims: tuple[int | None, int | None, None],
    rows: Tensor,
    values: Tensor,
    count: int,
) -> tuple[Tensor, int]:
    runs = info.batch_size
    values = values.expand(runs, *values.shape) if in_dims[1] is None else values
    values = values.movedim(in_dims[1] or 0, 1)  # (places, runs, columns)
    if in_dims[0] is None:
        return torch.unflatten(sum_rows(rows, values.flatten(1), count), 1, (runs, -1)), 1
    offsets = count * torch.arange(runs, device=rows.device)
    own = rows.movedim(in_dims[0], 1) + offsets
    return torch.unflatten(
        sum_rows(own.flatten(), values.flatten(0, 1), runs * count), 0, (runs, count)
    ), 0


def sum_rows(rows: Tensor, values: Tensor, count: int) -> Tensor:
    """A table of ``count`` rows; row ``i`` is the sum of the ``values`` whose ``rows`` say ``i``.

    Example:
        >>> sum_rows(torch.tensor([2, 0, 2]), torch.tensor([[1.0], [2.0], [3.0]]), 3).tolist()
        [[2.0], [0.0], [4.0]]
    """
    return cast(Tensor, _sum_rows(rows, values, count))
