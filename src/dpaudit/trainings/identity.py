"""What identifies a user's training: its code, settings, files, environment and packages.

A stored audit is bound to this identity. Editing the training, a helper that it imports, a
constant in one of its modules, a file that it names, an environment variable that it reads or the
shell program that it starts makes it another training.
"""

from __future__ import annotations

import dataclasses
import dis
import functools
import importlib.metadata
import inspect
import math
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, final

from dpaudit.errors import InvalidInput
from dpaudit.trainings.parameters import flat_parameters
from dpaudit.trainings.project import (
    file_digest,
    files_of,
    files_of_command,
    is_users,
    modules_of,
    text_digest,
    variables_of,
)
from dpaudit.trainings.shell import CommandTraining

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_MOST_NUMBERS = 1 << 22
"""Numbers of an array that are read; of a larger one, so many at equal distances."""


@final
@dataclass(frozen=True, kw_only=True)
class Identity:
    """The identity of a training function.

    Arguments:
        name: Module and name of the function.
        source: Digest of the function's source and of the values that it holds.
        code: Digest of the user's files that it is made of, and of environment variables.
        files: Names of these files, and of the variables with a dollar sign.
        packages: Versions of the third-party packages that these files import.
    """

    name: str
    source: str
    code: str
    files: tuple[str, ...]
    packages: dict[str, str]

    @classmethod
    def of(cls, train: Any, *others: Any) -> Identity:
        """The identity of a training function, a callable object or a shell command.

        Arguments:
            train: The training.
            others: Further functions and objects that decide the scores: an adversary, a canary.
        """
        files = files_of(path for one in (train, *others) for path in _starts(one))
        variables = variables_of(files)
        digests = [f"{path.name}:{file_digest(path)}" for path in files]
        digests += [f"${name}:{value}" for name, value in variables.items()]
        sources = [_source(one) for one in (train, *others) if _has_code(one)]
        return cls(
            name=name_of(train),
            source=sources[0] if len(sources) == 1 else text_digest(*sources),
            code=text_digest(*digests),
            files=(*(path.name for path in files), *(f"${name}" for name in variables)),
            packages=_packages(modules_of(files)),
        )


def name_of(function: Any) -> str:
    """Module and name of a function, a partial or a callable object."""
    if isinstance(function, functools.partial):
        return f"partial of {name_of(function.func)}"
    if isinstance(function, CommandTraining):
        return " ".join(function.arguments)
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    return f"{getattr(function, '__module__', '')}:{name}"


def digest(value: Any) -> str:
    """A few digits that change when the value does; its type alone if it cannot be read."""
    if isinstance(value, list | tuple):
        return text_digest(*(digest(inner) for inner in value))
    if isinstance(value, dict):
        return text_digest(*(f"{key!r}{digest(inner)}" for key, inner in value.items()))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = (field.name for field in dataclasses.fields(value))
        return text_digest(name_of(type(value)), *(digest(getattr(value, name)) for name in fields))
    if hasattr(value, "shape") and not isinstance(value, type):
        return _array_digest(value)
    # Text with an address in it would differ from process to process.
    text = re.sub(r" at 0x[0-9a-f]+", "", repr(value))
    return text_digest(text, *_settings(value))


