"""Embedding tables: their layer rule, and the gradients of tables by looked-up rows."""

from __future__ import annotations

from typing import Any, cast, final

import torch
from torch import Tensor, nn
from torch.nn import functional

from dpaudit.engine.gradients import Explicit, OuterProducts, ParameterGradients, merged, wide
from dpaudit.engine.layer_rules import Gradients, LayerRule, Notes, Tap, is_plain


@final
class EmbeddedRows(ParameterGradients):
    r"""Gradients of a table by its looked-up rows: row i is the sum of :math:`g_{bl}` for that row.

    The rows have shape (examples, places), and the outputs :math:`g` one more axis, of columns.
    """

    def __init__(self, outputs: Tensor, rows: Tensor, shape: torch.Size) -> None:
        self.outputs, self.rows, self._shape = outputs, rows, shape

    def squared_norms(self) -> Tensor:
        gram = wide(torch.bmm(self.outputs, self.outputs.transpose(1, 2)))
        same_row = self.rows.unsqueeze(1) == self.rows.unsqueeze(2)
        return (gram * same_row).sum((1, 2))

    def weighted_sum(self, weights: Tensor) -> Tensor:
        scaled = self.outputs * weights.to(self.outputs.dtype)[:, None, None]
        return sum_rows(self.rows.flatten(), scaled.flatten(0, 1), self._shape[0])

    def materialise(self) -> Tensor:
        examples = len(self.outputs)
        table = torch.zeros(
            (examples, *self._shape), dtype=self.outputs.dtype, device=self.outputs.device
        )
        places = self.rows.unsqueeze(-1).expand_as(self.outputs)
        return table.scatter_add(1, places, self.outputs)

    def grouped(self, views: int) -> ParameterGradients:
        return EmbeddedRows(merged(self.outputs, views), merged(self.rows, views), self._shape)

    def plus(self, other: ParameterGradients) -> ParameterGradients:
        if isinstance(other, OuterProducts):
            return TiedTable(self, other)
        if not isinstance(other, EmbeddedRows):
            return super().plus(other) if isinstance(other, Explicit) else other.plus(self)
        outputs = torch.cat([self.outputs, other.outputs], dim=1)
        return EmbeddedRows(outputs, torch.cat([self.rows, other.rows], dim=1), self._shape)


@final
class TiedTable(ParameterGradients):
    r"""Gradients of a table that is looked up and also multiplied, as in tied language models.

    .. math:: \|E + G\|^2 = \|E\|^2 + \|G\|^2 + 2 \sum_{l, m} g_{bm, i_l} \, a_{bm}^\top e_{bl}
    """

    def __init__(self, looked_up: EmbeddedRows, multiplied: OuterProducts) -> None:
        self._looked_up, self._multiplied = looked_up, multiplied

    def squared_norms(self) -> Tensor:
        rows, outputs = self._looked_up.rows, self._looked_up.outputs
        weights = self._multiplied.outputs  # (examples, places, table rows)
        inputs = self._multiplied.inputs[..., : outputs.shape[2]]
        places = rows.unsqueeze(1).expand(-1, weights.shape[1], -1)
        both = wide(weights.gather(2, places)) * wide(inputs @ outputs.transpose(1, 2))
        own = self._looked_up.squared_norms() + self._multiplied.squared_norms()
        return (own + 2 * both.sum((1, 2))).clamp(min=0)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        return self._looked_up.weighted_sum(weights) + self._multiplied.weighted_sum(weights)

    def materialise(self) -> Tensor:
        return self._looked_up.materialise() + self._multiplied.materialise()

    def grouped(self, views: int) -> ParameterGradients:
        return self._looked_up.grouped(views).plus(self._multiplied.grouped(views))

    def plus(self, other: ParameterGradients) -> ParameterGradients:
        if isinstance(other, OuterProducts):
            return self._looked_up.plus(self._multiplied.plus(other))
        if isinstance(other, EmbeddedRows):
            return self._looked_up.plus(other).plus(self._multiplied)
        return super().plus(other)


# Embedding tables: the gradient is zero except in the rows that an example looked up. Not with
# ``max_norm``, which changes the table during the forward pass, and not with
# ``scale_grad_by_freq``, which counts across examples; `check_mechanism` refuses both.


def _embedding_forward(layer: nn.Embedding, tap: Tap, inputs: Tensor) -> Tensor:
    return tap(functional.embedding(inputs, layer.weight), (inputs,))


def _embedding_gradients(
    layer: nn.Embedding, part: str, notes: Notes, outputs: Tensor
) -> Gradients:
    outputs = outputs.flatten(1, -2) if outputs.ndim > 2 else outputs.unsqueeze(1)
    rows = notes[0].reshape(len(notes[0]), -1)
    if layer.padding_idx is not None:
        outputs = outputs * (rows != layer.padding_idx).unsqueeze(-1)
    return {"weight": EmbeddedRows(outputs, rows, layer.weight.shape)}


EMBEDDING = LayerRule(
    handles=lambda layer: (
        is_plain(layer, nn.Embedding)
        and getattr(layer, "max_norm", None) is None
        and not getattr(layer, "scale_grad_by_freq", False)
    ),
    forward=_embedding_forward,
    gradients=_embedding_gradients,
)


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
