"""A small GPT: a transformer that predicts the next token."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional

from dpaudit import _validate
from dpaudit.errors import InvalidInput


@final
class TransformerBlock(nn.Module):
    """Attention and a feed-forward network, each after a LayerNorm and with a shortcut."""

    def __init__(self, width: int, heads: int, *, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norm1 = nn.LayerNorm(width)
        self.project_in = nn.Linear(width, 3 * width)
        self.project_out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.widen = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, hidden: Tensor) -> Tensor:
        query, key, value = (
            torch.unflatten(part, 2, (self.heads, -1)).transpose(1, 2)
            for part in self.project_in(self.norm1(hidden)).chunk(3, dim=2)
        )
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        hidden = hidden + self.project_out(mixed.transpose(1, 2).flatten(2))
        total: Tensor = hidden + self.narrow(functional.gelu(self.widen(self.norm2(hidden))))
        return total


@final
class GPT(nn.Module):
    """Token and position embeddings, blocks, and a head that shares the token embedding."""

    def __init__(self, vocabulary: int, length: int, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.places = nn.Embedding(length, width)
        self.blocks = nn.Sequential(
            *(TransformerBlock(width, heads, causal=True) for _ in range(layers))
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        for table in (self.tokens, self.places):
            nn.init.normal_(table.weight, std=0.02)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        hidden = self.blocks(self.tokens(tokens) + self.places(places))
        logits: Tensor = self.head(self.norm(hidden))
        return logits


def gpt(
    *, vocabulary: int = 256, length: int = 128, width: int = 384, layers: int = 6, heads: int = 6
) -> nn.Module:
    """A GPT with tied embeddings, by default for bytes: 10,795,008 parameters.

    Paper: Radford et al. (2019), GPT-2, without dropout.

    Arguments:
        vocabulary: Number of different tokens.
        length: Largest number of tokens of a sequence.
        width: Size of the hidden vectors; a multiple of ``heads``.
        layers: Number of blocks.
        heads: Number of attention heads.

    Example:
        >>> sum(p.numel() for p in gpt().parameters())
        10795008
    """
    for name, value in (("vocabulary", vocabulary), ("length", length), ("layers", layers)):
        _validate.integer(name, value, at_least=1)
    check_heads(width, heads)
    return GPT(vocabulary, length, width, layers, heads)


def check_heads(width: int, heads: int) -> None:
    """Raise `InvalidInput` unless ``heads`` divides ``width``."""
    _validate.integer("heads", heads, at_least=1)
    _validate.integer("width", width, at_least=1)
    if width % heads:
        raise InvalidInput(f"heads must divide the width ({width}), got {heads}")
