"""The networks of the presets as plain `torch.nn.Module`s, and how their weights are drawn."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional

from dpaudit import _validate
from dpaudit.errors import InvalidInput


def fcnn() -> nn.Module:
    """Fully connected 8-6-2 with one ReLU: 68 parameters.

    See also: `dpaudit.data.california_housing`.

    Paper: Cebere, Bellet, Papernot (ICLR 2025), Section 5 and the table of hyperparameters.

    Example:
        >>> sum(p.numel() for p in fcnn().parameters())
        68
    """
    return nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 2))


def convnet() -> nn.Module:
    """Two 5x5 convolutions and three fully connected layers: 62,006 parameters.

    3x32x32 -> 6x28x28 -> pool 6x14x14 -> 16x10x10 -> pool 16x5x5 = 400 -> 120 -> 84 -> 10, with
    ReLU in between.

    See also: `dpaudit.data.cifar10`.

    Paper: Cebere, Bellet, Papernot (ICLR 2025), Section 5. The shape is LeNet-5's (LeCun et al.
    1998) with colour and ReLU.

    Example:
        >>> sum(p.numel() for p in convnet().parameters())
        62006
    """
    return nn.Sequential(
        nn.Conv2d(3, 6, kernel_size=5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, kernel_size=5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(400, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, 10),
    )


def linear_from_zero(inputs: int, outputs: int) -> nn.Linear:
    """A linear layer without bias, with all weights 0."""
    layer = nn.Linear(inputs, outputs, bias=False)
    nn.init.zeros_(layer.weight)
    return layer


def linear_head(features: int, classes: int) -> nn.Module:
    """One linear layer with bias: ``(features + 1) * classes`` parameters.

    See also: `alexnet_features`, which computes 2,304 features of an image.

    Example:
        >>> sum(p.numel() for p in linear_head(2304, 10).parameters())
        23050
    """
    _validate.integer("features", features, at_least=1)
    _validate.integer("classes", classes, at_least=2)
    return nn.Linear(features, classes)


@final
class ResidualBlock(nn.Module):
    """Two 3x3 convolutions with a shortcut: the identity, or a 1x1 convolution for a new shape."""

    def __init__(self, channels_in: int, channels_out: int, *, stride: int, groups: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels_out, 3, stride, padding=1, bias=False)
        self.norm1 = nn.GroupNorm(groups, channels_out)
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, padding=1, bias=False)
        self.norm2 = nn.GroupNorm(groups, channels_out)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels_in != channels_out:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels_in, channels_out, 1, stride, bias=False),
                nn.GroupNorm(groups, channels_out),
            )

    def forward(self, images: Tensor) -> Tensor:
        inner = torch.relu(self.norm1(self.conv1(images)))
        return torch.relu(self.norm2(self.conv2(inner)) + self.shortcut(images))


def resnet18(*, classes: int = 10, groups: int = 32, width: int = 64) -> nn.Module:
    """ResNet18 with a 3x3 stem, no first pooling, and GroupNorm: 11,173,962 parameters.

    GroupNorm has two parameters per channel like BatchNorm, so the number of parameters is that of
    the usual network for any number of groups.

    See also: `dpaudit.data.cifar10`.

    Paper: He, Zhang, Ren, Sun (CVPR 2016), Table 1; stem for 32x32 images as in their Section
    4.2. GroupNorm: Wu and He (ECCV 2018), with their default of 32 groups.

    Arguments:
        classes: Number of outputs of the last layer.
        groups: Number of groups of every normalisation; must divide ``width``.
        width: Number of channels of the first stage; later stages have 2, 4 and 8 times as many.
            Tests use smaller networks.

    Example:
        >>> sum(p.numel() for p in resnet18().parameters())
        11173962
    """
    _validate.integer("classes", classes, at_least=2)
    _validate.integer("groups", groups, at_least=1)
    _validate.integer("width", width, at_least=1)
    if width % groups:
        raise InvalidInput(
            f"groups must divide the width ({width}), got {groups}; "
            f"use a divisor such as {next(g for g in range(groups, 0, -1) if width % g == 0)}"
        )
    stem = [nn.Conv2d(3, width, 3, padding=1, bias=False), nn.GroupNorm(groups, width), nn.ReLU()]
    stages, channels = [], width
    for stage in range(4):
        out = width * 2**stage
        stages += [
            ResidualBlock(channels, out, stride=1 if stage == 0 else 2, groups=groups),
            ResidualBlock(out, out, stride=1, groups=groups),
        ]
        channels = out
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)]
    return nn.Sequential(*stem, *stages, *head)


@final
class WideBlock(nn.Module):
    """Two normalised 3x3 convolutions with a shortcut."""

    def __init__(self, channels_in: int, channels_out: int, *, stride: int, groups: int) -> None:
        super().__init__()
        self.norm1 = nn.GroupNorm(groups, channels_in)
        self.conv1 = nn.Conv2d(channels_in, channels_out, 3, stride, padding=1)
        self.norm2 = nn.GroupNorm(groups, channels_out)
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, padding=1)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels_in != channels_out:
            self.shortcut = nn.Conv2d(channels_in, channels_out, 1, stride)

    def forward(self, images: Tensor) -> Tensor:
        inner = self.conv1(torch.relu(self.norm1(images)))
        inner = self.conv2(torch.relu(self.norm2(inner)))
        total: Tensor = inner + self.shortcut(images)
        return total


def wide_resnet(
    *, depth: int = 16, widen: int = 4, classes: int = 10, groups: int = 16
) -> nn.Module:
    """A wide residual network, by default WRN-16-4: 2,751,146 parameters.

    Paper: Zagoruyko, Komodakis (BMVC 2016); with GroupNorm as in De et al. (arXiv 2204.13650),
    without their weight standardisation.

    Arguments:
        depth: Number of layers, 4 more than a multiple of 6.
        widen: Factor of the number of channels.
        classes: Number of outputs.
        groups: Groups of every normalisation; must divide 16.

    Example:
        >>> sum(p.numel() for p in wide_resnet().parameters())
        2751146
    """
    _validate.integer("depth", depth, at_least=10)
    _validate.integer("widen", widen, at_least=1)
    _validate.integer("classes", classes, at_least=2)
    if (depth - 4) % 6:
        raise InvalidInput(f"depth must be 4 more than a multiple of 6, got {depth}; use 16 or 40")
    if groups < 1 or 16 % groups:
        raise InvalidInput(f"groups must divide 16, got {groups}")
    layers: list[nn.Module] = [nn.Conv2d(3, 16, 3, padding=1)]
    channels = 16
    for stage, out in enumerate((16 * widen, 32 * widen, 64 * widen)):
        for number in range((depth - 4) // 6):
            stride = 2 if stage and not number else 1
            layers.append(WideBlock(channels, out, stride=stride, groups=groups))
            channels = out
    head = [nn.GroupNorm(groups, channels), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, *head, nn.Linear(channels, classes))


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

    The width of hidden vectors is a multiple of ``heads``.

    Paper: Radford et al. (2019), GPT-2, without dropout.

    Example:
        >>> sum(p.numel() for p in gpt().parameters())
        10795008
    """
    for name, value in (("vocabulary", vocabulary), ("length", length), ("layers", layers)):
        _validate.integer(name, value, at_least=1)
    _check_heads(width, heads)
    return GPT(vocabulary, length, width, layers, heads)


