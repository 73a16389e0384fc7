"""Triton kernels of `dpaudit.engine.blocks`: convolutions as matrix products without patches.

All three products run over the grid of pooling windows. The outputs in a window are its
*positions*. The forward product has a row for each of them, so a patch is read once for all, and
pooling and its backward pass need no memory of their own. Weights are rearranged beforehand, which
is cheap.

The twins in plain torch are in `dpaudit.engine.blocks`.
"""

from __future__ import annotations

import functools
from typing import NamedTuple, final

import torch
import triton
import triton.language as tl
from torch import Tensor

from dpaudit.engine.block_shape import Shape


@final
class Tile(NamedTuple):
    """What one program of a kernel computes.

    Arguments:
        rows: Rows of the product.
        columns: Columns of the product.
        depth: Numbers that are multiplied and added at once for each row and column.
        warps: Groups of 32 threads.
        stages: Loads in flight.
        patch_last: Whether neighbouring threads read the same patch, or else the same place in
            neighbouring patches.
    """

    rows: int
    columns: int
    depth: int
    warps: int = 4
    stages: int = 2
    patch_last: bool = True


TILES = {
    "forward": Tile(16, 64, 32, patch_last=False),
    "forward, shared": Tile(32, 64, 32),
    "input gradient": Tile(128, 32, 16, stages=1),
    "weight gradient": Tile(16, 64, 32, warps=1, stages=1, patch_last=False),
    "weight gradient, shared": Tile(256, 128, 16, warps=8),
}
"""The fastest of several on an H200. *Shared* is the first layer: all runs see the same inputs."""