def _array_digest(value: Any) -> str:
    shape = tuple(value.shape)
    try:
        numbers = math.prod(shape)
        if numbers > _MOST_NUMBERS:
            value = value.reshape(-1)[:: -(-numbers // _MOST_NUMBERS)]
        return text_digest(str(shape), flat_parameters(value).tobytes().hex())
    except (AttributeError, InvalidInput, TypeError):
        return text_digest(name_of(type(value)))


def _settings(value: Any) -> Iterator[str]:
    """The plain attributes of a class, or of an object whose text does not show them."""
    if not isinstance(value, type) and getattr(type(value), "__repr__", None) != object.__repr__:
        return
    held = getattr(value, "__dict__", {})
    for name in sorted(held):
        if not name.startswith("__") and isinstance(held[name], (*_PLAIN, tuple)):
            yield f"{name}={digest(held[name])}"


def _has_code(value: Any) -> bool:
    """Whether a value is a function, or an object of a class of the user's."""
    return callable(value) or _is_users_own(type(value))


def _is_users_own(code: Any) -> bool:
    """Whether the user wrote this function, class or module, in a file or interactively."""
    file = _file_of(code)
    if file is not None:
        return is_users(file)
    return hasattr(code, "__code__") or getattr(code, "__module__", "") == "__main__"


def _source(value: Any, seen: set[int] | None = None) -> str:
    """A digest of code, and of the values that a function, a partial, a class or an object holds.

    Arguments:
        value: The function, class or object.
        seen: Identities of what was read already, which is left out.
    """
    seen = set() if seen is None else seen
    if id(value) in seen:
        return ""
    seen.add(id(value))
    if isinstance(value, functools.partial):
        given = digest(list(value.args)), digest(dict(value.keywords))
        return text_digest(_source(value.func, seen), *given)
    if hasattr(value, "__code__"):
        owner = getattr(value, "__self__", None)
        bound = () if owner is None else (_source(owner, seen),)
        return text_digest(_text(value), _held(value, seen), *bound)
    if not isinstance(value, type):
        return text_digest(_source(type(value), seen), digest(getattr(value, "__dict__", {})))
    if not _is_users_own(value):
        return name_of(value)
    methods = [one for one in vars(value).values() if inspect.isfunction(one)]
    return text_digest(_text(value), *_settings(value), *(_held(one, seen) for one in methods))


def _text(code: Any) -> str:
    try:
        return inspect.getsource(code)
    except (OSError, TypeError):
        return ""


def _held(function: Any, seen: set[int]) -> str:
    """The values that a function carries: defaults, closure, and the globals that it names.

    Two functions of one source may differ in nothing else. Lists, sets, and dictionaries of
    anything but plain settings are left out: a training that collects its calls in one is the same
    training at the next call.
    """
    values = [function.__defaults__ or (), tuple((function.__kwdefaults__ or {}).items())]
    for cell in function.__closure__ or ():
        try:
            values.append(cell.cell_contents)
        except ValueError:  # a name that is bound later
            continue
    values += _globals(function)
    fixed = [v for v in values if not isinstance(v, list | set | ModuleType) and not _collects(v)]
    return text_digest(*(_source(v, seen) if _followed(v) else digest(v) for v in fixed))


def _followed(value: Any) -> bool:
    return (inspect.isfunction(value) or isinstance(value, type)) and _is_users_own(value)


def _globals(function: Any) -> Iterator[Any]:
    """The values of the globals that a function reads and does not assign.

    They may come from the command line, so that the files do not show them. Of a module of the
    user's, the plain attributes that the function names are read.
    """
    codes = list(_nested_codes(function.__code__))
    names = dict.fromkeys(name for code in codes for name in code.co_names)
    assigned = {
        step.argval
        for code in codes
        for step in dis.get_instructions(code)
        if step.opname == "STORE_GLOBAL"
    }
    for name in names:
        value = function.__globals__.get(name)
        if name in assigned or name not in function.__globals__:
            continue
        if not isinstance(value, ModuleType):
            yield value
        elif _is_users_own(value):
            held = {name: getattr(value, name, None) for name in names}
            yield from (one for one in held.values() if isinstance(one, (*_PLAIN, tuple)))


def _nested_codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested_codes(constant)


def _collects(value: Any) -> bool:
    """Whether a value is a dictionary of more than settings, such as a cache."""
    return isinstance(value, dict) and not all(
        isinstance(one, (*_PLAIN, tuple)) for one in value.values()
    )


def _starts(value: Any) -> Iterator[Path]:
    """The files that a training, an adversary or a canary is defined in."""
    while isinstance(value, functools.partial):
        value = value.func
    if isinstance(value, CommandTraining):
        yield from files_of_command(value.arguments)
    elif _has_code(value):
        code = value if hasattr(value, "__code__") else type(value)
        # A decorator may be defined in another file than the function.
        files = {_file_of(code), _file_of(inspect.unwrap(code))}
        yield from (file for file in files if file is not None)


def _file_of(code: Any) -> Path | None:
    try:
        file = inspect.getsourcefile(code)
    except (TypeError, OSError):  # built in, or a class of a notebook
        return None
    path = None if file is None else Path(file)
    return path.resolve() if path is not None and path.is_file() else None


def _packages(modules: set[str]) -> dict[str, str]:
    """Versions of the installed packages among these modules."""
    found = {}
    for top in sorted(modules - set(sys.stdlib_module_names) - {"", "dpaudit"}):
        try:
            found[top] = importlib.metadata.version(top)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
