"""The digest of the user's code as it is loaded: whether runs belong to one and the same training.

A digest has one part for each of these, so that a difference can be named:

- every *function and class of the user's* that the training reaches: its bytecode as it runs now;
- every *value* that those hold: arguments of a partial, closures, defaults, and the globals that
  they name, also of other modules of the user's. A value is read through ``pickle``;
- every *module of the user's* that they import, at the top or inside a function, loaded or not: the
  bytecode of its file.

The user's is what belongs neither to the standard library, nor to an installed package of any kind,
nor to dpaudit. Data files and environment variables are no part of it: a training that depends on
them holds their names only.

An audit computes the digest when it starts. Every process that plays runs computes it again from
what it has loaded itself, and refuses to play if a part differs (`CodeDigest.require_here`). After
every run, and when the audit ends, the files must still be the same (`require_unedited`). What
cannot be read, such as an open file, makes the digest unlike any other: an interrupted audit of
such a training starts again, and is never resumed.
"""

from __future__ import annotations

import dis
import functools
import hashlib
import importlib.metadata
import importlib.util
import inspect
import io
import marshal
import os
import pickle
import re
import secrets
import shlex
import site
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import CodeType, FunctionType, GetSetDescriptorType, MemberDescriptorType, ModuleType
from typing import Any, final

import numpy as np

from dpaudit.errors import InvalidInput
from dpaudit.trainings.scoring import as_array
from dpaudit.trainings.shell import CommandTraining

_PLAIN = frozenset({bool, int, float, complex, str, bytes, type(None)})
_GENERATORS = {
    "numpy": ("Generator", "RandomState"),
    "torch": ("Generator",),
    "random": ("Random",),
}
"""Random generators, by the library and the names of their classes."""

_LARGEST_FILE = 1 << 28  # bytes that are read; of a larger file, its size and date are used


class CodeChanged(InvalidInput):
    """Runs would be mixed with those of other code."""


# What is compared.


@final
@dataclass(frozen=True, kw_only=True)
class CodeDigest:
    """The code of a training, in parts. Made by `code_digest`.

    Arguments:
        parts: Digest of each function, class, value and module, by its name; empty for what cannot
            be compared.
        unread: Names of what cannot be read, with their types.
        files: The files of the user's modules: a stamp that changes when they are written, and the
            digest of their content.
        token: Distinguishes this object in all processes that receive it.
    """

    parts: Mapping[str, str]
    unread: tuple[str, ...] = ()
    files: dict[str, tuple[tuple[int, ...], str]] = field(default_factory=dict, compare=False)
    token: str = field(default_factory=lambda: secrets.token_hex(8), compare=False)

    @property
    def value(self) -> str:
        """All parts as one text of 32 digits; different in every process if any is unread."""
        text = [f"{name}={part}" for name, part in sorted(self.parts.items())]
        return _hashed("\n".join([*text, self.token if self.unread else ""]))

    @property
    def modules(self) -> tuple[str, ...]:
        """Names of the user's modules."""
        names = (name for name in self.parts if name.startswith(_MODULE))
        return tuple(name.removeprefix(_MODULE) for name in names)

    def differences(self, other: CodeDigest) -> tuple[str, ...]:
        """Names of the parts that differ.

        A module may be in one of them only, since it is imported when it is needed. Versions of
        packages are not compared: machines may differ in them.
        """
        different = []
        for name in {**self.parts, **other.parts}:
            pair = self.parts.get(name), other.parts.get(name)
            incomparable = "" in pair or name.startswith(_PACKAGE)
            not_imported = None in pair and name.startswith(_MODULE)
            if pair[0] != pair[1] and not (incomparable or not_imported):
                different.append(name)
        return tuple(different)

    def require_here(self, train: Any, **held: Any) -> CodeDigest:
        """The digest of the same training in this process; `CodeChanged` if it differs.

        It is computed once in each process, before the first run: a training may change its values.

        Arguments:
            train: The training, as this process has loaded it.
            held: As in `code_digest`.
        """
        if self.token not in _here:
            here = code_digest(train, **held)
            different = self.differences(here)
            if different:
                raise CodeChanged(
                    f"the training in this process is not the one of the audit: "
                    f"{_listed(different)} differ. A worker process imports the modules again, "
                    "without what is under if __name__ == '__main__': set values where modules are "
                    "imported, or pass them with functools.partial; and start the audit again if "
                    "the code was edited"
                )
            _here[self.token] = here
        return _here[self.token]

    def require_unedited(self) -> None:
        """Raise `CodeChanged` if a file of the user's modules has been edited."""
        edited = []
        for file, (stamp, content) in list(self.files.items()):
            now = _stamp(file)
            if now == stamp:
                continue
            if _file_digest(file) != content:
                edited.append(file)
            else:  # written again with the same code
                self.files[file] = now, content
        if edited:
            raise CodeChanged(
                f"{_listed(edited)} changed while the audit was running, so that its runs may be "
                "of different code; start the audit again"
            )


