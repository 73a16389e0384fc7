"""Steps of small fully connected networks on a CPU, as one C++ function.

`torch.compile` keeps matrix products as library calls and moves every intermediate result through
memory. For a network with a few dozen parameters this takes five times as long as the arithmetic,
and compiling takes longer than training. The function in ``fused_step.cpp`` computes a whole step
of one run in the processor's cache. It is compiled once for each shape of network, in about a
second, and kept in the user's cache folder.

The noise uses the same random words as `dpaudit.engine.noise`. Sums are added in another order than
by torch, so parameters agree up to rounding. A run's result does not depend on the tile or on the
number of threads. The slow twin is `Engine`'s step without compilation.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import cast, final

import torch
from torch import Tensor, nn

from dpaudit.engine.rules.base import is_plain
from dpaudit.engine.speed import Speed
from dpaudit.engine.starting_points import as_tensor, known_model, trainable
from dpaudit.engine.tapping import Taps
from dpaudit.mechanisms.clipping import FlatClipping
from dpaudit.mechanisms.dpsgd import DPSGD
from dpaudit.mechanisms.losses import cross_entropy
from dpaudit.mechanisms.optimizers import SGD

MOST_PARAMETERS = 4096
"""Parameters up to which the function was measured to be faster than the compiled step."""

_LANES = 16
_SOURCE = Path(__file__).with_suffix(".cpp")
_FLAGS = (
    "-O3",
    "-march=native",
    "-std=c++17",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-Wno-ignored-attributes",
    "-fopenmp-simd",
    "-fPIC",
    "-shared",
)
_BUILD_SECONDS = 120


def fused_widths(mechanism: DPSGD, speed: Speed, taps: Taps) -> tuple[int, ...] | None:
    """The widths of the network's layers if `FusedSteps` can train it, otherwise `None`.

    It trains `torch.nn.Sequential` networks of linear layers with biases and ReLUs between them,
    by the cross-entropy and plain DP-SGD in float32. The device must be a CPU.
    """
    data = mechanism.data
    if not (
        speed.precision == "float32"
        and speed.virtual_batch is None
        and taps == Taps()
        and mechanism.loss is cross_entropy
        and mechanism.clipping == FlatClipping()
        and mechanism.optimizer == SGD()
        and mechanism.augmentation is None
        and mechanism.correlation is None
        and mechanism.averaging is None
        and data.features.ndim == 2
        and data.features.dtype.kind == "f"
        and data.targets.ndim == 1
    ):
        return None
    widths = _widths(known_model(mechanism))
    if widths is None or widths[0] != data.features.shape[1]:
        return None
    targets = as_tensor(data.targets)
    in_range = len(targets) > 0 and int(targets.min()) >= 0 and int(targets.max()) < widths[-1]
    return widths if in_range else None


def is_plain_network(model: nn.Module, loss: object) -> bool:
    """Whether a model has only linear layers and ReLUs, and the cross-entropy as its loss."""
    return loss is cross_entropy and _widths(model) is not None


def _widths(model: nn.Module) -> tuple[int, ...] | None:
    if type(model) is not nn.Sequential or len(model) % 2 == 0:
        return None
    linear, between = cast(list[nn.Linear], list(model)[::2]), list(model)[1::2]
    if not all(is_plain(layer, nn.Linear) and layer.bias is not None for layer in linear):
        return None
    if not all(is_plain(layer, nn.ReLU) for layer in between):
        return None
    own = [parameter for layer in linear for parameter in (layer.weight, layer.bias)]
    found = trainable(model)
    if [id(parameter) for parameter in own] != [id(parameter) for parameter in found]:
        return None  # frozen or shared parameters
    if sum(parameter.numel() for parameter in found) > MOST_PARAMETERS:
        return None
    return (linear[0].in_features, *(layer.out_features for layer in linear))


@final
class FusedSteps:
    """Steps of all runs in one thread, compiled for one shape of network.

    Calls release Python's global lock, so several threads can train different runs.

    Arguments:
        widths: The number of features, of units in each hidden layer, and of classes.
        features: All examples and canaries that batches refer to, shape (any, features).
        targets: Their classes, shape (any,).
        batches: Numbers of examples, shape (batches, examples). The last ones are canaries.
        present: 0 for padding, otherwise 1, shape (batches, examples).
        batch_at: The batch of each step, shape (steps,).
        inserted_at: 1 for steps at which canaries are inserted, otherwise 0, shape (steps,).
        scalars: For each step the learning rate over the batch size, the clip norm, the noise and
            the factor of weight decay, shape (steps, 4).
        key: From `dpaudit.engine.noise.key`.
        stream: The stream of the noise.
        noisy: Whether noise is added.
    """

    def __init__(
        self,
        widths: tuple[int, ...],
        *,
        features: Tensor,
        targets: Tensor,
        batches: Tensor,
        present: Tensor,
        batch_at: Tensor,
        inserted_at: Tensor,
        scalars: Tensor,
        key: Tensor,
        stream: int,
        noisy: bool,
    ) -> None:
        self._function = ctypes.CDLL(str(build(widths))).fused_steps
        self._function.restype = None
        self._function.argtypes = [ctypes.c_void_p] * 12 + [ctypes.c_int64] * 8
        self._examples = batches.shape[1]
        pad = functools.partial(nn.functional.pad, pad=(0, -self._examples % _LANES))
        tables = (features, targets, pad(batches), pad(present), batch_at, inserted_at)
        self._tables = [table.contiguous() for table in tables]
        self._scalars, self._key = scalars.contiguous(), key
        self._stream, self._noisy = stream, noisy

    def __call__(
        self,
        current: Tensor,
        coins: Tensor,
        canaries: Tensor | None,
        runs: Tensor,
        *,
        first: int,
        last: int,
        quiet: bool = False,
    ) -> Tensor:
        """The parameters of all runs after the steps ``first`` to ``last - 1``, (runs, parameters).

        Arguments:
            current: The parameters before the first of these steps.
            coins: Weights of the canaries at the end of every batch, shape (runs, canaries).
            canaries: Added to the clipped sums, shape (runs, parameters), or nothing.
            runs: Run numbers, shape (runs,).
            first: Number of the first step.
            last: Number of the step after the last one.
            quiet: Whether to multiply the noise by 0, for comparisons without noise.
        """
        found = current.clone(memory_format=torch.contiguous_format)
        scalars = self._scalars
        if quiet:
            scalars = scalars.clone()
            scalars[:, 2] = 0
        own = (coins.float(), canaries, runs, self._key, scalars)
        held = [None if one is None else one.contiguous() for one in (found, *self._tables, *own)]
        self._function(
            *(None if one is None else one.data_ptr() for one in held),
            len(found),
            self._tables[2].shape[1],
            self._examples - coins.shape[1],
            coins.shape[1],
            first,
            last,
            self._stream,
            self._noisy,
        )
        return found


@functools.cache
def build(widths: tuple[int, ...]) -> Path:
    """Compile the function for these widths, unless an earlier command has done so.

    Raises `OSError` or `subprocess.SubprocessError` if there is no working C++ compiler.
    """
    compiler = _compiler()
    if compiler is None:
        raise OSError("no C++ compiler found: neither c++ nor g++")
    command = [compiler, *_FLAGS, f"-DWIDTHS={','.join(map(str, widths))}", str(_SOURCE)]
    parts = (_SOURCE.read_text(), *command, _processor())
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]
    folder = _cache_folder()
    library = folder / f"fused-{digest}.so"
    if library.exists():
        return library
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        made = Path(temporary) / library.name
        subprocess.run(
            [*command, "-o", str(made)], check=True, capture_output=True, timeout=_BUILD_SECONDS
        )
        made.replace(library)  # at once, so that no other process loads half a file
    return library


def can_build() -> bool:
    """Whether there is a C++ compiler."""
    return _compiler() is not None


def _compiler() -> str | None:
    return shutil.which(os.environ.get("CXX") or "c++") or shutil.which("g++")


def _cache_folder() -> Path:
    """A folder of this user that outlives the command."""
    base = os.environ.get("XDG_CACHE_HOME")
    for folder in (Path(base) if base else Path.home() / ".cache", Path(tempfile.gettempdir())):
        own = folder / f"dpaudit-{os.getuid()}" if folder.name == "tmp" else folder / "dpaudit"
        with contextlib.suppress(OSError):
            own.mkdir(mode=0o700, parents=True, exist_ok=True)
            if own.stat().st_uid == os.getuid() and os.access(own, os.W_OK):
                return own
    raise OSError("no folder for compiled code: set XDG_CACHE_HOME to a writable folder")


def _processor() -> str:
    """The processor, because ``-march=native`` code may not run on another one."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return "".join(line for line in lines[:40] if line.startswith(("model", "flags")))
    return platform.processor() + platform.machine()
