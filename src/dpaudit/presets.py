"""The paper's trainings, ready to audit: model, data and hyperparameters under one name.

All have fixed batches that the adversary knows, sigma = 4 and 250 insertions; they differ in model
and data. Naming a preset costs nothing; making its training reads the data and imports torch.

Paper:
    Cebere, Bellet, Papernot (ICLR 2025), section 5.1 and the appendix's table of hyperparameters.
    The learning rate of Housing is the text's 0.1, not the table's 0.01, under which every
    dimension is as good as any other.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, final

from dpaudit import _validate
from dpaudit.errors import DataError, MissingExtra
from dpaudit.mechanisms.batches import FixedBatches
from dpaudit.mechanisms.dpsgd import DPSGD, FixedInitialisation

if TYPE_CHECKING:
    import torch

    from dpaudit.data import Examples

INSERTIONS = 250
"""How often the paper inserts a canary in one training, whatever the period."""

DataDir = str | os.PathLike[str] | None
Value = TypeVar("Value")


@final
@dataclass(frozen=True, kw_only=True)
class Preset:
    """One of the paper's trainings, by name.

    See also: `PRESETS`; `dataclasses.replace` changes a training once it is made.

    Arguments:
        name: What the command line calls it.
        summary: What it is, in a few words.
        read: From a folder to the data; `None` stands for the environment's ``DPAUDIT_DATA``.
        model_for: From the data to a function that builds the model.
        batch_size: B.
        learning_rate: eta.
        clip_norm: C.
        noise_multiplier: sigma.

    Example:
        >>> training = preset("housing").training(noise_multiplier=2.0)
        >>> training.steps, training.batches.batch_size, training.noise_multiplier
        (250, 400, 2.0)
    """

    name: str
    summary: str
    read: Callable[[DataDir], Examples]
    model_for: Callable[[Examples], Callable[[], torch.nn.Module]]
    batch_size: int = 128
    learning_rate: float = 0.01
    clip_norm: float = 1.0
    noise_multiplier: float = 4.0

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
    ) -> DPSGD:
        """The training, with the preset's hyperparameters where others are not given.

        Arguments:
            steps: T.
            batch_size: B.
            learning_rate: eta.
            clip_norm: C.
            noise_multiplier: sigma.
            seed: Of the initialisation and of the batches.
            data_dir: Where the data is, if it does not ship with the package.
        """
        _refuse_without_torch()
        data = self.read(data_dir)
        return DPSGD(
            name=self.name,
            build_model=self.model_for(data),
            loss=cross_entropy,
            data=data,
            batches=FixedBatches(batch_size=_given(batch_size, self.batch_size), seed=seed),
            steps=steps,
            learning_rate=_given(learning_rate, self.learning_rate),
            clip_norm=_given(clip_norm, self.clip_norm),
            noise_multiplier=_given(noise_multiplier, self.noise_multiplier),
            initialisation=FixedInitialisation(seed=seed),
        )


def preset(name: str) -> Preset:
    """The preset of that name.

    Example:
        >>> preset("convnet").summary
        'ConvNet on CIFAR-10'
    """
    return PRESETS[_validate.one_of("preset", name, tuple(PRESETS))]


def cross_entropy(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The cross-entropy of every example, shape (batch,)."""
    from torch.nn import functional

    return functional.cross_entropy(outputs, targets, reduction="none")


def _read_housing(data_dir: DataDir) -> Examples:
    from dpaudit.data import california_housing

    return california_housing()


def _read_cifar10(data_dir: DataDir) -> Examples:
    from dpaudit.data import cifar10

    return cifar10(data_dir)


def alexnet_features_of(data_dir: DataDir, *, examples: int = 0) -> Examples:
    """Frozen AlexNet's features of CIFAR-10, of the first ``examples`` images or of all (0).

    Two cores make about a hundred images a second.
    """
    import torch

    from dpaudit.data import cifar10
    from dpaudit.models import alexnet_features

    weights = _find_alexnet(data_dir)
    images = cifar10(data_dir, normalise=False)
    if examples:
        images = images.take(range(min(examples, len(images))))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return alexnet_features(images, weights, device=device)


def _find_alexnet(data_dir: DataDir) -> Path:
    given = data_dir if data_dir is not None else os.environ.get("DPAUDIT_DATA")
    if not given:
        raise DataError(
            "no folder for CIFAR-10 and AlexNet's weights: give data_dir, or set the environment "
            "variable DPAUDIT_DATA"
        )
    root = Path(given).expanduser()
    endings = (".safetensors", ".pth", ".pt")
    found = sorted(path for path in root.glob("alexnet*") if path.suffix in endings)
    if not found:
        raise DataError(
            f"no AlexNet weights in {root}; put torchvision's there, in a file such as "
            "alexnet.safetensors or alexnet.pth"
        )
    return found[0]


def _fcnn(data: Examples) -> Callable[[], torch.nn.Module]:
    from dpaudit.models import fcnn

    return fcnn


def _convnet(data: Examples) -> Callable[[], torch.nn.Module]:
    from dpaudit.models import convnet

    return convnet


def _resnet18(data: Examples) -> Callable[[], torch.nn.Module]:
    from dpaudit.models import resnet18

    return resnet18


def _head(data: Examples) -> Callable[[], torch.nn.Module]:
    from dpaudit.models import linear_head

    return functools.partial(linear_head, data.features.shape[1], data.classes)


def _refuse_without_torch() -> None:
    try:
        import torch  # noqa: F401
    except ImportError:
        raise MissingExtra("training models", "train") from None


def _given(value: Value | None, default: Value) -> Value:
    return default if value is None else value


PRESETS: dict[str, Preset] = {
    known.name: known
    for known in (
        Preset(
            name="housing",
            summary="FCNN 8-6-2 on California Housing",
            read=_read_housing,
            model_for=_fcnn,
            batch_size=400,
            learning_rate=0.1,
        ),
        Preset(
            name="convnet",
            summary="ConvNet on CIFAR-10",
            read=_read_cifar10,
            model_for=_convnet,
        ),
        Preset(
            name="resnet18",
            summary="ResNet18 with GroupNorm on CIFAR-10",
            read=_read_cifar10,
            model_for=_resnet18,
        ),
        Preset(
            name="alexnet-head",
            summary="linear head on frozen AlexNet features of CIFAR-10",
            read=alexnet_features_of,
            model_for=_head,
        ),
    )
}

# The same by function: ``dpaudit.presets.housing(noise_multiplier=2.0)``.
housing = PRESETS["housing"].training
convnet = PRESETS["convnet"].training
resnet18 = PRESETS["resnet18"].training
alexnet_head = PRESETS["alexnet-head"].training
