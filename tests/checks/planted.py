"""Planted bugs and correct but unusual trainings, in numpy, that the catalogue does not have."""

from __future__ import annotations

import numpy as np
import private_steps as steps

CLIP, SIGMA, SIZE, RATE = 1.5, 0.9, 600, 0.05
FEATURES = np.random.default_rng(0).normal(size=(12, SIZE))
TARGETS = np.random.default_rng(1).normal(size=12)


def rows_of(theta, canary, inserted):
    """Gradients of least squares, and the canary."""
    own = (FEATURES @ theta - TARGETS)[:, None] * FEATURES / 20
    return np.vstack([own, canary.rows(inserted)])


def noise(random, scale=SIGMA * CLIP):
    return random.normal(0, scale, SIZE)


def trained(update, *, start=0.3):
    """A training that calls ``update(theta, state, step, total, random)`` in every step."""

    def train(canary, inserted, seed, steps=8):
        random, theta, state = np.random.default_rng(seed), np.full(SIZE, start), {}
        for step in range(steps):
            rows = rows_of(theta, canary, inserted)
            theta = update(theta, state, step, rows, random)
        return state.get("returned", theta)

    train.__name__ = update.__name__
    return train


def private(rows, random, clip=CLIP, scale=None):
    return steps.clipped(rows, clip).sum(axis=0) + noise(
        random, SIGMA * clip if scale is None else scale
    )


def descend(theta, gradient, rate=RATE):
    return theta - rate / 12 * gradient


# --- Correct but unusual. -------------------------------------------------------------------------


def automatic(gamma):
    def automatic_clipping(theta, state, step, rows, random):
        rows = np.where(np.isfinite(rows).all(axis=1, keepdims=True), rows, 0.0)
        scaled = CLIP * rows / (steps.norms_of(rows) + gamma)
        return descend(theta, scaled.sum(axis=0) + noise(random))

    automatic_clipping.__name__ = f"automatic_clipping_{gamma:g}"
    return automatic_clipping


def averaged_with_momentum(theta, state, step, rows, random):
    state["v"] = 0.8 * state.get("v", 0.0) + private(rows, random)
    theta = descend(theta, state["v"])
    state["ema"] = 0.5 * state.get("ema", np.full(SIZE, 0.3)) + 0.5 * theta
    state["returned"] = state["ema"]
    return theta


def nesterov(theta, state, step, rows, random):
    gradient = private(rows, random)
    state["v"] = 0.9 * state.get("v", 0.0) + gradient
    return descend(theta, gradient + 0.9 * state["v"])


BASIS = np.linalg.qr(np.random.default_rng(5).normal(size=(SIZE, 300)))[0]


def small_subspace(theta, state, step, rows, random):
    basis = BASIS[:, :20]
    return descend(theta, basis @ (basis.T @ private(rows, random)))


def clipped_in_a_subspace(theta, state, step, rows, random):
    inside = steps.clipped(rows @ BASIS, CLIP).sum(axis=0)
    return descend(theta, BASIS @ (inside + random.normal(0, SIGMA * CLIP, BASIS.shape[1])))


def top_k_after_noise(theta, state, step, rows, random):
    gradient = private(rows, random)
    return descend(
        theta, np.where(np.abs(gradient) >= np.sort(np.abs(gradient))[-100], gradient, 0)
    )


def clamped_after_noise(theta, state, step, rows, random):
    return descend(theta, np.clip(private(rows, random), -1.0, 1.0))


def normalised_after_noise(theta, state, step, rows, random):
    gradient = private(rows, random)
    return descend(theta, gradient / np.linalg.norm(gradient))


def norm_clipped_after_noise(theta, state, step, rows, random):
    gradient = private(rows, random)
    return descend(theta, gradient * min(1.0, 30.0 / np.linalg.norm(gradient)))


def ball_projection(theta, state, step, rows, random):
    theta = descend(theta, private(rows, random))
    return theta * min(1.0, 7.0 / np.linalg.norm(theta))


def warm_up_and_decay(theta, state, step, rows, random):
    return descend(0.999 * theta, private(rows, random), RATE * min(step + 1, 4) / (1 + 0.1 * step))


def growing_noise(theta, state, step, rows, random):
    return descend(theta, private(rows, random, scale=SIGMA * CLIP * 1.05**step))


def quantised_with_discrete_noise(theta, state, step, rows, random):
    grid = CLIP / 64
    whole = np.trunc(steps.clipped(rows, CLIP) / grid).sum(axis=0)
    return descend(theta, grid * (whole + np.round(random.normal(0, 1.01 * SIGMA * 64, SIZE))))


def dropout_of_the_seed(theta, state, step, rows, random):
    kept = np.vstack([rows[:12] * (random.random((12, SIZE)) < 0.9), rows[12:]])
    return descend(theta, private(kept, random))


