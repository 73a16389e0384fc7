"""One file a layer: how per-example gradients come out cheaply. Add yours to `rules`."""

from __future__ import annotations

from dpaudit.engine.rules.base import LayerRule
from dpaudit.engine.rules.convolution import ConvolutionRule
from dpaudit.engine.rules.embedding import EmbeddingRule
from dpaudit.engine.rules.linear import LinearRule
from dpaudit.engine.rules.normalisation import GroupNormRule, LayerNormRule

__all__ = ["LayerRule", "rules"]


def rules(*, convolutions_as_products: bool) -> tuple[LayerRule, ...]:
    """Every rule the engine knows, first match wins."""
    return (
        LinearRule(),
        ConvolutionRule(as_product=convolutions_as_products),
        GroupNormRule(),
        LayerNormRule(),
        EmbeddingRule(),
    )
