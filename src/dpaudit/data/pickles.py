"""Reading a pickle without executing it: plain values and byte arrays only.

CIFAR-10's Python layout is a pickle of Python 2. An ordinary `pickle.load` calls any function that
the file names; here the names that a pickled array needs are replaced by small classes of our own,
and any other name is refused.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dpaudit.errors import DataError


def load_arrays(path: Path) -> dict[str, Any]:
    """The dictionary in a pickle file. Arrays must hold bytes (uint8); keys become text."""
    try:
        with path.open("rb") as stream:
            content = _PlainUnpickler(stream, encoding="bytes").load()
            if not isinstance(content, dict):
                raise DataError(f"{path} holds a {type(content).__name__}, not a dictionary")
            return {_text(key): _unwrap(value) for key, value in content.items()}
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from None
    except DataError:
        raise
    except Exception as error:
        # A damaged pickle can raise any exception.
        raise DataError(f"{path} is not a pickle of plain arrays: {error}") from None


@final
class _Dtype:
    """Replaces numpy.dtype; the only type is unsigned bytes."""

    def __init__(self, code: bytes | str, *_: object) -> None:
        if _text(code) not in ("u1", "|u1"):
            raise pickle.UnpicklingError(f"arrays must hold bytes, not {_text(code)!r}")

    def __setstate__(self, state: object) -> None:
        """Ignore byte order and fields, which single bytes do not have."""


@final
class _Array:
    """Replaces numpy.ndarray; converted to one after its parts were checked."""

    def __init__(self, *_: object) -> None:
        self.state: tuple[Any, ...] = ()

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.state = state

    def to_numpy(self) -> NDArray[np.uint8]:
        _, shape, dtype, column_order, content = self.state
        if not isinstance(dtype, _Dtype) or not isinstance(content, bytes):
            raise pickle.UnpicklingError("an array that is not one of bytes")
        order: Any = "F" if column_order else "C"
        return np.frombuffer(content, dtype=np.uint8).reshape(shape, order=order)


def _encode(text: str, encoding: str) -> bytes:
    """Replaces codecs.encode, which Python 3 writes into old protocols for bytes."""
    if encoding not in ("latin1", b"latin1"):
        raise pickle.UnpicklingError(f"bytes encoded in {encoding!r}")
    return text.encode("latin1")


_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _encode,
}


@final
class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it names {module}.{name}") from None


def _text(value: bytes | str) -> str:
    return value.decode("ascii") if isinstance(value, bytes) else str(value)


def _unwrap(value: object) -> object:
    return value.to_numpy() if isinstance(value, _Array) else value
