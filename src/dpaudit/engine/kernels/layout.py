"""What the kernels of ``kernels.cu`` compute, and how they divide it among threads and memory.

The numbers of tiles are the fastest of several on an H200 for layers with few channels.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np
import torch

from dpaudit._arrays import Integers

Pair = tuple[int, int]


@final
@dataclass(frozen=True, kw_only=True)
class Shape:
    """What a block computes, apart from its numbers; pairs are height and width."""

    kernel: Pair
    stride: Pair = (1, 1)
    padding: Pair = (0, 0)
    dilation: Pair = (1, 1)
    relu: bool = False  # whether a ReLU follows
    pool: int = 1  # side of the windows of a max-pooling that follows; 1 if none does

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


LARGEST = 99 * 1024
"""Bytes of shared memory that a block of threads may have on every GPU from Ampere on."""

_BANKS = 32
"""Words of shared memory that are read at once, if each is in another bank."""


@final
@dataclass(frozen=True, kw_only=True)
class Layer:
    """The sizes that a kernel is compiled for."""

    shape: Shape
    channels: int  # of its inputs
    size: Pair  # height and width of its inputs
    outputs: int  # channels
    shared: bool = False  # all runs see the same inputs: their outputs are rows of one product
    halved: bool = False  # numbers are stored as bfloat16, and not as float32

    @property
    def quads(self) -> Pair:
        """Rows and columns of groups of four outputs of the convolution."""
        height, width = self.shape.windows(self.size)
        return height, width if self.shape.pool == 2 else -(-width // 4)

    @property
    def padded(self) -> Pair:
        """Height and width of the inputs with their padding."""
        (height, width), (down, right) = self.size, self.shape.padding
        return height + 2 * down, width + 2 * right

    @property
    def vector(self) -> int:
        """Numbers of the inputs that are copied at once."""
        return 2 if self.size[1] % 2 == 0 and self.shape.padding[1] % 2 == 0 else 1


@final
class Plan(NamedTuple):
    """How a kernel is compiled."""

    name: str  # which of the kernels in the file
    constants: dict[str, int]  # those that only this kernel needs
    words: int  # numbers in the shared memory of a block of threads

    def definitions(self, layer: Layer) -> str:
        """All that the file needs to be defined."""
        shape = layer.shape
        pairs = {
            "": layer.size,
            "KERNEL_": shape.kernel,
            "STRIDE_": shape.stride,
            "PAD_": shape.padding,
            "DILATION_": shape.dilation,
            "WINDOWS_": shape.windows(layer.size),
        }
        constants = {
            "C": layer.channels,
            "OUT": layer.outputs,
            "POOL": shape.pool,
            "RELU": int(shape.relu),
            "SELECTS": int(shape.selects),
            "VECTOR": layer.vector,
            **{f"{name}H": pair[0] for name, pair in pairs.items()},
            **{f"{name}W": pair[1] for name, pair in pairs.items()},
            **self.constants,
        }
        number = "unsigned short" if layer.halved else "float"
        lines = [f"#define {name} {value}" for name, value in constants.items()]
        return "\n".join([f"#define {self.name}", f"typedef {number} Number;", *lines, ""])


def fits(layer: Layer) -> bool:
    """Whether the kernels can compute ``layer``."""
    if layer.shape.pool > 2:
        return False
    plans = (plan(layer) for plan in (output_plan, weight_plan, input_plan))
    return all(4 * plan.words <= LARGEST for plan in plans)


def output_plan(layer: Layer) -> Plan:
    """The plan of the kernel ``FORWARD``."""
    pairs = -(-layer.quads[0] * layer.quads[1] // 2)
    tiles_m = 2 if layer.shared else min(2, -(-layer.outputs // 16))
    groups_n, tiles_n = _divided(pairs, 4 if layer.shared else 7)
    row, plane, image = _strides(layer, _output_reads)
    examples = max(1, min(8 // groups_n, 12_000 // image))
    warps = _divided(examples * groups_n, 8)[1]
    places = layer.shape.kernel[0] * layer.shape.kernel[1]
    steps = -(-layer.channels // 4) * -(-places // 2)
    constants = {
        "ROW": row,
        "PLANE": plane,
        "IMAGE": image,
        "WARPS": warps,
        "BLOCKS": 4 if layer.shared else 3,
        "EXAMPLES": examples,
        "TILES_M": tiles_m,
        "TILES_N": tiles_n,
    }
    words = examples * image + tiles_m * steps * 128 + warps * 16 * 2 * tiles_n
    return Plan("FORWARD", constants, words)


def weight_plan(layer: Layer) -> Plan:
    """The plan of the kernel ``WEIGHT_GRADIENT``."""
    kernel, (height, width) = layer.shape.kernel, layer.quads
    column_groups, tiles_n = _divided(-(-layer.channels * kernel[0] * kernel[1] // 8), 20)
    row, plane, image = _strides(layer, _weight_reads)
    sets = 4 if layer.shared else min(4, -(-layer.outputs // 16))
    examples = max(1, min(2 // sets, 24_000 // image))
    line = width if layer.shape.pool == 2 else 4 * width
    chunk = max(1, min(height, 32 // line))
    stride = chunk * line | 1 if layer.shape.pool == 2 else _next(chunk * line, 4)
    constants = {
        "ROW": row,
        "PLANE": plane,
        "IMAGE": image,
        "WARPS": sets * examples,
        "BLOCKS": 16 // (sets * examples),
        "EXAMPLES": examples,
        "SETS": sets,
        "TILES_N": tiles_n,
        "COLUMN_GROUPS": column_groups,
        "CHUNK": chunk,
        "KEPT": stride,
    }
    return Plan("WEIGHT_GRADIENT", constants, examples * (image + sets * 16 * stride))


def input_plan(layer: Layer) -> Plan:
    """The plan of the kernel ``INPUT_GRADIENT``."""
    shape, (height, width) = layer.shape, layer.size
    row = shape.windows(layer.size)[1] * shape.pool
    groups_m, tiles_m = _divided(-(-layer.channels * shape.kernel[1] // 16), 2)
    groups_n, tiles_n = _divided(-(-height * row // 8), 3)
    above = (shape.kernel[0] - 1) * shape.dilation[0]
    between = max((shape.kernel[1] - 1) * shape.dilation[1], width - row)
    channels = -(-layer.outputs // 8)
    plane = _next((height + shape.padding[0] + above) * row, 8)
    image = channels * 8 * plane + tiles_n * 8
    rows = _next(height * (row + between) + 2 * between, 8)
    sums = layer.channels * shape.kernel[1] * rows
    groups = groups_m * groups_n
    examples = max(1, min(8 // groups, 24_000 // (image + sums)))
    constants = {
        "ROW": row,
        "PLANE": plane,
        "IMAGE": image,
        "WARPS": _divided(examples * groups, 8)[1],
        "EXAMPLES": examples,
        "TILES_M": tiles_m,
        "TILES_N": tiles_n,
        "BETWEEN": between,
        "KEPT": rows,
    }
    factors = groups_m * tiles_m * shape.kernel[0] * channels * 128
    return Plan("INPUT_GRADIENT", constants, examples * (image + sums) + factors)


def _divided(number: int, most: int) -> tuple[int, int]:
    """Groups of at most ``most`` of ``number`` things, as few and as equal as possible."""
    groups = -(-number // most)
    return groups, -(-number // groups)


def _next(number: int, rest: int) -> int:
    """The smallest number from ``number`` on that leaves ``rest`` when divided by the banks."""
    return number + (rest - number) % _BANKS


@functools.cache
def _strides(layer: Layer, reads: Callable[[Layer, int, int], Integers]) -> tuple[int, int, int]:
    """Distances of rows, channels and images in shared memory with the fewest conflicts of banks.

    ``reads`` gives the places that the lanes of a warp read together, as (reads, lanes), by the
    distances of rows and of channels. Without a search the kernels read 2 to 6 times as often.
    """
    (height, width), step = layer.padded, layer.vector
    best = (float("inf"), 0, 0)
    for extra in range(0, 12 * height, step):  # the smallest without conflicts, or with the fewest
        for row in range(width + width % step, width + extra // height + 1, step):
            plane = height * width + extra
            best = min(best, (_conflicts(reads(layer, row, plane)), plane, row))
        if best[0] == 1:
            break
    _, plane, row = best
    image = layer.channels * plane + 4 * layer.shape.stride[1]
    return row, plane, image + -image % 4


def _conflicts(places: Integers) -> float:
    """How many different places of one bank are read at once, on average over the reads."""
    sorted_places = np.sort(places, axis=1)
    is_first = np.diff(sorted_places, axis=1, prepend=-1) > 0
    banks = np.where(is_first, sorted_places % _BANKS, -1)
    return float((banks[:, :, None] == np.arange(_BANKS)).sum(1).max(1).mean())


_LANES = np.arange(32)
_SAMPLED = 16
"""Tiles that are looked at for conflicts."""


def _output_reads(layer: Layer, row: int, plane: int) -> Integers:
    """The four lanes of a group read four channels, and the groups two quads."""
    quads = layer.quads[0] * layer.quads[1]
    tiles = np.arange(min(_SAMPLED, -(-quads // 2)))[:, None]
    y, x = np.divmod(np.minimum(2 * tiles + _LANES // 16, quads - 1), layer.quads[1])
    step_h, step_w = layer.shape.step
    corner = y * step_h * row + x * step_w * (1 if layer.shape.pool == 2 else 4)
    channel = np.minimum(_LANES % 4, layer.channels - 1)
    places: Integers = corner + _beside(layer, row, _LANES // 4 % 4) + channel * plane
    return places


def _weight_reads(layer: Layer, row: int, plane: int) -> Integers:
    """The four lanes of a group read one quad, and the groups eight of the kernel's numbers."""
    (height, width), dilation = layer.shape.kernel, layer.shape.dilation
    columns = layer.channels * height * width
    tiles = np.arange(min(_SAMPLED, -(-columns // 8)))[:, None]
    column = np.minimum(8 * tiles + _LANES // 4, columns - 1)
    i, j = column // width % height, column % width
    patch = column // (height * width) * plane + i * dilation[0] * row + j * dilation[1]
    places: Integers = patch + _beside(layer, row, _LANES % 4)
    return places


def _beside(layer: Layer, row: int, place: Integers) -> Integers:
    """How far the outputs of a quad are from its first one."""
    step_h, step_w = layer.shape.stride
    if layer.shape.pool == 2:
        return place // 2 * step_h * row + place % 2 * step_w
    return place * step_w
