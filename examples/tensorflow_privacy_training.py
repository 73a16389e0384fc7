"""Audit a training with TensorFlow Privacy by the predictions of the final model.

python examples/tensorflow_privacy_training.py

TensorFlow Privacy 0.9 needs TensorFlow 2.15 and numpy 1: install them, and dpaudit without extras,
in an environment of their own.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from tensorflow_privacy import DPKerasSGDOptimizer

import dpaudit

EXAMPLES, FEATURES, STEPS, CLIP, NOISE = 15, 3, 4, 1.0, 2.0


# --- The user's own script. ----------------------------------------------------------------------


def fit(features, labels, *, seed, noise_multiplier=NOISE, batch_size=None, shuffle=False):
    batch_size = batch_size or len(labels)
    tf.keras.utils.set_random_seed(seed)
    model = tf.keras.Sequential(
        [tf.keras.layers.Dense(2, use_bias=False, kernel_initializer="zeros")]
    )
    model.compile(
        optimizer=DPKerasSGDOptimizer(
            l2_norm_clip=CLIP,
            noise_multiplier=noise_multiplier,
            num_microbatches=batch_size,
            learning_rate=1.0,
        ),
        loss=tf.keras.losses.SparseCategoricalCrossentropy(
            from_logits=True, reduction=tf.keras.losses.Reduction.NONE
        ),
    )
    model.fit(features, labels, batch_size=batch_size, epochs=STEPS, shuffle=shuffle, verbose=0)
    return model


# --- The audit. ----------------------------------------------------------------------------------

CANARY = {"features": np.array([0.0, 0.0, 10.0], dtype=np.float32), "label": 1}
"""An example with a feature that no other example has."""


def train(canary, inserted, seed, noise_multiplier=NOISE):
    """Fifteen examples and the canary; without it, zeros, which have no gradient."""
    random = np.random.default_rng(0)
    features = random.normal(size=(EXAMPLES + 1, FEATURES)).astype(np.float32)
    features[:, -1] = 0.0
    features[-1] = canary["features"] if inserted else 0.0
    labels = np.append(random.integers(2, size=EXAMPLES), canary["label"])
    model = fit(features, labels, seed=seed, noise_multiplier=noise_multiplier)
    return dpaudit.Predictions(
        logits=model(canary["features"][None]).numpy(), target=canary["label"]
    )


def audit(runs: int = 60) -> dpaudit.AuditResult:
    return dpaudit.audit(
        train,
        canary=CANARY,
        claim=dpaudit.Claim.from_dpsgd(noise_multiplier=NOISE, steps=STEPS),
        runs=runs,
    )


def main(runs: int = 60) -> None:
    print(audit(runs).summary())


if __name__ == "__main__":
    main()
