r"""Counter-based random numbers: every draw is a function of where it is used.

With a stateful generator the noise of a run would depend on the order of runs. Here the random
word for (seed, stream, run, step, coordinate) is the value of the block cipher Philox4x32-10 at
that counter. The noise of a run is therefore the same in every tile size, with any number of
threads and after a restart. It is plain arithmetic, which the compiler fuses into the update.

Paper:
    Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3 (SC 2011), section 3.3.
    Box, Muller: A note on the generation of random normal deviates (1958).
"""

from __future__ import annotations

import enum
import math

import torch
from torch import Tensor

from dpaudit import _validate

Words = tuple[Tensor, Tensor, Tensor, Tensor]

_LOW = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53 - 2**32, 0xCD9E8D57 - 2**32)
"""Philox's multipliers minus 2**32; the other factor is added to the high word to correct this."""
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10


class Stream(enum.IntEnum):
    """The purpose of a random word. Different streams of one seed are independent."""

    NOISE = 0
    INSERTION = 1
    PARTICIPATION = 2
    INITIALISATION = 3
    AUGMENTATION = 5
    SIMULATED_NOISE = 4
    """Simulations by adversaries: independent of the game's noise even with the same seed."""


def key(seed: int, device: torch.device | str = "cpu") -> Tensor:
    """The Philox key of ``seed``: its low and its high 32 bits, shape (2,).

    Example:
        >>> key(2**32 + 7).tolist()
        [7, 1]
    """
    seed = _validate.seed(seed)
    return torch.tensor([seed & _LOW, seed >> 32], dtype=torch.int64, device=device)


def philox(counter: Words, key: Tensor) -> Words:
    """Philox4x32-10: four 32-bit words, held in int64, for every counter.

    The words of counter and key are below 2**32, of shapes that broadcast.

    Example:
        >>> zero = torch.zeros((), dtype=torch.int64)
        >>> [hex(int(word)) for word in philox((zero,) * 4, torch.zeros(2, dtype=torch.int64))]
        ['0x6627e8d5', '0xe169c58d', '0xbc57ac4c', '0x9b00dbd8']
    """
    first, second, third, fourth = counter
    left, right = key[0], key[1]
    for _ in range(_ROUNDS):
        # Both products fit in 63 bits. With Philox's own multipliers they would need 64, and
        # signed overflow is undefined in C++, although eager int64 arithmetic wraps.
        first_product, second_product = first * _MULTIPLIERS[0], third * _MULTIPLIERS[1]
        high_one, high_two = (first_product >> 32) + first, (second_product >> 32) + third
        first, third = high_two ^ second ^ left, high_one ^ fourth ^ right
        second, fourth = second_product & _LOW, first_product & _LOW
        left, right = (left + _WEYL[0]) & _LOW, (right + _WEYL[1]) & _LOW
    return first, second, third, fourth


def words(key: Tensor, stream: Stream, runs: Tensor, step: Tensor, count: int) -> Words:
    """Four words for each (run, place) with place 0, …, count - 1; shape (runs, count)."""
    places = torch.arange(count, dtype=torch.int64, device=runs.device)
    tag = torch.full((), int(stream), dtype=torch.int64, device=runs.device)
    # The place is the second word, which the cipher never multiplies: triton keeps an index from
    # `arange` in 32 bits, too few for a product with Philox's multipliers.
    return philox((runs.unsqueeze(1), places.unsqueeze(0), step, tag), key)


def normals(
    key: Tensor,
    stream: Stream,
    runs: Tensor,
    step: Tensor,
    count: int,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    r"""Standard normal variables for ``count`` coordinates of every run at one step.

    Two words give the radius and the angle of a pair (Box-Muller). The radius comes from 32 bits,
    offset by a half so that its logarithm is finite; small values keep full floating-point
    precision. The largest normal is therefore :math:`\sqrt{66 \ln 2} = 6.76`; the normal
    distribution has mass 1.4e-11 beyond it. Word i of block j gives coordinate
    ``i * ceil(count / 4) + j``: four contiguous rows, which vectorise well.

    The step is a scalar tensor, so that one compiled graph serves all steps. float64 gives the
    numbers of the same words with more digits.

    Example:
        >>> runs, step = torch.arange(5), torch.tensor(3)
        >>> noise = normals(key(0), Stream.NOISE, runs, step, count=6)
        >>> torch.allclose(noise[2:3], normals(key(0), Stream.NOISE, runs[2:3], step, count=6))
        True
    """
    first, second, third, fourth = words(key, stream, runs, step, (count + 3) // 4)
    pairs = (*_box_muller(first, second, dtype), *_box_muller(third, fourth, dtype))
    return torch.cat(pairs, dim=1)[:, :count]


def uniforms(key: Tensor, stream: Stream, runs: Tensor, step: Tensor, count: int) -> Tensor:
    """Uniform variables in (0, 1), float64, shape (runs, count)."""
    return (words(key, stream, runs, step, count)[0].to(torch.float64) + 0.5) * 2.0**-32


def _box_muller(radius: Tensor, angle: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    length = torch.sqrt(-2 * torch.log((radius.to(dtype) + 0.5) * 2.0**-32))
    turn = angle.to(dtype) * (2 * math.pi * 2.0**-32)
    return length * torch.cos(turn), length * torch.sin(turn)
