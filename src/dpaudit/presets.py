"""Presets: trainings that are ready to audit, by name.

The paper's presets have fixed batches that the adversary knows, sigma = 4 and 250 insertions; they
differ in model and data. Every preset is also a function, for example
``dpaudit.presets.housing(noise_multiplier=2.0)``. Listing presets is fast; making a training reads
the data and imports torch.

Paper: Cebere, Bellet, Papernot (ICLR 2025), section 5.1 and the appendix's table of
hyperparameters.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np

from dpaudit._registry import Registry
from dpaudit._torch import require_torch, torch
from dpaudit.data.examples import Examples
from dpaudit.data.folder import DataDir, data_folder
from dpaudit.data.housing import california_housing, california_housing_columns
from dpaudit.data.text import GENERATED, byte_sequences, read_text, token_sequences
from dpaudit.errors import DataError, InvalidInput
from dpaudit.mechanisms import losses
from dpaudit.mechanisms.batches import FixedBatches
from dpaudit.mechanisms.dpsgd import DPSGD, FixedInitialisation, Insertion, Phase

if TYPE_CHECKING:
    from dpaudit.mechanisms.smoothness import Smoothness

__all__ = [
    "INSERTIONS",
    "PRESETS",
    "DataDir",
    "Preset",
    "alexnet_features_of",
    "find_alexnet",
    "preset",
]

INSERTIONS = 250
"""Number of insertions in one training of the paper, for every period."""

Builder = Callable[[], "torch.nn.Module"]


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
    model_for: Callable[[Examples], Builder] | None = None
    batch_size: int = 128
    learning_rate: float = 0.01
    clip_norm: float = 1.0
    noise_multiplier: float = 4.0
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = losses.cross_entropy
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

        The seed is that of the initialisation and of the batches; ``data_dir`` the folder of data
        that do not ship with the package. Only crafted data depend on the period of insertions and
        the step (phase) of a period at which the canary is inserted.
        """
        require_torch()
        overrides = {
            "batch_size": batch_size,
            "learning_rate": learning_rate,
            "clip_norm": clip_norm,
            "noise_multiplier": noise_multiplier,
        }
        settings: dict[str, Any] = {
            name: getattr(self, name) if value is None else value
            for name, value in overrides.items()
        }
        settings |= {
            "name": self.name,
            "loss": self.loss,
            "batches": FixedBatches(batch_size=settings.pop("batch_size"), seed=seed),
            "steps": steps,
            "initialisation": FixedInitialisation(seed=seed),
            "smoothness": self.smoothness,
        }
        if self.make is not None:
            insertion = None if period is None else Insertion.in_phase(phase, period=period)
            return self.make(insertion=insertion, **settings)
        assert self.read is not None  # __post_init__ checks both
        assert self.model_for is not None
        data = self.read(data_dir)
        return DPSGD(build_model=self.model_for(data), data=data, **settings)


def _network(name: str, data: Examples) -> Builder:
    """The function of that name in `dpaudit.models`, imported when needed."""
    from dpaudit import models

    builder: Builder = getattr(models, name)
    return builder


def _housing(data_dir: DataDir) -> Examples:
    return california_housing()


def _cifar10(data_dir: DataDir) -> Examples:
    from dpaudit.data.cifar10 import cifar10

    return cifar10(data_dir)


# Fine-tuning a head on frozen AlexNet features of CIFAR-10


def alexnet_features_of(
    data_dir: DataDir, *, examples: int = 0, hidden_layers: bool = False
) -> Examples:
    """Frozen AlexNet features of CIFAR-10. Two cores compute about a hundred images per second.

    Arguments:
        data_dir: Folder of CIFAR-10 and of the weights.
        examples: Number of images, from the first; 0 for all.
        hidden_layers: Whether to apply the hidden layers of AlexNet's classifier, too.
    """
    from dpaudit.data.cifar10 import cifar10
    from dpaudit.models import alexnet_features

    weights = find_alexnet(data_dir)
    images = cifar10(data_dir, normalise=False)
    if examples:
        images = images.take(range(min(examples, len(images))))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return alexnet_features(images, weights, device=device, hidden_layers=hidden_layers)


def find_alexnet(data_dir: DataDir) -> Path:
    """The file with AlexNet's weights in the data folder."""
    root = data_folder(data_dir)
    if root is None:
        raise DataError(
            "no folder for CIFAR-10 and AlexNet's weights: give data_dir, or set the environment "
            "variable DPAUDIT_DATA"
        )
    endings = (".safetensors", ".pth", ".pt")
    files = sorted(path for path in root.glob("alexnet*") if path.suffix in endings)
    if not files:
        raise DataError(
            f"no AlexNet weights in {root}; put torchvision's weights there, in a file such as "
            "alexnet.safetensors or alexnet.pth"
        )
    return files[0]


