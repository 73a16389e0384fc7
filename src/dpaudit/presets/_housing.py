"""The paper's smallest training.

The learning rate is 0.1 as in the paper's text. With the 0.01 of its table all dimensions would be
equally good for a canary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from dpaudit.presets.base import DataDir, Preset

if TYPE_CHECKING:
    import torch

    from dpaudit.data import Examples


def _read(data_dir: DataDir) -> Examples:
    from dpaudit.data import california_housing

    return california_housing()


def _model(data: Examples) -> Callable[[], torch.nn.Module]:
    from dpaudit.models import fcnn

    return fcnn


HOUSING = Preset(
    name="housing",
    summary="FCNN 8-6-2 on California Housing",
    needs_folder=False,
    read=_read,
    model_for=_model,
    batch_size=400,
    learning_rate=0.1,
)