_MODULE, _PACKAGE = "module ", "package "

_here: dict[str, CodeDigest] = {}
"""Digests that were computed in this process, by the token of the one they are compared with."""


def code_digest(train: Any, **held: Any) -> CodeDigest:
    """The digest of a training function, a partial, a method, a callable object or a `command`.

    Arguments:
        train: The training.
        held: Further objects that decide the scores, such as a canary and an adversary, by the
            names that errors give them.

    Example:
        >>> from functools import partial
        >>> code_digest(partial(pow, 2)).differences(code_digest(partial(pow, 3)))
        ('train',)
    """
    reader = _Reader()
    for name, value in {"train": train, **held}.items():
        reader.hold(name, value)
    if isinstance(train, CommandTraining):
        reader.read_program(train)
    reader.read_modules()
    digest = CodeDigest(parts=reader.parts, unread=tuple(reader.unread), files=reader.files)
    _here[digest.token] = digest
    return digest


def name_of(function: Any) -> str:
    """Module and name of a function, a partial or a callable object."""
    if isinstance(function, functools.partial):
        return f"partial of {name_of(function.func)}"
    if isinstance(function, CommandTraining):
        return " ".join(function.arguments)
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    return f"{getattr(function, '__module__', '')}:{name}"


def _listed(names: Any) -> str:
    names = list(names)
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


# Functions, classes and values.


