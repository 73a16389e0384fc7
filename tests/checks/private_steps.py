"""Private steps for the tests: one that is right, and the field's bugs, each a few lines away."""

from __future__ import annotations

import numpy as np

CLIP, SIGMA, BATCH, TENSORS = 2.0, 1.1, 16, 4


def norms_of(gradients):
    """Norms that do not overflow."""
    largest = np.maximum(np.abs(gradients).max(axis=1, keepdims=True), 1e-300)
    return np.linalg.norm(gradients / largest, axis=1, keepdims=True) * largest


def clipped(gradients, clip=CLIP):
    finite = np.isfinite(gradients).all(axis=1, keepdims=True)
    gradients = np.where(finite, gradients, 0.0)
    return gradients * np.minimum(1, clip / np.maximum(norms_of(gradients), 1e-300))


def noise(parameters, seed, scale=SIGMA * CLIP):
    return np.random.default_rng(seed).normal(0, scale, parameters)


def tensors(gradients):
    """Views of four equal parts, as if they were four parameter tensors."""
    return np.split(gradients, TENSORS, axis=-1)


def correct(gradients, seed):
    return (clipped(gradients).sum(axis=0) + noise(gradients.shape[1], seed)) / BATCH


def sum_with_learning_rate(gradients, seed):
    return -3e-4 * (clipped(gradients).sum(axis=0) + noise(gradients.shape[1], seed))


def in_float32(gradients, seed):
    with np.errstate(over="ignore"):
        gradients = gradients.astype(np.float32)
    total = clipped(gradients.astype(np.float64)).astype(np.float32).sum(axis=0)
    return (total + noise(gradients.shape[1], seed).astype(np.float32)) / np.float32(BATCH)


