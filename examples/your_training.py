"""Your own training, audited in ten lines. Here it is numpy, and its noise is too small.

python examples/your_training.py
"""

import numpy as np

import dpaudit

canary = dpaudit.GradientCanary.draw(100, clip_norm=1.0)


def train(canary, inserted, seed, noise_multiplier=1.0, steps=10):
    """DP-SGD on nothing but the canary; a training of yours adds the gradients of its data."""
    random, weights = np.random.default_rng(seed), np.zeros(canary.parameters)
    for _ in range(steps):
        noise = random.normal(0, 0.5 * noise_multiplier, canary.parameters)  # the bug: 0.5
        weights -= canary.clipped_sum(inserted) + noise
    return weights


def main(runs: int = 200) -> None:
    claim = dpaudit.Claim.from_dpsgd(noise_multiplier=1.0, steps=10)
    result = dpaudit.audit(train, canary=canary, claim=claim, runs=runs)
    print(result.summary())


if __name__ == "__main__":
    main()
