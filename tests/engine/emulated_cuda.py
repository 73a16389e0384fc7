"""Compiles CUDA kernels for a CPU, so that tests can run them without a GPU."""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

_HEADER = Path(__file__).with_name("emulated_cuda.h")


def emulated(sources: list[str], folder: Path) -> Callable[[str, str], Any]:
    """A stand-in for `torch.cuda._compile_kernel` that knows ``sources``.

    Arguments:
        sources: Texts with one function ``kernel`` each.
        folder: A folder for the compiled library.
    """
    parts = [f'#include "{_HEADER}"']
    for number, source in enumerate(sources):
        types = _types(source)
        given = ", ".join(f"{kind} a{k}" for k, kind in enumerate(types))
        passed = ", ".join(f"a{k}" for k in range(len(types)))
        defined = re.findall(r"#define (\w+)", source)
        parts += [
            f"namespace kernel{number} {{",
            source.replace('extern "C" ', "").replace("__restrict__", ""),
            f'extern "C" void start{number}(Three grid, int threads, int words, {given})',
            f"{{ start(grid, threads, words, [=] {{ kernel({passed}); }}); }}",
            "}",
            *(f"#undef {name}" for name in defined),
        ]
    text, library = folder / "kernels.cpp", folder / "kernels.so"
    text.write_text("\n".join(parts))
    command = ["g++", "-O1", "-std=c++17", "-shared", "-fPIC", "-w", "-o", library, text]
    subprocess.run(command, check=True)
    loaded = ctypes.CDLL(str(library))

    def compiled(source: str, name: str) -> _Emulated:
        assert name == "kernel"
        return _Emulated(loaded[f"start{sources.index(source)}"])

    return compiled


class _Emulated(NamedTuple):
    function: Any

    def set_shared_memory_config(self, size: int) -> None:
        pass


def launch(
    kernel: _Emulated, grid: Any, threads: int, memory: int, arguments: Sequence[Any]
) -> None:
    """A stand-in for `dpaudit.engine.kernels.launching._launch`."""
    given = (
        ctypes.c_void_p(value.data_ptr()) if isinstance(value, torch.Tensor) else value
        for value in arguments
    )
    kernel.function(_Three(*grid), threads, memory // 4, *given)


class _Three(ctypes.Structure):
    _fields_ = [(axis, ctypes.c_int) for axis in "xyz"]


def _types(source: str) -> list[str]:
    """The types of the kernel's arguments."""
    name = re.findall(r"#define (\w+)", source)[0]
    part = source[source.index(f"#ifdef {name}") :]
    found = re.search(r"\bkernel\((.*?)\)", part, re.DOTALL)
    assert found is not None
    arguments = found[1].replace("__restrict__", "").split(",")
    return [re.sub(r"\w+\s*$", "", argument).strip() for argument in arguments]
