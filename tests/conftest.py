"""What many tests use: the command line, and a small model for each layer with an engine rule."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import hypothesis
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from dpaudit.cli import main
from dpaudit.data import Examples
from dpaudit.mechanisms import losses
from dpaudit.mechanisms.batches import FixedBatches
from dpaudit.mechanisms.dpsgd import DPSGD

sys.path.insert(0, str(Path(__file__).parent / "shared"))

# Tests import these by their names. A collection for doctests would import them once more by other
# names, and register the operations of `slow_blocks` twice.
collect_ignore = ["shared"]

# A timing is never a test: examples may take long on a busy machine.
hypothesis.settings.register_profile(
    "dpaudit", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("dpaudit")

# XLA optimises programs for longer than the tests run them.
os.environ.setdefault(
    "XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
)

# JAX would take most of a GPU's memory in each process of the suite.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

# Collections visit all objects of torch and of other libraries: a tenth of the tests' time.
gc.set_threshold(50_000, 5, 5)


def pytest_collection_finish() -> None:
    """Leave the imported modules out of later collections: they are never garbage."""
    gc.freeze()


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Runs ``dpaudit`` in this process: exit code, standard output, standard error."""

    def running(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["dpaudit", *arguments])
        monkeypatch.setattr(os, "_exit", os._exit)  # which main replaces
        with pytest.raises(SystemExit) as exit_of:
            main()
        printed = capsys.readouterr()
        return int(exit_of.value.code or 0), printed.out, printed.err

    return running


def fcnn() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 2))


class ConvNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 5)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(400, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.max_pool2d(functional.relu(self.conv1(x)), 2)
        x = functional.max_pool2d(functional.relu(self.conv2(x)), 2)
        x = torch.flatten(x, 1)
        x = functional.relu(self.fc1(x))
        x = functional.relu(self.fc2(x))
        return self.fc3(x)


class Block(nn.Module):
    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, stride, padding=1, bias=False)
        self.norm1 = nn.GroupNorm(4, after)
        self.second = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.norm2 = nn.GroupNorm(4, after)
        self.short: nn.Module = nn.Identity()
        if stride != 1 or before != after:
            self.short = nn.Sequential(
                nn.Conv2d(before, after, 1, stride, bias=False), nn.GroupNorm(4, after)
            )

    def forward(self, x: Tensor) -> Tensor:
        out = functional.relu(self.norm1(self.first(x)))
        return functional.relu(self.norm2(self.second(out)) + self.short(x))


class SmallResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.GroupNorm(4, 8)
        self.blocks = nn.Sequential(Block(8, 8, 1), Block(8, 16, 2), Block(16, 16, 1))
        self.head = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.blocks(functional.relu(self.norm(self.stem(x))))
        return self.head(x.mean((2, 3)))


class Words(nn.Module):
    """Embedding, LayerNorm and a Linear over a sequence; indices come as floats or integers."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 6, padding_idx=0)
        self.norm = nn.LayerNorm(6)
        self.mix = nn.Linear(6, 5)
        self.head = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(self.mix(self.norm(self.embedding(x.long()))))
        return self.head(hidden.mean(1))


class Scale(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, width))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale


class Unruled(nn.Module):
    """A Bilinear layer and a home-made one: neither has a rule."""

    def __init__(self) -> None:
        super().__init__()
        self.pair = nn.Bilinear(8, 8, 5)
        self.scale = Scale(5)
        self.head = nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.scale(torch.tanh(self.pair(x, x.flip(1)))))


class OwnParameters(nn.Module):
    """The root owns a parameter beside a ruled child."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 4)
        self.direct = nn.Parameter(torch.randn(4, 2))

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.inner(x)) @ self.direct


class Tied(nn.Module):
    """One table used for looking up and for reading out, and one layer called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 6)
        self.twice = nn.Linear(6, 6)
        self.out = nn.Linear(6, 11, bias=False)
        self.out.weight = self.embedding.weight

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.embedding(x.long()).mean(1)
        return self.out(torch.tanh(self.twice(torch.tanh(self.twice(hidden)))))


class Convolutions(nn.Module):
    """Strides, dilation, groups, padding modes and one dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.strided = nn.Conv2d(3, 4, 3, stride=(2, 3), padding=(1, 2))
        self.dilated = nn.Conv2d(4, 6, (3, 3), dilation=(2, 1), padding="same")
        self.grouped = nn.Conv2d(6, 4, 3, groups=2, padding=1, padding_mode="reflect")
        self.line = nn.Conv1d(4, 5, 3, stride=2, padding=1, padding_mode="circular")

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.dilated(torch.tanh(self.strided(x))))
        return self.line(torch.tanh(self.grouped(x)).flatten(2)).mean(2)


class PartlyFrozen(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.Linear(8, 6)
        self.frozen.requires_grad_(False)
        nn.init.constant_(self.frozen.weight, 0.3)
        nn.init.constant_(self.frozen.bias, 0.1)
        self.shift = nn.Linear(6, 6)
        self.shift.weight.requires_grad_(False)
        nn.init.eye_(self.shift.weight)
        self.head = nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.shift(torch.relu(self.frozen(x)))))


@dataclass(frozen=True)
class Case:
    """A model, and a batch it can be trained on."""

    build: Callable[[], nn.Module]
    features: Tensor
    targets: Tensor

    def training(self) -> DPSGD:
        """Two steps on the batch."""
        features, targets = self.features.numpy(), self.targets.numpy()
        return DPSGD(
            build_model=self.build,
            loss=losses.cross_entropy,
            data=Examples(features=features, targets=targets, classes=11),
            batches=FixedBatches(batch_size=4),
            steps=2,
            learning_rate=0.5,
            clip_norm=0.8,
            noise_multiplier=0.3,
        )


def _numbers(examples: int, *shape: int) -> Tensor:
    return torch.randn(examples, *shape, generator=torch.Generator().manual_seed(1))


def _integers(below: int, *shape: int) -> Tensor:
    return torch.randint(0, below, shape, generator=torch.Generator().manual_seed(2))


CASES = {
    "fcnn": Case(fcnn, _numbers(12, 8), _integers(2, 12)),
    "convnet": Case(ConvNet, _numbers(5, 3, 32, 32), _integers(10, 5)),
    "small resnet": Case(SmallResNet, _numbers(5, 3, 16, 16), _integers(10, 5)),
    "embedding and layer norm": Case(Words, _integers(11, 7, 9), _integers(3, 7)),
    "layers without a rule": Case(Unruled, _numbers(6, 8), _integers(2, 6)),
    "own parameters beside a child": Case(OwnParameters, _numbers(6, 8), _integers(2, 6)),
    "tied and called twice": Case(Tied, _integers(11, 6, 4), _integers(11, 6)),
    "all kinds of convolutions": Case(Convolutions, _numbers(4, 3, 13, 14), _integers(5, 4)),
    "partly frozen": Case(PartlyFrozen, _numbers(6, 8), _integers(2, 6)),
}


@pytest.fixture(params=list(CASES))
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


@pytest.fixture(scope="session")
def cases() -> dict[str, Case]:
    return CASES
