"""Settings that change how fast a game is played, but not what is measured."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Literal, final, get_args

import torch

from dpaudit import _validate
from dpaudit.errors import InvalidInput

Precision = Literal["auto", "float32", "tf32", "bfloat16", "float64"]
ROUNDED: tuple[Precision, ...] = ("tf32", "bfloat16")
"""Precisions in which products of matrices are rounded."""

Convolutions = Literal["auto", "library", "product", "kernels"]


@final
@dataclass(frozen=True, kw_only=True)
class Speed:
    """Speed settings. They change scores only by rounding.

    Arguments:
        device: ``"auto"`` (a GPU if there is one), ``"cpu"``, ``"cuda"``, ``"cuda:1"``, …
        precision: ``"float32"`` as in the paper. ``"tf32"`` and ``"bfloat16"`` round products on
            GPUs that support them; parameters, noise and updates stay in float32. ``"float64"``
            is for checks. ``"auto"`` is TF32 on a GPU and float32 on a CPU.
        compile: Whether to use `torch.compile`. ``"fused"`` uses a C++ function for small fully
            connected networks on a CPU, which is several times faster and rounds differently.
            ``"auto"`` compiles if the game is long enough, fused where possible.
        tile_size: Number of runs trained together; `None` chooses it from the model and the free
            memory.
        workers: Number of processes. On a CPU each has one thread, and `None` starts one per core
            for long games; on GPUs they take the GPUs in turn, and `None` starts one per GPU.
            Scores do not depend on it.
        virtual_batch: Number of examples whose gradients are computed at once, to save memory;
            `None` computes those of a whole batch.
        convolutions: ``"library"`` computes convolutions in the vendor's library, ``"product"`` as
            batched matrix products, ``"kernels"`` small ones with their ReLU and max-pooling in
            kernels of this package for NVIDIA GPUs, in TF32 or bfloat16; ``"auto"`` chooses the
            one expected to be fastest.

    Example:
        >>> Speed(precision="float64").dtype
        torch.float64
        >>> Speed(tile_size=0)
        Traceback (most recent call last):
        dpaudit.errors.InvalidInput: tile_size must be at least 1, got 0
    """

    device: str = "auto"
    precision: Precision = "auto"
    compile: bool | Literal["auto", "fused"] = "auto"
    tile_size: int | None = None
    workers: int | None = None
    virtual_batch: int | None = None
    convolutions: Convolutions = "auto"

    def __post_init__(self) -> None:
        _validate.one_of("precision", self.precision, get_args(Precision))
        _validate.one_of("convolutions", self.convolutions, get_args(Convolutions))
        if self.convolutions == "kernels" and self.precision not in ("auto", *ROUNDED):
            raise InvalidInput(
                f"convolutions='kernels' rounds products, so precision must be one of {ROUNDED}, "
                f"got {self.precision!r}; use convolutions='auto'"
            )
        if self.compile not in (True, False, "auto", "fused"):
            raise InvalidInput(
                f"compile must be True, False, 'auto' or 'fused', got {self.compile!r}"
            )
        if self.tile_size is not None:
            _validate.integer("tile_size", self.tile_size, at_least=1)
        if self.virtual_batch is not None:
            _validate.integer("virtual_batch", self.virtual_batch, at_least=1)
        if self.workers is not None:
            _validate.integer("workers", self.workers, at_least=1)

    @property
    def dtype(self) -> torch.dtype:
        """The type of parameters, noise and updates."""
        return torch.float64 if self.precision == "float64" else torch.float32

    @property
    def compiled(self) -> bool | Literal["fused"]:
        """How the step is compiled; ``"auto"`` that is not settled yet counts as `True`."""
        return "fused" if self.compile == "fused" else bool(self.compile)

    @property
    def product_dtype(self) -> torch.dtype:
        """The type of the forward and backward pass."""
        return torch.bfloat16 if self.precision == "bfloat16" else self.dtype

    def settled(self, device: torch.device | None = None) -> Speed:
        """The same settings with a device, by default one of this machine, and a precision."""
        device, precision = self.torch_device() if device is None else device, self.precision
        if precision == "auto":
            precision = "tf32" if device.type == "cuda" else "float32"
        return replace(self, device=str(device), precision=precision)

    def torch_device(self) -> torch.device:
        """The device; `InvalidInput` if this machine does not have it."""
        if self.device == "auto":
            chosen = _automatic.get()
            return chosen or torch.device("cuda" if torch.cuda.is_available() else "cpu")
        try:
            device = torch.device(self.device)
        except RuntimeError:
            raise InvalidInput(
                f"device must be auto, cpu, cuda or cuda:N, got {self.device!r}"
            ) from None
        if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
            raise InvalidInput(
                f"device must be on this machine, got {self.device!r} with "
                f"{torch.cuda.device_count()} GPU(s); use device='cpu'"
            )
        return device


_automatic: ContextVar[torch.device | None] = ContextVar("automatic", default=None)


@contextlib.contextmanager
def automatic_device(device: torch.device) -> Iterator[None]:
    """Within this context ``device="auto"`` is this device: adversaries craft where runs train.

    A GPU that this machine lacks, of an executor's machines, changes nothing.
    """
    missing = device.type == "cuda" and not torch.cuda.is_available()
    token = _automatic.set(None if missing else device)
    try:
        yield
    finally:
        _automatic.reset(token)
