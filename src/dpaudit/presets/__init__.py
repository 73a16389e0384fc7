"""Presets: trainings that are ready to audit, by name.

Every preset is also a function, for example ``dpaudit.presets.housing(noise_multiplier=2.0)``.
Listing presets is fast; making a training reads the data and imports torch.
"""

from __future__ import annotations

from collections.abc import Callable

from dpaudit._registry import Registry
from dpaudit.data.folder import DataDir
from dpaudit.mechanisms.dpsgd import DPSGD
from dpaudit.mechanisms.losses import cross_entropy
from dpaudit.presets._alexnet_head import alexnet_features_of, find_alexnet
from dpaudit.presets.base import INSERTIONS, Preset

__all__ = [
    "INSERTIONS",
    "PRESETS",
    "DataDir",
    "Preset",
    "alexnet_features_of",
    "cross_entropy",
    "find_alexnet",
    "preset",
]

PRESETS: Registry[Preset] = Registry(
    "preset",
    "dpaudit.presets",
    {
        "housing": "dpaudit.presets._housing:HOUSING",
        "convnet": "dpaudit.presets._cifar10:CONVNET",
        "resnet18": "dpaudit.presets._cifar10:RESNET18",
        "alexnet-head": "dpaudit.presets._alexnet_head:ALEXNET_HEAD",
        "alexnet-last-layer": "dpaudit.presets._alexnet_head:ALEXNET_LAST_LAYER",
        "gpt": "dpaudit.presets._gpt:GPT",
        "vit-tiny": "dpaudit.presets._cifar10:VIT_TINY",
        "wrn-16-4": "dpaudit.presets._cifar10:WRN_16_4",
        "gpt2-lora": "dpaudit.presets._gpt2_lora:GPT2_LORA",
        "logistic": "dpaudit.presets._logistic:LOGISTIC",
        "softmax-head": "dpaudit.presets._softmax_head:SOFTMAX_HEAD",
        "crafted-network": "dpaudit.presets._crafted_network:CRAFTED_NETWORK",
    },
)
"""Every registered preset. An entry point names a `Preset`."""


def preset(name: str) -> Preset:
    """The preset of that name.

    Example:
        >>> preset("convnet").summary
        'ConvNet on CIFAR-10'
    """
    return PRESETS[name]


def __getattr__(name: str) -> Callable[..., DPSGD]:
    known = name.replace("_", "-")
    if name.startswith("_") or known not in PRESETS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return PRESETS[known].training


def __dir__() -> list[str]:
    return sorted([*globals(), *(name.replace("-", "_") for name in PRESETS)])
