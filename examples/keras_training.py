"""Audit a Keras training by the predictions of the final model, or by its weights.

python examples/keras_training.py

The training is that of jax-privacy (``keras_api``). Another private training with Keras, such as
one with TensorFlow Privacy, is audited in the same way: the canary is an example, and nothing
of the training is changed.
"""

from __future__ import annotations

import functools
import os

os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np
from jax_privacy import keras_api

import dpaudit
from dpaudit.integrations.jax_privacy import claim_of

EXAMPLES, FEATURES, STEPS, CLIP = 15, 3, 4, 1.0


# --- The user's own script. ----------------------------------------------------------------------


def private_settings(seed: int = 0, noise_multiplier: float = 2.0):
    return keras_api.DPKerasConfig(
        epsilon=1e6,  # the noise multiplier is given
        delta=1e-5,
        clipping_norm=CLIP,
        batch_size=EXAMPLES + 1,
        gradient_accumulation_steps=1,
        train_steps=STEPS,
        train_size=EXAMPLES + 1,
        noise_multiplier=noise_multiplier,
        rescale_to_unit_norm=False,
        seed=seed,
    )


def fit(features, labels, *, seed, noise_multiplier=2.0):
    model = keras.Sequential(
        [
            keras.Input((FEATURES,)),
            keras.layers.Dense(2, use_bias=False, kernel_initializer="zeros"),
        ]
    )
    model = keras_api.make_private(model, private_settings(seed, noise_multiplier))
    model.compile(
        optimizer=keras.optimizers.SGD(1.0),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    model.fit(features, labels, batch_size=EXAMPLES + 1, epochs=STEPS, shuffle=False, verbose=0)
    return model


# --- The audit. ----------------------------------------------------------------------------------

CANARY = {"features": np.array([0.0, 0.0, 10.0], dtype=np.float32), "label": 1}
"""An example with a feature that no other example has."""


def data_with(canary, inserted):
    """Fifteen examples and the canary; without it, zeros, which have no gradient."""
    random = np.random.default_rng(0)
    features = random.normal(size=(EXAMPLES + 1, FEATURES)).astype(np.float32)
    features[:, -1] = 0.0
    features[-1] = canary["features"] if inserted else 0.0
    labels = random.integers(2, size=EXAMPLES + 1)
    labels[-1] = canary["label"]
    return features, labels


def train_for_predictions(canary, inserted, seed, noise_multiplier=2.0):
    model = fit(*data_with(canary, inserted), seed=seed, noise_multiplier=noise_multiplier)
    logits = model(canary["features"][None])
    return dpaudit.Predictions(logits=np.asarray(logits), target=canary["label"])


def train_for_weights(canary, inserted, seed, noise_multiplier=2.0):
    return fit(*data_with(canary, inserted), seed=seed, noise_multiplier=noise_multiplier)


def along_the_rare_feature(canary, model):
    """The weights of the canary's own feature: what its gradient changes."""
    weights = np.asarray(model.trainable_variables[0])
    return weights[-1, canary["label"]] - weights[-1, 1 - canary["label"]]


def audit(*, weights: bool = False, runs: int = 60, noise_multiplier: float = 2.0):
    train = train_for_weights if weights else train_for_predictions
    return dpaudit.audit(
        functools.partial(train, noise_multiplier=noise_multiplier),
        canary=CANARY,
        adversary=along_the_rare_feature if weights else "predictions",
        claim=claim_of(private_settings()),
        runs=runs,
    )


def main(runs: int = 60) -> None:
    print(audit(runs=runs).summary(), audit(weights=True, runs=runs).summary(), sep="\n\n")


if __name__ == "__main__":
    main()