def _head_for(data: Examples) -> Builder:
    from dpaudit.models import linear_head

    return functools.partial(linear_head, data.features.shape[1], data.classes or 0)


# Language models on ``text.txt`` of the data folder, or on a generated text

_LENGTH, _CHARACTERS = 128, 2**20

# Where there are no weights: a GPT-2 of 0.9 million parameters for bytes.
_GPT2: dict[str, Any] = {
    "model_type": "gpt2",
    "vocab_size": 256,
    "n_positions": _LENGTH,
    "n_embd": 128,
    "n_layer": 4,
    "n_head": 4,
}


def _bytes(data_dir: DataDir) -> Examples:
    """Sequences of 128 bytes, 8,191 of them for a text of a mebibyte."""
    return byte_sequences(data_dir, length=_LENGTH, characters=_CHARACTERS)


def _tokens(data_dir: DataDir) -> Examples:
    folder = _model_folder(data_dir)
    if folder is None:
        return _bytes(data_dir)
    import transformers

    text, name = read_text(data_dir, characters=_CHARACTERS)
    library: Any = transformers  # only partly typed
    tokenizer = library.AutoTokenizer.from_pretrained(folder)
    tokens = tokenizer(text)["input_ids"]
    return token_sequences(
        tokens, length=_LENGTH, vocabulary=len(tokenizer), name=f"{name} {folder}"
    )


def _lora_for(data: Examples) -> Builder:
    from dpaudit.models.lora import huggingface_lora

    folder = data.name.partition(" ")[2]
    return functools.partial(huggingface_lora, folder or _GPT2)


def _model_folder(data_dir: DataDir) -> Path | None:
    folder = data_folder(data_dir)
    if folder is None or not (folder / "model" / "config.json").is_file():
        return None
    return folder / "model"


# Non-expansive updates, so that the upper bounds of the hidden state apply with c = 1

_CELLS = 20
_LARGEST_NORM = 4.0
_UNITS, _DEAD, _CLASSES = 64, 16, 10


def _linear(data: Examples, **settings: Any) -> DPSGD:
    """A linear model without bias that starts at zero; one output for two classes."""
    from dpaudit.models import linear_from_zero

    classes = data.classes or 0
    build = functools.partial(
        linear_from_zero, data.features.shape[1], 1 if classes == 2 else classes
    )
    return DPSGD(build_model=build, data=data, **settings)


def _logistic(*, insertion: Insertion | None, **settings: Any) -> DPSGD:
    from dpaudit.mechanisms.smoothness import LinearModel

    return _linear(_housing_cells(), **settings | {"smoothness": LinearModel(loss="logistic")})


def _softmax_head(*, insertion: Insertion | None, **settings: Any) -> DPSGD:
    from dpaudit.mechanisms.smoothness import SoftmaxHead

    return _linear(_housing_features(), **settings | {"smoothness": SoftmaxHead()})


def _housing_cells() -> Examples:
    """Eight standardised columns of norm at most 4, a constant, and the cell of a 20 x 20 map."""
    housing = california_housing()
    dense = housing.features.astype(float)
    norms = np.linalg.norm(dense, axis=1, keepdims=True)
    dense *= np.minimum(1.0, _LARGEST_NORM / norms)
    place = housing.features[:, -2:]  # latitude and longitude
    low, high = place.min(axis=0), place.max(axis=0)
    cell = np.minimum((place - low) / (high - low) * _CELLS, _CELLS - 1).astype(int)
    one_hot = np.zeros((len(dense), _CELLS**2))
    one_hot[np.arange(len(dense)), cell[:, 0] * _CELLS + cell[:, 1]] = 1.0
    return Examples(
        features=np.concatenate([dense, np.ones((len(dense), 1)), one_hot], axis=1),
        targets=housing.targets,
        classes=2,
        name="california-housing-cells",
    )


