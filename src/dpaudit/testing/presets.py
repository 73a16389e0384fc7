"""The contract of presets."""

from __future__ import annotations

import pickle

from dpaudit.engine import check_mechanism
from dpaudit.presets import DataDir, Preset
from dpaudit.testing._requiring import requiring

_require = requiring("preset")


def check_preset(preset: Preset, *, data_dir: DataDir = None, steps: int = 2) -> None:
    """Raise `AssertionError` if ``preset`` breaks the contract.

    The training must have the preset's name and hyperparameters, take other values, go through
    pickle (for worker processes), and pass the engine's check of a mechanism.

    Arguments:
        preset: The preset.
        data_dir: The folder of its data, if it does not ship with a package.
        steps: Number of steps of the training.

    Example:
        >>> from dpaudit.presets import preset
        >>> check_preset(preset("housing"))
    """
    training = preset.training(steps=steps, data_dir=data_dir)
    _require(preset.name == training.name, f"training is called {training.name!r}")
    _require(bool(preset.summary.strip()), "summary is empty")
    for name in ("learning_rate", "clip_norm", "noise_multiplier"):
        expected = getattr(preset, name)
        _require(getattr(training, name) == expected, f"{name} is not {expected}")
    other = preset.training(steps=steps, noise_multiplier=0.5, seed=1, data_dir=data_dir)
    _require(other.noise_multiplier == 0.5, "noise_multiplier cannot be set")
    _require(other.initialisation != training.initialisation, "seed does not change the start")
    sent = pickle.loads(pickle.dumps(training))
    _require(sent.data.fingerprint == training.data.fingerprint, "pickle changes the data")
    check_mechanism(training)
