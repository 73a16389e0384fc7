"""What a block of convolution, ReLU and max-pooling computes, apart from its numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch

Pair = tuple[int, int]


@final
@dataclass(frozen=True, kw_only=True)
class Shape:
    """What a block computes, apart from its numbers.

    Arguments:
        kernel: Height and width of the convolution's kernel.
        stride: Its stride.
        padding: Zeros added on each side.
        dilation: Its dilation.
        relu: Whether a ReLU follows.
        pool: Side of the square, non-overlapping windows of a max-pooling that follows; 1 if none
            does.
    """

    kernel: Pair
    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    dilation: Pair = (1, 1)
    relu: bool = False
    pool: int = 1

    @property
    def selects(self) -> bool:
        """Whether only some outputs of the convolution have a gradient."""
        return self.relu or self.pool > 1

    @property
    def step(self) -> Pair:
        """Distance in the input from one window to the next."""
        return self.pool * self.stride[0], self.pool * self.stride[1]

    def places(self, size: Pair | torch.Size) -> Pair:
        """Height and width of the convolution's output for an input of ``size``."""
        first, second = (
            (length + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
            for length, kernel, stride, padding, dilation in zip(
                size, self.kernel, self.stride, self.padding, self.dilation, strict=True
            )
        )
        return first, second

    def windows(self, size: Pair | torch.Size) -> Pair:
        """Height and width of the block's output for an input of ``size``."""
        height, width = self.places(size)
        return height // self.pool, width // self.pool

    def numbers(self) -> list[int]:
        """All fields as numbers, as the operations of `torch.library` take them."""
        return [
            *self.kernel,
            *self.stride,
            *self.padding,
            *self.dilation,
            int(self.relu),
            self.pool,
        ]

    @classmethod
    def of(cls, numbers: list[int]) -> Shape:
        """The inverse of `numbers`."""
        a, b, c, d, e, f, g, h, relu, pool = numbers
        pairs = {"kernel": (a, b), "stride": (c, d), "padding": (e, f), "dilation": (g, h)}
        return cls(**pairs, relu=bool(relu), pool=pool)