def learning_rate_per_tensor(gradients, seed):
    rates = np.repeat([1.0, 0.1, 0.01, 3.0], gradients.shape[1] // TENSORS)
    return rates * correct(gradients, seed)


def per_tensor_claimed_rightly(gradients, seed):
    parts = [clipped(part, CLIP / np.sqrt(TENSORS)) for part in tensors(gradients)]
    return np.hstack(parts).sum(axis=0) + noise(gradients.shape[1], seed)


def normalised(gradients, seed):
    """Every gradient gets norm C, however short it is: allowed, for it is C at most."""
    gradients = np.where(np.isfinite(gradients).all(axis=1, keepdims=True), gradients, 0.0)
    lengths = norms_of(gradients)
    unit = np.where(lengths > 1e-290, gradients / np.maximum(lengths, 1e-290), 0.0)
    return (CLIP * unit).sum(axis=0) + noise(gradients.shape[1], seed)


def frozen_tensor(gradients, seed):
    trained = np.repeat([1.0, 0.0, 1.0, 1.0], gradients.shape[1] // TENSORS)
    return trained * correct(gradients, seed)


def over_noised(gradients, seed):
    return clipped(gradients).sum(axis=0) + noise(gradients.shape[1], seed, SIGMA * CLIP**2)


CORRECT = (
    correct,
    sum_with_learning_rate,
    in_float32,
    learning_rate_per_tensor,
    per_tensor_claimed_rightly,
    normalised,
    frozen_tensor,
)


def no_noise(gradients, seed):
    return clipped(gradients).sum(axis=0)


def constant_seed(gradients, seed):
    return correct(gradients, 0)


def noise_missing_in_one_tensor(gradients, seed):
    noisy = noise(gradients.shape[1], seed)
    tensors(noisy)[2][:] = 0.0
    return clipped(gradients).sum(axis=0) + noisy


def noise_for_the_mean_on_the_sum(gradients, seed):
    return clipped(gradients).sum(axis=0) + noise(gradients.shape[1], seed) / BATCH


def noise_a_tenth_too_small(gradients, seed):
    return clipped(gradients).sum(axis=0) + 0.9 * noise(gradients.shape[1], seed)


def noise_too_small_in_one_tensor(gradients, seed):
    noisy = noise(gradients.shape[1], seed)
    tensors(noisy)[1][:] *= 0.5
    tensors(noisy)[3][:] *= 2.0
    return clipped(gradients).sum(axis=0) + noisy


def mean_clipped(gradients, seed):
    mean = clipped(gradients.mean(axis=0, keepdims=True))[0]
    return mean + noise(gradients.shape[1], seed) / BATCH


def means_of_microbatches_clipped(gradients, seed):
    padded = np.vstack([gradients, np.zeros((-len(gradients) % 4, gradients.shape[1]))])
    means = padded.reshape(-1, 4, gradients.shape[1]).mean(axis=1)
    return clipped(means).sum(axis=0) + noise(gradients.shape[1], seed) / 4


def clip_norm_ignored(gradients, seed):
    return gradients.sum(axis=0) + noise(gradients.shape[1], seed)


def clipped_to_another_norm(gradients, seed):
    return clipped(gradients, 5 * CLIP).sum(axis=0) + noise(gradients.shape[1], seed)


def optimizer_inactive(gradients, seed):
    return gradients.mean(axis=0)


def raw_gradient_mixed_in(gradients, seed):
    return correct(gradients, seed) + 0.5 * gradients.mean(axis=0)


def a_little_raw_gradient_mixed_in(gradients, seed):
    return correct(gradients, seed) + 1e-3 * gradients.mean(axis=0)


def same_key_for_every_tensor(gradients, seed):
    repeated = np.tile(noise(gradients.shape[1] // TENSORS, seed), TENSORS)
    return clipped(gradients).sum(axis=0) + repeated


def one_draw_for_everything(gradients, seed):
    return clipped(gradients).sum(axis=0) + noise(1, seed)


def noise_with_a_common_part(gradients, seed):
    common, own = noise(1, seed + 1), noise(gradients.shape[1], seed)
    return clipped(gradients).sum(axis=0) + np.sqrt(0.1) * common + np.sqrt(0.9) * own


def clipped_per_tensor(gradients, seed):
    parts = [clipped(part) for part in tensors(gradients)]
    return np.hstack(parts).sum(axis=0) + noise(gradients.shape[1], seed)


def clipped_per_entry(gradients, seed):
    cut = np.clip(np.nan_to_num(gradients, nan=0.0), -CLIP, CLIP)
    return cut.sum(axis=0) + noise(gradients.shape[1], seed)


def nan_survives(gradients, seed):
    factor = np.minimum(1, CLIP / np.maximum(norms_of(gradients), 1e-300))
    return (gradients * factor).sum(axis=0) + noise(gradients.shape[1], seed)


def overflowing_norm_not_clipped(gradients, seed):
    gradients = np.where(np.isfinite(gradients).all(axis=1, keepdims=True), gradients, 0.0)
    lengths = np.sqrt((gradients**2).sum(axis=1, keepdims=True))
    factor = np.where(np.isfinite(lengths), CLIP / np.maximum(lengths, CLIP), 1.0)
    return (gradients * factor).sum(axis=0) + noise(gradients.shape[1], seed)


def zero_over_zero(gradients, seed):
    gradients = gradients[np.isfinite(gradients).all(axis=1)]
    lengths = np.linalg.norm(gradients, axis=1, keepdims=True)
    unit = gradients / lengths
    return (unit * np.minimum(lengths, CLIP)).sum(axis=0) + noise(gradients.shape[1], seed)


def divided_by_the_actual_batch(gradients, seed):
    total = clipped(gradients).sum(axis=0) + noise(gradients.shape[1], seed)
    return total / len(gradients)


def seed_cut_to_a_byte(gradients, seed):
    return correct(gradients, seed % 256)


def seed_cut_to_a_digit(gradients, seed):
    return correct(gradients, seed % 10)


def empty_batch_skipped(gradients, seed):
    return correct(gradients, seed) if len(gradients) else np.zeros(gradients.shape[1])


def empty_batch_fails(gradients, seed):
    return correct(gradients / bool(len(gradients)), seed) if len(gradients) else gradients[0]


class GradientsNotZeroed:
    """Keeps its sum, as an optimizer does whose zero_grad is never called."""

    __name__ = "gradients_not_zeroed"

    def __init__(self):
        self.total = 0.0

    def __call__(self, gradients, seed):
        self.total = self.total + clipped(gradients).sum(axis=0)
        return self.total + noise(gradients.shape[1], seed)


BOUNDED = "bounded contribution"
DATA = "noise independent of the data"
THERE = "noise in every parameter"
SIZE = "noise size"
PARAMETERS = "noise differs between parameters"
RUNS = "noise differs between runs"

BUGS = (
    (no_noise, {THERE}),
    (constant_seed, {THERE}),
    (noise_missing_in_one_tensor, {THERE}),
    (noise_for_the_mean_on_the_sum, {SIZE}),
    (noise_a_tenth_too_small, {SIZE}),
    (noise_too_small_in_one_tensor, {SIZE}),
    (mean_clipped, {BOUNDED}),
    (means_of_microbatches_clipped, {BOUNDED}),
    (clip_norm_ignored, {BOUNDED}),
    (clipped_to_another_norm, {BOUNDED}),
    (optimizer_inactive, {BOUNDED, THERE}),
    (raw_gradient_mixed_in, {BOUNDED}),
    (a_little_raw_gradient_mixed_in, {BOUNDED}),
    (same_key_for_every_tensor, {PARAMETERS}),
    (one_draw_for_everything, {PARAMETERS}),
    (noise_with_a_common_part, {PARAMETERS}),
    (clipped_per_tensor, {BOUNDED}),
    (clipped_per_entry, {BOUNDED}),
    (overflowing_norm_not_clipped, {BOUNDED}),
    (zero_over_zero, {BOUNDED}),
    (divided_by_the_actual_batch, {DATA}),
    (seed_cut_to_a_byte, {RUNS}),
    (seed_cut_to_a_digit, {RUNS}),
    (empty_batch_skipped, {DATA}),
    (GradientsNotZeroed(), {"contribution to its own step only"}),
)
