"""Steps of small fully connected networks on a CPU, as one C++ function.

`torch.compile` keeps matrix products as library calls and moves every intermediate result through
memory. For a network with a few dozen parameters this takes five times as long as the arithmetic,
and compiling takes longer than training. The function in ``fused.cpp`` computes a whole step
of one run in the processor's cache. It is compiled once for each shape of network, in about a
second, and kept in the user's cache folder.

The noise uses the same random words as `dpaudit.engine.noise`. Sums are added in another order than
by torch, so parameters agree up to rounding. A run's result does not depend on the tile or on the
number of threads. The slow twin is the step of
`dpaudit.engine.training.Engine` without compilation, with which the first calls are compared.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import hashlib
import os
import platform
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast, final

import torch
from torch import Tensor, nn

from dpaudit._cores import cores
from dpaudit.engine.clipped_sums import Taps
from dpaudit.engine.compiling import CHECKED_CALLS, Distances, Results, Step, miscompiled, too_far
from dpaudit.engine.layer_rules import is_plain
from dpaudit.engine.speed import Speed
from dpaudit.engine.starting_points import as_tensor, known_model, trainable
from dpaudit.mechanisms.clipping import FlatClipping
from dpaudit.mechanisms.dpsgd import DPSGD
from dpaudit.mechanisms.losses import cross_entropy
from dpaudit.mechanisms.optimizers import SGD

MOST_PARAMETERS = 4096
"""Parameters up to which the function was measured to be faster than the compiled step."""

CHECKED_RUNS = 4

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
        speed.precision in ("auto", "float32")
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


def _widths(model: nn.Module) -> tuple[int, ...] | None:
    if type(model) is not nn.Sequential or len(model) % 2 == 0:
        return None
    linear, between = cast(list[nn.Linear], list(model)[::2]), list(model)[1::2]
    if not all(is_plain(layer, nn.Linear) and layer.bias is not None for layer in linear):
        return None
    if not all(is_plain(layer, nn.ReLU) for layer in between):
        return None
    own = [parameter for layer in linear for parameter in (layer.weight, layer.bias)]
    trained = trainable(model)
    if [id(parameter) for parameter in own] != [id(parameter) for parameter in trained]:
        return None  # frozen or shared parameters
    if sum(parameter.numel() for parameter in trained) > MOST_PARAMETERS:
        return None
    return (linear[0].in_features, *(layer.out_features for layer in linear))


@final
class FusedSteps:
    """Steps of all runs, compiled for one shape of network, and compared with the slow step.

    The first calls are compared for the first few runs. Several threads train different runs,
    because calls release Python's global lock.

    Arguments, beside tables of `dpaudit.engine.training.Engine`:
        widths: The number of features, of units in each hidden layer, and of classes.
        rows: Numbers of examples, shape (batches, examples). The last ones are canaries.
        present: 0 for padding, otherwise 1, shape (batches, examples).
        inserted_at: 1 for steps at which canaries are inserted, otherwise 0, shape (steps,).
        slow: The same step in torch; its results are the next state and the clipped sums.
        points: Whether canaries are examples, with coins as their weights.
    """

    def __init__(
        self,
        widths: tuple[int, ...],
        *,
        features: Tensor,
        targets: Tensor,
        rows: Tensor,
        present: Tensor,
        batch_at: Tensor,
        inserted_at: Tensor,
        scalars: Tensor,
        key: Tensor,
        stream: int,
        noisy: bool,
        slow: Step,
        insert: Callable[[Tensor, Tensor], Tensor],
        points: bool,
        distances: Distances,
    ) -> None:
        self._function = ctypes.CDLL(str(build(widths))).fused_steps
        self._function.restype = None
        self._function.argtypes = [ctypes.c_void_p] * 12 + [ctypes.c_int64] * 8
        self._examples = rows.shape[1]
        pad = functools.partial(nn.functional.pad, pad=(0, -self._examples % _LANES))
        tables = (features, targets, pad(rows), pad(present), batch_at, inserted_at)
        self._tables = [table.contiguous() for table in tables]
        clip_norm, spread, kept_share, rate, one_over_size = scalars.unbind(1)
        self._scalars = torch.stack([rate * one_over_size, clip_norm, spread, kept_share], dim=1)
        # A step from nothing with learning rate -1 and without noise is the clipped sum.
        zeros = torch.zeros_like(rate)
        self._sum_scalars = torch.stack([zeros - 1, clip_norm, zeros, zeros], dim=1)
        self._key, self._stream, self._noisy = key, stream, noisy
        self._slow, self._insert, self._points = slow, insert, points
        self._distances, self._unchecked, self._wrong = distances, CHECKED_CALLS, False
        self.notices: tuple[str, ...] = ()

    @property
    def trusted(self) -> bool:
        """Whether the fused step has passed all comparisons."""
        return self._unchecked == 0 and not self._wrong

    def __call__(
        self, state: Tensor, entering: Tensor, runs: Tensor, first: int, last: int
    ) -> Tensor:
        """The state after the steps ``first`` to ``last - 1``, in which the same canaries enter."""
        coins, canaries = entering, None
        if not self._points:
            coins, canaries = entering[:, :0], self._insert(torch.zeros_like(state[0]), entering)
        return self._trained(state[0], coins, canaries, runs, self._scalars, first, last)[None]

    def one_step(
        self,
        state: Tensor,
        rows: Tensor,
        present: Tensor,
        draws: Tensor,
        entering: Tensor,
        runs: Tensor,
        step: Tensor,
        key: Tensor,
        scalars: Tensor,
    ) -> Tensor:
        """A step with the arguments of ``slow``, compared if it is one of the first."""

        def slow(some: slice) -> Results:
            return self._slow(
                state[:, some], rows, present, draws, entering[some], runs[some], step, key, scalars
            )

        number = int(step)
        with torch.no_grad():
            if self._unchecked:
                self._unchecked -= 1
                few, own = state[:, :CHECKED_RUNS], entering[:CHECKED_RUNS]
                coins, some = own if self._points else own[:, :0], runs[:CHECKED_RUNS]
                span = number, number + 1
                sums = self._trained(few[0], coins, None, some, self._sum_scalars, *span)
                each = [slow(slice(run, run + 1)) for run in range(few.shape[1])]
                plain = tuple(torch.cat(parts, dim=-2) for parts in zip(*each, strict=True))
                wrong = too_far(self._distances((self(few, own, some, *span), sums), plain, (few,)))
                if wrong and not self._wrong:
                    self._wrong = True
                    self.notices = (miscompiled("the C++ compiler", wrong),)
            if self._wrong:
                return slow(slice(None))[0]
            return self(state, entering, runs, number, number + 1)

    def _trained(
        self,
        current: Tensor,
        coins: Tensor,
        canaries: Tensor | None,
        runs: Tensor,
        scalars: Tensor,
        first: int,
        last: int,
    ) -> Tensor:
        """The parameters of all runs after some steps; ``canaries`` are added to the sums."""
        result = current.clone(memory_format=torch.contiguous_format)
        coins, runs = coins.float().contiguous(), runs.contiguous()
        canaries = None if canaries is None else canaries.contiguous()
        scalars, points = scalars.contiguous(), coins.shape[1]

        def train(own: slice) -> None:
            mine = coins[own], None if canaries is None else canaries[own], runs[own]
            tensors = (result[own], *self._tables, *mine, self._key, scalars)
            self._function(
                *(None if tensor is None else tensor.data_ptr() for tensor in tensors),
                len(result[own]),
                self._tables[2].shape[1],
                self._examples - points,
                points,
                first,
                last,
                self._stream,
                self._noisy,
            )

        share = -(-len(result) // threads())
        shares = [slice(start, start + share) for start in range(0, len(result), share)]
        if len(shares) == 1:
            train(shares[0])
        else:
            list(_pool(len(shares)).map(train, shares))
        return result


def threads() -> int:
    """Number of threads for this process: ``OMP_NUM_THREADS`` if it is set, or one per core."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    return int(given) if given.isdigit() and int(given) else cores()


