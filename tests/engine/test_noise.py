"""Philox against its authors' vectors, and normals against the normal distribution."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import special

from dpaudit.engine import noise
from dpaudit.engine.noise import Stream
from dpaudit.errors import InvalidInput

# kat_vectors of the Random123 distribution, "philox4x32 10": counter, key, output.
KNOWN_ANSWERS = [
    ([0, 0, 0, 0], [0, 0], [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    (
        [0xFFFFFFFF] * 4,
        [0xFFFFFFFF] * 2,
        [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD],
    ),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        [0xA4093822, 0x299F31D0],
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]

STEP = torch.tensor(0)


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN_ANSWERS)
def test_philox_gives_the_known_answers(
    counter: list[int], key: list[int], expected: list[int]
) -> None:
    tensors = [torch.tensor(word) for word in counter]
    words = noise.philox((tensors[0], tensors[1], tensors[2], tensors[3]), torch.tensor(key))
    assert [int(word) for word in words] == expected


def test_random_words_collide_at_the_expected_rate() -> None:
    """A million counters: as many equal pairs as among a million random words."""
    first, *_ = noise.words(noise.key(9), Stream.NOISE, torch.arange(1000), STEP, 1000)
    distinct = len(torch.unique(first))
    collisions = 1e6**2 / 2 / 2**32  # a birthday count, Poisson with mean 116
    assert abs((1_000_000 - distinct) - collisions) < 6 * math.sqrt(collisions)


def _sample(seed: int = 1) -> np.ndarray:
    draws = noise.normals(noise.key(seed), Stream.NOISE, torch.arange(500), STEP, 4000)
    return draws.numpy().astype(np.float64)


def test_normals_follow_the_normal_distribution() -> None:
    sample = np.sort(_sample().ravel())
    # Kolmogorov: the largest gap between empirical and true distribution, at 1 in 10^6.
    empirical = (np.arange(sample.size) + 0.5) / sample.size
    gap = np.abs(special.ndtr(sample) - empirical).max()
    assert gap < math.sqrt(-math.log(1e-6 / 2) / 2 / sample.size)


@pytest.mark.parametrize("beyond", [3.0, 4.0, 4.5])
def test_tails_have_the_normal_mass(beyond: float) -> None:
    sample = np.concatenate([_sample(seed).ravel() for seed in (2, 3, 4)])
    for tail in (sample > beyond, sample < -beyond):
        expected = sample.size * special.ndtr(-beyond)
        assert abs(tail.sum() - expected) < 5 * math.sqrt(expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extreme_words_give_finite_normals(dtype: torch.dtype) -> None:
    extremes = torch.tensor([0, 1, 2**31, 2**32 - 2, 2**32 - 1])
    radius, angle = torch.meshgrid(extremes, extremes, indexing="ij")
    for draw in noise._box_muller(radius, angle, dtype):
        assert torch.isfinite(draw).all()
        assert draw.abs().max() <= math.sqrt(66 * math.log(2)) * (1 + 1e-6)


def test_runs_steps_coordinates_and_streams_are_uncorrelated() -> None:
    runs = torch.arange(400)
    here = noise.normals(noise.key(5), Stream.NOISE, runs, torch.tensor(7), 1000)
    others = {
        "step": noise.normals(noise.key(5), Stream.NOISE, runs, torch.tensor(8), 1000),
        "run": noise.normals(noise.key(5), Stream.NOISE, runs + 1, torch.tensor(7), 1000),
        "seed": noise.normals(noise.key(6), Stream.NOISE, runs, torch.tensor(7), 1000),
        "high seed": noise.normals(noise.key(5 + 2**32), Stream.NOISE, runs, torch.tensor(7), 1000),
        "stream": noise.normals(noise.key(5), Stream.SIMULATED_NOISE, runs, torch.tensor(7), 1000),
        "coordinate": here.roll(1, dims=1),
        "row of the block": here.roll(250, dims=1),
    }
    for what, there in others.items():
        correlation = float((here * there).mean())
        assert abs(correlation) < 5 / math.sqrt(here.numel()), what
        squares = float(((here**2 - 1) * (there**2 - 1)).mean()) / 2
        assert abs(squares) < 5 / math.sqrt(here.numel()) * 2, what


def test_the_noise_of_a_run_does_not_depend_on_its_tile() -> None:
    whole = noise.words(noise.key(3), Stream.NOISE, torch.arange(10), STEP, 17)
    part = noise.words(noise.key(3), Stream.NOISE, torch.tensor([7, 2]), STEP, 17)
    for entire, some in zip(whole, part, strict=True):
        assert torch.equal(entire[[7, 2]], some)


def test_float64_refines_the_same_numbers() -> None:
    runs = torch.arange(50)
    single = noise.normals(noise.key(3), Stream.NOISE, runs, STEP, 101)
    double = noise.normals(noise.key(3), Stream.NOISE, runs, STEP, 101, torch.float64)
    torch.testing.assert_close(single.double(), double, rtol=1e-5, atol=1e-5)


def test_uniforms_are_uniform() -> None:
    sample = np.sort(
        noise.uniforms(noise.key(8), Stream.INSERTION, torch.arange(1000), STEP, 200)
        .numpy()
        .ravel()
    )
    assert sample[0] > 0
    assert sample[-1] < 1
    gap = np.abs(sample - (np.arange(sample.size) + 0.5) / sample.size).max()
    assert gap < math.sqrt(-math.log(1e-6 / 2) / 2 / sample.size)


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_seeds_out_of_range_are_refused(seed: int) -> None:
    with pytest.raises(InvalidInput, match="seed"):
        noise.key(seed)