@triton.jit
def _forward_kernel(
    x,
    w,
    bias,
    out,
    which,
    channels,
    columns,
    examples,
    C: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    OUT: tl.constexpr,
    PATCH_H: tl.constexpr,
    PATCH_W: tl.constexpr,
    STEP_H: tl.constexpr,
    STEP_W: tl.constexpr,
    PAD_H: tl.constexpr,
    PAD_W: tl.constexpr,
    WINDOWS_H: tl.constexpr,
    WINDOWS_W: tl.constexpr,
    POSITIONS: tl.constexpr,
    PADDED: tl.constexpr,
    PATCH_LAST: tl.constexpr,
    RELU: tl.constexpr,
    WHICH: tl.constexpr,
    ROUNDED: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Rows are (run, channel, position), columns (example, window), the depth is the patch."""
    WINDOWS: tl.constexpr = WINDOWS_H * WINDOWS_W
    DEPTH: tl.constexpr = C * PATCH_H * PATCH_W
    tile_n, tile_m, group = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    rows = channels * PADDED
    row = tile_m * (BLOCK_M * PADDED) + tl.arange(0, BLOCK_M * PADDED)
    column = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    example, window = column // WINDOWS, column % WINDOWS
    top = (window // WINDOWS_W) * STEP_H - PAD_H
    left = (window % WINDOWS_W) * STEP_W - PAD_W
    here = example * (C * H * W) + top * W + left
    x += group.to(tl.int64) * examples * (C * H * W)
    w += group.to(tl.int64) * rows * DEPTH
    total = tl.zeros((BLOCK_M * PADDED, BLOCK_N), tl.float32)
    for start in range(0, DEPTH, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        known = (row < rows)[:, None] & (k < DEPTH)[None, :]
        a = tl.load(w + row[:, None] * DEPTH + k[None, :], mask=known, other=0.0)
        i, j = (k // PATCH_W) % PATCH_H, k % PATCH_W
        there = (k // (PATCH_H * PATCH_W)) * (H * W) + i * W + j
        if PATCH_LAST:
            inside = (column < columns)[:, None] & (k < DEPTH)[None, :]
            if PAD_H > 0 or PAD_W > 0:
                y, z = top[:, None] + i[None, :], left[:, None] + j[None, :]
                inside = inside & (y >= 0) & (y < H) & (z >= 0) & (z < W)
            b = tl.trans(tl.load(x + here[:, None] + there[None, :], mask=inside, other=0.0))
        else:
            inside = (column < columns)[None, :] & (k < DEPTH)[:, None]
            if PAD_H > 0 or PAD_W > 0:
                y, z = top[None, :] + i[:, None], left[None, :] + j[:, None]
                inside = inside & (y >= 0) & (y < H) & (z >= 0) & (z < W)
            b = tl.load(x + here[None, :] + there[:, None], mask=inside, other=0.0)
        total = tl.dot(a, b, total, input_precision=ROUNDED)
    channel = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    known = channel < channels
    added = tl.load(bias + group * channels + channel, mask=known, other=0.0).to(tl.float32)
    if POSITIONS > 1:
        if PADDED > POSITIONS:
            total = tl.where((row % PADDED < POSITIONS)[:, None], total, float("-inf"))
        best, position = tl.max(
            tl.reshape(total, (BLOCK_M, PADDED, BLOCK_N)), axis=1, return_indices=True
        )
    else:
        best, position = total, tl.zeros((BLOCK_M, BLOCK_N), tl.int32)
    best += added[:, None]
    run = group * (channels // OUT) + channel // OUT
    to_row = (run.to(tl.int64) * examples * OUT + channel % OUT) * WINDOWS
    to = to_row[:, None] + (example * (OUT * WINDOWS) + window)[None, :]
    mask = known[:, None] & (column < columns)[None, :]
    if RELU:
        position = tl.where(best > 0, position, -1)
        best = tl.where(best <= 0, 0.0, best)  # not-a-number stays
    tl.store(out + to, best.to(out.dtype.element_ty), mask=mask)
    if WHICH:
        tl.store(which + to, position.to(tl.int8), mask=mask)


@triton.jit
def _input_gradient_kernel(
    g,
    which,
    w,
    out,
    rows,
    examples,
    C: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    OUT: tl.constexpr,
    REACH_H: tl.constexpr,
    REACH_W: tl.constexpr,
    STEP_H: tl.constexpr,
    STEP_W: tl.constexpr,
    PAD_H: tl.constexpr,
    PAD_W: tl.constexpr,
    CELLS_H: tl.constexpr,
    CELLS_W: tl.constexpr,
    WINDOWS_H: tl.constexpr,
    WINDOWS_W: tl.constexpr,
    POSITIONS: tl.constexpr,
    WHICH: tl.constexpr,
    ROUNDED: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """Rows are (example, cell of the input), columns (channel, place in the cell).

    A cell is as large as the step from one window to the next. The depth is (window before, output
    channel), once for each position.
    """
    CELLS: tl.constexpr = CELLS_H * CELLS_W
    WINDOWS: tl.constexpr = WINDOWS_H * WINDOWS_W
    DEPTH: tl.constexpr = REACH_H * REACH_W * OUT
    COLUMNS: tl.constexpr = C * STEP_H * STEP_W
    tile_m, tile_n, run = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    row = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    example, cell = row // CELLS, row % CELLS
    cell_h, cell_w = cell // CELLS_W, cell % CELLS_W
    g += run * examples * (OUT * WINDOWS)
    which += run * examples * (OUT * WINDOWS)
    w += run * (POSITIONS * DEPTH * COLUMNS)
    here = example * (OUT * WINDOWS) + cell_h * WINDOWS_W + cell_w
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, DEPTH, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        channel, back = k % OUT, k // OUT
        back_h, back_w = back // REACH_W, back % REACH_W
        y, z = cell_h[:, None] - back_h[None, :], cell_w[:, None] - back_w[None, :]
        inside = (row < rows)[:, None] & (k < DEPTH)[None, :]
        inside = inside & (y >= 0) & (y < WINDOWS_H) & (z >= 0) & (z < WINDOWS_W)
        there = channel * WINDOWS - back_h * WINDOWS_W - back_w
        at = here[:, None] + there[None, :]
        values = tl.load(g + at, mask=inside, other=0.0)
        if WHICH:
            position = tl.load(which + at, mask=inside, other=-1)
        known = (k < DEPTH)[:, None] & (n < COLUMNS)[None, :]
        for p in tl.static_range(POSITIONS):
            a = values
            if WHICH:
                a = tl.where(position == p, values, 0.0)
            from_w = ((p * DEPTH + k) * COLUMNS)[:, None] + n[None, :]
            b = tl.load(w + from_w, mask=known, other=0.0)
            total = tl.dot(a, b, total, input_precision=ROUNDED)
    y = (cell_h * STEP_H - PAD_H)[:, None] + ((n // STEP_W) % STEP_H)[None, :]
    z = (cell_w * STEP_W - PAD_W)[:, None] + (n % STEP_W)[None, :]
    mask = (row < rows)[:, None] & (n < COLUMNS)[None, :] & (y >= 0) & (y < H) & (z >= 0) & (z < W)
    to = (example * (C * H * W))[:, None] + ((n // (STEP_H * STEP_W)) * (H * W))[None, :]
    out += run * examples * (C * H * W)
    tl.store(out + to + y * W + z, total.to(out.dtype.element_ty), mask=mask)


@triton.jit
def _weight_gradient_kernel(
    x,
    g,
    which,
    out,
    out_bias,
    rows,
    examples,
    C: tl.constexpr,
    H: tl.constexpr,
    W: tl.constexpr,
    OUT: tl.constexpr,
    KERNEL_H: tl.constexpr,
    KERNEL_W: tl.constexpr,
    STRIDE_H: tl.constexpr,
    STRIDE_W: tl.constexpr,
    PAD_H: tl.constexpr,
    PAD_W: tl.constexpr,
    DILATION_H: tl.constexpr,
    DILATION_W: tl.constexpr,
    WINDOWS_H: tl.constexpr,
    WINDOWS_W: tl.constexpr,
    POOL: tl.constexpr,
    PATCH_LAST: tl.constexpr,
    WHICH: tl.constexpr,
    ROUNDED: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """For one example: rows are (run, output channel), columns the kernel, the depth windows."""
    WINDOWS: tl.constexpr = WINDOWS_H * WINDOWS_W
    COLUMNS: tl.constexpr = C * KERNEL_H * KERNEL_W
    tile_n, tile_m, pair = tl.program_id(1), tl.program_id(2), tl.program_id(0)
    group, example = pair // examples, pair % examples
    row = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    i, j = (n // KERNEL_W) % KERNEL_H * DILATION_H, n % KERNEL_W * DILATION_W
    there = (n // (KERNEL_H * KERNEL_W)) * (H * W) + i * W + j
    x += pair.to(tl.int64) * (C * H * W)
    run = (group * (rows // OUT) + row // OUT).to(tl.int64)
    from_row = ((run * examples + example) * OUT + row % OUT) * WINDOWS
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    total_bias = tl.zeros((BLOCK_M,), tl.float32)
    for start in range(0, WINDOWS, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        known = (row < rows)[:, None] & (k < WINDOWS)[None, :]
        at = from_row[:, None] + k[None, :]
        values = tl.load(g + at, mask=known, other=0.0)
        if WHICH:
            position = tl.load(which + at, mask=known, other=-1)
            values = tl.where(position >= 0, values, 0.0)
        total_bias += tl.sum(values.to(tl.float32), axis=1)
        for p in tl.static_range(POOL * POOL):
            a = values
            if WHICH:
                a = tl.where(position == p, values, 0.0)
            top = ((k // WINDOWS_W) * POOL + p // POOL) * STRIDE_H - PAD_H
            left = ((k % WINDOWS_W) * POOL + p % POOL) * STRIDE_W - PAD_W
            here = top * W + left
            if PATCH_LAST:
                inside = (k < WINDOWS)[:, None] & (n < COLUMNS)[None, :]
                if PAD_H > 0 or PAD_W > 0:
                    y, z = top[:, None] + i[None, :], left[:, None] + j[None, :]
                    inside = inside & (y >= 0) & (y < H) & (z >= 0) & (z < W)
                b = tl.load(x + here[:, None] + there[None, :], mask=inside, other=0.0)
            else:
                inside = (k < WINDOWS)[None, :] & (n < COLUMNS)[:, None]
                if PAD_H > 0 or PAD_W > 0:
                    y, z = top[None, :] + i[:, None], left[None, :] + j[:, None]
                    inside = inside & (y >= 0) & (y < H) & (z >= 0) & (z < W)
                b = tl.trans(tl.load(x + here[None, :] + there[:, None], mask=inside, other=0.0))
            total = tl.dot(a, b, total, input_precision=ROUNDED)
    to_row = (run * examples + example) * OUT + row % OUT
    mask = (row < rows)[:, None] & (n < COLUMNS)[None, :]
    to = to_row[:, None] * COLUMNS + n[None, :]
    tl.store(out + to, total.to(out.dtype.element_ty), mask=mask)
    if tile_n == 0:
        tl.store(out_bias + to_row, total_bias.to(out_bias.dtype.element_ty), mask=row < rows)


def forward(weight: Tensor, bias: Tensor, inputs: Tensor, shape: Shape) -> tuple[Tensor, Tensor]:
    """As `dpaudit.engine.blocks.forward`."""
    runs, out_channels, channels = weight.shape[:3]
    groups, examples, _, height, width = inputs.shape
    windows = shape.windows(inputs.shape[3:])
    patch, rows = shape.patch, runs // groups * out_channels
    arranged = _picked(weight, _forward_table(shape, out_channels, channels, weight.device))
    out = inputs.new_empty(runs, examples, out_channels, *windows)
    which = torch.empty(
        out.shape if shape.selects else (0,), dtype=torch.int8, device=inputs.device
    )
    columns = examples * windows[0] * windows[1]
    tile = TILES["forward, shared" if groups == 1 else "forward"]
    block_m = min(_power(rows), tile.rows)
    _forward_kernel[(triton.cdiv(columns, tile.columns), triton.cdiv(rows, block_m), groups)](
        inputs,
        arranged,
        bias.contiguous(),
        out,
        which,
        rows,
        columns,
        examples,
        C=channels,
        H=height,
        W=width,
        OUT=out_channels,
        PATCH_H=patch[0],
        PATCH_W=patch[1],
        STEP_H=shape.step[0],
        STEP_W=shape.step[1],
        PAD_H=shape.padding[0],
        PAD_W=shape.padding[1],
        WINDOWS_H=windows[0],
        WINDOWS_W=windows[1],
        POSITIONS=shape.pool**2,
        PADDED=triton.next_power_of_2(shape.pool**2),
        PATCH_LAST=tile.patch_last,
        RELU=shape.relu,
        WHICH=shape.selects,
        ROUNDED=_rounded(inputs),
        BLOCK_M=block_m,
        BLOCK_N=tile.columns,
        BLOCK_K=tile.depth,
        num_warps=tile.warps,
        num_stages=tile.stages,
    )
    return out, which


def input_gradient(
    weight: Tensor, gradient: Tensor, which: Tensor, size: tuple[int, int], shape: Shape
) -> Tensor:
    """As `dpaudit.engine.blocks.input_gradient`."""
    runs, out_channels, channels = weight.shape[:3]
    examples, windows = gradient.shape[1], gradient.shape[3:]
    cells = shape.cells(size)
    table = _input_table(shape, out_channels, channels, weight.device)
    out = gradient.new_empty(runs, examples, channels, *size)
    rows, columns = examples * cells[0] * cells[1], channels * shape.step[0] * shape.step[1]
    tile = TILES["input gradient"]
    block_n = min(_power(columns), tile.columns)
    _input_gradient_kernel[(triton.cdiv(rows, tile.rows), triton.cdiv(columns, block_n), runs)](
        gradient,
        which,
        _picked(weight, table),
        out,
        rows,
        examples,
        C=channels,
        H=size[0],
        W=size[1],
        OUT=out_channels,
        REACH_H=shape.reach[0],
        REACH_W=shape.reach[1],
        STEP_H=shape.step[0],
        STEP_W=shape.step[1],
        PAD_H=shape.padding[0],
        PAD_W=shape.padding[1],
        CELLS_H=cells[0],
        CELLS_W=cells[1],
        WINDOWS_H=windows[0],
        WINDOWS_W=windows[1],
        POSITIONS=shape.pool**2,
        WHICH=shape.selects,
        ROUNDED=_rounded(gradient),
        BLOCK_M=tile.rows,
        BLOCK_N=block_n,
        BLOCK_K=tile.depth,
        num_warps=tile.warps,
        num_stages=tile.stages,
    )
    return out


def weight_gradient(
    inputs: Tensor, gradient: Tensor, which: Tensor, shape: Shape
) -> tuple[Tensor, Tensor]:
    """As `dpaudit.engine.blocks.weight_gradient`."""
    groups, examples, channels, height, width = inputs.shape
    runs, _, out_channels = gradient.shape[:3]
    out = gradient.new_empty(runs, examples, out_channels, channels, *shape.kernel)
    out_bias = gradient.new_empty(runs, examples, out_channels)
    rows, columns = runs // groups * out_channels, out[0, 0, 0].numel()
    tile = TILES["weight gradient, shared" if groups == 1 else "weight gradient"]
    block_m, block_n = min(_power(rows), tile.rows), min(_power(columns), tile.columns)
    grid = (groups * examples, triton.cdiv(columns, block_n), triton.cdiv(rows, block_m))
    _weight_gradient_kernel[grid](
        inputs,
        gradient,
        which,
        out,
        out_bias,
        rows,
        examples,
        C=channels,
        H=height,
        W=width,
        OUT=out_channels,
        KERNEL_H=shape.kernel[0],
        KERNEL_W=shape.kernel[1],
        STRIDE_H=shape.stride[0],
        STRIDE_W=shape.stride[1],
        PAD_H=shape.padding[0],
        PAD_W=shape.padding[1],
        DILATION_H=shape.dilation[0],
        DILATION_W=shape.dilation[1],
        WINDOWS_H=gradient.shape[3],
        WINDOWS_W=gradient.shape[4],
        POOL=shape.pool,
        PATCH_LAST=tile.patch_last,
        WHICH=shape.selects,
        ROUNDED=_rounded(gradient),
        BLOCK_M=block_m,
        BLOCK_N=block_n,
        BLOCK_K=tile.depth,
        num_warps=tile.warps,
        num_stages=tile.stages,
    )
    return out, out_bias


def _picked(weight: Tensor, table: Tensor) -> Tensor:
    """(runs, *table): the weights that ``table`` names; the number after the last is a zero."""
    return torch.nn.functional.pad(weight.flatten(1), (0, 1))[:, table]


@functools.cache
def _forward_table(shape: Shape, outputs: int, channels: int, device: torch.device) -> Tensor:
    """Weights by (output channel, position) and (channel, place in the patch)."""
    pool, (height, width) = shape.pool, shape.patch
    o, dy, dx, c, u, v = _axes(outputs, pool, pool, channels, height, width)
    down, right = u - dy * shape.stride[0], v - dx * shape.stride[1]
    numbers = _numbers(shape, outputs, channels, o, c, down, right).flatten(3).flatten(1, 2)
    missing = triton.next_power_of_2(pool**2) - pool**2
    zero = outputs * channels * shape.kernel[0] * shape.kernel[1]
    padded = torch.nn.functional.pad(numbers, (0, 0, 0, missing), value=zero)
    return padded.flatten(0, 1).to(device)


@functools.cache
def _input_table(shape: Shape, outputs: int, channels: int, device: torch.device) -> Tensor:
    """Weights by (position, window before, output channel) and (channel, place in the cell)."""
    sizes = (shape.pool, shape.pool, *shape.reach, outputs, channels, *shape.step)
    dy, dx, back_h, back_w, o, c, a, b = _axes(*sizes)
    down = back_h * shape.step[0] + a - dy * shape.stride[0]
    right = back_w * shape.step[1] + b - dx * shape.stride[1]
    numbers = _numbers(shape, outputs, channels, o, c, down, right)
    return numbers.flatten(5).flatten(0, 4).to(device)


def _axes(*sizes: int) -> tuple[Tensor, ...]:
    return torch.meshgrid(*(torch.arange(size) for size in sizes), indexing="ij")


def _numbers(
    shape: Shape, outputs: int, channels: int, o: Tensor, c: Tensor, down: Tensor, right: Tensor
) -> Tensor:
    """The number of each weight, by its channels and its distance from the kernel's corner."""
    (height, width), (dilation_h, dilation_w) = shape.kernel, shape.dilation
    i, j = down.div(dilation_h, rounding_mode="floor"), right.div(dilation_w, rounding_mode="floor")
    inside = (i * dilation_h == down) & (j * dilation_w == right)
    inside &= (i >= 0) & (i < height) & (j >= 0) & (j < width)
    numbers = ((o * channels + c) * height + i) * width + j
    return torch.where(inside, numbers, outputs * channels * height * width)


def _power(number: int) -> int:
    """The smallest power of two that is not below ``number``, and at least 16."""
    return max(16, int(triton.next_power_of_2(number)))


def _rounded(values: Tensor) -> str:
    return "tf32" if values.dtype == torch.float32 else "ieee"