def adagrad_with_weight_decay(theta, state, step, rows, random):
    """The first step is a sign, which the decay decides where it is larger than the noise."""
    gradient = private(rows, random) + np.where(np.arange(SIZE) < 30, 20.0, 0.0) * theta
    state["v"] = state.get("v", 0.0) + gradient**2
    return theta - 0.05 * gradient / (np.sqrt(state["v"]) + 1e-8)


def tanh_after_noise(theta, state, step, rows, random):
    return theta - RATE * np.tanh(0.3 * private(rows, random))


def rates_of_layers(theta, state, step, rows, random):
    """Each layer has a clip norm and a learning rate of its own; the vector is flat."""
    parts = np.split(rows, (100, 350, 430), axis=1)
    clipped = np.hstack([steps.clipped(part, CLIP / 2) for part in parts]).sum(axis=0)
    rates = RATE * np.repeat([1.0, 0.1, 3.0, 0.5], (100, 250, 80, SIZE - 430))
    return theta - rates / 12 * (clipped + noise(random))


def longest_dropped(theta, state, step, rows, random):
    lengths = np.nan_to_num(steps.norms_of(rows)[:, 0], nan=np.inf)
    return descend(theta, private(np.delete(rows, lengths.argmax(), axis=0), random))


def halfway_back_to_the_start(theta, state, step, rows, random):
    theta = descend(theta, private(rows, random))
    return (theta + 0.3) / 2 if step % 4 == 3 else theta


def global_generator(canary, inserted, seed, steps=8):
    """Noise from numpy's global generator, which nobody seeds."""
    theta = np.full(SIZE, 0.3)
    for _ in range(steps):
        theta = descend(theta, private(rows_of(theta, canary, inserted), np.random))
    return theta


CORRECT = (
    *map(
        trained,
        (
            automatic(0.01),
            automatic(5.0),
            averaged_with_momentum,
            nesterov,
            small_subspace,
            clipped_in_a_subspace,
            top_k_after_noise,
            clamped_after_noise,
            normalised_after_noise,
            norm_clipped_after_noise,
            ball_projection,
            warm_up_and_decay,
            growing_noise,
            quantised_with_discrete_noise,
            dropout_of_the_seed,
            adagrad_with_weight_decay,
            tanh_after_noise,
            rates_of_layers,
            longest_dropped,
            halfway_back_to_the_start,
        ),
    ),
    global_generator,
)


# --- Chosen by a loss: private only if the loss is of public data, which no canary shows. ---------


def loss(theta):
    return float(((FEATURES @ theta - TARGETS) ** 2).mean())


def best_iterate(theta, state, step, rows, random):
    theta = descend(theta, private(rows, random), rate=10 * RATE)
    if loss(theta) < 0.9 * state.get("least", np.inf):
        state["least"], state["returned"] = loss(theta), theta
    return theta


def plateau(theta, state, step, rows, random):
    rate = state.setdefault("rate", 10 * RATE)
    theta = descend(theta, private(rows, random), rate=rate)
    if loss(theta) > 0.98 * state.get("least", np.inf):
        state["rate"] = rate / 2
    state["least"] = min(loss(theta), state.get("least", np.inf))
    return theta


def stopped_early(canary, inserted, seed, steps=8):
    random, theta, least = np.random.default_rng(seed), np.full(SIZE, 0.3), np.inf
    for _ in range(steps):
        theta = descend(theta, private(rows_of(theta, canary, inserted), random), rate=10 * RATE)
        if loss(theta) > 0.95 * least:
            break
        least = min(least, loss(theta))
    return theta


def best_of_three(canary, inserted, seed, steps=8):
    runs = [trained(growing_noise)(canary, inserted, 10 * seed + run, steps) for run in range(3)]
    return min(runs, key=loss)


CHOSEN = (trained(best_iterate), trained(plateau), stopped_early, best_of_three)


# --- Wrong. ---------------------------------------------------------------------------------------


def best_of_two_draws(theta, state, step, rows, random):
    one, other = noise(random), noise(random)
    drawn = one if one @ one < other @ other else other
    return descend(theta, steps.clipped(rows, CLIP).sum(axis=0) + drawn)


def noise_scaled_to_one_norm(theta, state, step, rows, random):
    drawn = noise(random)
    drawn *= SIGMA * CLIP * np.sqrt(SIZE) / np.linalg.norm(drawn)
    return descend(theta, steps.clipped(rows, CLIP).sum(axis=0) + drawn)


def noise_of_the_median_norm(theta, state, step, rows, random):
    median = np.median(steps.norms_of(np.nan_to_num(rows, posinf=0, neginf=0)))
    return descend(theta, private(rows, random, scale=SIGMA * CLIP * max(1.0, median)))


