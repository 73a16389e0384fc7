"""The paper's smallest training.

The learning rate is 0.1 as in the paper's text. With the 0.01 of its table all dimensions would be
equally good for a canary.
"""

from __future__ import annotations

from dpaudit.data import Examples, california_housing
from dpaudit.data.folder import DataDir
from dpaudit.presets.base import Preset, model_named


def _read(data_dir: DataDir) -> Examples:
    return california_housing()


HOUSING = Preset(
    name="housing",
    summary="FCNN 8-6-2 on California Housing",
    needs_folder=False,
    read=_read,
    model_for=model_named("fcnn"),
    batch_size=400,
    learning_rate=0.1,
)
