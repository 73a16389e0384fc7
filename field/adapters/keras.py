"""Keras, made private by jax-privacy: the training of examples/keras_training.py."""

import sys
from pathlib import Path

from field.kit import case

sys.path.append(str(Path(__file__).resolve().parents[2] / "examples"))


@case("keras_api.make_private, the final weights", claims="noise multiplier 2, 4 steps")
def final_weights():
    import keras_training

    return keras_training.audit(weights=True, runs=200)
