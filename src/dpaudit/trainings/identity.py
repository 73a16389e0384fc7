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

import ast
import contextlib
import functools
import hashlib
import importlib.util
import inspect
import io
import marshal
import os
import pickle
import re
import secrets
import shlex
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.machinery import PathFinder
from pathlib import Path
from types import CodeType, FunctionType, GetSetDescriptorType, MemberDescriptorType, ModuleType
from typing import Any, final

import numpy as np

from dpaudit.errors import CodeChanged, InvalidInput
from dpaudit.trainings.scoring import as_array
from dpaudit.trainings.shell import CommandTraining

_PLAIN = frozenset({bool, int, float, complex, str, bytes, type(None)})
_GENERATORS = {"numpy.Generator", "numpy.RandomState", "torch.Generator", "random.Random"}
_LARGEST_FILE = 1 << 28  # bytes that are read; of a larger file, its size and date are used


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
    files: Mapping[str, tuple[object, str]] = field(default_factory=dict, compare=False)
    token: str = field(default_factory=lambda: secrets.token_hex(8), compare=False)

    @property
    def value(self) -> str:
        """All parts as one text of 32 digits; different in every process if any is unread."""
        text = [f"{name}={part}" for name, part in sorted(self.parts.items())]
        return _hashed(*text, self.token if self.unread else "")

    @property
    def modules(self) -> tuple[str, ...]:
        """Names of the user's modules."""
        names = (name for name in self.parts if name.startswith(_MODULE))
        return tuple(name.removeprefix(_MODULE) for name in names)

    def differences(self, other: CodeDigest) -> tuple[str, ...]:
        """Names of the parts that differ.

        A module may be in one of them only, since it is imported when it is needed.
        """
        different = []
        for name in {**self.parts, **other.parts}:
            pair = self.parts.get(name), other.parts.get(name)
            not_imported = None in pair and name.startswith(_MODULE)
            if pair[0] != pair[1] and "" not in pair and not not_imported:
                different.append(name)
        return tuple(different)

    def require_here(self, train: Any, **held: Any) -> CodeDigest:
        """The digest of the same training in this process; `CodeChanged` if it differs.

        It is computed once in each process, before the first run: a training may change its values.
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
        edited = [
            file
            for file, (stamp, content) in self.files.items()
            if _stamp(file) != stamp and _file_digest(file) != content
        ]
        if edited:
            raise CodeChanged(
                f"{_listed(edited)} changed while the audit was running, so that its runs may be "
                "of different code; start the audit again"
            )


_MODULE = "module "

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


@final
class _Reader:
    """Reads code and values, following the names in the code of the user's."""

    def __init__(self) -> None:
        self.parts: dict[str, str] = {}
        self.unread: list[str] = []
        self.files: dict[str, tuple[object, str]] = {}
        self._modules: list[str] = []
        self._done: dict[object, object] = {}  # with its values, so that no id is used again

    def hold(self, name: str, value: Any) -> None:
        """Read a value as the part with this name."""
        try:
            part = self._digest(value)
        except Exception:  # pickle raises whatever the object's own code raises
            self.unread.append(f"{name} ({type(value).__name__})")
            part = ""
        self._add(name, part)

    def _add(self, name: str, part: str) -> None:
        if name in self.parts:  # several functions of one name, such as lambdas
            part = _hashed(self.parts[name], part)
        self.parts[name] = part

    def _digest(self, value: Any) -> str:
        """The digest of a pickle with references to code in place of code."""
        stream = io.BytesIO()
        pickler = pickle.Pickler(stream, protocol=4)
        # Without a memo: which equal texts are one object differs from process to process.
        pickler.fast = True
        pickler.persistent_id = self._reference  # type: ignore[method-assign]
        pickler.dump(value)
        return _hashed(stream.getvalue())

    def _reference(self, value: Any) -> str | None:
        """What stands for a value in a pickle; `None` where pickle itself reads it."""
        kind = type(value)
        if kind in _PLAIN:
            return None
        if isinstance(value, FunctionType):
            return self._function(value)
        if isinstance(value, type):
            return self._class(value)
        if issubclass(kind, ModuleType):
            return self._module(value)
        if isinstance(value, set | frozenset):  # their order differs from process to process
            return f"set {sorted(map(self._digest, value))}"
        if isinstance(value, CodeType):
            return _code_digest(value)
        generator = f"{kind.__module__.partition('.')[0]}.{kind.__name__}"
        if generator in _GENERATORS or isinstance(value, os._Environ):
            return generator  # its state changes as the training runs
        if hasattr(value, "shape") and hasattr(value, "dtype"):  # an array of any framework
            with contextlib.suppress(InvalidInput):
                array = value if isinstance(value, np.ndarray) else as_array(value)
                if not array.dtype.hasobject:
                    return f"{value.dtype} {tuple(value.shape)} {_hashed(array.tobytes())}"
        wrapped = getattr(value, "__wrapped__", None)  # such as functools.cache and jax.jit
        if isinstance(wrapped, FunctionType):
            return f"{kind.__name__} of {self._function(wrapped)}"
        return None

    def _module(self, module: object) -> str:
        self._modules.append(_plain_name(str(_attribute(module, "__name__"))))
        return f"{_MODULE}{self._modules[-1]}"

    def _function(self, function: FunctionType) -> str:
        code, module = function.__code__, _plain_name(function.__module__ or "")
        key = f"{module}.{function.__qualname__}"
        if id(function) in self._done:
            return key
        self._done[id(function)] = function
        cells = zip(code.co_freevars, map(_content, function.__closure__ or ()), strict=False)
        file = code.co_filename
        if not (is_users(file) if Path(file).is_file() else _is_users_name(function.__module__)):
            # Made by a library, such as a decorated function of the user's or an optax transform.
            for value in (inspect.unwrap(function), *(value for _, value in cells)):
                with contextlib.suppress(Exception):  # pickle raises anything
                    key += " of " + self._digest(value)
            return key
        self._modules.append(module)
        # pytest changes the code of test modules when it imports them, and workers do not.
        loader = type(function.__globals__.get("__loader__")).__module__
        self._add(key, "" if loader.startswith("_pytest") else _code_digest(code))
        for name, value in cells:
            self.hold(f"{name} in {key}", value)
        if function.__defaults__ or function.__kwdefaults__:
            self.hold(f"defaults of {key}", [function.__defaults__, function.__kwdefaults__])
        for name, value in vars(function).items():
            if not name.startswith("__"):
                self.hold(f"{key}.{name}", value)
        self._globals(function.__globals__, module, _names(code))
        return key

    def _globals(self, values: Mapping[str, Any], module: str, names: tuple[str, ...]) -> None:
        """The globals of a module that code names, and those of modules that it names."""
        for name in names:
            value = values.get(name)
            is_module = issubclass(type(value), ModuleType)
            once = (id(value), names) if is_module else (id(values), name)
            if name not in values or name.startswith("__") or once in self._done:
                continue
            self._done[once] = values
            if not is_module:
                self.hold(f"{module}.{name}", value)
            elif is_users(_attribute(value, "__file__")):
                place = self._module(value).removeprefix(_MODULE)
                self._globals(vars(value), place, names)

    def _class(self, kind: type) -> str:
        module = _plain_name(kind.__module__)
        key = f"{module}.{kind.__qualname__}"
        if not _is_users_name(kind.__module__) or id(kind) in self._done:
            return key
        self._done[id(kind)] = kind
        self._modules.append(module)
        self._add(key, _hashed(*(self._class(base) for base in kind.__mro__[1:])))
        for name, value in list(vars(kind).items()):
            inner = [value]
            if isinstance(value, staticmethod | classmethod | property | functools.cached_property):
                places = ("__func__", "fget", "fset", "fdel", "func")
                inner = [getattr(value, place, None) for place in places]
            functions = [value for value in inner if isinstance(value, FunctionType)]
            for function in functions:
                self._function(function)
            hidden = isinstance(value, GetSetDescriptorType | MemberDescriptorType)
            if not (functions or hidden or name.startswith(("__", "_abc_"))):
                self.hold(f"{key}.{name}", value)
        return key

    def read_modules(self) -> None:
        """The modules that were noted, and those that they import, loaded or not."""
        waiting, done = self._modules, {""}
        while waiting:
            name = waiting.pop()
            file = None if name in done else _file_of(name)
            done.add(name)
            if file is None or not Path(file).is_file() or not is_users(file):
                continue
            self._read_file(f"{_MODULE}{name}", file)
            package = name if Path(file).stem == "__init__" else name.rpartition(".")[0]
            waiting += [name.rpartition(".")[0], *_imports(file, package)]
            for value in list(vars(sys.modules.get(_loaded_name(name), object)).values()):
                if issubclass(type(value), ModuleType):
                    self._module(value)

    def read_program(self, program: CommandTraining) -> None:
        """The files that a command names. What it does with them cannot be read."""
        self.unread.append(f"the program {program.arguments[0]}")
        for argument in program.arguments:
            words = {argument}
            with contextlib.suppress(ValueError):  # an open quotation mark
                words |= set(shlex.split(argument))
            for word in sorted(words):
                with contextlib.suppress(OSError, ValueError):
                    if Path(word).is_file():
                        self._read_file(f"file {word}", word)

    def _read_file(self, name: str, file: str) -> None:
        place = str(Path(file).absolute())
        self.files[place] = _stamp(place), _file_digest(place)
        self.parts[name] = self.files[place][1]


