"""Audit a training that shuffles: one canary in each epoch, in a batch at a random place.

python examples/shuffled_training.py

The adversary sees every noisy gradient and knows the other records, as accountants assume, but not
the place of the canary: its score is the likelihood of the noisy gradients with the canary in a
random batch of each epoch, over their likelihood without it.

All other records have the opposite gradient, so that a batch with an empty place shows, too. What
accountants say of Poisson sampling is then wrong where an epoch has many steps (Chua et al., ICML
2024). What is proven for shuffled epochs holds: `dpaudit.Claim.from_shuffled`.
"""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp

import dpaudit

NOISE, STEPS, EPOCHS, BATCH, PARAMETERS = 0.4, 500, 2, 4, 4
CANARY = dpaudit.GradientCanary.draw(PARAMETERS, clip_norm=1.0)

POISSON = dpaudit.Claim.from_dpsgd(
    noise_multiplier=NOISE, steps=EPOCHS * STEPS, sampling_rate=1 / STEPS
)
SHUFFLED = dpaudit.Claim.from_shuffled(noise_multiplier=NOISE, epochs=EPOCHS)


def clipped(rows):
    return rows / np.maximum(1, np.linalg.norm(rows, axis=1, keepdims=True))


def train(canary, inserted, seed):
    """The noisy gradient of every step; without the canary its place is empty."""
    random, noisy = np.random.default_rng(seed), []
    other = -canary.rows(True)
    for _ in range(EPOCHS):
        place = random.integers(STEPS)  # where a shuffle puts the canary
        for step in range(STEPS):
            rows = np.repeat(other, BATCH, axis=0)
            if step == place:
                rows = np.vstack([rows[1:], canary.rows(inserted)])
            noise = random.normal(0, NOISE, PARAMETERS)
            noisy.append(clipped(rows).sum(axis=0) + noise)
    return np.array(noisy)


def score(canary, noisy):
    """Log-likelihood ratio of a place that is taken (2 above the others) and one that is empty."""
    along = noisy @ canary.clipped_sum(True) + BATCH
    epochs = along.reshape(EPOCHS, STEPS)
    taken, empty = (
        logsumexp((height * epochs - height**2 / 2) / NOISE**2, axis=1) for height in (2.0, 1.0)
    )
    return float((taken - empty).sum())


def audit(claim=SHUFFLED, runs: int = 100) -> dpaudit.AuditResult:
    return dpaudit.audit(train, score, canary=CANARY, claim=claim, runs=runs)


def main(runs: int = 100) -> None:
    for claim in (POISSON, SHUFFLED):
        print(f"{audit(claim, runs).summary()}\n")


if __name__ == "__main__":
    main()
