"""torch's attention modules: the projections are linear layers inside one module."""

from __future__ import annotations

from typing import Any, cast, final

import torch
from torch import Tensor
from torch.nn import functional

from dpaudit.engine.gradients import Explicit, OuterProducts, ParameterGradients
from dpaudit.engine.products import linear
from dpaudit.engine.rules.base import LayerRule, Notes, Tap

_IN, _OUT = "in", "out"


@final
class MultiheadAttentionRule(LayerRule):
    """`torch.nn.MultiheadAttention` with inputs of one size and without additional keys.

    Self-attention and cross-attention, masks, and both orders of the batch axis. Attention weights
    are returned as `None`; a model that uses them is tapped without this rule.
    """

    def handles(self, layer: torch.nn.Module) -> bool:
        return (
            type(layer) is torch.nn.MultiheadAttention
            and layer._qkv_same_embed_dim
            and layer.bias_k is None
            and not layer.add_zero_attn
            and (not layer.training or layer.dropout == 0)
            and "in_proj_weight" in layer._parameters
        )

    def forward(
        self,
        layer: torch.nn.Module,
        tap: Tap,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, None]:
        layer = cast(torch.nn.MultiheadAttention, layer)
        if query.ndim != 3:
            raise ValueError("attention needs inputs with an axis of examples")
        inputs = [query, key, value]
        if not layer.batch_first:
            inputs = [one.transpose(0, 1) for one in inputs]
        projected = [
            tap(linear(one, weight, bias), (one,), f"{_IN}{number}")
            for number, (one, weight, bias) in enumerate(
                zip(
                    inputs,
                    cast(Tensor, layer.in_proj_weight).chunk(3),
                    (None,) * 3 if layer.in_proj_bias is None else layer.in_proj_bias.chunk(3),
                    strict=True,
                )
            )
        ]
        heads = [
            torch.unflatten(one, 2, (layer.num_heads, layer.head_dim)).transpose(1, 2)
            for one in projected
        ]
        mask = _mask(layer.num_heads, key_padding_mask, attn_mask, heads[0])
        # torch uses is_causal only as a hint that the mask is causal.
        mixed = functional.scaled_dot_product_attention(heads[0], heads[1], heads[2], mask)
        mixed = mixed.transpose(1, 2).flatten(2)
        outputs = tap(linear(mixed, layer.out_proj.weight, layer.out_proj.bias), (mixed,), _OUT)
        return (outputs if layer.batch_first else outputs.transpose(0, 1)), None

    def gradients(
        self, layer: torch.nn.Module, part: str, notes: Notes, outputs: Tensor
    ) -> dict[str, ParameterGradients]:
        layer = cast(torch.nn.MultiheadAttention, layer)
        (inputs,) = notes
        if part == _OUT:
            return {
                "out_proj.weight": OuterProducts(outputs, inputs, layer.out_proj.weight.shape),
                "out_proj.bias": Explicit(outputs.sum(1)),
            }
        # The rows of the other two projections have no gradient from this one.
        before = int(part.removeprefix(_IN)) * layer.embed_dim
        rows = functional.pad(outputs, (before, 2 * layer.embed_dim - before))
        weight = cast(Tensor, layer.in_proj_weight)
        return {
            "in_proj_weight": OuterProducts(rows, inputs, weight.shape),
            "in_proj_bias": Explicit(rows.sum(1)),
        }


def _mask(heads: int, padding: Tensor | None, mask: Tensor | None, like: Any) -> Tensor | None:
    """Both masks as numbers that are added to the attention logits."""
    total: Tensor | None = None
    if mask is not None:
        total = _added(mask, like)
        if total.ndim == 3:
            total = torch.unflatten(total, 0, (-1, heads))
    if padding is not None:
        ignored = _added(padding, like)[:, None, None, :]
        total = ignored if total is None else total + ignored
    return total


def _added(mask: Tensor, like: Tensor) -> Tensor:
    if mask.dtype != torch.bool:
        return mask.to(like.dtype)
    zeros = torch.zeros(mask.shape, dtype=like.dtype, device=like.device)
    return zeros.masked_fill(mask, float("-inf"))
