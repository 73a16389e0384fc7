"""The description of a preset, with the paper's settings as defaults.

The paper's presets have fixed batches that the adversary knows, sigma = 4 and 250 insertions; they
differ in model and data.

Paper: Cebere, Bellet, Papernot (ICLR 2025), section 5.1 and the appendix's table of
hyperparameters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast, final

from dpaudit._torch import require_torch, torch
from dpaudit.data import Examples
from dpaudit.data.folder import DataDir
from dpaudit.errors import InvalidInput
from dpaudit.mechanisms.batches import FixedBatches
from dpaudit.mechanisms.dpsgd import DPSGD, FixedInitialisation, Insertion, Phase
from dpaudit.mechanisms.losses import cross_entropy
from dpaudit.mechanisms.smoothness import Smoothness

INSERTIONS = 250
"""Number of insertions in one training of the paper, for every period."""

Value = TypeVar("Value")


@final
@dataclass(frozen=True, kw_only=True)
class Preset:
    """A training with a name: data, model and hyperparameters.

    See also: `dpaudit.presets.PRESETS`; `dataclasses.replace`, which changes a training.

    Arguments:
        name: The name on the command line.
        summary: A few words for tables.
        read: Reads the data from a folder; `None` stands for the environment's ``DPAUDIT_DATA``.
        model_for: Returns a function that builds the model for given data.
        batch_size: Batch size B.
        learning_rate: Learning rate eta.
        clip_norm: Clip norm C.
        noise_multiplier: Noise multiplier sigma.
        loss: Loss per example.
        smoothness: Why the updates are Lipschitz, if they are, for hidden-state upper bounds.
        adversary: Name of the adversary of an audit that names none.
        needs_folder: Whether the data or weights are read from a folder of the user.
        stand_in: Name of the data that are generated if there is no such folder.
        make: Makes the whole training from all settings of `training`, for a preset whose data
            depend on them; replaces ``read`` and ``model_for``.

    Example:
        >>> from dpaudit.presets import preset
        >>> training = preset("housing").training(noise_multiplier=2.0)
        >>> training.steps, training.batches.batch_size, training.noise_multiplier
        (250, 400, 2.0)
    """

    name: str
    summary: str
    read: Callable[[DataDir], Examples] | None = None
    model_for: Callable[[Examples], Callable[[], torch.nn.Module]] | None = None
    batch_size: int = 128
    learning_rate: float = 0.01
    clip_norm: float = 1.0
    noise_multiplier: float = 4.0
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = cross_entropy
    smoothness: Smoothness | None = None
    adversary: str = "simulated-dimension"
    needs_folder: bool = True
    stand_in: str | None = None
    make: Callable[..., DPSGD] | None = None

    def __post_init__(self) -> None:
        if self.make is None and (self.read is None or self.model_for is None):
            raise InvalidInput(f"preset {self.name!r} needs read and model_for, or make")

    def training(
        self,
        *,
        steps: int = INSERTIONS,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        clip_norm: float | None = None,
        noise_multiplier: float | None = None,
        seed: int = 0,
        data_dir: DataDir = None,
        period: int | None = None,
        phase: Phase = "first",
    ) -> DPSGD:
        """The training, with the preset's value for every hyperparameter that is `None`.

        Arguments:
            steps: Number of steps T.
            batch_size: Batch size B.
            learning_rate: Learning rate eta.
            clip_norm: Clip norm C.
            noise_multiplier: Noise multiplier sigma.
            seed: Random seed of the initialisation and of the batches.
            data_dir: The folder of the data, if it does not ship with the package.
            period: Insertion period for which the data are made; only crafted data depend on it.
            phase: Step of each period at which the canary will be inserted; likewise.
        """
        require_torch()
        batches = FixedBatches(batch_size=_given(batch_size, self.batch_size), seed=seed)
        settings: dict[str, Any] = {
            "name": self.name,
            "loss": self.loss,
            "batches": batches,
            "steps": steps,
            "learning_rate": _given(learning_rate, self.learning_rate),
            "clip_norm": _given(clip_norm, self.clip_norm),
            "noise_multiplier": _given(noise_multiplier, self.noise_multiplier),
            "initialisation": FixedInitialisation(seed=seed),
            "smoothness": self.smoothness,
        }
        if self.make is not None or self.read is None or self.model_for is None:
            insertion = None if period is None else Insertion.in_phase(phase, period=period)
            return cast("Callable[..., DPSGD]", self.make)(insertion=insertion, **settings)
        data = self.read(data_dir)
        return DPSGD(build_model=self.model_for(data), data=data, **settings)


def model_named(name: str) -> Callable[[Examples], Callable[[], torch.nn.Module]]:
    """A ``model_for`` whose model does not depend on the data.

    Arguments:
        name: Name of a function of `dpaudit.models`, which is imported only when it is needed.
    """

    def model_for(data: Examples) -> Callable[[], torch.nn.Module]:
        from dpaudit import models

        return cast("Callable[[], torch.nn.Module]", getattr(models, name))

    return model_for


def _given(value: Value | None, default: Value) -> Value:
    return default if value is None else value