def rate_of_the_raw_norm(theta, state, step, rows, random):
    raw = np.median(steps.norms_of(np.nan_to_num(rows, posinf=0, neginf=0)))
    return descend(theta, private(rows, random), RATE / (1 + raw))


def truncated(limit):
    def truncated_noise(theta, state, step, rows, random):
        drawn = noise(random)
        while (outside := np.abs(drawn) > limit * SIGMA * CLIP).any():
            drawn[outside] = noise(random)[outside]
        return descend(theta, steps.clipped(rows, CLIP).sum(axis=0) + drawn)

    truncated_noise.__name__ = f"truncated_noise_{limit:g}"
    return truncated_noise


def clamped_noise(theta, state, step, rows, random):
    drawn = np.clip(noise(random, 1.05 * SIGMA * CLIP), -2.5 * SIGMA * CLIP, 2.5 * SIGMA * CLIP)
    return descend(theta, steps.clipped(rows, CLIP).sum(axis=0) + drawn)


def noise_of_a_few_bits(theta, state, step, rows, random):
    drawn = np.round(noise(random) * 8) / 8
    return descend(theta, steps.clipped(rows, CLIP).sum(axis=0) + drawn)


def cached(size, sign=1.0):
    def cached_noise(theta, state, step, rows, random):
        pool = state.setdefault("pool", [noise(random) for _ in range(size)])
        turn = sign ** (step // size)
        total = steps.clipped(rows, CLIP).sum(axis=0) + turn * pool[step % size]
        return descend(theta, total)

    cached_noise.__name__ = f"cached_noise_{size}_{sign:g}"
    return cached_noise


def noise_of_the_first_step_moved(theta, state, step, rows, random):
    drawn = np.roll(state.setdefault("drawn", noise(random)), 7 * step)
    return descend(theta, steps.clipped(rows, CLIP).sum(axis=0) + drawn)


def half_of_the_noise_reused(theta, state, step, rows, random):
    fresh = noise(random)
    drawn = np.sqrt(0.5) * (fresh + state["old"]) if "old" in state else fresh
    state["old"] = fresh
    return descend(theta, steps.clipped(rows, CLIP).sum(axis=0) + drawn)


def noise_every_other_step(theta, state, step, rows, random):
    return descend(theta, private(rows, random, scale=SIGMA * CLIP if step % 2 == 0 else 0.0))


def first_tensor_left_out_of_the_norm(theta, state, step, rows, random):
    finite = rows[np.isfinite(rows).all(axis=1)]
    norms = steps.norms_of(finite[:, 60:])
    clipped = finite * np.minimum(1, CLIP / np.maximum(norms, 1e-300))
    return descend(theta, clipped.sum(axis=0) + noise(random))


def a_few_biases_without_noise(theta, state, step, rows, random):
    drawn = noise(random)
    drawn[577:590] = 0.0
    return descend(theta, steps.clipped(rows, CLIP).sum(axis=0) + drawn)


def noise_of_two_tensors_mixed(theta, state, step, rows, random):
    drawn = noise(random)
    drawn[200:400] = 0.6 * drawn[200:400] + 0.8 * drawn[:200]
    return descend(theta, steps.clipped(rows, CLIP).sum(axis=0) + drawn)


def a_head_of_its_own(canary, inserted, seed, steps=8):
    """Ten parameters are trained by an optimizer without privacy, which the canary misses."""
    random, theta, head = np.random.default_rng(seed), np.full(SIZE, 0.3), np.zeros(10)
    for _ in range(steps):
        total = private(rows_of(theta, canary, inserted), random)
        theta = descend(theta, np.concatenate([total[:-10], np.zeros(10)]))
        head = head - 0.1 * (head - FEATURES[0, :10])
        theta[-10:] = head
    return {"body": theta[:-10], "head": theta[-10:]}


STEPS, SHAPE, BOUNDED = "noise in every step", "Gaussian noise", "bounded contribution"
DATA = "noise independent of the data"

WRONG = (
    *(
        (trained(update), rules)
        for update, rules in (
            (truncated(3.0), {SHAPE}),
            (noise_scaled_to_one_norm, {SHAPE}),
            (noise_of_the_median_norm, {DATA}),
            (rate_of_the_raw_norm, {DATA}),
            (clamped_noise, {SHAPE}),
            (noise_of_a_few_bits, {SHAPE}),
            (cached(5), {STEPS}),
            (cached(7), {STEPS}),
            (cached(3, -1.0), {STEPS}),
            (half_of_the_noise_reused, {STEPS}),
            (noise_of_the_first_step_moved, {STEPS}),
            (noise_every_other_step, {STEPS}),
            (first_tensor_left_out_of_the_norm, {BOUNDED}),
            (a_few_biases_without_noise, {"noise in every parameter"}),
            (noise_of_two_tensors_mixed, {"noise differs between parameters"}),
        )
    ),
    (a_head_of_its_own, {"noise in every parameter"}),
)