_PATCH, _SIDE = 4, 8  # pixels and patches along a side of an image


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

    Example:
        >>> sum(p.numel() for p in vit_tiny().parameters())
        5362762
    """
    _validate.integer("classes", classes, at_least=2)
    _validate.integer("layers", layers, at_least=1)
    _check_heads(width, heads)
    return VisionTransformer(classes, width, layers, heads)


def _check_heads(width: int, heads: int) -> None:
    """Raise `InvalidInput` unless ``heads`` divides ``width``."""
    _validate.integer("heads", heads, at_least=1)
    _validate.integer("width", width, at_least=1)
    if width % heads:
        raise InvalidInput(f"heads must divide the width ({width}), got {heads}")


def drawn_by(rule: str, build: Callable[[], nn.Module]) -> nn.Module:
    """The model from ``build`` with weights drawn by Xavier's or Kaiming's rule.

    Weights of linear and convolutional layers are uniform with the rule's variance. Biases are
    zero, as in both papers. Other layers are not changed.

    See also: `dpaudit.mechanisms.dpsgd.FreshInitialisation`.

    Paper: Glorot, Bengio (AISTATS 2010), equation 16; He, Zhang, Ren, Sun (ICCV 2015), equation 10.

    Arguments:
        rule: ``"xavier"`` or ``"kaiming"``.
        build: A function that builds the model, as in `dpaudit.mechanisms.dpsgd.DPSGD`.

    Example:
        >>> model = drawn_by("kaiming", lambda: nn.Linear(600, 10))
        >>> bool(model.weight.abs().max() <= 0.1), bool((model.bias == 0).all())
        (True, True)
    """
    _validate.one_of("rule", rule, ("xavier", "kaiming"))
    model = build()
    for layer in model.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            if rule == "xavier":
                nn.init.xavier_uniform_(layer.weight)
            else:
                nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    return model
