"""Everything that decides the scores of such an audit, as plain data: what the store compares."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import platform
import re
from typing import Any

import numpy as np

from dpaudit.errors import InvalidInput
from dpaudit.trainings.parameters import flat_parameters
from dpaudit.trainings.playing import Job

KIND = "your training"


def describe(job: Job, runs: int) -> dict[str, Any]:
    """The configuration of the audit: equal for equal audits, in any process.

    A training is known by its name and its source, so that an edited training is not mixed with
    the runs of the old one. What it calls is not looked at: who edits that should give the audit
    another name.
    """
    scorer = job.scorer
    chosen = scorer.adversary if isinstance(scorer.adversary, str) else None
    own = "as returned" if scorer.adversary is None else _name(scorer.adversary)
    return {
        "kind": KIND,
        "mechanism": {"name": _name(job.train), "source": _source(job.train)},
        "adversary": {"name": chosen or own},
        "canary": _digest(scorer.canary),
        "initial": None if scorer.initial is None else _digest(flat_parameters(scorer.initial)),
        "canaries": scorer.canaries,
        "runs": runs,
        "seed": job.seed,
        "speed": {"tile_size": 1},
    }


def versions() -> dict[str, str]:
    """Software of this session."""
    from dpaudit._version import __version__

    return {
        "dpaudit": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "device": platform.machine(),
    }


def _name(function: Any) -> str:
    if isinstance(function, functools.partial):
        return f"partial of {_name(function.func)}"
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    return f"{getattr(function, '__module__', '')}:{name}"


def _source(function: Any) -> str:
    """A digest of the code, and of the arguments that a partial or an object holds."""
    if isinstance(function, functools.partial):
        given = _digest(list(function.args)), _digest(dict(function.keywords))
        return _hash(_source(function.func), *given)
    code = function if hasattr(function, "__code__") else type(function)
    try:
        text = inspect.getsource(code)
    except (OSError, TypeError):
        text = ""
    held = _held(function) if code is function else _digest(getattr(function, "__dict__", {}))
    return _hash(text, held)


def _held(function: Any) -> str:
    """What a function carries along: its defaults, and the fixed values it was made with.

    Two functions of one source may differ in nothing else. Lists and dictionaries are left out: a
    training that counts its calls in one is the same training at the next call.
    """
    values = [function.__defaults__ or (), tuple((function.__kwdefaults__ or {}).items())]
    for cell in function.__closure__ or ():
        try:
            values.append(cell.cell_contents)
        except ValueError:  # a name that is only bound later
            continue
    fixed = [value for value in values if not isinstance(value, list | dict | set)]
    return _hash(
        *(_source(value) if inspect.isfunction(value) else _digest(value) for value in fixed)
    )


def _digest(value: Any) -> str:
    """A few digits that change when the value does; by its type alone if it cannot be read."""
    if isinstance(value, list | tuple):
        return _hash(*(_digest(inner) for inner in value))
    if isinstance(value, dict):
        return _hash(*(f"{key!r}{_digest(inner)}" for key, inner in value.items()))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = (field.name for field in dataclasses.fields(value))
        return _hash(_name(type(value)), *(_digest(getattr(value, name)) for name in fields))
    if hasattr(value, "shape"):
        try:
            return _hash(str(tuple(value.shape)), flat_parameters(value).tobytes().hex())
        except InvalidInput:
            return _hash(_name(type(value)))
    # Text with an address in it would be different in every process.
    return _hash(re.sub(r" at 0x[0-9a-f]+", "", repr(value)))


def _hash(*parts: str) -> str:
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=8).hexdigest()