# Bytecode and files.


def _hashed(*parts: str | bytes) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(part if isinstance(part, bytes) else part.encode("utf8", "replace") + b"\0")
    return digest.hexdigest()


_OF_CODE = (
    "code",
    "exceptiontable",
    "flags",
    "consts",
    "names",
    "varnames",
    "freevars",
    "cellvars",
)
_OF_ARGUMENTS = ("argcount", "posonlyargcount", "kwonlyargcount")


def _code_digest(value: Any) -> str:
    """The bytecode of a function or a module, without names of files and numbers of lines.

    Of its constants, what distinguishes them from others.
    """
    if isinstance(value, CodeType):
        names = _OF_CODE + _OF_ARGUMENTS
        return _hashed(*(_code_digest(getattr(value, f"co_{name}")) for name in names))
    if isinstance(value, tuple | frozenset):
        texts = [_code_digest(member) for member in value]
        return f"tuple {texts}" if isinstance(value, tuple) else f"set {sorted(texts)}"
    return repr(value)


def _names(code: CodeType) -> tuple[str, ...]:
    """The names in a function and in the functions inside it."""
    inner = (_names(constant) for constant in code.co_consts if isinstance(constant, CodeType))
    return tuple(dict.fromkeys([*code.co_names, *(name for names in inner for name in names)]))


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a name that is bound later
        return None


