"""A small vision transformer for 32x32 images."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn

from dpaudit import _validate
from dpaudit.models.gpt import TransformerBlock, check_heads

_PATCH, _SIDE = 4, 8


@final
class VisionTransformer(nn.Module):
    """Patches of 4x4 pixels, a class token, learned positions, and blocks."""

    def __init__(self, classes: int, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, _PATCH, stride=_PATCH)
        self.start = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(0.02 * torch.randn(1, _SIDE**2 + 1, width))
        self.blocks = nn.Sequential(
            *(TransformerBlock(width, heads, causal=False) for _ in range(layers))
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.patches(images).flatten(2).transpose(1, 2)
        start = self.start.expand(len(images), -1, -1)
        hidden = self.blocks(torch.cat([start, tokens], dim=1) + self.places)
        logits: Tensor = self.head(self.norm(hidden[:, 0]))
        return logits


def vit_tiny(*, classes: int = 10, width: int = 192, layers: int = 12, heads: int = 3) -> nn.Module:
    """ViT-tiny with patches of 4x4 pixels: 5,362,762 parameters.

    Paper: Dosovitskiy et al. (ICLR 2021); the size of Touvron et al. (ICML 2021), DeiT-Ti.

    Arguments:
        classes: Number of outputs.
        width: Size of the hidden vectors; a multiple of ``heads``.
        layers: Number of blocks.
        heads: Number of attention heads.

    Example:
        >>> sum(p.numel() for p in vit_tiny().parameters())
        5362762
    """
    _validate.integer("classes", classes, at_least=2)
    _validate.integer("layers", layers, at_least=1)
    check_heads(width, heads)
    return VisionTransformer(classes, width, layers, heads)
