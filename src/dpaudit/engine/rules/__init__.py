"""Layer rules, one file each: cheap per-example gradients for one kind of layer."""

from __future__ import annotations

from typing import Literal

from dpaudit._registry import Registry
from dpaudit.engine.rules.base import LayerRule

__all__ = ["LAYER_RULES", "LayerRule", "rules"]

_HERE = "dpaudit.engine.rules"
_PRODUCT = "convolution-product"

LAYER_RULES: Registry[LayerRule] = Registry(
    "layer rule",
    "dpaudit.layer_rules",
    {
        "linear": f"{_HERE}.linear:LinearRule",
        "transposed-linear": f"{_HERE}.linear:TransposedLinearRule",
        "convolution-block": f"{_HERE}.block:BlockRule",
        _PRODUCT: f"{_HERE}.convolution:ConvolutionProductRule",
        "convolution": f"{_HERE}.convolution:ConvolutionRule",
        "group-norm": f"{_HERE}.normalisation:GroupNormRule",
        "layer-norm": f"{_HERE}.normalisation:LayerNormRule",
        "rms-norm": f"{_HERE}.normalisation:RMSNormRule",
        "embedding": f"{_HERE}.embedding:EmbeddingRule",
        "attention": f"{_HERE}.attention:MultiheadAttentionRule",
        "recurrent": f"{_HERE}.recurrent:RecurrentRule",
    },
    make=lambda kind: kind(),
)
"""Every registered rule. An entry point names the class."""


def rules(*, convolutions: Literal["library", "product", "kernels"]) -> tuple[LayerRule, ...]:
    """The rules in the order in which they are tried; the first that handles a layer is used.

    Arguments:
        convolutions: How convolutions are computed, as in `dpaudit.engine.Speed`.
    """
    unused = _PRODUCT if convolutions == "library" else None
    return tuple(rule for name, rule in LAYER_RULES.items() if name != unused)