def _imports(file: str, package: str) -> Iterator[str]:
    """The modules that a source file imports anywhere, with what it may import out of packages."""
    try:
        nodes = list(ast.walk(ast.parse(Path(file).read_bytes())))
    except (OSError, ValueError, SyntaxError, RecursionError):  # compiled, or gone
        return
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            with contextlib.suppress(ImportError):  # beyond the outermost package
                base = "." * node.level + (node.module or "")
                base = importlib.util.resolve_name(base, package)
                yield from (base, *(f"{base}.{alias.name}" for alias in node.names))


def _stamp(file: str) -> object:
    try:
        status = os.stat(file)  # noqa: PTH116 - called after every run
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _file_digest(file: str) -> str:
    """The digest of a file: of its code if it is Python, else of its bytes."""
    place = Path(file)
    try:
        if place.stat().st_size > _LARGEST_FILE:
            return _hashed(repr(_stamp(file)))
        content = place.read_bytes()
    except OSError:
        return "gone"
    with contextlib.suppress(ValueError, SyntaxError, EOFError, TypeError, RecursionError):
        if place.suffix == ".py":
            return _code_digest(compile(content, "", "exec", dont_inherit=True))
        if place.suffix == ".pyc":
            return _code_digest(marshal.loads(content[16:]))
    return _hashed(content)


# Whether a module is the user's.


@functools.lru_cache(maxsize=4096)
def is_users(file: str | None) -> bool:
    """Whether a file is the user's: not of Python, an installed package or dpaudit."""
    if file is None:  # of a module without a file
        return False
    place = Path(file).resolve()
    installed = {"site-packages", "dist-packages"} & set(place.parts)
    own = Path(__file__).resolve().parents[1], Path(sysconfig.get_path("stdlib")).resolve()
    if installed or any(folder in place.parents for folder in own):
        return False
    for folder in {Path(entry).resolve() for entry in sys.path} & set(place.parents):
        if place.relative_to(folder).parts[0].partition(".")[0] in _installed_in(folder):
            return False
    return True


@functools.lru_cache(maxsize=64)
def _installed_in(folder: Path) -> frozenset[str]:
    """The modules of the packages that were installed into a folder, such as by ``--target``."""
    names = set()
    for record in folder.glob("*.dist-info/RECORD"):
        with contextlib.suppress(OSError):
            lines = record.read_text(encoding="utf8", errors="replace").splitlines()
            names |= {re.split(r"[/,.]", line, maxsplit=1)[0] for line in lines}
    return frozenset(names - {""})


def _is_users_name(name: str | None) -> bool:
    """Whether a module is the user's, by its name.

    ``__main__`` is, also where it has no file (a notebook, standard input), and in a job, whose own
    ``__main__`` is another one.
    """
    module = sys.modules.get(name or "")
    main = _plain_name(name or "") == "__main__"
    return main or module is None or is_users(_attribute(module, "__file__"))


def _attribute(module: object, name: str) -> Any:
    """An attribute of a module; `None` where reading it raises, as modules may."""
    try:
        return getattr(module, name, None)
    except Exception:  # the module's own code
        return None


def _plain_name(module: str) -> str:
    """The name of a module; a worker has the script under another one."""
    return "__main__" if module == "__mp_main__" else module


def _loaded_name(name: str) -> str:
    return "__mp_main__" if name == "__main__" and "__mp_main__" in sys.modules else name


def _file_of(name: str) -> str | None:
    """The file of a module, without importing it or its packages; `None` if it has none."""
    module = sys.modules.get(_loaded_name(name))
    if module is not None:
        file = _attribute(module, "__file__")
        return file if isinstance(file, str) else None
    top, *inner = name.split(".")
    if top in sys.stdlib_module_names:
        return None
    try:
        spec = importlib.util.find_spec(top)
        for part in inner:
            places = spec and spec.submodule_search_locations
            spec = PathFinder.find_spec(f"{spec.name}.{part}", places) if spec and places else None
    except Exception:  # finders of other packages may raise anything
        return None
    return spec.origin if spec is not None and spec.has_location else None