@final
class _Reader:
    """Reads code and values, following the names in the code of the user's."""

    def __init__(self) -> None:
        self.parts: dict[str, str] = {}
        self.unread: list[str] = []
        self.files: dict[str, tuple[tuple[int, ...], str]] = {}
        self._modules: dict[str, None] = {}
        self._done: dict[object, object] = {}

    def hold(self, name: str, value: Any) -> None:
        """Read a value as the part with this name."""
        if _is_module(value):
            return
        stream = _Hashing()
        try:
            _Pickler(stream, self).dump(value)
        except Exception:  # pickle raises whatever the object's own code raises
            self.unread.append(f"{name} ({type(value).__name__})")
            self._add(name, "")
        else:
            self._add(name, stream.digest())

    def _add(self, name: str, part: str) -> None:
        if name in self.parts:  # several functions of one name, such as lambdas
            part = _hashed(self.parts[name] + part)
        self.parts[name] = part

    def reference(self, value: Any) -> str | None:
        """What stands for a value in a pickle; `None` where pickle itself reads it."""
        if isinstance(value, FunctionType):
            return self._function(value)
        if isinstance(value, type):
            return self._class(value)
        if _is_module(value):
            place = _plain_name(str(_attribute(value, "__name__")))
            self._modules[place] = None
            return f"{_MODULE}{place}"
        if isinstance(value, set | frozenset):  # their order differs from process to process
            digests = []
            for member in value:
                stream = _Hashing()
                _Pickler(stream, self).dump(member)
                digests.append(stream.digest())
            return f"set {_hashed(*sorted(digests))}"
        if isinstance(value, CodeType):
            return _code_digest(value)
        library = type(value).__module__.partition(".")[0]
        if type(value).__name__ in _GENERATORS.get(library, ()):
            return f"generator of {library}"  # its state changes as the training runs
        if isinstance(value, os._Environ):
            return "os.environ"
        if hasattr(value, "shape") and hasattr(value, "dtype"):
            return _array_digest(value)
        wrapped = getattr(value, "__wrapped__", None)  # such as functools.cache and jax.jit
        if isinstance(wrapped, FunctionType):
            return f"{type(value).__name__} of {self._function(wrapped)}"
        return None

    def _function(self, function: FunctionType) -> str:
        code = function.__code__
        module = _plain_name(function.__module__ or "")
        key = f"{module}.{function.__qualname__}"
        if id(function) in self._done:
            return key
        self._done[id(function)] = function
        cells = list(zip(code.co_freevars, function.__closure__ or (), strict=False))
        if not _is_users_function(function):
            # Made by a library, such as a decorated function of the user's or an optax transform.
            inner = (inspect.unwrap(function), *(_content(cell) for _, cell in cells))
            others = tuple(value for value in inner if value is not function)
            return " of ".join([key, *self._inside(others)])
        self._modules[module] = None
        # pytest changes the code of test modules when it imports them, and workers do not.
        loader = type(function.__globals__.get("__loader__")).__module__
        self._add(key, "" if loader.startswith("_pytest") else _code_digest(code))
        for name, cell in cells:
            self.hold(f"{name} in {key}", _content(cell))
        if function.__defaults__ or function.__kwdefaults__:
            self.hold(f"defaults of {key}", [function.__defaults__, function.__kwdefaults__])
        for name, value in vars(function).items():
            if not name.startswith("__"):
                self.hold(f"{key}.{name}", value)
        self._globals(function.__globals__, module, _names(code))
        return key

    def _inside(self, contents: tuple[Any, ...]) -> Iterator[str]:
        """The functions and plain values in the closure of a library's function."""
        for value in contents:
            if isinstance(value, tuple):
                yield from self._inside(value)
            elif isinstance(value, FunctionType):
                yield self._function(value)
            elif type(value) in _PLAIN:
                yield repr(value)

    def _globals(self, values: Mapping[str, Any], module: str, names: list[str]) -> None:
        """The globals of a module that code names, and those of modules that it names."""
        for name in names:
            value = values.get(name)
            if name not in values or name.startswith("__") or (id(values), name) in self._done:
                continue
            self._done[id(values), name] = values
            self.hold(f"{module}.{name}", value)
        for name in names:
            inner = values.get(name)
            if _is_module(inner) and _is_users_module(inner):
                place = _plain_name(str(_attribute(inner, "__name__")))
                self._modules[place] = None
                if (id(inner), tuple(names)) not in self._done:
                    self._done[id(inner), tuple(names)] = inner
                    self._globals(vars(inner), place, names)

    def _class(self, kind: type) -> str:
        key = f"{_plain_name(kind.__module__)}.{kind.__qualname__}"
        if not _is_users_name(kind.__module__) or id(kind) in self._done:
            return key
        self._done[id(kind)] = kind
        self._modules[_plain_name(kind.__module__)] = None
        self._add(key, _hashed(*(self._class(base) for base in kind.__mro__[1:])))
        for name, value in list(vars(kind).items()):
            for inner in _functions_in(value):
                self._function(inner)
            hidden = name.startswith(("__", "_abc_"))
            descriptor = isinstance(value, GetSetDescriptorType | MemberDescriptorType)
            if not (hidden or descriptor or _functions_in(value)):
                self.hold(f"{key}.{name}", value)
        return key

    # Modules and files.

    def read_modules(self) -> None:
        """The modules that were noted, and those that they import, loaded or not."""
        waiting, done, packages = list(self._modules), set[str](), set[str]()
        while waiting:
            name = waiting.pop()
            if name in done:
                continue
            done.add(name)
            file = _file_of(name)
            if file is None or not is_users(file):
                packages.add(name.partition(".")[0])
                continue
            self._read_file(f"{_MODULE}{name}", file)
            if "." in name:
                waiting.append(name.rpartition(".")[0])
            waiting.extend(_imports(_code_of_file(file), _package(name, file)))
            for value in list(vars(sys.modules.get(_loaded_name(name), None) or object).values()):
                if _is_module(value):
                    waiting.append(_plain_name(str(_attribute(value, "__name__"))))
        for name in sorted(packages - set(sys.stdlib_module_names)):
            try:
                self.parts[f"{_PACKAGE}{name}"] = importlib.metadata.version(name)
            except (importlib.metadata.PackageNotFoundError, ValueError):
                continue

    def read_program(self, program: CommandTraining) -> None:
        """The files that a command names. What it does with them cannot be read."""
        self.unread.append(f"the program {program.arguments[0]}")
        for argument in program.arguments:
            try:
                words = {argument, *shlex.split(argument)}
            except ValueError:  # an open quotation mark
                words = {argument}
            for word in sorted(words):
                try:
                    if Path(word).is_file():
                        self._read_file(f"file {word}", word)
                except (OSError, ValueError):
                    continue

    def _read_file(self, name: str, file: str) -> None:
        place = str(Path(file).absolute())
        self.files[place] = _stamp(place), _file_digest(place)
        self.parts[name] = self.files[place][1]