def _housing_features() -> Examples:
    """A fixed random ReLU layer of the standardised columns; the class is the decile of value."""
    inputs = california_housing().features.astype(float)
    random = np.random.default_rng(0)
    hidden = inputs @ random.standard_normal((inputs.shape[1], _UNITS))
    # A unit fires for half of the examples; a dead one has its threshold at the largest input.
    threshold = np.median(hidden, axis=0)
    threshold[-_DEAD:] = hidden[:, -_DEAD:].max(axis=0)
    features = np.maximum(hidden - threshold, 0.0)
    norms = np.linalg.norm(features, axis=1, keepdims=True)
    features /= np.maximum(norms, 1.0) * (1 + 1e-6)
    value = california_housing_columns()["MedHouseVal"]
    borders = np.quantile(value, np.arange(1, _CLASSES) / _CLASSES)
    return Examples(
        features=features,
        targets=np.searchsorted(borders, value),
        classes=_CLASSES,
        name="california-housing-features",
    )


_SHIPPED = (
    # The learning rate is 0.1 as in the paper's text. With the 0.01 of its table all dimensions
    # would be equally good for a canary.
    Preset(
        name="housing",
        summary="FCNN 8-6-2 on California Housing",
        needs_folder=False,
        read=_housing,
        model_for=functools.partial(_network, "fcnn"),
        batch_size=400,
        learning_rate=0.1,
    ),
    Preset(
        name="convnet",
        summary="ConvNet on CIFAR-10",
        read=_cifar10,
        model_for=functools.partial(_network, "convnet"),
    ),
    Preset(
        name="resnet18",
        summary="ResNet18 with GroupNorm on CIFAR-10",
        read=_cifar10,
        model_for=functools.partial(_network, "resnet18"),
    ),
    Preset(
        name="alexnet-head",
        summary="linear head on frozen AlexNet features of CIFAR-10",
        read=alexnet_features_of,
        model_for=_head_for,
    ),
    # The paper replaces AlexNet's last layer only; this needs weights that include the classifier.
    Preset(
        name="alexnet-last-layer",
        summary="last layer of a frozen AlexNet on CIFAR-10",
        read=functools.partial(alexnet_features_of, hidden_layers=True),
        model_for=_head_for,
    ),
    Preset(
        name="gpt",
        summary="GPT of 10.8 million parameters on the bytes of a text",
        read=_bytes,
        model_for=functools.partial(_network, "gpt"),
        batch_size=64,
        learning_rate=0.1,
        noise_multiplier=1.0,
        adversary="random-dimension",
        stand_in=GENERATED,
    ),
    Preset(
        name="vit-tiny",
        summary="ViT-tiny on CIFAR-10",
        read=_cifar10,
        model_for=functools.partial(_network, "vit_tiny"),
        adversary="random-dimension",
    ),
    # The network of De et al. (arXiv 2204.13650).
    Preset(
        name="wrn-16-4",
        summary="WRN-16-4 with GroupNorm on CIFAR-10",
        read=_cifar10,
        model_for=functools.partial(_network, "wide_resnet"),
        adversary="random-dimension",
    ),
    # A folder ``model`` in the data folder gives the weights and the tokenizer.
    Preset(
        name="gpt2-lora",
        summary="LoRA on a Hugging Face GPT-2",
        read=_tokens,
        model_for=_lora_for,
        batch_size=64,
        learning_rate=0.1,
        noise_multiplier=1.0,
        adversary="random-dimension",
        stand_in=GENERATED,
    ),
    # Most cells of the map have no district: a record in one of them has a feature of its own.
    Preset(
        name="logistic",
        summary="logistic regression on California Housing with map cells",
        needs_folder=False,
        make=_logistic,
        batch_size=400,
        learning_rate=0.1,
        clip_norm=0.2,
        loss=losses.logistic,
        adversary="rare-feature",
    ),
    # Clipping is never active: feature vectors have norm at most 1, and C is the square root of 2,
    # which no gradient exceeds. The last features are dead: no training example activates them.
    Preset(
        name="softmax-head",
        summary="softmax head on frozen ReLU features of California Housing",
        needs_folder=False,
        make=_softmax_head,
        batch_size=128,
        learning_rate=0.02,
        clip_norm=math.sqrt(2),
        adversary="rare-feature",
    ),
)

PRESETS: Registry[Preset] = Registry(
    "preset", "dpaudit.presets", {shipped.name: shipped for shipped in _SHIPPED}
)
"""Every registered preset. An entry point names a `Preset`."""


def preset(name: str) -> Preset:
    """The preset of that name.

    Example:
        >>> preset("convnet").summary
        'ConvNet on CIFAR-10'
    """
    return PRESETS[name]


def __getattr__(name: str) -> Callable[..., DPSGD]:
    dashed = name.replace("_", "-")
    if name.startswith("_") or dashed not in PRESETS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return PRESETS[dashed].training


def __dir__() -> list[str]:
    return sorted([*globals(), *(name.replace("-", "_") for name in PRESETS)])