@functools.cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="fused")


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
    if _is_whole(library):
        return library
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        made = Path(temporary) / library.name
        subprocess.run(
            [*command, "-o", str(made)], check=True, capture_output=True, timeout=_BUILD_SECONDS
        )
        made.chmod(0o700)
        written = Path(temporary) / "digest"
        written.write_text(_digest_of(made))
        written.replace(_digest_file(library))
        made.replace(library)  # at once, so that no other process loads half a file
    return library


def _is_whole(library: Path) -> bool:
    """Whether a compiled file is ours alone, and as it was compiled: loading it runs its code."""
    try:
        return (
            _is_private(library)
            and _is_private(_digest_file(library))
            and _digest_file(library).read_text() == _digest_of(library)
        )
    except (OSError, ValueError):
        return False


def _digest_file(library: Path) -> Path:
    return library.with_suffix(".sha256")


def _digest_of(library: Path) -> str:
    with library.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _is_private(place: Path) -> bool:
    """Whether a file or folder is this user's, and no other user may write to it."""
    facts = place.lstat()
    own = facts.st_uid == os.getuid() and not stat.S_ISLNK(facts.st_mode)
    return own and not facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def can_build() -> bool:
    """Whether there is a C++ compiler."""
    return _compiler() is not None


def _compiler() -> str | None:
    return shutil.which(os.environ.get("CXX") or "c++") or shutil.which("g++")


@functools.cache
def _cache_folder() -> Path:
    """A folder of this user alone; where none outlives the command, one that ends with it."""
    base = os.environ.get("XDG_CACHE_HOME")
    for folder in (Path(base) if base else Path.home() / ".cache", Path(tempfile.gettempdir())):
        own = folder / f"dpaudit-{os.getuid()}" if folder.name == "tmp" else folder / "dpaudit"
        with contextlib.suppress(OSError):
            own.mkdir(mode=0o700, parents=True, exist_ok=True)
            if _is_private(own) and os.access(own, os.W_OK):
                return own
    temporary = tempfile.mkdtemp(prefix="dpaudit-")
    atexit.register(shutil.rmtree, temporary, ignore_errors=True)
    return Path(temporary)


def _processor() -> str:
    """The processor, because ``-march=native`` code may not run on another one."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return "".join(line for line in lines[:40] if line.startswith(("model", "flags")))
    return platform.processor() + platform.machine()