class _Pickler(pickle.Pickler):
    """Pickles into a digest, with references to code in place of code."""

    def __init__(self, stream: _Hashing, reader: _Reader) -> None:
        super().__init__(stream, protocol=4)
        # Without a memo: which equal texts are one object differs from process to process.
        self.fast = True
        self._reader = reader

    def persistent_id(self, value: Any) -> str | None:
        """The reference to code, `None` for plain values."""
        return None if type(value) in _PLAIN else self._reader.reference(value)


@final
class _Hashing(io.RawIOBase):
    """A stream that keeps only the digest of what is written to it."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=16)

    def write(self, content: Any) -> int:
        self._hash.update(content)
        return memoryview(content).nbytes

    def digest(self) -> str:
        return self._hash.hexdigest()


def _hashed(*parts: str) -> str:
    return hashlib.blake2b("\0".join(parts).encode("utf8", "replace"), digest_size=16).hexdigest()


def _array_digest(value: Any) -> str | None:
    """The numbers of an array or tensor of any framework."""
    try:
        array = value if isinstance(value, np.ndarray) else as_array(value)
    except InvalidInput:
        return None
    if array.dtype.hasobject:
        return None
    content = hashlib.blake2b(array.tobytes(), digest_size=16).hexdigest()
    return f"array {value.dtype} {tuple(value.shape)} {content}"


def _code_digest(code: CodeType) -> str:
    """The bytecode of a function or a module, without names of files and numbers of lines."""
    names = [code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars]
    counts = [code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags]
    constants = [_constant(one) for one in code.co_consts]
    handlers = code.co_exceptiontable.hex()
    return _hashed(code.co_code.hex(), handlers, repr(names), repr(counts), *constants)


def _constant(value: Any) -> str:
    if isinstance(value, CodeType):
        return _code_digest(value)
    if isinstance(value, frozenset):
        return f"frozenset {sorted(map(_constant, value))}"
    if isinstance(value, tuple):
        return f"tuple {[_constant(one) for one in value]}"
    return repr(value)


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)


def _names(code: CodeType) -> list[str]:
    return list(dict.fromkeys(name for inner in _nested(code) for name in inner.co_names))


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a name that is bound later
        return None


def _functions_in(value: Any) -> list[FunctionType]:
    """The functions behind an attribute of a class: methods, properties and the like."""
    if isinstance(value, staticmethod | classmethod):
        value = value.__func__
    inner = (
        [value.fget, value.fset, value.fdel]
        if isinstance(value, property)
        else [value.func if isinstance(value, functools.cached_property) else value]
    )
    return [function for function in inner if isinstance(function, FunctionType)]


def _plain_name(module: str) -> str:
    """The name of a module; a worker has the script under another one."""
    return "__main__" if module == "__mp_main__" else module


# Modules of the user's, and what they import.


def is_users(file: str) -> bool:
    """Whether a file is the user's: not of Python, an installed package or dpaudit."""
    return _is_users(file, tuple(sys.path))


@functools.lru_cache(maxsize=4096)
def _is_users(file: str, path: tuple[str, ...]) -> bool:
    place = Path(file).resolve()
    parents = place.parents
    if {"site-packages", "dist-packages"} & {folder.name for folder in parents}:
        return False
    if any(folder in parents for folder in _folders_of_python()):
        return False
    for entry in map(Path, path):
        folder = entry.resolve()
        if folder in parents:
            top = place.relative_to(folder).parts[0]
            if top.partition(".")[0] in _installed_in(folder):
                return False
    return True


@functools.cache
def _folders_of_python() -> frozenset[Path]:
    kinds = ("stdlib", "platstdlib", "purelib", "platlib")
    places = [*(sysconfig.get_path(kind) for kind in kinds), site.getusersitepackages()]
    return frozenset({Path(__file__).resolve().parents[1], *(Path(p).resolve() for p in places)})


