"""Recognise a public transform of the noisy gradient: a projection, top-k, clamping, Adam.

What happens after the noise is post-processing. It is no leak, but it hides what other rules look
at, so those rules ask here first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from dpaudit.checks.measuring import Measurements


_BENT = 0.005
"""Relative change of an effect from seed to seed that rounding does not explain."""


def mixes(measured: Measurements) -> bool:
    """Whether the output is a public linear map of the private gradient, as a projection.

    A gradient along one coordinate then moves others too, in proportion.
    """
    if not measured.repeatable or measured.steps > 1 or measured.unit.kind != "linear":
        return False
    moved = measured.difference(measured.along_axis(0.1 * measured.subject.clip_norm))
    own = abs(float(moved[measured.axis]))
    moved[measured.axis] = 0.0
    floor = 3 * float(np.linalg.norm(measured.rounding))
    return float(np.linalg.norm(moved)) > max(0.02 * own, floor)


def moves_alike(measured: Measurements) -> bool:
    """Whether two runs differ in nearly every parameter by the same amount or not at all.

    This is the first step of Adam, RMSprop or the sign of the gradient, whatever the noise is.
    """
    noise = measured.noise()
    changes = np.abs(noise[1] - noise[0])
    largest = float(np.quantile(changes, 0.99))
    alike = np.abs(changes - largest) < 1e-2 * largest
    return bool((alike | (changes < 1e-2 * largest)).mean() > 0.95)


def white(measured: Measurements) -> bool:
    """Whether noise has about the same size in all directions, as far as the seeds show.

    The inner products of the noise of two seeds have a variance of one over the number of
    directions that the noise has.
    """
    noise = measured.noise() / np.sqrt(np.mean(measured.noise() ** 2))
    count, seeds = noise.shape[1], len(noise)
    products = (noise @ noise.T / count + 1 / (seeds - 1))[np.triu_indices(seeds, 1)]
    return bool(np.mean(products**2) * count < 1.6)


def thresholded(measured: Measurements) -> bool:
    """Whether the output is a public thresholding of the noisy gradient: top-k, clamp, sign.

    A short gradient then moves some coordinates under one seed and others under another seed.
    """
    if not measured.repeatable or measured.steps > 1 or not measured.noise_is_there:
        return False
    short = measured.dense(0.01 * measured.subject.clip_norm)
    moved = []
    for seed in measured.seeds[:3]:
        plus, minus = measured.subject.pair(short, seed, measured.steps)
        moved.append(np.abs(plus - minus) > 2 * measured.rounding)
    # Untrained coordinates never move, and a canary that is not in the batch moves nothing.
    moved = [mask for mask in moved if mask.any()]
    if len(moved) < 2:
        return False
    ever = np.any(moved, axis=0)
    partly = [float(mask[ever].mean()) for mask in moved]
    unit = measured.unit
    scale = unit.size / measured.subject.clip_norm if unit.known else 1.0
    visible = float(np.median(2 * measured.rounding)) < 0.1 * float(np.abs(short).max()) * scale
    return bool(visible and max(partly) < 0.97)


def rescales(measured: Measurements) -> bool:
    """Whether the output is the noisy gradient, scaled by its own norm, as where it is clipped.

    A gradient along the noise of the same seed then has less effect than one along the noise of
    another seed.
    """
    if not measured.repeatable or measured.steps > 1:
        return False
    effects = []
    for noise in measured.noise()[:2]:
        gradient = np.zeros(measured.subject.parameters)
        gradient[measured.watched] = noise
        gradient *= 0.1 * measured.subject.clip_norm / np.linalg.norm(gradient)
        effects.append(abs(float(measured.difference(gradient) @ gradient)))
    return effects[0] < 0.9 * effects[1]


def bends(measured: Measurements) -> bool:
    """Whether the noise decides what a gradient does to single coordinates, as before a tanh.

    The noise of one step is added to the gradients, so that a gradient has the same effect under
    every seed. Behind a public function of the noisy sum, such as tanh, Adam or the sign, it has
    not.
    """
    if not measured.repeatable or measured.steps > 1:
        return False
    gradient = measured.dense(measured.subject.clip_norm)
    effects = []
    for seed in measured.seeds[:4]:
        plus, minus = measured.subject.pair(gradient, seed, measured.steps)
        effect = (plus - minus)[measured.watched]
        if np.any(effect):  # else the canary is not in the batch
            effects.append(effect)
    if len(effects) < 2:
        return False
    smallest = min(float(np.linalg.norm(effect)) for effect in effects)
    allowed = _BENT + 4 * float(np.linalg.norm(measured.rounding[measured.watched])) / smallest
    units = [effect / np.linalg.norm(effect) for effect in effects]
    return any(float(np.linalg.norm(unit - units[0])) > allowed for unit in units[1:])