@functools.lru_cache(maxsize=64)
def _installed_in(folder: Path) -> frozenset[str]:
    """The modules of the packages that were installed into a folder, such as by ``--target``."""
    names = set()
    for record in folder.glob("*.dist-info/RECORD"):
        try:
            lines = record.read_text(encoding="utf8", errors="replace").splitlines()
        except OSError:
            continue
        names |= {re.split(r"[/,.]", line, maxsplit=1)[0] for line in lines}
    return frozenset(names - {""})


def _is_users_function(function: FunctionType) -> bool:
    file = function.__code__.co_filename
    if Path(file).is_file():
        return is_users(file)
    return _is_users_name(function.__module__ or "")


def _is_users_name(name: str) -> bool:
    """Whether a module is the user's, by its name.

    ``__main__`` is, also where it has no file (a notebook, standard input), and in a job, whose own
    ``__main__`` is another one.
    """
    module = sys.modules.get(name)
    return _plain_name(name) == "__main__" or module is None or _is_users_module(module)


def _is_module(value: object) -> bool:
    """Whether a value is a module; `isinstance` would run code of the value."""
    return issubclass(type(value), ModuleType)


def _attribute(module: object, name: str) -> Any:
    """An attribute of a module; `None` where reading it raises, as modules may."""
    try:
        return getattr(module, name, None)
    except Exception:  # the module's own code
        return None


def _is_users_module(module: object) -> bool:
    file = _attribute(module, "__file__")
    return file is not None and is_users(file)


def _loaded_name(name: str) -> str:
    return "__mp_main__" if name == "__main__" and "__mp_main__" in sys.modules else name


def _file_of(name: str) -> str | None:
    """The file of a module, loaded or not; `None` if it has none or is of the standard library."""
    module = sys.modules.get(_loaded_name(name))
    if module is not None:
        file = _attribute(module, "__file__")
        return file if isinstance(file, str) and Path(file).is_file() else None
    if name.partition(".")[0] in sys.stdlib_module_names:
        return None
    spec = _spec(name)
    return spec.origin if spec is not None and spec.has_location else None


def _spec(name: str) -> ModuleSpec | None:
    """Where a module would be loaded from, without loading it or its packages."""
    package = name.rpartition(".")[0]
    try:
        if not package:
            return importlib.util.find_spec(name)
        places = getattr(sys.modules.get(package), "__path__", None)
        if places is None:
            outer = _spec(package)
            places = None if outer is None else outer.submodule_search_locations
        return None if places is None else PathFinder.find_spec(name, list(places))
    except Exception:  # finders of other packages may raise anything
        return None


def _package(name: str, file: str) -> str:
    return name if Path(file).stem == "__init__" else name.rpartition(".")[0]


def _imports(code: CodeType | None, package: str) -> Iterator[str]:
    """The modules that code imports anywhere, with what it may import out of packages."""
    for inner in [] if code is None else _nested(code):
        constants: list[Any] = [0, None]
        for step in dis.get_instructions(inner):
            if step.opname in ("LOAD_CONST", "LOAD_SMALL_INT"):
                constants = [constants[1], step.argval]
            elif step.opname == "IMPORT_NAME":
                level, members = constants
                base = step.argval
                if level:
                    parts = package.split(".")
                    outer = ".".join(parts[: len(parts) - level + 1])
                    base = f"{outer}.{base}".strip(".")
                yield base
                yield from (f"{base}.{member}" for member in members or ())


def _stamp(file: str) -> tuple[int, ...]:
    try:
        found = os.stat(file)  # noqa: PTH116 - called after every run
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_size, found.st_ino


def _code_of_file(file: str) -> CodeType | None:
    """The bytecode of a Python file, source or compiled; `None` if it is something else."""
    path = Path(file)
    try:
        if path.suffix == ".pyc":
            code = marshal.loads(path.read_bytes()[16:])
        elif path.suffix in (".so", ".pyd"):
            return None
        else:
            code = compile(path.read_bytes(), "", "exec", dont_inherit=True)
    except (OSError, ValueError, SyntaxError, EOFError, TypeError, RecursionError):
        return None
    return code if isinstance(code, CodeType) else None


def _file_digest(file: str) -> str:
    """The digest of a file: of its code if it is Python, else of its bytes."""
    code = _code_of_file(file) if file.endswith((".py", ".pyc")) else None
    if code is not None:
        return _code_digest(code)
    try:
        if Path(file).stat().st_size > _LARGEST_FILE:
            return _hashed(repr(_stamp(file)))
        with Path(file).open("rb") as stream:
            return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
    except OSError:
        return "gone"
